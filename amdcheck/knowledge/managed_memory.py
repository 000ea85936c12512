"""What managed memory is on a GPU, by its target. Table managed_memory.toml."""

from __future__ import annotations

import functools
from fnmatch import fnmatchcase
from typing import Literal

from msgspec import Struct

from amdcheck.knowledge.tables import Row, load

XnackMode = Literal["per-process", "boot", "retry", "never"]


class Xnack(Row, frozen=True, kw_only=True):
    """How XNACK is chosen on these targets (patterns): by each process, at boot, always on, or never.

    `vf`: also on an SR-IOV virtual function.
    """

    mode: XnackMode
    gfx: tuple[str, ...]
    vf: bool = True


class _Table(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    svm_capability: int
    xnack: tuple[Xnack, ...]


@functools.cache
def _table() -> _Table:
    return load("managed_memory", _Table)


def xnack_of(gfx: str) -> Xnack | None:
    """The row of a target such as gfx942; None for one that is newer than the table."""
    return next((row for row in _table().xnack if any(fnmatchcase(gfx, pattern) for pattern in row.gfx)), None)


def has_svm(capability: int) -> bool:
    """Does a KFD node's `capability` say that its memory takes part in shared virtual memory?"""
    return bool(capability & _table().svm_capability)
