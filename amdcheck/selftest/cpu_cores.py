"""The cores beside each other: one after the other alone, then all that are idle at once.

Parameters: matrix products, by flags of /proc/cpuinfo, of which the first is run, and "allow-busy". Every CPU gets a
pinned process, which multiplies small matrices, times chains of instructions and ports between them, and compares
every word. There is no barrier inside the time that counts: all are told when it begins and when it ends.
"""

from __future__ import annotations

import os
import resource
import select
import statistics
import struct
import time
from collections.abc import Callable, Sequence

from amdcheck.knowledge.selftests import limit
from amdcheck.selftest import cgroup
from amdcheck.selftest.idle import ALLOW_BUSY, Busy, idle_cpus
from amdcheck.selftest.isolate import Ended, Isolated, Record
from amdcheck.selftest.library import Gemm, Library, LibraryMissing, Product, load
from amdcheck.selftest.reading import ATTEMPTS, pin, stolen_s

SEED = 0x414D44
SHAPE = (96, 96, 96)  # some twenty microseconds, and with a sibling's in every second-level cache
CHAIN = 20  # times 300 cycles of dependent instructions
PORTS = 1000  # times 24 multiply-adds
ALONE_S = 0.015
TOGETHER_S = 0.045
ALONE = 4  # CPUs that are measured alone, spread over those that are idle
PLANTED = 4  # wrong words that each process must notice
READY_S = 2.0  # for all processes to be there
ATTEMPTS_TOGETHER = 2

_GO = struct.Struct("d")  # when the time that counts begins, on CLOCK_MONOTONIC


def run(params: tuple[str, ...]) -> Record:
    """Choose CPUs, measure some alone and then all together."""
    names = tuple(name for name in params if name != ALLOW_BUSY)
    allowed = sorted(os.sched_getaffinity(0))
    before = cgroup.quotas()
    told: Record = {"lacks": None, "busy": None, "allowed": allowed, "alone": [], "together": []}
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

    def alone(cpu: int) -> Record:
        def measured() -> list[Record]:
            return _side_by_side(library, gemm, (cpu,), ALONE_S)

        return _best(measured, ATTEMPTS, lambda runs: _of_ports(runs, operations / ports))[0]

    def together() -> list[Record]:
        return _side_by_side(library, gemm, sorted(cpus), TOGETHER_S)

    told["alone"] = singles = [alone(cpu) for cpu in _spread(cpus)]
    if len(cpus) > 1:
        told["together"] = _best(together, ATTEMPTS_TOGETHER, lambda runs: _of_alone(runs, singles))
    told["quota"] = cgroup.tightest(before, cgroup.quotas())
    return told


