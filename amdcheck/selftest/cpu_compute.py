"""The compute self-tests: clock, and matrix products in FP32, INT8 and BF16, exact and against the core's own ceiling.

Parameters: the matrix products to run, by the library's names (flags of /proc/cpuinfo); "allow-busy"; and the rates
below which it is looked again: "least:clock=Hz", "least:NAME=operations a cycle" of a product's ports. One idle CPU
runs all of it, each step in a process of its own.
"""

from __future__ import annotations

import random
import time
from collections.abc import Sequence

from amdcheck.host.asked import ALLOW_BUSY, asked_for
from amdcheck.selftest.idle import Busy, choose_cpu
from amdcheck.selftest.isolate import Ended, Record, isolated
from amdcheck.selftest.library import Gemm, Library, LibraryMissing, Product, load
from amdcheck.selftest.limits import limit_value
from amdcheck.selftest.reading import (
    UNDISTURBED,
    Judged,
    Reading,
    judged,
    least_rates,
    looks,
    pin,
    raise_clock,
    read,
    share_of,
)

DEADLINE_S = 3.5  # of one step, which takes some 40 milliseconds when all is well
PATIENCE_S = 8.0  # of all steps: rates that would be findings are not looked at again later than that
STEP_PATIENCE_S = 2.4  # of one step, whose deadline must not hide what was compared
SEED = 0x414D44
TIMED = (256, 256, 256)  # some hundred microseconds: far below a scheduler's tick
# Shapes that end inside a register tile, a packed word, a cache block; and a product of two vectors.
ODD = ((1, 1, 1), (1, 97, 300), (37, 53, 129), (169, 33, 259), (15, 257, 513))
PLANTED = 6  # words of each shape, its last one among them
SHOWN = 8  # wrong words that are told one by one
CHAIN = 50  # times 300 cycles of dependent instructions: some five microseconds
# Times 24 multiply-adds: some hundred microseconds, as long as a product. Wide vectors are quicker in a shorter slice.
PORTS = 30_000


def run(params: tuple[str, ...]) -> Record:
    """Choose a CPU, then run the steps on it one after the other."""
    try:
        library = load()
        cpu = choose_cpu(allow_busy=ALLOW_BUSY in params)
    except LibraryMissing as missing:
        return {"lacks": str(missing), "busy": None, **_nothing(str(missing))}
    except Busy as busy:
        return {"lacks": None, "busy": str(busy), **_nothing(str(busy))}
    until, least = time.monotonic() + PATIENCE_S, least_rates(params)
    least_hz = least.get("clock", 0.0)
    return {
        "lacks": None,
        "busy": None,
        "cpu": cpu,
        "clock": isolated(lambda: clock(library, cpu, least_hz=least_hz, until=until), deadline_s=DEADLINE_S),
        "products": [_one(library, cpu, name, least.get(name, 0.0), until) for name in asked_for(params)],
    }


def _nothing(why: str) -> Record:
    return {"cpu": None, "clock": Ended(ended="failed", detail=why, result=None), "products": []}


def clock(library: Library, cpu: int, *, least_hz: float, until: float) -> Record:
    """Readings of both chains, each of `cycles` cycles, and of one that takes twice as long: a core at half its clock.

    Again some moments later, where the clock is below `least_hz` or the chains do not agree on it. Raises
    LibraryMissing on other machines than x86-64.
    """
    pin(cpu)

    def imul() -> float:
        return _there(library.time_imul(CHAIN))

    def add() -> float:
        return _there(library.time_add(CHAIN))

    def twice() -> float:
        return _there(library.time_imul(2 * CHAIN))

    def look() -> Record:
        raise_clock()
        return {"cycles": 300 * CHAIN, "imul": read(imul), "add": read(add), "twice": read(twice, budget_s=0.004)}

    def judge(look: Record) -> Judged:
        by_imul, by_add, by_twice = (look[name]["best_s"] for name in ("imul", "add", "twice"))
        differ = limit_value("clock-chains")
        rates = [look["cycles"] / by_imul / least_hz] if least_hz else []
        rates += [differ / max(differ / 100, abs(by_add / by_imul - 1)), by_twice / by_imul / (1 + differ)]
        return judged(share_of(look["imul"], look["add"]), min(rates))

    return looks(look, judge, until=_soon(until))[0]


