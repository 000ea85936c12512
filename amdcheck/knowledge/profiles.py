"""Profiles: which unknowns a kind of machine may have."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from amdcheck.knowledge.tables import Row, load


class Profile(Row, frozen=True, kw_only=True):
    """`advisory` are ids or globs of checks whose unknowns do not count; `require_all` makes denied ones count."""

    require_all: bool
    advisory: tuple[str, ...]


@functools.cache
def profiles() -> Mapping[str, Profile]:
    """Every profile by name."""
    return load("profiles", dict[str, Profile])
