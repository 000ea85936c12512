"""What lines of the kernel log say about GPUs and their bus."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from amdcheck.knowledge.tables import Row, load

LINE_LIMIT = 2048  # characters of a line that are looked at


class LogPattern(Row, frozen=True, kw_only=True):
    """One kind of line; `hints` are substrings of which one must be there before the expression is tried."""

    id: str
    regex: str
    hints: tuple[str, ...]
    severity: Literal["fail", "warn", "info"]
    effect: Literal["none", "gone", "up"]  # on the GPU that the line names
    meaning: str


class KernelLogTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pattern: tuple[LogPattern, ...]


@functools.cache
def _compiled() -> tuple[tuple[LogPattern, re.Pattern[str]], ...]:
    return tuple((row, re.compile(row.regex)) for row in load("kernel_log", KernelLogTable).pattern)


def log_patterns() -> tuple[LogPattern, ...]:
    """Every pattern, in the table's order."""
    return tuple(row for row, _ in _compiled())


def matches(line: str) -> Iterator[LogPattern]:
    """The patterns that a line of the log matches."""
    line = line[:LINE_LIMIT]
    for row, regex in _compiled():
        if any(hint in line for hint in row.hints) and regex.search(line):
            yield row
