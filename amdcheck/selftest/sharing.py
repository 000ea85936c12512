"""False sharing: two CPUs count up words of their own, atomically, 8, 64 and 128 bytes apart."""

from __future__ import annotations

import ctypes
import resource
import statistics
import time
from collections.abc import Sequence
from itertools import combinations

from amdcheck.selftest.buffer import Buffer
from amdcheck.selftest.idle import known_core
from amdcheck.selftest.isolate import Record
from amdcheck.selftest.library import Library
from amdcheck.selftest.limits import limit_value
from amdcheck.selftest.reading import Judged, Reading, clock_beside, judged, looks

DISTANCES = (8, 64, 128)
INCREMENTS = 60_000  # two or three milliseconds on one line, some hundred microseconds on two
RUNS = 3
ATTEMPTS = 3
PATIENCE_S = 2.0  # no look at the two is begun that would last longer
MISSED = (1, 7)  # increments that the second thread leaves out, to be noticed


def pair(cpus: Sequence[int], slices: Sequence[Sequence[int]]) -> tuple[int, int] | None:
    """Two of these CPUs on different cores, of one slice of the last level if there are such.

    None: they are all of one core, or the kernel does not say of which.
    """
    cores = {cpu: core for cpu in cpus if (core := known_core(cpu)) is not None}
    near = [members for part in slices if len(members := [cpu for cpu in cores if cpu in part]) > 1]
    for group in (*near, tuple(cores)):
        for first, second in combinations(group, 2):
            if cores[first] != cores[second]:
                return first, second
    return None


def judge(library: Library, cpus: tuple[int, int]) -> Record:
    """Seconds of INCREMENTS on both CPUs by distance, every count compared; then increments that are left out.

    Where one line costs hardly more than two, or the two did not run at the same time, it is measured anew some moments
    later: a virtual CPU may be moved to the other one's core for a while. Of those that did run, what costs most is
    told.
    """
    done = looks(lambda: _look(library, cpus), _judged, until=time.monotonic() + PATIENCE_S)
    return done[0] | {name: sum(look[name] for look in done) for name in ("compared", "wrong", "planted", "noticed")}


def _judged(look: Record) -> Judged:
    """What is judged of it, as facts/cpu_memory.py has it: undisturbed, and how much slower one line is than two."""
    readings = [distance["reading"] for distance in look["distances"]]
    factor = readings[0]["median_s"] / readings[-1]["median_s"]
    share = min(reading["cpu_share"] for reading in readings)
    return judged(share / limit_value("sharing-cpu-share"), factor / limit_value("sharing-factor"))


def _look(library: Library, cpus: tuple[int, int]) -> Record:
    buffer = Buffer(4096)
    first = ctypes.c_uint64.from_address(buffer.address)
    found = {"compared": 0, "wrong": 0, "planted": 0, "noticed": 0}
    distances = []
    for distance in DISTANCES:
        second = ctypes.c_uint64.from_address(buffer.address + distance)
        counters = (first, second)
        distances.append({"bytes": distance, "reading": _reading(library, cpus, counters, found)})
        for missed in MISSED:
            _count(library, cpus, counters, missed=missed)
            found["planted"] += 1
            found["noticed"] += (first.value, second.value) == (INCREMENTS, INCREMENTS - missed)
    return {"cpus": cpus, "increments": INCREMENTS, "distances": distances, **found}


def _reading(
    library: Library, cpus: tuple[int, int], counters: tuple[ctypes.c_uint64, ctypes.c_uint64], found: dict[str, int]
) -> Reading:
    """The least disturbed of some attempts."""
    undisturbed, readings = limit_value("sharing-cpu-share"), []
    for number in range(1, ATTEMPTS + 1):
        readings.append(_attempt(library, cpus, counters, found, number))
        if readings[-1]["cpu_share"] >= undisturbed:
            break
    return max(readings, key=lambda reading: reading["cpu_share"])


def _attempt(
    library: Library,
    cpus: tuple[int, int],
    counters: tuple[ctypes.c_uint64, ctypes.c_uint64],
    found: dict[str, int],
    number: int,
) -> Reading:
    """Some runs. The share is of both CPUs: a thread that runs alone meets no contention, and is quick for nothing."""
    switched, slices, shares = resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw, [], []
    for _ in range(RUNS):
        cpu, wall = time.process_time(), time.perf_counter()
        slices.append(_count(library, cpus, counters, missed=0))
        shares.append((time.process_time() - cpu) / (2 * (time.perf_counter() - wall)))
        found["compared"] += 2
        found["wrong"] += sum(counter.value != INCREMENTS for counter in counters)
    return {
        "best_s": min(slices),
        "median_s": statistics.median(slices),
        "slices": RUNS,
        "attempts": number,
        "cpu_share": min(1.0, statistics.median(shares)),
        "involuntary": resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw - switched,
        "stolen_s": None,
        "cycle_s": clock_beside(library.pace),  # of the first CPU: this thread is pinned there since it counted
        "issued": None,
    }


def _count(
    library: Library, cpus: tuple[int, int], counters: tuple[ctypes.c_uint64, ctypes.c_uint64], *, missed: int
) -> float:
    for counter in counters:
        counter.value = 0
    took = library.time_sharing(
        cpus=cpus,
        first=ctypes.addressof(counters[0]),
        second=ctypes.addressof(counters[1]),
        increments=INCREMENTS,
        missed=missed,
    )
    if took is None:
        raise RuntimeError(f"no two threads could be run on CPU {cpus[0]} and {cpus[1]}")
    return took
