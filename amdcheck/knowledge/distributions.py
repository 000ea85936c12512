"""Distributions by their package manager, which decides the command of many a remedy."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Literal

from amdcheck.knowledge.tables import Row, load

Manager = Literal["apt", "dnf", "zypper"]


class Distributions(Row, frozen=True, kw_only=True):
    """Those that share a package manager; `ids` as os-release(5) has them in ID."""

    title: str
    ids: tuple[str, ...]


@functools.cache
def distributions() -> Mapping[Manager, Distributions]:
    """Every row by package manager."""
    return load("distributions", dict[Manager, Distributions])


def manager_of(os_id: str | None) -> Manager | None:
    """The package manager of a distribution; None for one that is not in the table."""
    return next((manager for manager, row in distributions().items() if os_id in row.ids), None)
