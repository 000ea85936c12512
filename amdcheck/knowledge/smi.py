"""How rocm-smi and amd-smi are asked, and which of their numbers mean that they do not know."""

from __future__ import annotations

import functools

from msgspec import Struct

from amdcheck.knowledge.tables import Row, load


class SmiLimits(Row, frozen=True, kw_only=True):
    """Seconds."""

    slow_s: float
    deadline_s: float


class Sentinels(Row, frozen=True, kw_only=True):
    unknown: tuple[int, ...]
    no_numa_node: tuple[int, ...]


class SmiTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limits: SmiLimits
    sentinels: Sentinels


@functools.cache
def table() -> SmiTable:
    return load("smi", SmiTable)
