"""NUMA nodes: which there are, their CPUs, memory and distances. Ids may be sparse, nodes may lack CPUs or memory."""

from __future__ import annotations

from msgspec import Struct

from amdcheck.facts.registry import fact
from amdcheck.host.protocol import Host
from amdcheck.model.value import Value


class NumaNode(Struct, frozen=True, kw_only=True):
    """One node. `distances` is positional over the online nodes in ascending order, as the kernel prints it."""

    id: int
    cpus: Value[tuple[int, ...]]
    memory_kib: Value[int]  # MemTotal of the node
    distances: Value[tuple[int, ...]]


@fact
class Numa(Struct, frozen=True, kw_only=True):
    online: Value[tuple[int, ...]]
    possible: Value[tuple[int, ...]]
    nodes: tuple[NumaNode, ...]  # ascending by id; those whose folder is there
    missing: tuple[int, ...]  # said to be online, but no folder

    @classmethod
    def read(cls, host: Host) -> Numa:
        raise NotImplementedError
