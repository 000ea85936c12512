"""How long one reading takes, and how much readings of the same thing differ, on this machine and beside hogs.

    python -m benchmarks.readings [--readings N]

A reading is the best of short slices (amdcheck/selftest/reading.py). Its figure is what a judgement uses: of a product
its share of the ceiling that is read beside it, of the clock the cycles a second. Readings of all kinds take turns; a
series of which one kind is over its budget is repeated, three in all, since the clock of a shared machine moves in
steps. Beside it: how long the two walks of the latency self-test take, and how soon false sharing shows.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial

from msgspec import Struct

from amdcheck.selftest import chase, reading, sharing
from amdcheck.selftest.cpu_compute import CHAIN, PORTS, TIMED
from amdcheck.selftest.library import Gemm, Library, load
from amdcheck.selftest.reading import Reading, pin, read
from benchmarks.provoke import hogs
from benchmarks.timing import offered_flags, print_table

READINGS, SERIES = 30, 3
READING_S, VARIATION = 0.020, 0.02
POINTS, POINTS_S, CURVE_S = 3, 0.060, 1.5  # of the latency self-test: points of the quick curve, and their budgets
SHARING_S, SHARING_FACTOR = 0.010, 3.0
CEILING_S = 0.004  # of the reading of a ceiling, as the self-test takes it


class Spread(Struct, frozen=True, kw_only=True):
    """Of one kind of reading: median seconds of an attempt, standard deviation over mean, and the median CPU share."""

    seconds: float
    variation: float
    cpu_share: float

    @property
    def kept(self) -> bool:
        return self.seconds <= READING_S and self.variation <= VARIATION


def clock(library: Library) -> tuple[float, Reading]:
    def chain() -> float:
        seconds = library.time_imul(CHAIN)
        if seconds is None:
            raise SystemExit("this library has no clock loops")
        return seconds

    told = read(chain)
    return 300 * CHAIN / told["best_s"], told


def share_of_ports(gemm: Gemm) -> Callable[[], tuple[float, Reading]]:
    product = gemm.prepare(m=TIMED[0], n=TIMED[1], k=TIMED[2], seed=1)

    def once() -> tuple[float, Reading]:
        ceiling = read(lambda: gemm.time_ports(PORTS), budget_s=CEILING_S)
        told = read(product.run)
        ports = PORTS * gemm.ports_operations / ceiling["best_s"]
        return product.operations / told["best_s"] / ports, told

    return once


def kinds(library: Library) -> dict[str, Callable[[], tuple[float, Reading]]]:
    """Figure and reading of each kind that this processor has."""
    flags = offered_flags()
    gemms = {
        f"{name}, of its ceiling": gemm
        for name in ("fma", "avx2", "avx512f", "avx512_vnni", "avx512_bf16")
        if name in flags and (gemm := library.find_gemm(name)) is not None
    }
    return {"clock": partial(clock, library), **{name: share_of_ports(gemm) for name, gemm in gemms.items()}}


def series(read_once: dict[str, Callable[[], tuple[float, Reading]]], readings: int) -> dict[str, Spread]:
    """So many readings of each kind, in turn. Each is one attempt: a disturbed one is not read again here."""
    figures: dict[str, list[float]] = {name: [] for name in read_once}
    told: dict[str, list[Reading]] = {name: [] for name in read_once}
    for _ in range(readings):
        for name, once in read_once.items():
            figure, one = once()
            figures[name].append(figure)
            told[name].append(one)
    return {
        name: Spread(
            seconds=statistics.median(one["slices"] * one["median_s"] for one in told[name]),
            variation=round(statistics.stdev(figures[name]) / statistics.fmean(figures[name]), 4),
            cpu_share=round(statistics.median(one["cpu_share"] for one in told[name]), 2),
        )
        for name in read_once
    }


def best_series(read_once: dict[str, Callable[[], tuple[float, Reading]]], readings: int) -> dict[str, Spread]:
    """The first in which every kind keeps its budget, else the one with the least variation of the worst kind."""
    done: list[dict[str, Spread]] = []
    for _ in range(SERIES):
        done.append(series(read_once, readings))
        if all(spread.kept for spread in done[-1].values()):
            break
    return min(done, key=lambda one: max(spread.variation for spread in one.values()))


def walks(library: Library, cpu: int) -> list[tuple[str, float, float]]:
    """What is measured, its seconds, and its budget in seconds."""
    began = time.perf_counter()
    walk = chase._Walk(library, 64 << 20, "huge")
    for size in (16 << 10, 1 << 20, 64 << 20):
        walk.point(size, small_below=1 << 20)
    points = time.perf_counter() - began
    del walk
    began = time.perf_counter()
    chase.judge(library, cpu, (32, 1024, 32 << 10), "deep")
    return [
        (f"latency of {POINTS} sizes", points, POINTS_S),
        ("latency of every power of two, on huge and small pages", time.perf_counter() - began, CURVE_S),
    ]


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
    parser.add_argument("--readings", type=int, default=READINGS, help=f"of each kind (default: {READINGS})")
    options = parser.parse_args()
    library = load()
    allowed = sorted(os.sched_getaffinity(0))
    others = allowed[1:]
    circumstances: dict[str, AbstractContextManager[None]] = {"as it is": nullcontext()}
    if others:
        circumstances["a hog on every other CPU"] = hogs(others)
    circumstances["a hog on the same CPU"] = hogs(allowed[:1])
    shared = false_sharing(library, allowed)
    pin(allowed[0])
    reading.ATTEMPTS = 1
    read_once = kinds(library)
    rows = [("reading", "machine", "ms", "variation", "CPU share", "")]
    figures: dict[str, object] = {}
    kept = True
    for where, around in circumstances.items():
        with around:
            spreads = best_series(read_once, options.readings)
        for name, one in spreads.items():
            kept = kept and one.kept
            over = "" if one.kept else "over budget"
            rows.append((name, where, f"{1000 * one.seconds:.1f}", f"{one.variation:.2%}", f"{one.cpu_share}", over))
            figures[f"{name}; {where}"] = {"s": round(one.seconds, 5), "variation": one.variation}
    for name, seconds, budget in walks(library, allowed[0]):
        kept = kept and seconds <= budget
        rows.append((name, "as it is", f"{1000 * seconds:.0f}", "", "", "" if seconds <= budget else "over budget"))
        figures[name] = round(seconds, 4)
    if shared is not None:
        factor, seconds = shared
        is_shown = factor >= SHARING_FACTOR and seconds <= SHARING_S
        kept = kept and is_shown
        told = f"{factor:.1f} times" + ("" if is_shown else ", over budget")
        rows.append(("false sharing, one run of each distance", "as it is", f"{1000 * seconds:.1f}", "", "", told))
        figures["false sharing"] = {"factor": round(factor, 2), "s": round(seconds, 5)}
    print_table(f"{options.readings} readings of each kind", rows, {**figures, "within_budget": kept})
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
