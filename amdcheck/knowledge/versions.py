"""Versions as numbers, for whoever compares them."""

from __future__ import annotations

import re

_NUMBERS = re.compile(r"\d{1,6}(?:\.\d{1,6}){0,2}")


def numbers(version: str) -> tuple[int, ...]:
    """The leading numeric fields of a version, at most three: 3.3.0-abc is (3, 3, 0)."""
    match = _NUMBERS.match(version.strip())
    return tuple(int(field) for field in match[0].split(".")) if match else ()
