"""The cores beside each other: one after the other alone, then more and more at once, up to all that are idle.

Parameters: matrix products, by rows of isa.toml, of which the first is run; "allow-busy"; "least:clock=Hz", below
which a clock is looked at again. Every CPU gets a pinned process, which multiplies small matrices, times chains of
instructions and ports between them, and compares every word. There is no barrier inside the time that counts: all are
told when it begins and when it ends.
"""

from __future__ import annotations

import math
import os
import resource
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from amdcheck.host.asked import ALLOW_BUSY, asked_for
from amdcheck.selftest import cgroup, stat
from amdcheck.selftest.idle import Busy, core_of, idle_cpus, one_a_core
from amdcheck.selftest.isolate import Record
from amdcheck.selftest.library import Gemm, Library, LibraryMissing, Product, load
from amdcheck.selftest.limits import limit_value
from amdcheck.selftest.reading import (
    TELL_AT_ONCE,
    UNDISTURBED,
    Judged,
    judged,
    least_rates,
    looks,
    pin,
    stolen_since_boot,
)
from amdcheck.selftest.room import be_first_to_go, room
from amdcheck.selftest.together import Start, together

SEED = 0x414D44
SHAPE = (96, 96, 96)  # some twenty microseconds, and with a sibling's in every second-level cache
CHAIN = 20  # times 300 cycles of dependent instructions
PORTS = 1000  # times 24 multiply-adds
ALONE_S = 0.015
TOGETHER_S = 0.045
ALONE = 4  # CPUs that are measured alone, spread over those that are idle
PLANTED = 4  # wrong words that each process must notice
READY_S = 2.0  # for all processes to be there
BEGIN_WITHIN_S = 15.0  # of the start: no look and no wave begins later, so that what was measured is told
ALONE_WITHIN = 0.6  # of that
PROCESS_BYTES = 16 << 20  # what one of the processes dirties, at most


