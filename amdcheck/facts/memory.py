"""Memory of the host and the settings that decide how the kernel moves and backs it."""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct

from amdcheck.facts.cpuinfo import decimal
from amdcheck.facts.registry import fact
from amdcheck.host.protocol import Host
from amdcheck.model.value import Known, Value

_SETTINGS = "/proc/sys/kernel"
NUMA_BALANCING = f"{_SETTINGS}/numa_balancing"
_THP = "/sys/kernel/mm/transparent_hugepage"
_CHOSEN = re.compile(r"\[([a-z+_-]{1,40})\]")


@fact
class Memory(Struct, frozen=True, kw_only=True):
    """Sizes in KiB. Of files that show every choice with the active one in brackets, the active one."""

    total_kib: Value[int]
    swap_total_kib: Value[int]
    hugepages: Value[int]  # preallocated pages of the default size
    hugepage_kib: Value[int]
    numa_balancing: Value[int]  # bit mask: 1 balancing between nodes, 2 memory tiering
    numa_balancing_offered: Value[bool]  # False: the listing of /proc/sys/kernel was read and does not name it
    thp_enabled: Value[str]  # always, madvise, never
    thp_defrag: Value[str]  # always, defer, defer+madvise, madvise, never
    thp_khugepaged_defrag: Value[int]
    swappiness: Value[int]
    zone_reclaim: Value[int]

    @classmethod
    def read(cls, host: Host) -> Memory:
        meminfo = host.read("/proc/meminfo")
        balancing = host.read(NUMA_BALANCING).parse(decimal)
        return cls(
            total_kib=meminfo.parse(_amount("MemTotal")),
            swap_total_kib=meminfo.parse(_amount("SwapTotal")),
            hugepages=meminfo.parse(_amount("HugePages_Total")),
            hugepage_kib=meminfo.parse(_amount("Hugepagesize")),
            numa_balancing=balancing,
            numa_balancing_offered=_offered(host, balancing),
            thp_enabled=host.read(f"{_THP}/enabled").parse(_chosen),
            thp_defrag=host.read(f"{_THP}/defrag").parse(_chosen),
            thp_khugepaged_defrag=host.read(f"{_THP}/khugepaged/defrag").parse(decimal),
            swappiness=host.read("/proc/sys/vm/swappiness").parse(decimal),
            zone_reclaim=host.read("/proc/sys/vm/zone_reclaim_mode").parse(decimal),
        )


def _amount(name: str) -> Callable[[str], int]:
    """A parser for one line of /proc/meminfo."""
    line = re.compile(rf"^{name}:\s*([0-9]{{1,15}})", re.MULTILINE)

    def parse(text: str) -> int:
        match = line.search(text)
        if match is None:
            raise ValueError(f"no {name}")
        return int(match[1])

    return parse


def _offered(host: Host, balancing: Value[int]) -> Value[bool]:
    if isinstance(balancing, Known):
        return Known(True, balancing.source)
    return host.entries(_SETTINGS).parse(_names_balancing)


def _names_balancing(names: tuple[str, ...]) -> bool:
    return "numa_balancing" in names


def _chosen(text: str) -> str:
    match = _CHOSEN.search(text)
    if match is None:
        raise ValueError(f"no choice in brackets: {text[:60]!r}")
    return match[1]