def _spread(cpus: Sequence[int]) -> Sequence[int]:
    """At most so many of them, at equal steps."""
    return cpus[:: -(-len(cpus) // ALONE)]


def _best(measure: Callable[[], list[Record]], attempts: int, rate: Callable[[list[Record]], float]) -> list[Record]:
    """Measure again while a process got too little of its CPU or the rate is below 1, which is what is judged.

    The least disturbed attempt is told, of several such the fastest one. One in which a process died, or a word was
    wrong, is told at once: it must not be hidden by a better one.
    """
    undisturbed = limit("cpu-share").value
    best, most = list[Record](), (-1.0, -1.0)
    for _ in range(attempts):
        runs = measure()
        results = [run["result"] for run in runs]
        if any(result is None or result["wrong"] or result["noticed"] < result["planted"] for result in results):
            return runs
        quality = min(undisturbed, *(result["cpu_share"] for result in results)), rate(runs)
        if quality > most:
            best, most = runs, quality
        if most >= (undisturbed, 1.0):
            break
    return best


def _of_ports(runs: list[Record], operations: float) -> float:
    """The product's rate against the least of a core that nobody shares; `operations` of it for one of the ports."""
    result = runs[0]["result"]
    return float(operations * result["ports_best_s"] / result["product_best_s"] / limit("shared-core").value)


def _of_alone(runs: list[Record], singles: list[Record]) -> float:
    """What all do together and what the slowest does, against the least of both that is no finding."""
    alone = max((_per_cycle(run["result"]) for run in singles if run["result"]), default=0.0)
    each = [_per_cycle(run["result"]) for run in runs]
    rates = [1 / run["result"]["product_median_s"] for run in runs]
    together = sum(each) / len(each) / alone if alone else 1.0
    slowest = min(rates) / statistics.median(rates)
    threads = 2 if _smt_is_active() else 1
    return float(min(together * threads / limit("cores-together").value, slowest / limit("slow-of-siblings").value))


def _per_cycle(result: Record) -> float:
    """Products a cycle, up to a factor that is the same for all."""
    return float(result["chain_best_s"] / result["product_median_s"])


def _smt_is_active() -> bool:
    try:
        with open("/sys/devices/system/cpu/smt/active") as active:
            return active.read().strip() == "1"
    except OSError:
        return False


def _side_by_side(library: Library, gemm: Gemm, cpus: Sequence[int], window_s: float) -> list[Record]:
    """One process a CPU; what each measured between the same two moments, and what the hypervisor took meanwhile."""
    ready, tell_ready = os.pipe()
    hear_go, go = os.pipe()

    def worker(cpu: int) -> Callable[[], Record]:
        def step() -> Record:
            pin(cpu)
            os.close(go)  # else no process would see that the parent is gone
            product = gemm.prepare(m=SHAPE[0], n=SHAPE[1], k=SHAPE[2], seed=SEED + cpu)
            os.write(tell_ready, b".")
            (start,) = _GO.unpack(os.read(hear_go, _GO.size))
            return measure(library, product, start=start, window_s=window_s, plant=cpu)

        return step

    started: list[Isolated | Ended] = []
    for cpu in cpus:
        try:
            started.append(Isolated(worker(cpu)))
        except OSError as error:  # no more processes are allowed
            started.append(Ended(ended="failed", detail=f"{type(error).__name__}: {error}", result=None))
    os.close(tell_ready)
    _wait_for(ready, sum(isinstance(one, Isolated) for one in started))
    stolen = _stolen(cpus)
    os.write(go, _GO.pack(time.monotonic() + 0.001 + 1e-5 * len(cpus)) * len(cpus))
    os.close(go)
    deadline_s = READY_S + window_s
    ended = [one.ended(deadline_s=deadline_s) if isinstance(one, Isolated) else one for one in started]
    later = _stolen(cpus)
    for fd in (ready, hear_go):
        os.close(fd)
    told = []
    for cpu, one in zip(cpus, ended, strict=True):
        if one["result"] is not None:
            was, now = stolen.get(cpu), later.get(cpu)
            one["result"]["stolen_s"] = None if was is None or now is None else max(0.0, now - was)
        told.append({"cpu": cpu, **one})
    return told


def _wait_for(ready: int, processes: int) -> None:
    """Until so many have said that they are ready, all that have not are dead, or the patience is over."""
    end = time.monotonic() + READY_S
    while processes > 0:
        there, _, _ = select.select([ready], [], [], max(0.0, end - time.monotonic()))
        if not there:
            return
        said = os.read(ready, 4096)
        if not said:
            return
        processes -= len(said)


def _stolen(cpus: Sequence[int]) -> dict[int, float | None]:
    """Seconds that the hypervisor has taken from each CPU; empty where /proc/stat does not say."""
    try:
        with open("/proc/stat", encoding="ascii", errors="replace") as stat:
            lines = [line for line in stat if line.startswith("cpu")]
        return {cpu: stolen_s(lines, cpu) for cpu in cpus}
    except (OSError, ValueError):
        return {}


def measure(library: Library, product: Product, *, start: float, window_s: float, plant: int) -> Record:
    """Slices from `start` for `window_s` seconds, every word of every product compared; then plant wrong words."""
    products, chains, ports = list[float](), list[float](), list[float]()
    wrong = 0
    before = library.current_cpu()
    product.run()
    while (left := start - time.monotonic()) > 0:
        time.sleep(left)
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
        "cpus": sorted({before, library.current_cpu()}),
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
