"""NUMA nodes: which there are, their CPUs, memory and distances. Ids may be sparse, nodes may lack CPUs or memory."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from msgspec import Struct

from amdcheck.facts.cpulist import ID_LIMIT, not_empty, numbered, parse_cpulist, parse_cpumap
from amdcheck.facts.registry import fact
from amdcheck.facts.text import stripped
from amdcheck.host.protocol import Host
from amdcheck.model.value import Known, Value

FOLDER = "/sys/devices/system/node"
_MEM_TOTAL = re.compile(r"MemTotal:\s*([0-9]{1,15}) kB")
_DISTANCE = re.compile(r"[0-9]{1,3}")


class NumaNode(Struct, frozen=True, kw_only=True):
    """One node. `distances` is positional over the online nodes in ascending order, as the kernel prints it."""

    id: int
    cpus: Value[tuple[int, ...]]
    memory_kib: Value[int]  # MemTotal of the node
    distances: Value[tuple[int, ...]]

    @property
    def path(self) -> str:
        return f"{FOLDER}/node{self.id}"


@fact
class Numa(Struct, frozen=True, kw_only=True):
    online: Value[tuple[int, ...]]
    possible: Value[tuple[int, ...]]
    nodes: tuple[NumaNode, ...]  # ascending by id; those whose folder is there
    missing: tuple[int, ...]  # said to be online, but no folder

    @classmethod
    def read(cls, host: Host) -> Numa:
        folders = host.entries(FOLDER).parse(partial(numbered, prefix="node"))
        listed = host.read(f"{FOLDER}/online").parse(parse_cpulist).parse(not_empty)
        there = folders.value if isinstance(folders, Known) else ()
        online = listed if isinstance(listed, Known) or not there else folders
        named = online.value if isinstance(online, Known) else ()
        return cls(
            online=online,
            possible=host.read(f"{FOLDER}/possible").parse(parse_cpulist),
            nodes=tuple(_node(host, number) for number in there),
            missing=tuple(sorted(set(named).difference(there))),
        )

    @property
    def with_cpus(self) -> tuple[NumaNode, ...]:
        """The nodes that have CPUs; those of CXL memory, HBM or a GPU's memory have none."""
        return tuple(node for node in self.nodes if node.cpus.or_none())

    def columns(self, node: NumaNode) -> tuple[int, ...] | None:
        """The node ids that the numbers in a node's distance row stand for; None where they cannot be placed.

        The kernel prints one number for each online node. Some old kernels print one for each possible node.
        """
        row = node.distances.or_none()
        for ids in (self.online.or_none(), self.possible.or_none()):
            if row is not None and ids is not None and len(ids) == len(row) and node.id in ids:
                return ids
        return None

    def distances(self) -> Iterator[tuple[int, int, int]]:
        """Every distance that can be placed: from node, to node, distance."""
        for node in self.nodes:
            columns = self.columns(node)
            if columns is not None and isinstance(node.distances, Known):
                for other, distance in zip(columns, node.distances.value, strict=True):
                    yield node.id, other, distance


def _node(host: Host, number: int) -> NumaNode:
    folder = f"{FOLDER}/node{number}"
    return NumaNode(
        id=number,
        cpus=_cpus(host, folder),
        memory_kib=host.read(f"{folder}/meminfo").parse(_mem_total),
        distances=host.read(f"{folder}/distance").parse(_distances),
    )


def _cpus(host: Host, folder: str) -> Value[tuple[int, ...]]:
    listed = host.read(f"{folder}/cpulist").parse(parse_cpulist)
    if isinstance(listed, Known):
        return listed
    mask = host.read(f"{folder}/cpumap").parse(parse_cpumap)
    return mask if isinstance(mask, Known) else listed


def _mem_total(text: str) -> int:
    match = _MEM_TOTAL.search(text)
    if match is None:
        raise ValueError("no MemTotal")
    return int(match[1])


def _distances(text: str) -> tuple[int, ...]:
    words = stripped(text).split()
    if not words or len(words) > ID_LIMIT or any(_DISTANCE.fullmatch(word) is None for word in words):
        raise ValueError(f"not distances: {text[:60]!r}")
    return tuple(map(int, words))
