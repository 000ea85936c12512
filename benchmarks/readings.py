"""How long one reading takes, and how much readings of the same thing differ, on this machine and beside hogs.

    python -m benchmarks.readings [--sample]

A reading is the best of short slices, with the clock beside them (amdcheck/selftest/reading.py). Readings of all
kinds take turns. Two figures of each are told: a cycle, and a second. The clock of a shared machine moves in steps,
which the first does not see: how much it varies has a budget, and kinds that are over it are read again a moment
later, in three series in all. Of the clock the figure is one chain against the other. Readings in which the other
thread of the core was at work, as another guest's may be, are disturbed: they are counted, and taken anew, up to
twenty times as many. Beside a hog on the same CPU all are: they are told and have no budget. Beside it: how long the
walks of the latency self-test and all CPU self-tests take, and how soon false sharing shows.

--sample takes ten readings of each, and fails when one takes too long, when the clock's vary, or when the quickest
run of all self-tests took twice its budget: who shares a core for some minutes, as guests of one host do, leaves no
other kind a quiet moment and slows all runs but that. All others are told, and so is false sharing.
"""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import NamedTuple

from msgspec import Struct, to_builtins

from amdcheck.facts.cpu_compute import BF16, FP32, INT8
from amdcheck.selftest import chase, reading, sharing
from amdcheck.selftest.cpu_compute import CHAIN, PORTS, TIMED
from amdcheck.selftest.library import Gemm, Library, load
from amdcheck.selftest.reading import Reading, pin, read
from benchmarks.provoke import findings, hogs
from benchmarks.timing import Front, offered_flags, print_table, timed

READINGS, SAMPLE, SERIES = 30, 10, 3
LEAST = 10  # undisturbed ones, to say how much they vary
ROUNDS, SAMPLE_ROUNDS = 20, 3  # of as many as are asked for, until so many are undisturbed
LATER_S = 2.0
READING_S, VARIATION = 0.020, 0.02
POINTS, POINTS_S, CURVE_S = 3, 0.060, 1.5  # of the latency self-test: points of the quick curve, and their budgets
STANDARD_S, STANDARD_RUNS = 2.0, 5  # all CPU self-tests at level standard, on two CPUs
SHARED = 2  # times as long, in a sample: a neighbour on the other thread has half of each core
DISTURBED = "a hog on the same CPU"
SHARING_S, SHARING_FACTOR = 0.010, 3.0


class Figures(NamedTuple):
    """Of one reading: what is read a cycle and a second, how long it took, its CPU share, and instructions begun."""

    a_cycle: float
    a_second: float
    seconds: float
    cpu_share: float
    issued: float


class Spread(Struct, frozen=True, kw_only=True):
    """Of one kind of reading: how many were undisturbed, and of those the median seconds of an attempt, standard
    deviation over mean, and the median CPU share."""

    undisturbed: int
    readings: int
    seconds: float
    a_cycle: float
    a_second: float
    cpu_share: float

    @property
    def kept(self) -> bool:
        return self.seconds <= READING_S and self.a_cycle <= VARIATION

    @property
    def told(self) -> bool:
        """Whether it keeps its budget, by enough readings."""
        return self.kept and self.undisturbed >= LEAST


def clock(library: Library) -> Figures:
    def chain() -> float:
        seconds = library.time_add(CHAIN)
        if seconds is None:
            raise SystemExit("this library has no clock loops")
        return seconds

    # What waits for itself loses nothing to the other thread: every reading of it is alone.
    return _figures(300 * CHAIN, lambda: read(chain, pace=library.pace))._replace(issued=float("inf"))


def product_of(library: Library, gemm: Gemm) -> Callable[[], Figures]:
    product = gemm.prepare(m=TIMED[0], n=TIMED[1], k=TIMED[2], seed=1)
    return partial(_figures, product.operations, partial(read, product.run, pace=library.pace))


def ceiling_of(library: Library, gemm: Gemm) -> Callable[[], Figures]:
    operations = PORTS * gemm.ports_operations
    ports = partial(gemm.time_ports, PORTS)
    return partial(_figures, operations, partial(read, ports, pace=library.pace, budget_s=0.004))


