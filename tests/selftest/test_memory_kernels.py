"""Bandwidth, latency, sharing and patterns: each loop does to memory what it says, to every word of it."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from amdcheck.selftest.buffer import HUGE, Buffer, Pages
from amdcheck.selftest.isolate import Record, isolated
from amdcheck.selftest.library import PATTERNS, Library
from tests.selftest.test_disassembly import build

LINE = 64


@pytest.fixture(scope="module", params=["gcc", "clang"])
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Library:
    return Library(str(build(request.param, tmp_path_factory.mktemp(f"memory-{request.param}"))))


@pytest.fixture
def pinned() -> int:
    """A CPU of ours."""
    return min(os.sched_getaffinity(0))


def words(buffer: Buffer) -> NDArray[np.uint64]:
    """A buffer's memory as 64-bit words, not a copy."""
    return np.frombuffer(memoryview((ctypes.c_uint8 * buffer.size).from_address(buffer.address)), dtype=np.uint64)


# ---- Buffers ----


@pytest.mark.parametrize("pages", ["huge", "small"])
@pytest.mark.parametrize("size", [1, 4096, HUGE - 1, HUGE, HUGE + 64, 3 * HUGE])
def test_a_buffer_begins_on_a_huge_page_and_is_all_there(size: int, pages: Pages) -> None:
    buffer = Buffer(size, pages=pages)
    assert buffer.size == size
    assert buffer.address % HUGE == 0
    memory = (ctypes.c_uint8 * size).from_address(buffer.address)
    assert (memory[0], memory[size - 1]) == (0, 0)
    memory[0] = memory[size - 1] = 0xA5
    assert (memory[0], memory[size - 1]) == (0xA5, 0xA5)


def mapped(address: int) -> bool:
    ranges = (line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines())
    return any(int(low, 16) <= address < int(high, 16) for low, high in ranges)


def test_a_buffer_is_given_back_when_it_is_dropped() -> None:
    buffer = Buffer(64 * HUGE)
    middle = buffer.address + 32 * HUGE
    assert mapped(middle)
    del buffer
    gc.collect()
    assert not mapped(middle)


def test_more_memory_than_there_can_be_is_a_memory_error() -> None:
    with pytest.raises(MemoryError):
        Buffer(1 << 62)


# ---- Triad ----


class Triad:
    """The three arrays of a triad."""

    def __init__(self, library: Library, count: int) -> None:
        self.library = library
        self.count = count
        self.arrays = [Buffer(8 * count) for _ in range(3)]
        self.a, self.b, self.c = (words(array).view(np.float64) for array in self.arrays)
        library.triad_operands(self.arrays[1].address, self.arrays[2].address, count)

    def run(self, *, non_temporal: bool, wrong: int = -1) -> tuple[int, int | None]:
        """How many elements are wrong afterwards, and the first."""
        self.a[:] = np.nan
        a, b, c = (array.address for array in self.arrays)
        seconds = self.library.time_triad(non_temporal=non_temporal, a=a, b=b, c=c, count=self.count, wrong=wrong)
        assert seconds is not None
        assert seconds > 0
        return self.library.triad_differences(a, self.count)


STORES = pytest.mark.parametrize("non_temporal", [False, True], ids=["plain", "non-temporal"])


@STORES
@pytest.mark.parametrize("count", [8, 16, 1000, 1 << 16])
def test_a_triad_writes_every_element_right(compiled: Library, count: int, non_temporal: bool) -> None:
    triad = Triad(compiled, count)
    assert triad.run(non_temporal=non_temporal) == (0, None)
    assert (triad.a == triad.b + 3 * triad.c).all()


def test_the_operands_of_a_triad_are_integers_and_neighbours_differ(library: Library) -> None:
    triad = Triad(library, 1 << 16)
    for operand in (triad.b, triad.c):
        assert (operand == np.rint(operand)).all()
        assert (operand.min(), operand.max()) == (0, 1023)
    want = triad.b + 3 * triad.c
    for distance in range(1, 9):  # a vector's lanes, and two vectors
        assert (want[distance:] != want[:-distance]).mean() > 0.95, distance


