"""A rate that can be trusted: the best of short slices, and what disturbed them.

A slice is shorter than a scheduler's tick, so that among many there are some that nothing interrupted: the shortest is
what the hardware does, whoever else runs. What ran beside it is told by the share of the time that the thread got, by
its involuntary switches and by what the hypervisor took.
"""

from __future__ import annotations

import os
import resource
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypedDict, TypeVar

from amdcheck.host.asked import LEAST
from amdcheck.selftest import stat
from amdcheck.selftest.library import Pace
from amdcheck.selftest.limits import limit_value

T = TypeVar("T")

BUDGET_S = 0.012  # of one attempt
ATTEMPTS = 3
LEAST_SLICES = 3
LEAST_PACES = 3  # with fewer, chance tells how many instructions a core begins
CHAINS = 3
RAISE_S = 0.1
_CPUFREQ = "/sys/devices/system/cpu/cpu0/cpufreq"


# Before each look at a rate that would be a finding. Somebody who shares a core, a host that puts two virtual CPUs on
# one for a while, a unit that is slow to wake: all of them are gone in one of these moments; what is slow stays so.
PAUSES_S = (0.0, 0.05, 0.1, 0.2, 0.4, 0.8)
DISTURBED_LOOKS = 4  # at a rate that is none: being disturbed is told as such
UNDISTURBED = 1.0


class Judged(NamedTuple):
    """What is judged of a measurement, as shares of the least that is no finding: from 1 on all is well."""

    cpu_share: float
    rate: float


def judged(cpu_share: float, rate: float) -> Judged:
    """More than all of the CPU that an undisturbed reading needs is no better than that."""
    return Judged(min(UNDISTURBED, cpu_share), rate)


# A process died, or something was wrong: a better look must not hide it.
TELL_AT_ONCE = Judged(UNDISTURBED, float("inf"))


class Reading(TypedDict):
    """Seconds of the shortest slice and of the median one, and what disturbed the best attempt.

    Where the clock was looked at beside them, those slices count at whose end it held, if there are such.

    `cpu_share`: CPU time over wall time of the whole attempt; `involuntary`: times that the thread was taken off;
    `stolen_s`: what the hypervisor took from this CPU meanwhile, None where /proc/stat does not say; `cycle_s`: seconds
    of a cycle of the core beside the shortest slice, and `issued`: instructions that it mostly began in one when they
    had nothing to do; None where that was not looked at.
    """

    best_s: float
    median_s: float
    slices: int
    attempts: int
    cpu_share: float
    involuntary: int
    stolen_s: float | None
    cycle_s: float | None
    issued: float | None


def read(
    piece: Callable[[], float], *, pace: Callable[[], Pace | None] | None = None, budget_s: float = BUDGET_S
) -> Reading:
    """Repeat `piece`, which returns its seconds, until the budget is spent; again while the attempt was disturbed.

    The first slice warms up and does not count. Of several attempts the least disturbed one is told, with the shortest
    slice of them all. With `pace` (Library.pace) the clock and the front end are looked at beside each slice.
    """
    undisturbed = limit_value("cpu-share")
    piece()
    done: list[Reading] = []
    for number in range(1, ATTEMPTS + 1):
        done.append(_attempt(piece, pace, budget_s, number))
        if done[-1]["cpu_share"] >= undisturbed:
            break
    least = max(done, key=lambda reading: reading["cpu_share"])
    quickest = min(done, key=lambda reading: reading["best_s"])
    return {
        **least,
        "best_s": quickest["best_s"],
        "attempts": len(done),
        "cycle_s": quickest["cycle_s"],
        "issued": max((reading["issued"] for reading in done if reading["issued"] is not None), default=None),
    }


def least_rates(params: Iterable[str]) -> dict[str, float]:
    """The rates below which to look again, by name. Raises ValueError."""
    words = (word.removeprefix(LEAST).partition("=") for word in params if word.startswith(LEAST))
    return {name: float(rate) for name, _, rate in words}


