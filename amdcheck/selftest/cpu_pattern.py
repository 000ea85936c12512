"""selftest.cpu.memory-pattern: patterns written into a part of the memory, and every word read back.

Parameters: "allow-busy". One worker a core takes block after block and keeps
them, so that each block lies elsewhere, until its share of the memory or its time is used up. No machine is starved:
the memory is a quarter of what it and its control groups have left.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from amdcheck.host.asked import ALLOW_BUSY
from amdcheck.selftest.buffer import Buffer
from amdcheck.selftest.idle import Busy, idle_cpus, one_a_core
from amdcheck.selftest.isolate import Record, all_ended, started
from amdcheck.selftest.library import Difference, Library, LibraryMissing, load
from amdcheck.selftest.reading import pin
from amdcheck.selftest.room import be_first_to_go, room

BUDGET_S = 6.0  # for all blocks of a worker, which begins none that it could not end
DEADLINE_S = 30.0
MOST_WORKERS = 64
BLOCK = 256 << 20
LEAST_BLOCK = 128 << 20  # larger than the largest slice of an EPYC, 96 MiB: what is read back comes from memory
TRIAL = 4 << 20
SHOWN = 8
SEED = 0x414D44
ONES = (1 << 64) - 1
# Pattern and seed of each pass: every pattern with its inversion. The walking bit is in another place of each word in
# each pass, and each word of 64 has it elsewhere.
PASSES = (
    ("checkerboard", 0),
    ("checkerboard", 1),
    ("place", SEED),
    ("place", SEED ^ ONES),
    ("random", SEED),
    ("random-inverted", SEED),
    *(("walking-one", seed) for seed in (0, 21, 42)),
    *(("walking-zero", seed) for seed in (0, 21, 42)),
)


def run(params: tuple[str, ...]) -> Record:
    """Run one worker on each idle core at once."""
    try:
        library = load()
        idle = idle_cpus(allow_busy=ALLOW_BUSY in params)
    except LibraryMissing as missing:
        return {"lacks": str(missing), "busy": None, "room_kib": 0, "workers": []}
    except Busy as busy:
        return {"lacks": None, "busy": str(busy), "room_kib": 0, "workers": []}
    be_first_to_go()
    there = room()
    cpus = one_a_core(idle, most=max(1, min(MOST_WORKERS, there // BLOCK)))
    share = there // len(cpus)
    began = time.monotonic()
    running, refused = started({cpu: partial(judge, library, cpu, share) for cpu in cpus})
    ended = refused | all_ended(running, began=began, deadline_s=DEADLINE_S)
    return {
        "lacks": None,
        "busy": None,
        "room_kib": there >> 10,
        "workers": [{"cpu": cpu, **ended[cpu]} for cpu in cpus],
    }


def judge(
    library: Library,
    cpu: int,
    share: int,
    *,
    budget_s: float = BUDGET_S,
    least: int = LEAST_BLOCK,
    block: int = BLOCK,
) -> Record:
    """Every pass over block after block, every word compared; then words planted wrong. Raises MemoryError.

    A block has `least` bytes and more, whatever time that takes, and `block` if there is time and room.
    """
    pin(cpu)
    if share < least:
        raise MemoryError(f"{share >> 20} MiB may be taken without harm to others, and a block is {least >> 20}")
    size = max(least, min(block, share, _tested_in(library, budget_s / 2)) // TRIAL * TRIAL)
    began, longest = time.monotonic(), 0.0
    blocks: list[Buffer] = []
    found = _Found(library)
    while (len(blocks) + 1) * size <= share and (not blocks or time.monotonic() - began + longest < budget_s):
        start = time.monotonic()
        try:
            blocks.append(Buffer(size))
        except MemoryError:
            if not blocks:
                raise
            break
        found.block(blocks[-1])
        longest = max(longest, time.monotonic() - start)
    planted, noticed = _plant(library, blocks[0])
    return {
        "bytes": len(blocks) * size,
        "passes": len(PASSES),
        "compared": found.compared,
        "wrong": found.wrong,
        "first_wrong": found.first,
        "planted": planted,
        "noticed": noticed,
        "nodes": sorted({node for block in blocks if (node := library.node_of(block.address)) is not None}),
    }


def _tested_in(library: Library, budget_s: float) -> int:
    """The bytes for which all passes take so long, by one pass over a small block."""
    start = time.monotonic()
    words, (pattern, seed) = TRIAL // 8, PASSES[-1]
    buffer = Buffer(TRIAL)
    library.pattern_fill(buffer.address, words, pattern=pattern, seed=seed)
    library.pattern_differences(buffer.address, words, pattern=pattern, seed=seed)
    return int(TRIAL * budget_s / (len(PASSES) * (time.monotonic() - start)))


class _Found:
    """What all passes over all blocks gave."""

    def __init__(self, library: Library) -> None:
        self._library = library
        self.compared = self.wrong = self._before = 0
        self.first: list[Record] = []

    def block(self, buffer: Buffer) -> None:
        words = buffer.size // 8
        for pattern, seed in PASSES:
            self._library.pattern_fill(buffer.address, words, pattern=pattern, seed=seed)
            wrong, first = self._library.pattern_differences(buffer.address, words, pattern=pattern, seed=seed)
            self.compared += words
            self.wrong += wrong
            self.first += [self._told(pattern, one, buffer) for one in first[: SHOWN - len(self.first)]]
        self._before += buffer.size

    def _told(self, pattern: str, one: Difference, buffer: Buffer) -> Record:
        return {
            "pattern": pattern,
            "offset": self._before + 8 * one.place,
            "got": f"{one.got:#018x}",
            "want": f"{one.want:#018x}",
            "node": self._library.node_of(buffer.address + 8 * one.place),
        }


def _plant(library: Library, buffer: Buffer) -> tuple[int, int]:
    """One wrong bit after the other, in every pattern, at both ends and within; each must be found and no other."""
    words = min(buffer.size // 8, 4096)
    places: Sequence[int] = (0, 1, words // 2 + 5, words - 1)
    planted = noticed = 0
    for pattern, seed in PASSES:
        for place in places:
            library.pattern_fill(buffer.address, words, pattern=pattern, seed=seed, wrong=place)
            wrong, first = library.pattern_differences(buffer.address, words, pattern=pattern, seed=seed)
            planted += 1
            noticed += wrong == 1 and (first[0].place, first[0].got ^ first[0].want) == (place, 1)
    return planted, noticed
