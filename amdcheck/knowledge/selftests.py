"""What measured figures of self-tests are held against. Table selftests.toml."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from msgspec import Struct

from amdcheck.knowledge.tables import Row, load


class Limit(Row, frozen=True, kw_only=True):
    """One number, what it means to be on the wrong side of it, and the checks that hold a figure against it."""

    value: float
    unit: str
    meaning: str
    checks: tuple[str, ...]


class _Table(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: dict[str, Limit]


@functools.cache
def _table() -> _Table:
    return load("selftests", _Table)


def limit(name: str) -> Limit:
    """The row of that name; KeyError for a name that the table does not have."""
    return _table().limit[name]


def limits() -> Mapping[str, Limit]:
    """All rows by name."""
    return _table().limit
