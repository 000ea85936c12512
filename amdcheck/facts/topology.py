"""How the GPUs are linked with each other: the KFD's links between nodes, put together by device."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from msgspec import Struct

from amdcheck.facts.gpus import Gpu, Gpus
from amdcheck.facts.kfd import LINK_XGMI, Kfd, KfdLink, KfdNode
from amdcheck.facts.registry import fact
from amdcheck.host.protocol import Host
from amdcheck.knowledge.gpus import GpuProduct
from amdcheck.knowledge.kfd import kfd_table
from amdcheck.model.finding import Subject
from amdcheck.model.value import Unknown


class Pair(Struct, frozen=True, kw_only=True):
    """Two devices. A partitioned device has many nodes; `links` counts the pairs of nodes between the two."""

    a: str  # BDFs, in order
    b: str
    links: int
    xgmi: int  # how many of them are xGMI
    weight: int | None  # the one weight of an xGMI pair of unpartitioned devices

    @property
    def subject(self) -> Subject:
        return Subject(kind="link", id=f"{self.a}-{self.b}")


class OneWay(Struct, frozen=True, kw_only=True):
    """A link that its other end does not know, or knows as another type."""

    node_from: int
    node_to: int
    device_from: str
    device_to: str
    type: str
    back: str | None  # the type in the other direction, None: there is no such link

    @property
    def subject(self) -> Subject:
        return Subject(kind="link", id=f"{self.device_from}-{self.device_to}")


@fact
class Topology(Struct, frozen=True, kw_only=True):
    """`hives` maps each xGMI hive to its devices; devices without one are in none. `unread` are the devices of which
    some link could not be read, and why."""

    pairs: tuple[Pair, ...]
    one_way: tuple[OneWay, ...]
    hives: dict[str, tuple[str, ...]]
    unread: dict[str, Unknown]

    @classmethod
    def read(cls, host: Host, gpus: Gpus, kfd: Kfd) -> Topology:
        nodes = {node.id: node for node in kfd.nodes if node.copy_of is None and not node.hidden}
        links = {
            (link.node_from, link.node_to): link for node in nodes.values() for link in node.links if _sound(link, node)
        }
        owner = {partition.kfd_node: gpu.bdf for gpu in gpus.devices for partition in gpu.partitions}
        hives: dict[str, list[str]] = {}
        for gpu in gpus.devices:
            hive = gpu.hive_id.or_none()
            if hive and gpu.partitions:
                hives.setdefault(hive, []).append(gpu.bdf)
        return cls(
            pairs=tuple(_pair(a, b, links) for a, b in combinations(_with_nodes(gpus), 2)),
            one_way=tuple(_one_way(nodes, links, owner)),
            hives={hive: tuple(members) for hive, members in hives.items()},
            unread={
                owner[node.id]: node.links_read
                for node in nodes.values()
                if node.id in owner and isinstance(node.links_read, Unknown)
            },
        )

    def hive_of(self, bdf: str) -> str | None:
        return next((hive for hive, members in self.hives.items() if bdf in members), None)


def boards(gpus: Gpus, links: Topology) -> Iterator[tuple[GpuProduct, dict[str, str | None]]]:
    """Each product whose board wires all its devices into one hive: its row, and the hive of every device."""
    found: dict[str, tuple[GpuProduct, dict[str, str | None]]] = {}
    for gpu in _with_nodes(gpus):
        if gpu.row is not None and gpu.row.hive == "board":
            found.setdefault(gpu.row.name, (gpu.row, {}))[1][gpu.bdf] = links.hive_of(gpu.bdf)
    yield from found.values()


def bridged(gpus: Gpus, links: Topology) -> Iterator[dict[str, int]]:
    """For each product that no board wires: how many devices the hive of every device has, 0 without one."""
    found: dict[str | None, dict[str, int]] = {}
    for gpu in _with_nodes(gpus):
        if gpu.row is None or gpu.row.hive != "board":
            size = len(links.hives.get(links.hive_of(gpu.bdf) or "", ()))
            found.setdefault(gpu.device_id.or_none(), {})[gpu.bdf] = size
    yield from found.values()


def _with_nodes(gpus: Gpus) -> list[Gpu]:
    return [gpu for gpu in gpus.devices if gpu.partitions]


def _sound(link: KfdLink, node: KfdNode) -> bool:
    return link.node_from == node.id and link.node_to != node.id


def _pair(a: Gpu, b: Gpu, links: dict[tuple[int, int], KfdLink]) -> Pair:
    found = [links.get((p.kfd_node, q.kfd_node)) for p in a.partitions for q in b.partitions]
    xgmi = [link for link in found if link is not None and link.type == LINK_XGMI]
    whole = len(a.partitions) == len(b.partitions) == 1
    return Pair(a=a.bdf, b=b.bdf, links=len(found), xgmi=len(xgmi), weight=xgmi[0].weight if whole and xgmi else None)


def _one_way(
    nodes: dict[int, KfdNode], links: dict[tuple[int, int], KfdLink], owner: dict[int, str]
) -> Iterator[OneWay]:
    """Links of the driver's own list (p2p_links are left out: not every kernel has them) that do not come back."""
    name = kfd_table().link_name
    for (start, end), link in sorted(links.items()):
        other = nodes.get(end)
        if link.kind != "io" or other is None or isinstance(other.links_read, Unknown):
            continue
        back = links.get((end, start))
        if back is not None and back.kind == "io" and back.type == link.type:
            continue
        if back is not None and back.kind == "io" and start > end:
            continue  # the same disagreement, seen from the other end
        yield OneWay(
            node_from=start,
            node_to=end,
            device_from=owner.get(start, f"node{start}"),
            device_to=owner.get(end, f"node{end}"),
            type=name(link.type),
            back=name(back.type) if back is not None and back.kind == "io" else None,
        )