def run(params: tuple[str, ...]) -> Record:
    """Choose CPUs, then measure some alone, some at once, and all at once."""
    names = asked_for(params)
    allowed = sorted(os.sched_getaffinity(0))
    before = cgroup.quotas()
    told: Record = {"lacks": None, "busy": None, "allowed": allowed, "alone": [], "waves": [], "together": []}
    told |= {"stolen_looks": [], "stolen_since_boot": stolen_since_boot(stat.lines())}
    told["quota"] = cgroup.tightest(before, before)
    try:
        library = load()
        gemm = next((found for name in names if (found := library.find_gemm(name)) is not None), None)
        if not names:
            return told
        if gemm is None:
            raise LibraryMissing(f"the compiler that built amdcheck knows no {' and no '.join(names)}")
        cpus = idle_cpus(allow_busy=ALLOW_BUSY in params)
    except LibraryMissing as missing:
        return {**told, "lacks": str(missing)}
    except Busy as busy:
        return {**told, "busy": str(busy)}
    operations, ports = 2 * SHAPE[0] * SHAPE[1] * SHAPE[2], PORTS * gemm.ports_operations
    told |= {"operations": operations, "ports_operations": ports, "cycles": 300 * CHAIN}
    be_first_to_go()
    chosen = sorted(cpus[: max(2, room() // PROCESS_BYTES)])
    began = time.monotonic()
    run_on = partial(_side_by_side, library, gemm)
    least_hz = least_rates(params).get("clock")
    least_chain_s = None if least_hz is None else 300 * CHAIN / least_hz
    judge = partial(_judged_alone, ports_operations=operations / ports, least_chain_s=least_chain_s)
    until = began + ALONE_WITHIN * BEGIN_WITHIN_S
    singles = _alone(run_on, one_a_core(chosen, most=ALONE), judge, until)
    if len(chosen) > 1:
        told |= _at_once(run_on, chosen, singles, operations, least_chain_s, began + BEGIN_WITHIN_S)
        singles = _again(run_on, singles, told["together"], judge, began + BEGIN_WITHIN_S)
    told["alone"] = singles
    told["quota"] = cgroup.tightest(before, cgroup.quotas())
    return told


RunOn = Callable[[Sequence[int], float], list[Record]]
# What is judged of a CPU that ran alone, beside these others.
JudgeAlone = Callable[[Sequence[Record], Sequence[Record]], Judged]


def _judged_alone(
    others: Sequence[Record], runs: Sequence[Record], *, ports_operations: float, least_chain_s: float | None
) -> Judged:
    """The product's rate a cycle against the least of a core that nobody shares, by the best ports; and the clock.

    `ports_operations`: operations of a product for one on the ports. `least_chain_s`: seconds of a chain at the lowest
    clock that is no finding; None: it is held against the others'.
    """
    if _went_wrong(runs):
        return TELL_AT_ONCE
    one, results = runs[0]["result"], [run["result"] for run in (*runs, *others) if run["result"]]
    ceiling = max(result["chain_best_s"] / result["ports_best_s"] for result in results)
    share = ports_operations * one["chain_best_s"] / one["product_best_s"] / ceiling
    most_s = least_chain_s or min(r["chain_best_s"] for r in results) / limit_value("slow-of-siblings")
    rate = min(share / limit_value("shared-core"), most_s / one["chain_best_s"])
    return judged(one["cpu_share"] / limit_value("cpu-share"), rate)


def _alone(run_on: RunOn, cpus: Sequence[int], judge: JudgeAlone, until: float) -> list[Record]:
    """One CPU after the other; once more those that do far less than the best of them."""
    told = list[Record]()
    for cpu in cpus:
        if told and time.monotonic() > until:
            break
        told += looks(partial(run_on, (cpu,), ALONE_S), partial(judge, told), until=until)[0]
    return _again(run_on, told, [], judge, until)


def _again(
    run_on: RunOn, singles: Sequence[Record], others: Sequence[Record], judge: JudgeAlone, until: float
) -> list[Record]:
    """Those that do far less than they should beside the others once more; what went wrong is told, then or now."""
    told = list(singles)
    for place, run in enumerate(singles):
        beside = partial(judge, (*told, *others))
        if beside([run]).rate < 1 and time.monotonic() <= until:
            again = looks(partial(run_on, (run["cpu"],), ALONE_S), beside, until=until)[0]
            told[place] = max([run], again, key=beside)[0]
    return told


def _at_once(
    run_on: RunOn,
    cpus: Sequence[int],
    singles: Sequence[Record],
    operations: int,
    least_chain_s: float | None,
    until: float,
) -> Record:
    """Waves of more and more CPUs, then all; a wave in which one went wrong is the last, and is told whole."""
    waves: list[Record] = []
    for some in _waves(cpus):
        if time.monotonic() > until:
            break
        runs = run_on(some, ALONE_S)
        if _went_wrong(runs):
            return {"waves": waves, "together": runs}
        waves.append(_wave(runs, operations))
    judge = partial(_together, singles=singles, least_chain_s=least_chain_s)
    done = looks(partial(run_on, cpus, TOGETHER_S), judge, until=until)
    return {"waves": waves, "together": done[0], "stolen_looks": [s for s in map(_stolen, done) if s is not None]}


def _waves(cpus: Sequence[int]) -> Iterator[Sequence[int]]:
    """Two of them, four, eight, each on a core of its own, then one for every core; all of them are not among these."""
    cores = one_a_core(cpus, most=len(cpus))
    number = 2
    while number < len(cores):
        yield cores[:number]
        number *= 2
    if 1 < len(cores) < len(cpus):
        yield cores


def _went_wrong(runs: Sequence[Record]) -> bool:
    results = [run["result"] for run in runs]
    return any(result is None or result["wrong"] or result["noticed"] < result["planted"] for result in results)


def _together(runs: Sequence[Record], singles: Sequence[Record], least_chain_s: float | None) -> Judged:
    """What all do together, what the slowest does, their clock, and what is left them of the time: against the least of
    each. `least_chain_s` as for a CPU alone; None: no clock is held against anything.

    When the hypervisor took too much, any other look says more of the cores, however disturbed.
    """
    if _went_wrong(runs):
        return TELL_AT_ONCE
    results = [run["result"] for run in runs]
    alone = max((_per_cycle(run["result"]) for run in singles if run["result"]), default=0.0)
    together = sum(map(_per_cycle, results)) / _cores(runs) / alone if alone else 1.0
    rates = [1 / result["product_median_s"] for result in results]
    slowest = min(rates) / statistics.median(rates)
    shares = [result["cpu_share"] for result in results]
    share = min(min(shares) / limit_value("hogged"), statistics.fmean(shares) / limit_value("cpu-share"))
    stolen, most = _stolen(runs) or 0.0, limit_value("stolen")
    rate = min(
        together / limit_value("cores-together"),
        slowest / limit_value("slow-of-siblings"),
        (least_chain_s or math.inf) / statistics.median(result["chain_best_s"] for result in results),
        (1 - stolen) / (1 - most),
    )
    return judged(share if stolen <= most else share - UNDISTURBED, rate)


def _stolen(runs: Sequence[Record]) -> float | None:
    """What the hypervisor took of the time of all, None where nobody says. In ticks it can seem to be more than all."""
    results = [run["result"] for run in runs if run["result"] is not None]
    taken = [result["stolen_s"] for result in results if result["stolen_s"] is not None]
    return min(1.0, sum(taken) / sum(result["took_s"] for result in results)) if taken else None


def _per_cycle(result: Record) -> float:
    """Products a cycle, up to a factor that is the same for all."""
    return float(result["chain_best_s"] / result["product_median_s"])


def _cores(runs: Sequence[Record]) -> int:
    return len({tuple(core_of(run["cpu"])) for run in runs})


def _wave(runs: Sequence[Record], operations: int) -> Record:
    """What some CPUs did at once: their number and cores, operations a cycle of all, the least share of a CPU."""
    return {
        "cpus": len(runs),
        "cores": _cores(runs),
        "per_cycle": _short(sum(_per_cycle(run["result"]) for run in runs) * operations / (300 * CHAIN)),
        "cpu_share": min(run["result"]["cpu_share"] for run in runs),
    }


def _side_by_side(library: Library, gemm: Gemm, cpus: Sequence[int], window_s: float) -> list[Record]:
    """One process a CPU; what each measured between the same two moments, and what the hypervisor took meanwhile."""

    def step(cpu: int, start: Start) -> Record:
        pin(cpu)
        product = gemm.prepare(m=SHAPE[0], n=SHAPE[1], k=SHAPE[2], seed=SEED + cpu, pages="small")
        product.run()
        return measure(library, product, start=start.wait(), window_s=window_s, plant=cpu)

    steps = {cpu: partial(step, cpu) for cpu in cpus}
    ended, stolen = together(steps, ready_s=READY_S, lasts_s=window_s, deadline_s=READY_S + 1 + window_s)
    for cpu, one in ended.items():
        if one["result"] is not None:
            one["result"]["stolen_s"] = stolen[cpu]
    return [{"cpu": cpu, **one} for cpu, one in ended.items()]


def measure(library: Library, product: Product, *, start: float, window_s: float, plant: int) -> Record:
    """Slices from `start` for `window_s` seconds, every word of every product compared; then plant wrong words."""
    products, chains, ports = list[float](), list[float](), list[float]()
    wrong = 0
    before = library.current_cpu()
    switched, cpu_s = resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw, time.thread_time()
    while time.monotonic() < start + window_s or not products:
        products.append(product.run())
        wrong += len(product.wrong_words())
        # A chain may take more cycles than we count on some processor: the shorter time never tells too low a clock.
        chains += [one for one in (library.time_imul(CHAIN), library.time_add(CHAIN)) if one is not None]
        ports.append(product.gemm.time_ports(PORTS))
    took = time.monotonic() - start  # who comes late had too little of its CPU
    cpu_s = time.thread_time() - cpu_s
    switched = resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw - switched
    words = [(plant + 2477 * number) % product.words for number in range(PLANTED)]
    return {
        "cpus": sorted({before, library.current_cpu()} - {-1}),
        "slices": len(products),
        "compared": len(products) * product.words,
        "wrong": wrong,
        "planted": PLANTED,
        "noticed": sum(_notices(product, word) for word in words),
        "product_best_s": _short(min(products)),
        "product_median_s": _short(statistics.median(products)),
        "chain_best_s": _short(min(chains)),
        "ports_best_s": _short(min(ports)),
        "took_s": _short(took),
        "cpu_share": round(min(1.0, cpu_s / took), 4),
        "involuntary": switched,
    }


def _notices(product: Product, word: int) -> bool:
    product.run(wrong=word)
    return list(product.wrong_words()) == [word]


def _short(seconds: float) -> float:
    """Five digits: more is noise, and a machine of a thousand CPUs tells it a thousand times."""
    return float(f"{seconds:.5g}")
