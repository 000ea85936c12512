"""The control groups above this process, in versions 1 and 2, and the CPU quotas that they hold it to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from amdcheck.selftest.isolate import Record


class Quota(NamedTuple):
    """In CPUs; how often and how many seconds it held somebody back, and the CPU seconds that the group has used."""

    cpus: float
    throttled: int
    throttled_s: float
    used_s: float | None  # None where the kernel does not say


Quotas = dict[str, Quota]  # by the group's folder
_PROC = Path("/proc")


def folders(controller: str, *, proc: Path = _PROC) -> Iterator[Path]:
    """The folder of our group and those above it up to the mount, for a controller, in each version that is mounted.

    In a container our group may not be visible: then the mount stands for it, or a folder is told that is not there.
    """
    with suppress(OSError, ValueError):
        mounts = _mounts(controller, proc)
        for line in _text(proc / "self" / "cgroup").splitlines():
            _, controllers, group = line.split(":", 2)
            kind = "cgroup2" if controllers == "" else "cgroup" if controller in controllers.split(",") else ""
            path, there = Path(group), mounts.get(kind, {})
            # A container may see its host's mounts too, in which its own group is none or lies elsewhere.
            seen = [point for point, root in there.items() if path.is_relative_to(root) and ".." not in path.parts]
            for point in seen[:1]:
                below = path.relative_to(there[point])
                yield from (point / part for part in (below, *below.parents))
            if not seen:
                yield from tuple(there)[:1]


def _mounts(controller: str, proc: Path) -> dict[str, dict[Path, str]]:
    """What group is the root of each mount, by type of file system and by place: of two at one place the later one."""
    mounts: dict[str, dict[Path, str]] = {}
    for line in _text(proc / "self" / "mountinfo").splitlines():
        left, _, right = line.partition(" - ")
        kind, *_, options = right.split()
        if kind == "cgroup2" or (kind == "cgroup" and controller in options.split(",")):
            root, point = left.split()[3:5]
            mounts.setdefault(kind, {})[Path(point)] = root
    return mounts


def quotas(*, proc: Path = _PROC) -> Quotas:
    """Of every group from our own up to the root that has a quota; empty where none has, or it cannot be read."""
    found: Quotas = {}
    for folder in folders("cpu", proc=proc):
        with suppress(OSError, ValueError, ZeroDivisionError):
            limit = _limit(folder)
            if limit is not None:
                found[str(folder)] = Quota(limit, *_throttled(folder), _used_s(folder))
    return found


def tightest(before: Quotas, after: Quotas) -> Record | None:
    """The smallest quota, and how often and how long it held somebody of its group back between the two looks."""
    if not after:
        return None
    path = min(after, key=lambda name: after[name].cpus)
    now, was = after[path], before.get(path, after[path])
    return {
        "path": path,
        "cpus": now.cpus,
        "throttled": max(0, now.throttled - was.throttled),
        "throttled_s": round(max(0.0, now.throttled_s - was.throttled_s), 4),
    }


def cpus_left(before: Quotas, after: Quotas, seconds: float) -> float | None:
    """What the groups left of their quotas between two looks that lie `seconds` apart; None without a quota."""
    left = []
    for path, now in after.items():
        was = before.get(path, now).used_s
        used = 0.0 if now.used_s is None or was is None else max(0.0, now.used_s - was)
        left.append(now.cpus - used / seconds)
    return min(left, default=None)


def _limit(folder: Path) -> float | None:
    """CPUs, None without a quota. Raises OSError and ValueError."""
    if (folder / "cpu.max").exists():
        quota, period = _text(folder / "cpu.max").split()
        return None if quota == "max" else int(quota) / int(period)
    quota = _text(folder / "cpu.cfs_quota_us")
    return None if int(quota) < 0 else int(quota) / int(_text(folder / "cpu.cfs_period_us"))


def _used_s(folder: Path) -> float | None:
    """usage_usec in version 2, cpuacct.usage (ns) in version 1."""
    for name, key, scale in (("cpu.stat", "usage_usec", 1e6), ("cpuacct.usage", "", 1e9)):
        with suppress(OSError, ValueError):
            words = _text(folder / name).split()
            if not key or key in words:
                return int(words[words.index(key) + 1 if key else 0]) / scale
    return None


def _throttled(folder: Path) -> tuple[int, float]:
    """Times and seconds that the group was held back: throttled_usec in version 2, throttled_time (ns) in version 1."""
    lines = dict(line.split() for line in _text(folder / "cpu.stat").splitlines())
    seconds = int(lines.get("throttled_usec", 0)) / 1e6 + int(lines.get("throttled_time", 0)) / 1e9
    return int(lines.get("nr_throttled", 0)), seconds


def _text(path: Path) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read(1 << 20)
