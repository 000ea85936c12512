"""The CPU quotas that the kernel holds this process to, by the control groups above it; versions 1 and 2."""

from __future__ import annotations

import os
from contextlib import suppress

from amdcheck.selftest.isolate import Record

# path of the group below the file system's root -> quota in CPUs, times throttled, seconds throttled
Quotas = dict[str, tuple[float, int, float]]


def quotas() -> Quotas:
    """Of every group from our own up to the root that has a quota; empty where none has, or it cannot be read."""
    found: Quotas = {}
    with suppress(OSError, ValueError):
        for folder, top in _folders():
            while True:
                with suppress(OSError, ValueError):
                    limit = _limit(folder)
                    if limit is not None:
                        found[folder] = (limit, *_throttled(folder))
                if folder == top or len(folder) <= len(top):
                    break
                folder = os.path.dirname(folder)
    return found


def tightest(before: Quotas, after: Quotas) -> Record | None:
    """The smallest quota, and how often and how long it held somebody of its group back between the two looks."""
    if not after:
        return None
    path = min(after, key=lambda name: after[name][0])
    cpus, times, seconds = after[path]
    _, times_before, seconds_before = before.get(path, (cpus, times, seconds))
    return {
        "path": path,
        "cpus": cpus,
        "throttled": max(0, times - times_before),
        "throttled_s": round(max(0.0, seconds - seconds_before), 4),
    }


def _folders() -> list[tuple[str, str]]:
    """Our group's folder and the mount it lies in, for the controller cpu of each version that is mounted."""
    mounts: dict[str, tuple[str, str]] = {}
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mountinfo:
        for line in mountinfo:
            left, _, right = line.partition(" - ")
            root, point = left.split()[3:5]
            kind, _, options = right.split()[:3]
            if kind == "cgroup2":
                mounts["2"] = (root, point)
            elif kind == "cgroup" and "cpu" in options.split(","):
                mounts["1"] = (root, point)
    found = []
    with open("/proc/self/cgroup", encoding="utf-8", errors="replace") as groups:
        for line in groups:
            _, controllers, path = line.rstrip("\n").split(":", 2)
            version = "2" if controllers == "" else "1" if "cpu" in controllers.split(",") else None
            if version in mounts:
                root, point = mounts[version]
                below = os.path.relpath(path, root) if path.startswith(root) else "."
                found.append((os.path.normpath(os.path.join(point, below)), point))
    return found


def _limit(folder: str) -> float | None:
    """CPUs, None without a quota. Raises OSError and ValueError."""
    if os.path.exists(f"{folder}/cpu.max"):
        quota, period = _text(f"{folder}/cpu.max").split()
        return None if quota == "max" else int(quota) / int(period)
    quota = _text(f"{folder}/cpu.cfs_quota_us")
    return None if int(quota) < 0 else int(quota) / int(_text(f"{folder}/cpu.cfs_period_us"))


def _throttled(folder: str) -> tuple[int, float]:
    """Times and seconds that the group was held back: throttled_usec in version 2, throttled_time (ns) in version 1."""
    lines = dict(line.split() for line in _text(f"{folder}/cpu.stat").splitlines())
    seconds = int(lines.get("throttled_usec", 0)) / 1e6 + int(lines.get("throttled_time", 0)) / 1e9
    return int(lines.get("nr_throttled", 0)), seconds


def _text(path: str) -> str:
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read(1 << 16)
