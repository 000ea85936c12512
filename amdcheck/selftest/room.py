"""How much memory a self-test may take: never what the machine, a control group or a NUMA node needs for others."""

from __future__ import annotations

import re
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

SHARE = 0.25  # of what is available: the rest stays for who serves
_NO_LIMIT = 1 << 60  # version 1 writes some 2^63 where there is no limit
_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")
_NODES = Path("/sys/devices/system/node")


def room(*, proc: Path = _PROC, cgroups: Path = _CGROUPS) -> int:
    """Bytes that may be taken: a quarter of the least of what the machine, its control groups and limits leave.

    Page cache that the kernel would drop counts as available. 0 where nothing says how much there is.
    """
    machine = _amount(proc / "meminfo", "MemAvailable")
    left = [] if machine is None else [machine]
    left += _left_in_cgroups(proc, cgroups)
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


def _left_in_cgroups(proc: Path, cgroups: Path) -> Iterator[int]:
    """What each control group above us leaves of its limit, in version 1 and 2."""
    for line in _text(proc / "self" / "cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", "", ""][:3]
        if controllers == "":
            tops, names = (cgroups, cgroups / "unified"), ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            limits = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            tops, names = (cgroups / controllers, cgroups / "memory"), limits
        else:
            continue
        for top in tops:
            for folder in _folders(top, path):
                left = _left(folder, *names)
                if left is not None:
                    yield left


def _folders(top: Path, path: str) -> Iterator[Path]:
    """The group's folder and those above it, down to the mount: in a container the path may not be visible there."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    for depth in range(len(parts), -1, -1):
        yield top.joinpath(*parts[:depth])


def _left(folder: Path, limit: str, usage: str, cache: str) -> int | None:
    most, used = _text(folder / limit).strip(), _text(folder / usage).strip()
    if not most.isdecimal() or not used.isdecimal() or int(most) >= _NO_LIMIT:
        return None  # "max", or no such file: no limit here
    return int(most) - int(used) + (_amount(folder / "memory.stat", cache) or 0)


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
