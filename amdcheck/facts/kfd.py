"""The KFD topology: compute nodes as the amdkfd driver lists them, with memory banks, caches and links.

/sys/class/kfd/kfd/topology holds generation_id and nodes/N/{gpu_id,name,properties}, and below each node
mem_banks, io_links and p2p_links whose entries are folders with one `properties` file: "name value" lines, decimal
and unsigned up to 64 bits. Names come and go with kernels: a missing one is normal, an unknown one is passed over.
In a container whose device cgroup hides a GPU, every file of its node answers EPERM, as do links that lead to it.
Reading the topology opens no device and wakes no GPU.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from amdcheck.facts.registry import fact
from amdcheck.facts.text import unsigned
from amdcheck.host.protocol import Host
from amdcheck.knowledge.kfd import kfd_table
from amdcheck.model.value import Known, Unknown, Value

TOPOLOGY = "/sys/class/kfd/kfd/topology"
LINK_XGMI = 11

_PROPERTY = re.compile(r"^([A-Za-z_][A-Za-z0-9_]{0,63}) (\d{1,20})$", re.ASCII | re.MULTILINE)
_ID = re.compile(r"\d{1,5}", re.ASCII)
_LIMIT = 16384  # bytes of one properties file; real ones stay below 1 KiB
_IDS_LIMIT = 1024  # nodes, or links or memory banks of one; eight GPUs in eight partitions are 64 nodes
_U64 = 1 << 64


class KfdLink(Struct, frozen=True, kw_only=True):
    """An io_link or p2p_link. `type` is the CRAT number: 2 PCIe, 11 xGMI, 1 and 5 between CPUs."""

    kind: str  # io or p2p
    index: int
    node_from: int
    node_to: int
    type: int
    weight: int
    min_bandwidth: int  # MB/s, nominal
    max_bandwidth: int


class KfdNode(Struct, frozen=True, kw_only=True):
    """One node; a GPU in a partition mode shows as several nodes of one device."""

    id: int
    gpu_id: Value[int]
    name: Value[str]
    properties: Value[dict[str, int]]
    memory_bytes: Value[int]  # public frame buffer (heap types 1 and 2) of a GPU, system memory of a CPU node
    links: tuple[KfdLink, ...]
    links_read: Value[int]  # how many io_links were read; unknown when their folder or one of them could not be
    link_faults: tuple[str, ...]  # what in the node and its links contradicts itself, in words
    copy_of: int | None  # the node whose identity this one repeats: it is no GPU of its own
    hidden: bool  # every file answers EPERM: the device cgroup hides this GPU

    @property
    def is_gpu(self) -> bool:
        return self._property("simd_count") not in (None, 0)

    @property
    def gfx(self) -> str | None:
        """The target as compilers name it (gfx90a, gfx942), None on kernels that do not say."""
        version = self._property("gfx_target_version")
        return gfx_name(version) if version else None

    @property
    def location(self) -> tuple[int, int, int, int] | None:
        """Domain, bus, device and function or partition number, as location_id has them; None for a CPU node.

        In a partition mode older drivers put the partition's number into the function's three bits, newer ones
        into bits 28 to 31 and leave the function alone.
        """
        where = self._property("location_id")
        if not self.is_gpu or where is None:
            return None
        return (self._property("domain") or 0, where >> 8 & 0xFF, where >> 3 & 0x1F, where & 7)

    @property
    def compute_units(self) -> int | None:
        simds, per_cu = self._property("simd_count"), self._property("simd_per_cu")
        return simds // per_cu if simds and per_cu else None

    def _property(self, name: str) -> int | None:
        known = self.properties.or_none()
        return known.get(name) if known is not None else None


@fact
class Kfd(Struct, frozen=True, kw_only=True):
    """`generation` moved between two readings means that the topology changed while it was read: read again."""

    generation: Value[int]
    listing: Value[tuple[int, ...]]  # node ids
    nodes: tuple[KfdNode, ...]

    @classmethod
    def read(cls, host: Host) -> Kfd:
        for _ in range(2):
            before = _generation(host)
            listing, nodes = _nodes(host)
            after = _generation(host)
            if before.or_none() == after.or_none():
                return cls(generation=after, listing=listing, nodes=nodes)
        moved = Unknown("failed", f"{TOPOLOGY}/generation_id", "the topology kept changing while it was read")
        return cls(generation=moved, listing=listing, nodes=nodes)

    @property
    def gpu_nodes(self) -> tuple[KfdNode, ...]:
        """Nodes that are GPUs or partitions of one; copies are none."""
        return tuple(node for node in self.nodes if node.is_gpu and node.copy_of is None)

    @property
    def unread(self) -> tuple[Unknown, ...]:
        """Nodes that may be GPUs: their properties could not be read, and no device cgroup hides them."""
        values = (node.properties for node in self.nodes if not node.hidden)
        return tuple(value for value in values if isinstance(value, Unknown))

    @property
    def hidden(self) -> int:
        """How many nodes the device cgroup hides."""
        return sum(node.hidden for node in self.nodes)


def gfx_name(version: int) -> str:
    """gfx_target_version (decimal MMmmss) as compilers write it; the stepping is hexadecimal: 90010 is gfx90a."""
    return f"gfx{version // 10000}{version // 100 % 100}{version % 100:x}"


def parse_properties(text: str) -> dict[str, int]:
    """The "name value" lines with an unsigned number of at most 64 bits; other lines are passed over.

    Raises ValueError when there is no such line at all.
    """
    found = {name: value for name, digits in _PROPERTY.findall(text) if (value := int(digits)) < _U64}
    if not found:
        raise ValueError(f"no 'name value' line in {text[:60]!r}")
    return found


def _generation(host: Host) -> Value[int]:
    return host.read(f"{TOPOLOGY}/generation_id", limit=64).parse(unsigned)


def _ids(names: Iterable[str]) -> tuple[int, ...]:
    """The numbers of a folder's entries, all of them: a cut list would look like GPUs or links that are gone.

    Raises ValueError when there are more than can be read.
    """
    ids = tuple(sorted(int(name) for name in names if _ID.fullmatch(name)))
    if len(ids) > _IDS_LIMIT:
        raise ValueError(f"more than {_IDS_LIMIT} entries")
    return ids


def _nodes(host: Host) -> tuple[Value[tuple[int, ...]], tuple[KfdNode, ...]]:
    listing = host.entries(f"{TOPOLOGY}/nodes").parse(_ids)
    ids = listing.or_none() or ()
    nodes = [_node(host, number, frozenset(ids)) for number in ids]
    return listing, tuple(_without_copies(nodes))


def _node(host: Host, number: int, ids: frozenset[int]) -> KfdNode:
    folder = f"{TOPOLOGY}/nodes/{number}"
    properties = host.read(f"{folder}/properties", limit=_LIMIT).parse(parse_properties)
    gpu_id = host.read(f"{folder}/gpu_id", limit=64).parse(unsigned)
    hidden = isinstance(properties, Unknown) and properties.reason == "denied" and isinstance(gpu_id, Unknown)
    if hidden:
        denied = properties if isinstance(properties, Unknown) else Unknown("denied", folder)
        return KfdNode(
            id=number, gpu_id=gpu_id, name=denied, properties=properties, memory_bytes=denied, links=(),
            links_read=denied, link_faults=(), copy_of=None, hidden=True,
        )  # fmt: skip
    io_links, links_read = _links(host, folder, "io")
    links = (*io_links, *_links(host, folder, "p2p")[0])
    return KfdNode(
        id=number,
        gpu_id=gpu_id,
        name=host.read(f"{folder}/name", limit=256).parse(str.strip),
        properties=properties,
        memory_bytes=_memory(host, folder, properties),
        links=links,
        links_read=links_read,
        link_faults=tuple(_contradictions(number, links, ids)),
        copy_of=None,
        hidden=False,
    )


def _links(host: Host, folder: str, kind: str) -> tuple[tuple[KfdLink, ...], Value[int]]:
    """The links of a node. A link to a hidden GPU answers EPERM and is passed over: nothing is wrong with it."""
    listing = host.entries(f"{folder}/{kind}_links").parse(_ids)
    if isinstance(listing, Unknown):
        return (), listing
    links = []
    unread: Unknown | None = None
    for index in listing.value:
        read = host.read(f"{folder}/{kind}_links/{index}/properties", limit=_LIMIT).parse(parse_properties)
        if isinstance(read, Known):
            links.append(_link(kind, index, read.value))
        elif read.reason != "denied":
            unread = read
    return tuple(links), unread or Known(len(links), listing.source)


def _link(kind: str, index: int, values: dict[str, int]) -> KfdLink:
    return KfdLink(
        kind=kind,
        index=index,
        node_from=values.get("node_from", -1),
        node_to=values.get("node_to", -1),
        type=values.get("type", 0),
        weight=values.get("weight", 0),
        min_bandwidth=values.get("min_bandwidth", 0),
        max_bandwidth=values.get("max_bandwidth", 0),
    )


def _contradictions(number: int, links: Iterable[KfdLink], ids: frozenset[int]) -> Iterable[str]:
    for link in links:
        name = f"{link.kind}_links/{link.index} of node {number}"
        if link.node_from != number:
            yield f"{name} says that it starts at node {link.node_from}"
        if link.node_to == number:
            yield f"{name} leads back to the node itself"
        elif link.node_to not in ids:
            yield f"{name} leads to node {link.node_to}, which does not exist"


def _memory(host: Host, folder: str, properties: Value[dict[str, int]]) -> Value[int]:
    """The sum of the memory banks that count; old kernels without banks say it in local_mem_size."""
    values = properties.or_none() or {}
    heaps = kfd_table().heap.gpu if values.get("simd_count") else kfd_table().heap.cpu
    banks = host.entries(f"{folder}/mem_banks").parse(_ids)
    if isinstance(banks, Unknown):
        local = values.get("local_mem_size", 0)
        return Known(local, f"{folder}/properties") if local else banks
    total = 0
    for index in banks.value:
        bank = host.read(f"{folder}/mem_banks/{index}/properties", limit=_LIMIT).parse(parse_properties)
        if isinstance(bank, Unknown):
            return bank
        if bank.value.get("heap_type") in heaps:
            total += bank.value.get("size_in_bytes", 0)
    return Known(total, banks.source)


def _without_copies(nodes: list[KfdNode]) -> Iterable[KfdNode]:
    """Mark the nodes that repeat an earlier one. The driver gives no two nodes the same gpu_id (recordings without it:
    no two the same address and render minor; partitions of a device differ in both)."""
    first: dict[tuple[str, ...], int] = {}
    for node in nodes:
        identity = _identity(node)
        original = first.setdefault(identity, node.id) if identity else node.id
        if original == node.id:
            yield node
        else:
            fault = f"node {node.id} repeats {' '.join(identity)} of node {original}"
            yield replace(node, copy_of=original, link_faults=(fault, *node.link_faults))


def _identity(node: KfdNode) -> tuple[str, ...]:
    if not node.is_gpu:
        return ()
    if isinstance(node.gpu_id, Known):
        return ("gpu_id", str(node.gpu_id.value)) if node.gpu_id.value else ()
    values = node.properties.or_none() or {}
    if not {"location_id", "drm_render_minor"} <= values.keys():
        return ()
    return (
        f"location_id {values['location_id']}",
        f"drm_render_minor {values['drm_render_minor']}",
        f"domain {values.get('domain', 0)}",
    )
