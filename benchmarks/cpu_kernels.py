"""The self-tests' matrix products and triad, beside the core's own ceiling and beside the libraries of the field.

    python -m benchmarks.cpu_kernels [--quick] [--stream PATH/stream.c]

Everything runs on one CPU, call by call in turn, so that a noisy moment hits all alike. A group is the best of a few
calls of each; a ratio is the median over groups, with its quartiles. Groups during which the core's other thread was at
work, as another guest's may be, are left out and made up for, as long as patience lasts. A series that was disturbed
(less than 95 % of the CPU, fewer than half of the groups alone on the core, or a ceiling that moved) or that misses its
budget is repeated, up to three in all, and the best one counts. Beside the share of the ceiling, which has the budget,
stands the share of what the same ports would take at the clock beside the product: a core may run multiply-adds from
registers at a higher clock than those whose operands come from its caches.

OpenBLAS and oneDNN take part where they are installed (`pip install 'amdcheck[bench]'`), limited to the instruction set
of the kernel beside them: each kernel is measured in a process of its own. Every product of theirs is compared too.
STREAM takes part when its source is given; it is compiled as it is, for one thread. What is said of it is no STREAM
benchmark result in the sense of its licence: the runs do not follow its run rules.

--quick measures two sizes without libraries and fails only for what a busy or shared core cannot explain.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from amdcheck.knowledge.isa import isa_table
from amdcheck.knowledge.selftests import limit
from amdcheck.selftest.buffer import Buffer, Pages
from amdcheck.selftest.library import Library, Pace, Product, load
from benchmarks.timing import Front, offered_flags, print_table, processor, timed

SERIES = 3
CALLS = 3  # of each contender in a group
LOOKS = 5  # at what the core begins, after each call
WINDOWS, WINDOW_S, WINDOW_LOOKS = 20, 0.05, 20  # at that before the first call, over a second: neighbours rest at times
SIZES = {256: 40, 512: 20, 1024: 8, 2048: 5}  # the groups of each
QUICK_SIZES = {256: 15, 512: 10}
PATIENCE_S, QUICK_PATIENCE_S = 20.0, 2.0  # of a series, for groups that have the core alone
# Least repeats of a slice of the ceiling, some 0.3 ms: a clock that rose only in the pause before does not count.
PORTS = 60_000
RESTS = 0.06  # of the time that was worked
LEAST_REST_S = 0.005
STEADY = 0.05  # the ceiling's groups may differ by so much
CLEARLY = 0.05  # above its budget, a size is clearly well
TRIAD_GATE = 0.95
TRIAD_ROUNDS = 5


class Target(Struct, frozen=True, kw_only=True):
    """A matrix product, its budget as a share of the ceiling, and what holds the libraries to its instruction set."""

    kernel: str
    title: str
    gate: float
    openblas: str | None = None
    onednn: str | None = None


TARGETS = (
    Target(kernel="fma", title="FP32 AVX2", gate=0.85, openblas="ZEN", onednn="AVX2"),
    Target(kernel="avx512f", title="FP32 AVX-512", gate=0.80, openblas="SKYLAKEX", onednn="AVX512_CORE_BF16"),
    Target(kernel="avx2", title="INT8 AVX2", gate=0.75, onednn="AVX2"),
    Target(kernel="avx_vnni", title="INT8 AVX-VNNI", gate=0.75, onednn="AVX2_VNNI"),
    Target(kernel="avx512_vnni", title="INT8 AVX512-VNNI", gate=0.75, onednn="AVX512_CORE_BF16"),
    Target(kernel="avx512_bf16", title="BF16 AVX-512", gate=0.80),
)


class Ratio(Struct, frozen=True):
    """Our rate over another's, group by group."""

    median: float
    low: float
    high: float


