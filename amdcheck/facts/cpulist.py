"""The kernel's two ways to print a set of numbers: lists (0-5,48-53) and masks (00000000,003f0000). Bounded."""

from __future__ import annotations

import re
from collections.abc import Iterable

from amdcheck.facts.text import stripped

# Far above any kernel's NR_CPUS (8192 today), far below what would hurt: a hostile "0-99999999999" is refused.
ID_LIMIT = 1 << 16

_RANGE = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")
_GROUP = re.compile(r"[0-9a-fA-F]{1,8}")
_GROUPS_LIMIT = ID_LIMIT // 32


def parse_cpulist(text: str) -> tuple[int, ...]:
    """The numbers of a list such as 0-5,48-53, ascending; empty text is the empty set.

    Raises ValueError for anything that the kernel does not print, and for numbers from ID_LIMIT on.
    """
    text = stripped(text)
    numbers: list[int] = []
    for part in text.split(",") if text else ():
        match = _RANGE.fullmatch(part)
        if match is None:
            raise ValueError(f"not a list of numbers: {_excerpt(text)}")
        first = int(match[1])
        last = first if match[2] is None else int(match[2])
        if last < first or last >= ID_LIMIT or len(numbers) + last - first >= ID_LIMIT:
            raise ValueError(f"not a list of numbers below {ID_LIMIT}: {_excerpt(text)}")
        numbers.extend(range(first, last + 1))
    return tuple(sorted(set(numbers)))


def parse_cpumap(text: str) -> tuple[int, ...]:
    """The numbers whose bits are set in a mask: hexadecimal groups of 32 bits, the most significant first.

    Raises ValueError for anything that the kernel does not print, and for more than ID_LIMIT bits.
    """
    text = stripped(text)
    groups = text.split(",")
    if len(groups) > _GROUPS_LIMIT or any(_GROUP.fullmatch(group) is None for group in groups):
        raise ValueError(f"not a mask: {_excerpt(text)}")
    # Only the first group may be shorter than its 8 digits; ARM and small kernels print it so.
    bits = int("".join(group.zfill(8) for group in groups), 16)
    return tuple(number for number, bit in enumerate(reversed(f"{bits:b}")) if bit == "1")


def numbered(names: Iterable[str], prefix: str) -> tuple[int, ...]:
    """The numbers of a folder's entries cpu0, cpu1 ... (prefix "cpu"), ascending."""
    matches = (re.fullmatch(rf"{prefix}([0-9]{{1,5}})", name) for name in names)
    return tuple(sorted(number for match in matches if match and (number := int(match[1])) < ID_LIMIT))


def not_empty(numbers: tuple[int, ...]) -> tuple[int, ...]:
    """The numbers, of which there must be some: no machine is without a CPU or a node. Raises ValueError."""
    if not numbers:
        raise ValueError("nothing is listed")
    return numbers


def format_cpulist(numbers: Iterable[int]) -> str:
    """The numbers as the kernel would print them: 0-5,48-53; the empty set is empty text."""
    ranges: list[list[int]] = []
    for number in sorted(set(numbers)):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def _excerpt(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:60]}…"
