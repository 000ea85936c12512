"""/proc/stat: what every CPU has spent its time on since the kernel came up."""

from __future__ import annotations


def lines() -> list[str]:
    """Its lines now; none where it cannot be read."""
    try:
        with open("/proc/stat", encoding="ascii", errors="replace") as stat:
            return list(stat)
    except OSError:
        return []
