"""The compute self-tests: clock, and matrix products in FP32, INT8 and BF16, exact and against the core's own ceiling.

Parameters: the matrix products to run, by the library's names (flags of /proc/cpuinfo), and "allow-busy". One idle CPU
runs all of it, each step in a process of its own.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from amdcheck.host.protocol import ALLOW_BUSY
from amdcheck.selftest.idle import Busy, choose_cpu
from amdcheck.selftest.isolate import Ended, Record, isolated
from amdcheck.selftest.library import Gemm, Library, LibraryMissing, Product, load
from amdcheck.selftest.reading import pin, raise_clock, read

DEADLINE_S = 3.0  # of one step, which takes some 40 milliseconds
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
    names = tuple(name for name in params if name != ALLOW_BUSY)
    try:
        library = load()
        cpu = choose_cpu(allow_busy=ALLOW_BUSY in params)
    except LibraryMissing as missing:
        return {"lacks": str(missing), "busy": None, **_nothing(str(missing))}
    except Busy as busy:
        return {"lacks": None, "busy": str(busy), **_nothing(str(busy))}
    return {
        "lacks": None,
        "busy": None,
        "cpu": cpu,
        "clock": isolated(lambda: clock(library, cpu), deadline_s=DEADLINE_S),
        "products": [_one(library, cpu, name) for name in names],
    }


def _nothing(why: str) -> Record:
    return {"cpu": None, "clock": Ended(ended="failed", detail=why, result=None), "products": []}


def clock(library: Library, cpu: int) -> Record:
    """Readings of both chains, each of `cycles` cycles, and of one that takes twice as long: a core at half its clock.

    Raises LibraryMissing on other machines than x86-64.
    """
    pin(cpu)
    raise_clock()

    def imul() -> float:
        return _there(library.time_imul(CHAIN))

    def add() -> float:
        return _there(library.time_add(CHAIN))

    def twice() -> float:
        return _there(library.time_imul(2 * CHAIN))

    return {"cycles": 300 * CHAIN, "imul": read(imul), "add": read(add), "twice": read(twice, budget_s=0.004)}


def _there(seconds: float | None) -> float:
    if seconds is None:
        raise LibraryMissing("no clock loops in this build")
    return seconds


def _one(library: Library, cpu: int, name: str) -> Record:
    gemm = library.find_gemm(name)
    if gemm is None:
        detail = "the compiler that built amdcheck does not know this instruction set"
        return {"name": name, **Ended(ended="not-built", detail=detail, result=None)}
    return {"name": name, **isolated(lambda: judge(library, gemm, cpu), deadline_s=DEADLINE_S)}


def judge(library: Library, gemm: Gemm, cpu: int) -> Record:
    """Odd shapes and a timed one, every word of every product compared; then words planted wrong, to be noticed."""
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

    before = read(ceiling, cycle_s=library.cycle_s, budget_s=0.004)
    reading = read(multiply, cycle_s=library.cycle_s)
    after = read(ceiling, cycle_s=library.cycle_s, budget_s=0.004)
    return {
        "shape": TIMED,
        "operations": product.operations,
        "reading": reading,
        "ceiling_operations": PORTS * gemm.ports_operations,
        "ceiling": min(before, after, key=lambda one: one["best_s"]),
        "compared": found.compared,
        "wrong": found.wrong,
        "first_wrong": found.first,
        "planted": planted,
        "noticed": noticed,
    }


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