def _soon(until: float) -> float:
    return min(until, time.monotonic() + STEP_PATIENCE_S)


def _there(seconds: float | None) -> float:
    if seconds is None:
        raise LibraryMissing("no clock loops in this build")
    return seconds


def _one(library: Library, cpu: int, name: str, least_per_cycle: float, until: float) -> Record:
    gemm = library.find_gemm(name)
    if gemm is None:
        detail = "the compiler that built amdcheck does not know this instruction set"
        return {"name": name, **Ended(ended="not-built", detail=detail, result=None)}

    def step() -> Record:
        return judge(library, gemm, cpu, least_per_cycle=least_per_cycle, until=until)

    return {"name": name, **isolated(step, deadline_s=DEADLINE_S)}


def judge(library: Library, gemm: Gemm, cpu: int, *, least_per_cycle: float, until: float) -> Record:
    """Odd shapes and a timed one, every word of every product compared; then words planted wrong, to be noticed.

    The timed one again some moments later, where it is far below the ceiling beside it, or that takes fewer operations
    a cycle than `least_per_cycle`.
    """
    pin(cpu)
    found = _Wrong()
    noticed = planted = 0
    for shape in ODD:
        m, n, k = shape
        product = gemm.prepare(m=m, n=n, k=k, seed=SEED + m)
        product.run()
        found.add(product)
        for word in _places(product.words):
            product.run(wrong=word)
            planted += 1
            noticed += list(product.wrong_words()) == [word]

    m, n, k = TIMED
    product = gemm.prepare(m=m, n=n, k=k, seed=SEED)

    def multiply() -> float:
        seconds = product.run()
        found.add(product)
        return seconds

    def ceiling() -> float:
        return gemm.time_ports(PORTS)

    ceilings: list[Reading] = []

    def look() -> Reading:
        """The product, between two looks at the ceiling."""
        raise_clock()
        before = read(ceiling, pace=library.pace, budget_s=0.004)
        reading = read(multiply, pace=library.pace)
        after = read(ceiling, pace=library.pace, budget_s=0.004)
        ceilings.append(min(before, after, key=lambda one: one["best_s"]))
        return reading

    ceiling_operations = PORTS * gemm.ports_operations

    def judge_look(reading: Reading) -> Judged:
        """Against the best ceiling so far: who shares the core halves its ports as well."""
        ports = best_ceiling(ceilings)
        of_ceiling = product.operations / reading["best_s"] / (ceiling_operations / ports["best_s"])
        rates = [of_ceiling / limit_value("product-of-ceiling")]
        if least_per_cycle and ports["cycle_s"] is not None:
            rates.append(ceiling_operations / ports["best_s"] * ports["cycle_s"] / least_per_cycle)
        return judged(share_of(reading, ports), min(rates))

    reading, *_ = looks(look, judge_look, until=_soon(until))
    ports = best_ceiling(ceilings)
    return {
        "shape": TIMED,
        "operations": product.operations,
        "reading": reading,
        "ceiling_operations": ceiling_operations,
        "ceiling": ports,
        "compared": found.compared,
        "wrong": found.wrong,
        "first_wrong": found.first,
        "planted": planted,
        "noticed": noticed,
    }


def best_ceiling(ceilings: Sequence[Reading]) -> Reading:
    """The fastest of the undisturbed ones, or of all when there is none."""
    undisturbed = [one for one in ceilings if share_of(one) >= UNDISTURBED]
    return min(undisturbed or ceilings, key=lambda one: one["best_s"])


def _places(words: int) -> Sequence[int]:
    """Words to plant an error in: the first, the last, and some between, the same in every run."""
    chosen = random.Random(words)
    return sorted({0, words - 1, *(chosen.randrange(words) for _ in range(PLANTED - 2))})


class _Wrong:
    """What was compared, and what of it was wrong."""

    def __init__(self) -> None:
        self.compared = 0
        self.wrong = 0
        self.first: list[Record] = []

    def add(self, product: Product) -> None:
        words = product.wrong_words()
        self.compared += product.words
        self.wrong += len(words)
        for word in words[: SHOWN - len(self.first)]:
            row, column = divmod(word, product.shape[1])
            got, want = f"{product.got(word):#010x}", f"{product.want(word):#010x}"
            self.first.append({"shape": product.shape, "row": row, "column": column, "got": got, "want": want})