@STORES
def test_a_bit_planted_in_any_element_of_a_triad_is_noticed_there(compiled: Library, non_temporal: bool) -> None:
    triad = Triad(compiled, 64)
    for element in range(64):
        assert triad.run(non_temporal=non_temporal, wrong=element) == (1, element)
        flipped = triad.a.view(np.uint64) ^ (triad.b + 3 * triad.c).view(np.uint64)
        assert flipped.tolist() == [1 if place == element else 0 for place in range(64)]
    assert triad.run(non_temporal=non_temporal) == (0, None)


def test_elements_that_a_triad_leaves_out_are_counted_and_the_first_is_told(library: Library) -> None:
    triad = Triad(library, 64)
    triad.run(non_temporal=False)
    triad.a[[9, 10, 63]] = (np.nan, -0.0, 4096.0)
    assert library.triad_differences(triad.arrays[0].address, 64) == (3, 9)


# ---- Latency ----


def hops(buffer: Buffer, count: int) -> list[int]:
    """The lines that a chase from the first one visits, by Python."""
    links = words(buffer)[:: LINE // 8].astype(np.int64) - buffer.address
    assert (links % LINE == 0).all()
    visited, line = [], 0
    for _ in range(count):
        visited.append(line)
        line = int(links[line]) // LINE
    assert line == 0 or count < links.size
    return visited


@pytest.mark.parametrize("lines", [4, 8, 64, 1 << 10, 1 << 15])
def test_a_chase_visits_every_line_once_and_comes_back(compiled: Library, lines: int) -> None:
    buffer = Buffer(lines * LINE)
    compiled.chase_link(buffer.address, lines)
    assert sorted(hops(buffer, lines)) == list(range(lines))


def test_no_prefetcher_can_follow_a_chase(library: Library) -> None:
    """Hardly a hop goes to a line nearby, and hardly two hops in a row go equally far."""
    lines = 1 << 15
    buffer = Buffer(lines * LINE)
    library.chase_link(buffer.address, lines)
    far = np.diff(np.array(hops(buffer, lines)))
    assert (np.abs(far) <= 16).mean() < 0.01
    assert (far[1:] == far[:-1]).mean() < 0.01


def test_a_timed_chase_ends_where_its_hops_lead(compiled: Library) -> None:
    lines = 256
    buffer = Buffer(lines * LINE)
    compiled.chase_link(buffer.address, lines)
    visited = hops(buffer, lines)
    for count in (8, 16, 248, 256, 264):
        seconds, position = compiled.time_chase(buffer.address, count)
        assert seconds > 0
        assert (position - buffer.address) // LINE == visited[count % lines]


# ---- Two threads ----


@pytest.mark.parametrize("apart", [8, 64, 128])
def test_two_threads_count_exactly_however_near_their_words_are(compiled: Library, pinned: int, apart: int) -> None:
    buffer = Buffer(4096)
    cpus = (pinned, max(os.sched_getaffinity(0)))
    counted = words(buffer)
    for missed in (0, 1, 500):
        counted[:] = 0
        first, second = buffer.address, buffer.address + apart
        seconds = compiled.time_sharing(cpus=cpus, first=first, second=second, increments=20_000, missed=missed)
        assert seconds is not None
        assert seconds > 0
        assert (counted[0], counted[apart // 8]) == (20_000, 20_000 - missed)
        assert np.count_nonzero(counted) == 2
        os.sched_setaffinity(0, set(cpus))


def test_two_threads_on_one_word_lose_no_increment(library: Library, pinned: int) -> None:
    buffer = Buffer(4096)
    cpus = (pinned, max(os.sched_getaffinity(0)))
    seconds = library.time_sharing(cpus=cpus, first=buffer.address, second=buffer.address, increments=20_000)
    assert seconds is not None
    assert words(buffer)[0] == 40_000


@pytest.mark.parametrize("absent", [1000, 5000])
def test_a_thread_that_cannot_be_pinned_is_told(library: Library, pinned: int, absent: int) -> None:
    buffer = Buffer(4096)
    at = buffer.address
    assert library.time_sharing(cpus=(pinned, absent), first=at, second=at + 64, increments=10) is None


# ---- Patterns ----


def splitmix(state: int) -> int:
    mixed = state * 0x9E3779B97F4A7C15 % 2**64
    mixed = (mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % 2**64
    return mixed ^ mixed >> 31


# The word at a place, by Python's integers.
EXPECTED: dict[str, Callable[[int, int], int]] = {
    "walking-one": lambda place, seed: 1 << (place + seed) % 64,
    "walking-zero": lambda place, seed: 2**64 - 1 ^ 1 << (place + seed) % 64,
    "checkerboard": lambda place, seed: 0x5555555555555555 << 1 - (place + seed) % 2,
    "place": lambda place, seed: place ^ seed,
    "random": lambda place, seed: splitmix(place + seed + 1),
    "random-inverted": lambda place, seed: 2**64 - 1 ^ splitmix(place + seed + 1),
}


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("seed", [0, 1, 63, 0xDEADBEEF])
def test_a_pattern_is_the_one_that_its_name_says(compiled: Library, pattern: str, seed: int) -> None:
    buffer = Buffer(8 * 1000)
    compiled.pattern_fill(buffer.address, 1000, pattern=pattern, seed=seed)
    assert words(buffer).tolist() == [EXPECTED[pattern](place, seed) for place in range(1000)]
    assert compiled.pattern_differences(buffer.address, 1000, pattern=pattern, seed=seed) == (0, [])


@pytest.mark.parametrize("pattern", ["walking-one", "walking-zero"])
def test_walking_through_all_seeds_sets_and_clears_every_bit_of_every_word(library: Library, pattern: str) -> None:
    buffer = Buffer(8 * 100)
    seen = []
    for seed in range(64):
        library.pattern_fill(buffer.address, 100, pattern=pattern, seed=seed)
        seen.append(words(buffer).copy())
    assert (np.bitwise_or.reduce(seen) == np.uint64(2**64 - 1)).all()
    assert (np.bitwise_and.reduce(seen) == 0).all()


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_bit_planted_in_any_word_of_a_pattern_is_noticed_there(compiled: Library, pattern: str) -> None:
    buffer = Buffer(8 * 50)
    for word in range(50):
        compiled.pattern_fill(buffer.address, 50, pattern=pattern, seed=7, wrong=word)
        found, (first,) = compiled.pattern_differences(buffer.address, 50, pattern=pattern, seed=7)
        assert (found, first.place, first.got ^ first.want) == (1, word, 1)


def test_more_wrong_words_than_are_told_are_all_counted(library: Library) -> None:
    buffer = Buffer(8 * 50)
    library.pattern_fill(buffer.address, 50, pattern="random", seed=1)
    right = words(buffer).copy()
    words(buffer)[10:20] ^= np.uint64(1 << 63)
    found, first = library.pattern_differences(buffer.address, 50, pattern="random", seed=1, capacity=3)
    assert found == 10
    assert [(one.place, one.got, one.want) for one in first] == [
        (place, int(right[place]) ^ 1 << 63, int(right[place])) for place in (10, 11, 12)
    ]


def test_a_word_written_to_another_place_is_noticed_by_its_pattern(library: Library) -> None:
    """What a broken address line does: the word at one place also lands at another."""
    buffer = Buffer(8 * 1024)
    library.pattern_fill(buffer.address, 1024, pattern="place", seed=3)
    words(buffer)[512:] = words(buffer)[:512]
    found, (first, *_) = library.pattern_differences(buffer.address, 1024, pattern="place", seed=3)
    assert (found, first.place, first.got, first.want) == (512, 512, 3, 512 ^ 3)


# ---- Placement ----


def online_nodes() -> set[int]:
    folder = Path("/sys/devices/system/node")
    return {int(node.name[4:]) for node in folder.glob("node[0-9]*")} or {0}


def test_a_touched_page_lies_on_a_node_of_this_machine_and_no_page_on_none(library: Library) -> None:
    buffer = Buffer(4096)
    words(buffer)[0] = 1
    assert library.node_of(buffer.address) in online_nodes()
    assert library.node_of(0) is None


def test_pages_come_from_the_node_that_they_are_bound_to(library: Library) -> None:
    def bound() -> Record:
        for node in online_nodes():
            if not library.bind_memory(node):  # a node without memory, or one that a cgroup withholds
                continue
            buffer = Buffer(4096)
            words(buffer)[0] = 1
            assert library.node_of(buffer.address) == node
        return {}

    ended = isolated(bound, deadline_s=5)  # nothing sets a process free again
    assert (ended["ended"], ended["detail"]) == ("returned", None)


@pytest.mark.parametrize("node", [-1, 1023, 1024, 1 << 30])
def test_a_node_that_is_not_there_is_refused(library: Library, node: int) -> None:
    assert library.bind_memory(node) is False
