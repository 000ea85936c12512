"""What lscpu and lstopo read of a machine's processors and nodes.

Facts ask for less: they read one CPU of each cache and the shortest form of each set. A recording is also meant to be
unpacked for those tools, which want every CPU and the masks.
"""

from __future__ import annotations

import re

from amdcheck.host.protocol import Host

_CPUS = "/sys/devices/system/cpu"
_NODES = "/sys/devices/system/node"
_MACHINE = ("/proc/cpuinfo", "/proc/meminfo", "/proc/version", "/proc/sys/kernel/osrelease", f"{_CPUS}/kernel_max")
_SETS = ("online", "possible", "present", "offline")
_TOPOLOGY = ("physical_package_id", "die_id", "core_id", "core_cpus", "package_cpus", "die_cpus", "cluster_cpus")
_OLD_TOPOLOGY = ("thread_siblings", "core_siblings")  # lscpu and kernels before 5.3 know the masks by these names
_CACHE = (
    "coherency_line_size",
    "id",
    "level",
    "number_of_sets",
    "physical_line_partition",
    "shared_cpu_map",
    "size",
    "type",
    "ways_of_associativity",
)
_NODE = ("cpumap", "distance", "meminfo")


def read_for_tools(host: Host) -> None:
    """Ask `host` for all of it; a host that records then holds it."""
    for path in (*_MACHINE, *(f"{_CPUS}/{name}" for name in _SETS), *(f"{_NODES}/{name}" for name in _SETS)):
        host.read(path)
    for cpu in _numbered(host, _CPUS, "cpu"):
        for name in (*_TOPOLOGY, *_OLD_TOPOLOGY):
            host.read(f"{cpu}/topology/{name}")
        for cache in _numbered(host, f"{cpu}/cache", "index"):
            for name in _CACHE:
                host.read(f"{cache}/{name}")
    for node in _numbered(host, _NODES, "node"):
        for name in _NODE:
            host.read(f"{node}/{name}")


def _numbered(host: Host, folder: str, prefix: str) -> list[str]:
    """The folders PREFIXn in a folder, by number."""
    names = host.entries(folder).or_none() or ()
    numbers = sorted(int(match[1]) for name in names if (match := re.fullmatch(rf"{prefix}(\d{{1,6}})", name)))
    return [f"{folder}/{prefix}{number}" for number in numbers]