def _figures(amount: float, take: Callable[[], Reading]) -> Figures:
    began = time.perf_counter()
    told = take()
    took = time.perf_counter() - began
    assert told["cycle_s"] is not None
    rate = amount / told["best_s"]
    return Figures(rate * told["cycle_s"], rate, took, told["cpu_share"], told["issued"] or 0.0)


def kinds(library: Library) -> dict[str, Callable[[], Figures]]:
    """Each kind of reading that this processor has."""
    flags = offered_flags()
    found: dict[str, Callable[[], Figures]] = {"clock": partial(clock, library)}
    for name in (*FP32, *INT8, *BF16):
        gemm = library.find_gemm(name) if name in flags else None
        if gemm is not None:
            found |= {f"ceiling {name}": ceiling_of(library, gemm), f"product {name}": product_of(library, gemm)}
    return found


def series(
    read_once: Mapping[str, Callable[[], Figures]], readings: int, front: Front, rounds: int = 1
) -> dict[str, Spread]:
    """So many readings of each kind, in turn, and more where the other thread of the core was at work. Each is one
    attempt: one that had too little of its CPU is not read again here."""
    done: dict[str, list[Figures]] = {name: [] for name in read_once}
    for _ in range(rounds * readings):
        wanted = [name for name, each in done.items() if len(alone(each, front)) < readings]
        if not wanted:
            break
        for name in wanted:
            one = read_once[name]()
            done[name].append(one)
            if math.isfinite(one.issued):
                front.saw(one.issued)
    return {name: spread(each, alone(each, front)) for name, each in done.items()}


def alone(each: Sequence[Figures], front: Front) -> list[Figures]:
    return [one for one in each if front.was_alone(one.issued)]


def spread(each: Sequence[Figures], quiet: Sequence[Figures]) -> Spread:
    told = quiet if len(quiet) > 1 else each
    return Spread(
        undisturbed=len(quiet),
        readings=len(each),
        seconds=statistics.median(one.seconds for one in told),
        a_cycle=variation([one.a_cycle for one in told]),
        a_second=variation([one.a_second for one in told]),
        cpu_share=round(statistics.median(one.cpu_share for one in told), 2),
    )


def variation(figures: Sequence[float]) -> float:
    return round(statistics.stdev(figures) / statistics.fmean(figures), 4)


def best_series(read_once: dict[str, Callable[[], Figures]], readings: int, rounds: int) -> dict[str, Spread]:
    """Of each kind the first that keeps its budget, else the best of some."""
    best: dict[str, Spread] = {}
    front = Front()
    for attempt in range(SERIES):
        again = {name: once for name, once in read_once.items() if name not in best or not best[name].told}
        if not again:
            break
        time.sleep(LATER_S if attempt else 0)
        for name, told in series(again, readings, front, rounds).items():
            best[name] = min(best.get(name, told), told, key=lambda one: (not one.told, one.a_cycle))
    return best


def walks(library: Library, cpu: int) -> list[tuple[str, float, float]]:
    """What is measured, its seconds in the best of some runs, and its budget in seconds."""

    def points() -> None:
        walk = chase._Walk(library, 64 << 20, "huge")
        for size in (16 << 10, 1 << 20, 64 << 20):
            walk.point(size, small_below=1 << 20)

    def curve() -> None:
        chase.judge(library, cpu, (32, 1024, 32 << 10), "deep")

    return [
        (f"latency of {POINTS} sizes", min(timed(points) for _ in range(SERIES)), POINTS_S),
        ("latency of every power of two, twice", min(timed(curve) for _ in range(SERIES)), CURVE_S),
    ]


def everything() -> tuple[float, float] | None:
    """Seconds of all CPU self-tests at level standard, the median and the quickest of some runs that measured; None
    when CPUs were in use in too many of them."""
    took: list[float] = []
    for _ in range(2 * STANDARD_RUNS):
        began = time.perf_counter()
        found = findings(["selftest.cpu.*"])
        if not any(finding.outcome == "busy" for finding in found):
            took.append(time.perf_counter() - began)
        if len(took) == STANDARD_RUNS:
            return statistics.median(took), min(took)
    return None


