"""selftest.cpu.isa: every instruction set that the kernel offers computes exactly, and errors would be noticed.

Parameters: the names of the kernels to run, which are flags of /proc/cpuinfo. Each runs in a process of its own.
"""

from __future__ import annotations

from amdcheck.selftest import cpuid
from amdcheck.selftest.isolate import Ended, Record, isolated
from amdcheck.selftest.library import Kernel, Library, LibraryMissing, load

BLOCKS = 16  # tiles with operands of their own
PASSES = 64  # times that all tiles are computed
SEED = 0x414D44
DEADLINE_S = 2.0  # of one kernel, which takes a few milliseconds
SHOWN = 8  # wrong words that are told one by one


def run(params: tuple[str, ...]) -> Record:
    """Run the named kernels one after the other, then read CPUID."""
    library, lacks = None, None
    try:
        library = load()
    except LibraryMissing as missing:
        lacks = str(missing)
    kernels = [] if library is None else [_one(library, name) for name in params]
    return {
        "lacks": lacks,
        "kernels": kernels,
        "cpuid": isolated(lambda: cpuid.read(library), deadline_s=DEADLINE_S),
    }


def _one(library: Library, name: str) -> Record:
    kernel = library.find(name)
    if kernel is None:
        detail = "the compiler that built amdcheck does not know this instruction set"
        return {"name": name, **Ended(ended="not-built", detail=detail, result=None)}
    return {"name": name, **isolated(lambda: judge(library, kernel), deadline_s=DEADLINE_S)}


def judge(library: Library, kernel: Kernel) -> Record:
    """Compare every word of every pass with the right answer, then plant one wrong bit after the other.

    A plant counts as noticed only when exactly the planted word is found wrong.
    """
    before = library.current_cpu()
    work = kernel.prepare(blocks=BLOCKS, seed=SEED)
    wrong = 0
    places: dict[tuple[int, int], Record] = {}
    for _ in range(PASSES):
        words = work.run()
        wrong += len(words)
        for word in words:
            register, lane = divmod(word % kernel.words, kernel.lanes)
            places.setdefault((register, lane), _told(register, lane, work.got(word), work.want(word)))

    tile = kernel.prepare(blocks=1, seed=SEED + 1)
    noticed = sum(list(tile.run(wrong=word)) == [word] for word in range(kernel.words))
    return {
        "registers": kernel.registers,
        "lanes": kernel.lanes,
        "compared": PASSES * work.words,
        "wrong": wrong,
        "wrong_lanes": sorted({lane for _, lane in places}),
        "first_wrong": list(places.values())[:SHOWN],
        "planted": kernel.words,
        "noticed": noticed,
        "cpus": sorted({before, library.current_cpu()} - {-1}),
    }


def _told(register: int, lane: int, got: int, want: int) -> Record:
    return {"register": register, "lane": lane, "got": f"{got:#010x}", "want": f"{want:#010x}"}
