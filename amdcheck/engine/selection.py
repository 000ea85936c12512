"""Which checks a request means."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from amdcheck.engine.registry import Check
from amdcheck.model.errors import InputError
from amdcheck.model.expectations import LEVELS, Level


def matching(pattern: str, ids: Iterable[str]) -> list[str]:
    """The check ids that an id or glob means. Raises InputError when there is none."""
    ids = list(ids)
    found = [id for id in ids if fnmatchcase(id, pattern)]
    if not found:
        close = difflib.get_close_matches(pattern.partition("/")[0], ids, 1, 0.5)
        hint = f"; did you mean {close[0]}?" if close else "; `amdcheck list` shows the checks"
        raise InputError(f"{pattern!r} matches no check{hint}")
    return found


def refuse_what_is_above(checks: Mapping[str, Check], patterns: Iterable[str], level: Level) -> None:
    """Raises InputError where all that the patterns match runs at higher levels: nothing would be judged."""
    patterns = list(patterns)
    if patterns and not select(checks, patterns, (), level):
        levels = {checks[id].level for pattern in patterns for id in matching(pattern, checks)}
        told = " and ".join(map(repr, patterns))
        least = min(levels, key=LEVELS.index)
        raise InputError(f"{told}: nothing that is meant runs at level {level}; it takes --level {least}")


def select(
    checks: Mapping[str, Check], patterns: Iterable[str], skip: Iterable[str], level: Level
) -> tuple[Check, ...]:
    """The checks to run, in order.

    Self-tests come last, so that nothing else runs beside them. A check named by its very id runs at any level.
    """
    wanted: set[str] = set()
    for pattern in patterns:
        found = matching(pattern, checks)
        named = pattern in checks
        wanted.update(id for id in found if named or LEVELS.index(checks[id].level) <= LEVELS.index(level))
    for pattern in skip:
        wanted.difference_update(matching(pattern, checks))
    order = sorted(wanted, key=lambda id: (id.startswith("selftest."), id))
    return tuple(checks[id] for id in order)
