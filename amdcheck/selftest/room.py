"""How much memory a self-test may take: never what the machine, a control group or a NUMA node needs for others."""

from __future__ import annotations

import re
import resource
from contextlib import suppress
from pathlib import Path

from amdcheck.selftest.cgroup import folders

SHARE = 0.25  # of what is available: the rest stays for who serves
_NO_LIMIT = 1 << 60  # version 1 writes some 2^63 where there is no limit
# A control group's limits (beyond memory.high the kernel slows down whoever is in the group), what is used of them, and
# the line of memory.stat that says what the kernel would drop of that.
_VERSIONS = (
    (("memory.max", "memory.high"), "memory.current", "inactive_file"),
    (("memory.limit_in_bytes",), "memory.usage_in_bytes", "total_inactive_file"),
)
_PROC = Path("/proc")
_NODES = Path("/sys/devices/system/node")


def room(*, proc: Path = _PROC) -> int:
    """Bytes that may be taken: a quarter of the least of what the machine, its control groups and limits leave.

    Page cache that the kernel would drop counts as available. 0 where nothing says how much there is.
    """
    machine = _amount(proc / "meminfo", "MemAvailable")
    left = [] if machine is None else [machine]
    left += [here for folder in folders("memory", proc=proc) if (here := _left(folder)) is not None]
    soft = resource.getrlimit(resource.RLIMIT_AS)[0]
    if soft != resource.RLIM_INFINITY:
        used = _amount(proc / "self" / "status", "VmSize") or 0
        left.append(soft - used)
    return max(0, int(SHARE * min(left))) if left else 0


def room_on_node(node: int, *, nodes: Path = _NODES) -> int | None:
    """Bytes that may be bound to one NUMA node, a quarter of what is free or cache there; None where nothing says so.

    Memory that is bound to a full node makes the kernel end processes, whatever is free elsewhere.
    """
    meminfo = nodes / f"node{node}" / "meminfo"
    free = _amount(meminfo, "MemFree")
    return None if free is None else int(SHARE * (free + (_amount(meminfo, re.escape("Inactive(file)")) or 0)))


def be_first_to_go() -> None:
    """Should memory run out all the same, let the kernel end this process and its children, and no server."""
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")


def _left(folder: Path) -> int | None:
    """What a control group leaves of its limits, None without one: "max" in version 2, a huge number in version 1."""
    for limits, usage, cache in _VERSIONS:
        told = [_text(folder / name).strip() for name in limits]
        most = min((int(text) for text in told if text.isdecimal()), default=_NO_LIMIT)
        used = _text(folder / usage).strip()
        if most < _NO_LIMIT and used.isdecimal():
            return most - int(used) + (_amount(folder / "memory.stat", cache) or 0)
    return None


def _amount(path: Path, name: str) -> int | None:
    """A line of `name: 12 kB`, or `name 12` in bytes."""
    match = re.search(rf"^(?:Node\s+\d+\s+)?{name}:?\s+(\d{{1,18}})( kB)?", _text(path), re.MULTILINE)
    return None if match is None else int(match[1]) * (1024 if match[2] else 1)


def _text(path: Path) -> str:
    try:
        return path.read_bytes()[: 1 << 20].decode("ascii", "replace")
    except OSError:
        return ""


def needed(size: int, *, least: int | None = None) -> int:
    """`size`, or less where there is no room for it. Raises MemoryError when there is none for `least`, or for all."""
    there, least = room(), size if least is None else least
    if there < least:
        raise MemoryError(f"{least >> 20} MiB are needed, and {there >> 20} MiB may be taken without harm to others")
    return min(size, there)