def false_sharing(library: Library, cpus: Sequence[int]) -> tuple[float, float] | None:
    """How much slower one line is than two, and the seconds of one run of each distance; None without two cores."""
    pair = sharing.pair(cpus, ())
    if pair is None:
        return None
    runs = [sharing._look(library, pair) for _ in range(SERIES)]
    seconds = [{d["bytes"]: float(d["reading"]["best_s"]) for d in run["distances"]} for run in runs]
    best = max(seconds, key=lambda one: one[8] / one[128])
    return best[8] / best[128], sum(best.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sample", action="store_true", help=f"{SAMPLE} readings of each kind instead of {READINGS}")
    is_sample = parser.parse_args().sample
    readings, rounds = (SAMPLE, SAMPLE_ROUNDS) if is_sample else (READINGS, ROUNDS)
    library = load()
    allowed = sorted(os.sched_getaffinity(0))
    others = allowed[1:]
    circumstances: dict[str, AbstractContextManager[None]] = {"as it is": nullcontext()}
    if others:
        circumstances["a hog on every other CPU"] = hogs(others)
    circumstances[DISTURBED] = hogs(allowed[:1])
    standard = everything()  # before what pins this thread to one CPU
    shared = false_sharing(library, allowed)
    pin(allowed[0])
    walked = list(walks(library, allowed[0]))  # as they ship: below, a reading is tried once
    reading.ATTEMPTS = 1
    read_once = kinds(library)
    rows = [("reading", "machine", "undisturbed", "ms", "varies a cycle", "a second", "CPU share", "")]
    figures: dict[str, object] = {}
    kept = True
    for where, around in circumstances.items():
        with around:
            spreads = best_series(read_once, readings, 1 if where == DISTURBED else rounds)
        if where != DISTURBED:
            kept = kept and (spreads["clock"].told if is_sample else all(one.told for one in spreads.values()))
            kept = kept and all(one.seconds <= READING_S for one in spreads.values())
        for name, one in spreads.items():
            over = "" if one.told or where == DISTURBED else "over budget" if not one.kept else "too few"
            rows.append((
                name, where, f"{one.undisturbed} of {one.readings}", f"{1000 * one.seconds:.1f}",
                f"{one.a_cycle:.2%}", f"{one.a_second:.2%}", f"{one.cpu_share:.2f}", over,
            ))  # fmt: skip
            figures[f"{name}; {where}"] = to_builtins(one)
    for name, seconds, budget in walked:
        kept = kept and seconds <= budget
        over = "" if seconds <= budget else "over budget"
        rows.append((name, "as it is", "", f"{1000 * seconds:.0f}", "", "", "", over))
        figures[name] = round(seconds, 4)
    what = f"all CPU self-tests at standard level, the median of {STANDARD_RUNS}"
    if standard is None:
        kept = False
        rows.append((what, "as it is", "", "", "", "", "", "CPUs are in use: not measured"))
    else:
        median_s, quickest_s = standard
        is_quick = quickest_s <= SHARED * STANDARD_S if is_sample else median_s <= STANDARD_S
        kept = kept and is_quick
        rows.append((what, "as it is", "", f"{1000 * median_s:.0f}", "", "", "", "" if is_quick else "over budget"))
        figures[what] = {"median": round(median_s, 3), "quickest": round(quickest_s, 3)}
    if shared is not None:
        factor, seconds = shared
        is_shown = factor >= SHARING_FACTOR and seconds <= SHARING_S
        kept = kept and (is_shown or is_sample)
        told = f"{factor:.1f} times" + ("" if is_shown else ", over budget")
        what = "false sharing, one run of each distance"
        rows.append((what, "as it is", "", f"{1000 * seconds:.1f}", "", "", "", told))
        figures["false sharing"] = {"factor": round(factor, 2), "s": round(seconds, 5)}
    print_table(f"{readings} readings of each kind", rows, {**figures, "within_budget": kept})
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
