"""The numbers of selftests.toml, unchecked: amdcheck.knowledge.selftests has what they mean and where they are from."""

from __future__ import annotations

import functools
from typing import Any

from amdcheck.knowledge.raw import read_toml


@functools.cache
def _rows() -> dict[str, dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = read_toml("selftests")["limit"]
    return rows


def limit_value(name: str) -> float:
    """The value of the row of that name; KeyError for a name that the table does not have."""
    return float(_rows()[name]["value"])
