"""A pointer chase: how long a load takes that must wait for the one before it, by the size of what is walked.

The lines of a buffer are linked into one cycle by a linear congruential generator. Where a walk of n hops must end is
computed apart from it, so that every slice is proved to have taken its hops.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from contextlib import suppress

from amdcheck.host.processes import leave_no_core
from amdcheck.selftest.buffer import Buffer, Pages
from amdcheck.selftest.isolate import Record
from amdcheck.selftest.library import Library
from amdcheck.selftest.reading import pin, read
from amdcheck.selftest.room import needed

LINE = 64
MEMORY = 64 << 20
MOST_MEMORY = {"standard": 128 << 20, "deep": 512 << 20}
LEAST_MEMORY = 16 << 20
# The lines that are walked first were linked first, and so are the first that a full cache gives up: what is walked
# need not be much larger than the cache.
BEYOND_CACHE = 1.1
MANY_HOPS = 32768  # where a hop takes a nanosecond or two
FEW_HOPS = 4096  # from memory: half a millisecond
BUDGET_S = 0.003
MULTIPLIER, INCREMENT = 1664525, 1013904223  # of amdcheck_chase_link


def judge(library: Library, cpu: int, caches_kib: tuple[int | None, int | None, int | None], level: str) -> Record:
    """The latency of each size, on huge pages and for the largest on small ones; then links that are laid wrong.

    `caches_kib`: the first level's data cache, the second level, and the slice of the third, each None if unknown.
    Raises MemoryError.
    """
    pin(cpu)
    l1, l2, l3 = (None if size is None else size << 10 for size in caches_kib)
    wanted = min(max(MEMORY, _up(int(BEYOND_CACHE * (l3 or 0)))), MOST_MEMORY[level])
    most = _down(needed(wanted, least=LEAST_MEMORY))
    huge = _Walk(library, most, "huge")
    points = [huge.point(size, small_below=l2 or 0) for size in sizes(l1, l2, l3, most, level)]
    huge_kib = _huge_kib(huge.buffer)
    del huge  # there is room for one
    control = _planted(library)
    small = _Walk(library, most, "small")
    every = sizes(l1, l2, l3, most, level) if level == "deep" else (most,)
    points += [small.point(size, small_below=l2 or 0) for size in every]
    return {
        "cpu": cpu,
        "points": points,
        "memory_kib": most >> 10,
        "wanted_kib": wanted >> 10,
        "huge_kib": huge_kib,
        "allowed_huge": _allowed_huge(),
        **control,
    }


def sizes(l1: int | None, l2: int | None, l3: int | None, most: int, level: str) -> tuple[int, ...]:
    """The sizes in bytes to walk, each a power of two: within each cache, all that only the third holds, and memory.

    At level deep every power of two.
    """
    if level == "deep":
        return tuple(1 << power for power in range(12, most.bit_length()))
    inside = [_down(cache // 2) for cache in (l1, l2) if cache]
    if l2 and l3:
        inside += [1 << power for power in range((2 * l2).bit_length() - 1, l3.bit_length())]
    return tuple(sorted({*(size for size in inside if 8 * LINE <= size < most), most}))


class _Walk:
    def __init__(self, library: Library, most: int, pages: Pages) -> None:
        self._library = library
        self._pages = pages
        self.buffer = Buffer(most, pages=pages)

    def point(self, size: int, *, small_below: int) -> Record:
        """One size: seconds of a walk of `hops`, and how many walks did not end where they must."""
        lines = size // LINE
        hops = MANY_HOPS if size <= small_below else FEW_HOPS
        base = self.buffer.address
        self._library.chase_link(base, lines)
        line, lost = 0, 0

        def walk() -> float:
            nonlocal line, lost
            took, position = self._library.time_chase(base + LINE * line, hops)
            line = after(line, hops, lines)
            lost += position != base + LINE * line
            return took

        reading = read(walk, pace=self._library.pace, budget_s=BUDGET_S)
        return {"bytes": size, "pages": self._pages, "hops": hops, "lost": lost, "reading": reading}


def after(line: int, hops: int, lines: int) -> int:
    """The line that is `hops` hops behind a line: the affine step, composed with itself by squaring."""
    multiplier, increment = MULTIPLIER, INCREMENT
    while hops:
        if hops & 1:
            line = (line * multiplier + increment) % lines
        increment = (multiplier + 1) * increment % lines
        multiplier = multiplier * multiplier % lines
        hops >>= 1
    return line


def _planted(library: Library) -> Record:
    """Cycles that are linked short, in several places: the walk must end elsewhere, and one link be told as wrong."""
    lines = 4096
    buffer = Buffer(lines * LINE)
    base = buffer.address
    planted = noticed = 0
    for length in (1, 37, lines // 2 + 1):  # odd, so that a walk of all lines does not end at the start by chance
        library.chase_link(base, lines)
        last = base + LINE * after(0, length - 1, lines)
        ctypes.c_void_p.from_address(last).value = base
        _, position = library.time_chase(base, lines)
        planted += 1
        # The cycle of one line ends where the whole one does: only the links tell it.
        noticed += library.chase_differences(base, lines) == 1 and (position != base or length == 1)
    library.chase_link(base, lines)
    _, position = library.time_chase(base, lines)
    whole = position == base and library.chase_differences(base, lines) == 0
    return {"planted": planted, "noticed": noticed if whole else 0}


def _huge_kib(buffer: Buffer) -> int | None:
    """How much of the buffer lies on transparent huge pages, by this process's smaps; None where it is not shown."""
    libc = ctypes.CDLL(None)
    libc.prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: without it /proc/self is root's
    try:
        with open("/proc/self/smaps", encoding="ascii", errors="replace") as smaps:
            return huge_kib(smaps.read().splitlines(), buffer.address, buffer.size)
    except OSError:
        return None
    finally:
        leave_no_core()


def huge_kib(smaps: Sequence[str], address: int, size: int) -> int | None:
    """AnonHugePages of the mappings between address and address + size, in KiB."""
    inside, total = False, None
    for line in smaps:
        first, *rest = line.split()
        start, dash, end = first.partition("-")
        if dash and not first.endswith(":"):
            inside = int(start, 16) < address + size and int(end, 16) > address
        elif inside and first == "AnonHugePages:":
            total = (total or 0) + int(rest[0])
    return total


def _allowed_huge() -> bool | None:
    """False where this process was forbidden huge pages, by prctl in what started it; None where nobody says."""
    with suppress(OSError, ValueError), open("/proc/self/status", encoding="ascii", errors="replace") as status:
        for line in status:
            if line.startswith("THP_enabled:"):
                return int(line.split()[1]) == 1
    return None


def _down(size: int) -> int:
    """The largest power of two that is not larger."""
    return 1 << (size.bit_length() - 1)


def _up(size: int) -> int:
    """The smallest power of two that is not smaller."""
    return 1 << max(0, size - 1).bit_length()
