"""What the numbers of the KFD topology mean."""

from __future__ import annotations

import functools

from msgspec import Struct

from amdcheck.knowledge.tables import Row, load


class LinkType(Row, frozen=True, kw_only=True):
    """A CRAT link type."""

    number: int
    name: str


class Weight(Row, frozen=True, kw_only=True):
    """What the driver adds to a link's weight for one xGMI hop."""

    xgmi_hop: int


class Heap(Row, frozen=True, kw_only=True):
    """Heap types of memory banks that are a GPU's own memory, and a CPU node's."""

    gpu: tuple[int, ...]
    cpu: tuple[int, ...]


class PartitionMode(Row, frozen=True, kw_only=True):
    """How many nodes a device shows in this mode."""

    name: str
    nodes: int


class KfdTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    link_type: tuple[LinkType, ...]
    weight: Weight
    heap: Heap
    partition_mode: tuple[PartitionMode, ...]

    def link_name(self, number: int) -> str:
        """The link type as the field names it."""
        return next((row.name for row in self.link_type if row.number == number), f"type {number}")

    def partitions(self, mode: str, *, xcds: int | None) -> int | None:
        """How many nodes a device shows in this compute partition mode; None when that is not known."""
        if mode == "CPX":
            return xcds
        return next((row.nodes for row in self.partition_mode if row.name == mode), None)


@functools.cache
def kfd_table() -> KfdTable:
    """The whole table."""
    return load("kfd", KfdTable)