class Series(Struct, frozen=True, kw_only=True):
    """One size of one kernel: best rates in 10^9 operations a second, and ours over the others'."""

    size: int
    rates: dict[str, float]
    ratios: dict[str, Ratio]
    at_its_clock: Ratio | None  # over what the ceiling's ports would take at the clock beside the product
    cpu_share: float
    alone: int  # groups during which the core's other thread rested; only these count, if there are enough
    groups: int  # that were asked for
    most_issued: float  # instructions that the core began in a cycle, by all that was seen of it up to then
    moved: float  # how much the ceiling's groups differ
    attempts: int

    @property
    def disturbed(self) -> bool:
        return self.cpu_share < limit("cpu-share").value or 2 * self.alone < self.groups or self.moved > STEADY


# ---- One kernel, in a process of its own ----

Call = Callable[[], float]


def shared_object(package: str, name: str) -> ctypes.CDLL | None:
    """A package's library, None where the package is not installed."""
    try:
        files = distribution(package).files or ()
    except PackageNotFoundError:
        return None
    return next((ctypes.CDLL(str(file.locate())) for file in files if file.name == name), None)


ROW_MAJOR, NO_TRANSPOSE = 101, 111  # of CBLAS


def openblas_call(product: Product) -> Call | None:
    library = shared_object("scipy-openblas32", "libscipy_openblas.so") if product.gemm.size == 4 else None
    if library is None:
        return None
    m, n, k = product.shape
    a, b, c = (ctypes.c_void_p(buffer.address) for buffer in (product._a, product._b, product._c))
    one, zero = ctypes.c_float(1), ctypes.c_float(0)
    arguments = (ROW_MAJOR, NO_TRANSPOSE, NO_TRANSPOSE, m, n, k, one, a, k, b, n, zero, c, n)
    sgemm = library.scipy_cblas_sgemm
    return lambda: timed(lambda: sgemm(*arguments))


def onednn_call(product: Product) -> Call | None:
    library = shared_object("onednn-cpu-gomp", "libdnnl.so.3") if product.gemm.size in (1, 4) else None
    if library is None:
        return None
    m, n, k = (ctypes.c_int64(length) for length in product.shape)
    a, b, c = (ctypes.c_void_p(buffer.address) for buffer in (product._a, product._b, product._c))
    one, zero, no = ctypes.c_float(1), ctypes.c_float(0), ctypes.c_char(b"N")
    if product.gemm.size == 4:
        sgemm = library.dnnl_sgemm
        return lambda: timed(lambda: sgemm(no, no, m, n, k, one, a, k, b, n, zero, c, n))
    fixed, offset = ctypes.c_char(b"F"), ctypes.c_int32(0)
    a_offset, b_offset = ctypes.c_uint8(0), ctypes.c_int8(0)
    gemm = library.dnnl_gemm_u8s8s32
    tail = (zero, c, n, ctypes.byref(offset))
    return lambda: timed(lambda: gemm(no, no, fixed, m, n, k, one, a, k, a_offset, b, n, b_offset, *tail))


def contenders(product: Product, *, libraries: bool) -> dict[str, Call]:
    """Who takes part, each once checked: its answers are ours, to the last bit."""
    calls: dict[str, Call] = {"own": product.run}
    if libraries:
        found = {"OpenBLAS": openblas_call(product), "oneDNN": onednn_call(product)}
        calls.update({name: call for name, call in found.items() if call is not None})
    for name, call in calls.items():
        ctypes.memset(product._c.address, 0xA5, product._c.size)
        call()
        if product.wrong_words():
            raise SystemExit(f"{name} computes another product of {product.shape} than {product.gemm.name}")
    return calls


class Meter:
    """CPU and wall seconds of the calls, and rests between them: Linux stops a thread of real-time priority for 5 % of
    each second, in the middle of a call, unless it leaves the CPU by itself.
    """

    def __init__(self) -> None:
        self.cpu = self.wall = self._rest = 0.0

    def timed(self, call: Call) -> float:
        cpu, wall = time.thread_time(), time.perf_counter()
        seconds = call()
        took = time.perf_counter() - wall
        self.cpu += time.thread_time() - cpu
        self.wall += took
        self._rest += RESTS * took
        if self._rest > LEAST_REST_S:
            time.sleep(self._rest)
            self._rest = 0.0
        return seconds


