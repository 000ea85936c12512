"""Which CPUs are not in use: self-tests run on those alone, unless the operator allows busy ones."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from amdcheck.selftest import cgroup, stat
from amdcheck.selftest.limits import limit_value

WINDOW_S = 0.06  # six ticks of the 100 a second in which /proc/stat counts


class Busy(Exception):
    """Every CPU that we may use is in use; the text says how much. Nothing was measured."""


def idle_cpus(*, allow_busy: bool) -> tuple[int, ...]:
    """The CPUs that we may run on and whose core nobody else uses, the idlest first.

    Under a quota of our control groups as many as it has left, one of a core and spread over all: more would stop
    whoever serves there. With `allow_busy` they may be in use; so too where /proc/stat does not say. Sleeps for the
    window, so that our own process is not what it sees. Raises Busy.
    """
    allowed = sorted(os.sched_getaffinity(0))
    before, quotas = _busy_ticks(), cgroup.quotas()
    began = time.monotonic()
    time.sleep(WINDOW_S)
    took = time.monotonic() - began
    after, left = _busy_ticks(), cgroup.cpus_left(quotas, cgroup.quotas(), took)
    ticks = took * os.sysconf("SC_CLK_TCK")
    share = {cpu: (after[cpu] - before[cpu]) / ticks for cpu in after if cpu in before}
    # The other thread of a core takes from it like another program on the CPU itself.
    used = {cpu: max(share.get(thread, 0.0) for thread in core_of(cpu)) for cpu in allowed}
    order = sorted(allowed, key=lambda cpu: (used[cpu], cpu))
    most = limit_value("cpu-in-use")
    idle = order if allow_busy else [cpu for cpu in order if used[cpu] <= most]
    if not idle:
        least = f"CPU {order[0]} {100 * min(1.0, used[order[0]]):.0f} %"
        raise Busy(f"every CPU that amdcheck may run on is in use, the least of them {least}")
    if left is None or left >= len(idle):
        return tuple(idle)
    return tuple(sorted(one_a_core(idle, most=max(1, int(left))), key=idle.index))


def choose_cpu(*, allow_busy: bool) -> int:
    """The idlest CPU. Raises Busy."""
    return idle_cpus(allow_busy=allow_busy)[0]


def _busy_ticks() -> Mapping[int, int]:
    """By CPU; empty where /proc/stat cannot be read."""
    try:
        return busy_ticks(stat.lines())
    except ValueError:
        return {}


def busy_ticks(lines: Iterable[str]) -> Mapping[int, int]:
    """Ticks that each CPU of /proc/stat has spent on programs and interrupts: all columns but idle, iowait and steal.

    Guest time is in the user column already (Linux Documentation/filesystems/proc.rst). Raises ValueError.
    """
    used: dict[int, int] = {}
    for line in lines:
        name, *columns = line.split() or [""]
        if name.startswith("cpu") and name != "cpu":
            user, nice, system, _idle, _iowait, irq, softirq = map(int, columns[:7])
            used[int(name[3:])] = user + nice + system + irq + softirq
    return used


def one_a_core(cpus: Sequence[int], *, most: int) -> list[int]:
    """Of these CPUs one for each core, at most so many, spread over all of them."""
    first = {core_of(cpu): cpu for cpu in sorted(cpus, reverse=True)}
    chosen = sorted(first.values())
    number = min(most, len(chosen))
    return [chosen[at * len(chosen) // number] for at in range(number)]


def core_of(cpu: int) -> Sequence[int]:
    """The CPUs of its core, itself among them; itself alone where the kernel does not say."""
    return known_core(cpu) or (cpu,)


def known_core(cpu: int) -> Sequence[int] | None:
    """The CPUs of its core, itself among them; None where the kernel does not say."""
    folder = f"/sys/devices/system/cpu/cpu{cpu}/topology"
    for name in ("core_cpus_list", "thread_siblings_list"):
        with suppress(OSError, ValueError), open(f"{folder}/{name}", encoding="ascii") as siblings:
            return cpus_of(siblings.read().strip())
    return None


def cpus_of(text: str) -> Sequence[int]:
    """A list in the kernel's form, as 0-7,64-71. Raises ValueError."""
    runs = [part.partition("-")[::2] for part in text.split(",") if part]
    return tuple(cpu for first, last in runs for cpu in range(int(first), int(last or first) + 1))