def looks(measure: Callable[[], T], judge: Callable[[T], Judged], *, until: float) -> list[T]:
    """Measure, and again ever later while it is disturbed or would be a finding; the least disturbed ones first.

    Of those alike the fastest is first. After the first one none is begun that would last beyond `until`
    (time.monotonic), by the longest so far; one that cannot be made ends the looks, and what was measured is told.
    """
    done: list[tuple[Judged, T]] = []
    longest_s = 0.0
    for pause_s in PAUSES_S:
        if done and time.monotonic() + pause_s + longest_s > until:
            break
        time.sleep(pause_s)
        began = time.monotonic()
        try:
            measured = measure()
        except (MemoryError, OSError, RuntimeError):
            if not done:
                raise
            break
        longest_s = max(longest_s, time.monotonic() - began)
        done.append((judge(measured), measured))
        best = max(one for one, _ in done)
        if best.rate >= 1 and (best.cpu_share >= UNDISTURBED or len(done) >= DISTURBED_LOOKS):
            break
    return [measured for _, measured in sorted(done, key=lambda one: one[0], reverse=True)]


def share_of(*readings: Reading) -> float:
    """The least share of the CPU that one of them got, against the least of an undisturbed one."""
    return min(reading["cpu_share"] for reading in readings) / limit_value("cpu-share")


def _attempt(
    piece: Callable[[], float], pace: Callable[[], Pace | None] | None, budget_s: float, number: int
) -> Reading:
    stolen, switched = _stolen_s(), resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
    cpu, wall = time.thread_time(), time.perf_counter()
    slices = list[tuple[float, Pace | None]]()
    while len(slices) < LEAST_SLICES or time.perf_counter() - wall < budget_s:
        slices.append((piece(), None if pace is None else pace()))
    # At once: what it costs to read /proc/stat of hundreds of CPUs is none of the slices' CPU time.
    took, cpu = time.perf_counter() - wall, time.thread_time() - cpu
    switched = resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw - switched
    later = _stolen_s()
    counted = [(seconds, beside) for seconds, beside in slices if beside and beside.issued is not None] or slices
    best_s, beside = min(counted, key=lambda one: one[0])
    return {
        "best_s": best_s,
        "median_s": statistics.median(seconds for seconds, _ in counted),
        "slices": len(counted),
        "attempts": number,
        "cpu_share": min(1.0, cpu / took),
        "involuntary": switched,
        "stolen_s": None if stolen is None or later is None else max(0.0, later - stolen),
        "cycle_s": None if beside is None else beside.cycle_s,
        "issued": _issued([one for _, one in slices if one is not None]),
    }


def _issued(paces: Sequence[Pace]) -> float | None:
    """What the core mostly began; None with too few looks."""
    told = [one.issued for one in paces if one.issued is not None]
    return statistics.median(told) if len(told) >= LEAST_PACES else None


def clock_beside(pace: Callable[[], Pace | None]) -> float | None:
    """Seconds of a cycle now, by the shortest of some chains: whatever comes between makes one longer."""
    return min((one.cycle_s for _ in range(CHAINS) if (one := pace()) is not None), default=None)


def _stolen_s() -> float | None:
    """Seconds that the hypervisor has taken from the CPU that this thread runs on, by /proc/stat."""
    return stolen_by_cpu(stat.lines()).get(min(os.sched_getaffinity(0)))


def stolen_by_cpu(lines: Iterable[str]) -> dict[int, float]:
    """The steal column of each CPU's line in /proc/stat, in seconds; without those that have none."""
    ticks = os.sysconf("SC_CLK_TCK")
    rows = (line.split() for line in lines if line.startswith("cpu") and line[3:4].isdigit())
    return {int(name[3:]): int(columns[7]) / ticks for name, *columns in rows if len(columns) > 7}


def stolen_since_boot(lines: Iterable[str]) -> float | None:
    """What the hypervisor has taken since the kernel came up, of the time in which there was work; None: not told."""
    columns = next((line.split()[1:] for line in lines if line.startswith("cpu ")), [])
    if len(columns) < 8:
        return None
    user, nice, system, _, _, irq, softirq, steal = map(int, columns[:8])
    wanted = user + nice + system + irq + softirq + steal
    return steal / wanted if wanted else None


def pin(cpu: int) -> None:
    """Run on that CPU alone from now on. Raises OSError where it is not ours to use."""
    os.sched_setaffinity(0, {cpu})


def has_governor() -> bool:
    """Whether the kernel sets the clock, which then takes RAISE_S of work to rise; in guests it usually does not.

    schedutil's utilization has a half-life of 32 ms, and ondemand looks every 10 ms or less often (Linux
    Documentation/admin-guide/pm/cpufreq.rst): a core that was idle begins near its lowest frequency.
    """
    return os.path.isdir(_CPUFREQ)


def raise_clock() -> None:
    """Keep the CPU busy until its governor has raised the clock, where there is one."""
    end = time.monotonic() + RAISE_S
    while has_governor() and time.monotonic() < end:
        pass