class Group(NamedTuple):
    """The best rate of each, and the instructions that do nothing which the core began in a cycle between the calls."""

    rates: dict[str, float]
    per_cycle: dict[str, float]  # of those beside whose calls the clock held
    issued: float


def group_of(everyone: Mapping[str, tuple[Call, int]], library: Library, meter: Meter) -> Group:
    rates, per_cycle, issued = dict.fromkeys(everyone, 0.0), dict[str, float](), list[float]()
    for _ in range(CALLS):
        for name, (call, operations) in everyone.items():
            rate = operations / meter.timed(call) / 1e9
            for pace in steady_look(library):
                issued.append(pace.issued or 0.0)
                if rate > rates[name]:
                    per_cycle[name] = rate * pace.cycle_s
            rates[name] = max(rates[name], rate)
    return Group(rates, per_cycle, statistics.median(issued) if issued else 0.0)


def steady_look(library: Library) -> list[Pace]:
    """The first look of some during which the clock held, if one did."""
    looks = (library.pace() for _ in range(LOOKS))
    return next(([pace] for pace in looks if pace is not None and pace.issued is not None), [])


def measured(
    product: Product, calls: Mapping[str, Call], front: Front, *, groups: int, attempts: int, patience_s: float
) -> Series:
    gemm, library = product.gemm, load()
    everyone: dict[str, tuple[Call, int]] = {name: (call, product.operations) for name, call in calls.items()}
    # As long as a call of ours: a processor may hold its 512-bit pace for a millisecond, and not for long.
    repeats = max(PORTS, int(PORTS * product.run() / gemm.time_ports(PORTS)))
    everyone["ceiling"] = (lambda: gemm.time_ports(repeats), repeats * gemm.ports_operations)
    meter, until = Meter(), time.monotonic() + patience_s
    done: list[Group] = []
    quiet: list[Group] = []
    while len(quiet) < groups and (len(done) < groups or time.monotonic() < until):
        done.append(group_of(everyone, library, meter))
        front.saw(done[-1].issued)
        quiet = [group for group in done if front.was_alone(group.issued)]
    told = quiet if len(quiet) > 1 else done
    rates = {name: [group.rates[name] for group in told] for name in everyone}
    ceiling = rates["ceiling"]
    return Series(
        size=product.shape[0],
        rates={name: round(max(each), 1) for name, each in rates.items()},
        ratios={name: over(rates["own"], each) for name, each in rates.items() if name != "own"},
        at_its_clock=at_its_clock(told),
        cpu_share=round(meter.cpu / meter.wall, 3),
        alone=len(quiet),
        groups=groups,
        most_issued=round(front.most, 3),
        moved=round(1 - min(ceiling) / max(ceiling), 3),
        attempts=attempts,
    )


def at_its_clock(groups: Sequence[Group]) -> Ratio | None:
    both = [group.per_cycle for group in groups if {"own", "ceiling"} <= group.per_cycle.keys()]
    return over([one["own"] for one in both], [one["ceiling"] for one in both]) if len(both) > 1 else None


