"""Host settings and what is right for whom. Table settings.toml."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from msgspec import Struct

from amdcheck.knowledge.tables import Row, load


class NumaBalancing(Row, frozen=True, kw_only=True):
    """The bits of kernel.numa_balancing, and the value that suits inference."""

    balancing_bit: int
    tiering_bit: int
    good: int


class NodesPerSocket(Row, frozen=True, kw_only=True):
    """The NPS values that suit a host with GPUs of these targets, and why."""

    gfx: tuple[str, ...]
    good: tuple[int, ...]
    why: str


class _Table(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="kebab"):
    numa_balancing: NumaBalancing
    nps: tuple[NodesPerSocket, ...]


@functools.cache
def _table() -> _Table:
    return load("settings", _Table)


def numa_balancing() -> NumaBalancing:
    return _table().numa_balancing


def nodes_per_socket(gfx: Iterable[str]) -> NodesPerSocket | None:
    """The strictest row for a host with GPUs of these targets; None when no row judges any of them."""
    there = set(gfx)
    rows = [row for row in _table().nps if there.intersection(row.gfx)]
    return min(rows, key=lambda row: len(row.good), default=None)