def over(ours: Sequence[float], theirs: Sequence[float]) -> Ratio:
    ratios = [one / other for one, other in zip(ours, theirs, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return Ratio(round(statistics.median(ratios), 3), round(low, 3), round(high, 3))


def best_series(product: Product, target: Target, front: Front, *, groups: int, quick: bool) -> Series:
    """The first undisturbed series within the budget, else the best of three."""
    calls = contenders(product, libraries=not quick)
    done: list[Series] = []
    patience_s = QUICK_PATIENCE_S if quick else PATIENCE_S
    for attempt in range(1, SERIES + 1):
        done.append(measured(product, calls, front, groups=groups, attempts=attempt, patience_s=patience_s))
        if not done[-1].disturbed and done[-1].ratios["ceiling"].median >= target.gate:
            break
    return max(done, key=lambda series: (not series.disturbed, series.ratios["ceiling"].median))


def measure_here(target: Target, *, quick: bool, most_issued: float) -> list[Series]:
    """All sizes of one kernel, in this process, whose environment already limits the libraries.

    `most_issued`: what kernels before this one saw of the core, for a neighbour who rests hardly ever.
    """
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    gemm = load().find_gemm(target.kernel)
    if gemm is None:
        return []
    front = Front(most_issued)
    for _ in range(WINDOWS):
        time.sleep(WINDOW_S)
        found = [pace.issued for pace in (load().pace() for _ in range(WINDOW_LOOKS)) if pace and pace.issued]
        front.saw(statistics.median(found) if found else 0.0)
    return [
        best_series(gemm.prepare(m=n, n=n, k=n, seed=n), target, front, groups=groups, quick=quick)
        for n, groups in (QUICK_SIZES if quick else SIZES).items()
    ]


def measure_apart(target: Target, *, quick: bool, most_issued: float) -> list[Series]:
    """The same in a process of its own."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    if target.openblas:
        environment["OPENBLAS_CORETYPE"] = target.openblas
    if target.onednn:
        environment["ONEDNN_MAX_CPU_ISA"] = target.onednn
    argv = [sys.executable, "-m", "benchmarks.cpu_kernels", "--one", target.kernel, "--most-issued", str(most_issued)]
    argv += ["--quick"] if quick else []
    done = subprocess.run(argv, env=environment, stdout=subprocess.PIPE, check=True)
    return msgspec.json.decode(done.stdout, type=list[Series])


# ---- All kernels ----


def shown(ratio: Ratio | None) -> str:
    return "-" if ratio is None else f"{ratio.median:.3f} [{ratio.low:.3f}..{ratio.high:.3f}]"


def products(*, quick: bool) -> bool:
    """Measure and print every kernel that this processor offers; whether all keep their budget."""
    flags = offered_flags()
    beside = ("own / OpenBLAS", "own / oneDNN")
    rows = [("kernel", "n", "own", "ceiling", "own / ceiling", "budget", "at its clock", *beside, "alone")]
    figures: dict[str, object] = {}
    missed, most_issued = False, 0.0
    for target in TARGETS:
        if not set(isa_table().isa[target.kernel].flags) <= flags:
            continue
        series = measure_apart(target, quick=quick, most_issued=most_issued)
        most_issued = max((most_issued, *(one.most_issued for one in series)))
        for one in series:
            ratios = one.ratios
            rows.append((
                target.title, str(one.size), f"{one.rates['own']:.1f}", f"{one.rates['ceiling']:.1f}",
                shown(ratios["ceiling"]), f"{target.gate:.2f}", shown(one.at_its_clock),
                shown(ratios.get("OpenBLAS")), shown(ratios.get("oneDNN")),
                f"{one.alone} of {one.groups}{', disturbed' if one.disturbed else ''}",
            ))  # fmt: skip
        figures[target.kernel] = msgspec.to_builtins(series)
        slow = [one for one in series if one.ratios["ceiling"].median < target.gate]
        if quick and slow and explained(series, slow, target.gate):
            print(f"{target.title}: below its budget, as it is on a disturbed core or one that a neighbour shares")
        elif slow:
            missed = True
    title = "matrix products on one CPU, in 10^9 operations a second"
    print_table(f"{title}, {processor()}", rows, {**figures, "within_budget": not missed})
    return not missed


def explained(series: Sequence[Series], slow: Sequence[Series], gate: float) -> bool:
    """Could others on this core be why? Each slow series was disturbed, or no size is clearly well beside a steady
    ceiling: who shares a core takes from all sizes alike, and hardly anything from registers alone.
    """
    return all(one.disturbed for one in slow) or all(one.ratios["ceiling"].median < gate + CLEARLY for one in series)


# ---- Triad ----


def last_level_bytes() -> int:
    sizes = [path.read_text().strip() for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
    return max((int(size[:-1]) << 10 for size in sizes if size.endswith("K")), default=32 << 20)


def stream_program(source: Path, folder: Path, count: int) -> Path:
    """STREAM as it is, for one thread: without OpenMP."""
    program = folder / "stream"
    sizes = (f"-DSTREAM_ARRAY_SIZE={count}", "-DNTIMES=5")
    argv = ["gcc", "-O3", "-march=native", "-mcmodel=medium", *sizes, str(source), "-o", str(program)]
    subprocess.run(argv, check=True)
    return program


def stream_rate(program: Path) -> float:
    said = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    found = re.search(r"^Triad:\s+([0-9.]+)", said, re.M)
    if found is None:
        raise SystemExit(f"no triad in what STREAM says:\n{said}")
    return float(found[1]) / 1e3


def triad_rate(library: Library, count: int, *, non_temporal: bool, pages: Pages) -> float:
    """GB/s as STREAM counts them: three arrays, each once. The best of four, the first of five dropped, as it does."""
    a, b, c = (Buffer(8 * count, pages=pages) for _ in range(3))
    library.triad_operands(b.address, c.address, count)
    best = float("inf")
    for number in range(5):
        seconds = library.time_triad(non_temporal=non_temporal, a=a.address, b=b.address, c=c.address, count=count)
        if seconds is None:
            raise SystemExit("this library has no triad")
        best = min(best, seconds) if number else best
    if library.triad_differences(a.address, count)[0]:
        raise SystemExit("the triad is wrong")
    return 24 * count / best / 1e9


TRIADS: dict[str, tuple[bool, Pages]] = {
    "plain stores": (False, "huge"),
    "plain stores, small pages": (False, "small"),
    "non-temporal stores": (True, "huge"),
    "non-temporal stores, small pages": (True, "small"),
}


def triads(source: Path) -> bool:
    """Arrays of four times the last-level cache, as STREAM asks for; round by round beside STREAM."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    count = 4 * last_level_bytes() // 8 // 64 * 64
    library = load()
    rates: dict[str, list[float]] = {name: [] for name in ("STREAM", *TRIADS)}
    with tempfile.TemporaryDirectory() as folder:
        program = stream_program(source, Path(folder), count)
        for _ in range(TRIAD_ROUNDS):
            rates["STREAM"].append(stream_rate(program))
            for name, (non_temporal, pages) in TRIADS.items():
                rates[name].append(triad_rate(library, count, non_temporal=non_temporal, pages=pages))
    rows = [("triad, one thread", "best GB/s", "median GB/s", "over STREAM")]
    ratios = {name: over(each, rates["STREAM"]) for name, each in rates.items()}
    for name, each in rates.items():
        ratio = "" if name == "STREAM" else shown(ratios[name])
        rows.append((name, f"{max(each):.1f}", f"{statistics.median(each):.1f}", ratio))
    kept = ratios["plain stores"].median >= TRIAD_GATE
    title = f"triad beside the code of STREAM, no STREAM benchmark result, arrays of {8 * count >> 20} MiB"
    figures = {name: msgspec.to_builtins(ratio) for name, ratio in ratios.items() if name != "STREAM"}
    print_table(f"{title}, {processor()}", rows, {**figures, "within_budget": kept})
    return kept


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two sizes, no libraries")
    parser.add_argument("--stream", type=Path, help="the source of STREAM")
    parser.add_argument("--one", choices=[target.kernel for target in TARGETS], help=argparse.SUPPRESS)
    parser.add_argument("--most-issued", type=float, default=0.0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        (target,) = (target for target in TARGETS if target.kernel == options.one)
        found = measure_here(target, quick=options.quick, most_issued=options.most_issued)
        json.dump(msgspec.to_builtins(found), sys.stdout)
        return 0
    kept = products(quick=options.quick)
    if options.stream:
        kept = any(triads(options.stream) for _ in range(SERIES)) and kept
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
