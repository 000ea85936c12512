"""The native kernels themselves: exact everywhere, and blind to no lane."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from amdcheck.knowledge.isa import isa_table
from amdcheck.selftest.cpu_isa import PASSES, judge
from amdcheck.selftest.library import Library, Workload
from tests.selftest.conftest import offered_flags

SHAPES = {
    "sse2": (14, 4),
    "avx2": (14, 8),
    "fma": (14, 8),
    "avx_vnni": (14, 8),
    "avx512f": (30, 16),
    "avx512_vnni": (30, 16),
    "avx512_bf16": (30, 16),
}
OFFERED = [key for key, row in isa_table().isa.items() if set(row.flags) <= offered_flags()]


def test_every_instruction_set_of_the_table_has_its_kernel(library: Library) -> None:
    found = {key: library.find(key) for key in isa_table().isa}
    assert {key: (kernel.registers, kernel.lanes) for key, kernel in found.items() if kernel} == SHAPES
    assert library.find("avx1024") is None


@pytest.mark.parametrize("name", OFFERED)
def test_this_machine_computes_every_word_right(library: Library, name: str) -> None:
    kernel = library.find(name)
    assert kernel is not None
    result = judge(library, kernel)
    assert result["wrong"] == 0
    assert result["first_wrong"] == []
    assert result["compared"] == PASSES * 16 * kernel.words
    assert (result["planted"], result["noticed"]) == (kernel.words, kernel.words)


@pytest.mark.parametrize("name", OFFERED)
def test_a_bit_planted_in_any_lane_of_any_block_is_noticed_there_and_nowhere_else(library: Library, name: str) -> None:
    kernel = library.find(name)
    assert kernel is not None
    work = kernel.prepare(blocks=3, seed=7)
    for word in range(work.words):
        assert list(work.run(wrong=word)) == [word]
        assert work.got(word) == work.want(word) ^ 1
    assert list(work.run()) == []


def _float(word: int) -> int:
    value = float(struct.unpack("<f", struct.pack("<I", word))[0])
    assert value.is_integer()
    return int(value)


def _floats(word: int) -> list[int]:
    return [_float(word)]


def _halves(word: int) -> list[int]:
    return list(struct.unpack("<2h", struct.pack("<I", word)))


def _bfloats(word: int) -> list[int]:
    return [_float((word & 0xFFFF) << 16), _float(word & 0xFFFF0000)]


def _unsigned_bytes(word: int) -> list[int]:
    return list(struct.pack("<I", word))


def _signed_bytes(word: int) -> list[int]:
    return list(struct.unpack("<4b", struct.pack("<I", word)))


Unpack = Callable[[int], list[int]]
OPERANDS: dict[str, tuple[Unpack, Unpack]] = {
    "sse2": (_floats, _floats),
    "avx2": (_halves, _halves),
    "fma": (_floats, _floats),
    "avx_vnni": (_unsigned_bytes, _signed_bytes),
    "avx512f": (_floats, _floats),
    "avx512_vnni": (_unsigned_bytes, _signed_bytes),
    "avx512_bf16": (_bfloats, _bfloats),
}


def _exact(work: Workload, left: Unpack, right: Unpack) -> list[int]:
    """The answers of one block by Python's integers, from the words that the kernel is given."""
    kernel = work.kernel
    a = [left(word) for word in work._a]
    b = [right(word) for word in work._b]
    return [
        sum(
            x * y
            for step in range(kernel.steps)
            for x, y in zip(a[step * kernel.registers + register], b[step * kernel.lanes + lane], strict=True)
        )
        for register in range(kernel.registers)
        for lane in range(kernel.lanes)
    ]


@pytest.mark.parametrize("name", OPERANDS)
def test_the_reference_is_the_sum_that_python_computes(library: Library, name: str) -> None:
    kernel = library.find(name)
    assert kernel is not None
    left, right = OPERANDS[name]
    work = kernel.prepare(blocks=1, seed=3)
    sums = _exact(work, left, right)
    if left in (_floats, _bfloats):
        assert max(map(abs, sums)) < 1 << 24  # what a float holds exactly
        assert [_float(work.want(word)) for word in range(work.words)] == sums
    else:
        assert [work.want(word) for word in range(work.words)] == [total & 0xFFFFFFFF for total in sums]


@pytest.mark.parametrize("name", OPERANDS)
def test_the_operands_reach_the_ends_of_their_ranges_and_the_answers_differ(library: Library, name: str) -> None:
    kernel = library.find(name)
    assert kernel is not None
    work = kernel.prepare(blocks=2, seed=3)
    left, right = OPERANDS[name]
    a = {value for word in work._a for value in left(word)}
    b = {value for word in work._b for value in right(word)}
    ends: dict[Unpack, tuple[set[int], set[int]]] = {
        _floats: ({-2047, 2047}, {-511, 511}),
        _halves: ({-32767, 32767}, {-32767, 32767}),
        _bfloats: ({-255, 255}, {-255, 255}),
        _unsigned_bytes: ({0, 255}, {-128, 127}),
    }
    assert ({min(a), max(a)}, {min(b), max(b)}) == ends[left]
    answers = [work.want(word) for word in range(work.words)]
    assert len(set(answers)) > 0.9 * len(answers)
    assert answers[: kernel.words] != answers[kernel.words :]


def test_a_kernel_that_is_one_bit_off_is_found_wrong_in_every_word(library: Library) -> None:
    kernel = library.find("hook-wrong")
    assert kernel is not None
    result = judge(library, kernel)
    assert result["wrong"] == result["compared"] == PASSES * 16
    assert result["wrong_lanes"] == [0]
    (first,) = result["first_wrong"]
    assert int(first["got"], 16) ^ int(first["want"], 16) == 1


def test_a_kernel_that_ignores_the_plant_is_found_blind(library: Library) -> None:
    kernel = library.find("hook-blind")
    assert kernel is not None
    result = judge(library, kernel)
    assert (result["wrong"], result["planted"], result["noticed"]) == (0, 1, 0)


def test_words_that_a_kernel_does_not_write_are_wrong(library: Library) -> None:
    kernel = library.find("sse2")
    assert kernel is not None
    work = kernel.prepare(blocks=2, seed=3)
    assert list(work.run()) == []
    work.blocks = 1  # the second tile's answers of the run before must not count
    assert list(work.run()) == list(range(kernel.words, work.words))


def test_a_straddling_load_is_timed_and_an_unknown_width_is_not(library: Library) -> None:
    import ctypes

    buffer = ctypes.create_string_buffer(4096)
    address = ctypes.addressof(buffer)
    seconds = library.time_loads(width=16, address=address, size=2048, passes=10)
    assert seconds is not None
    assert 0 < seconds < 0.1
    assert library.time_loads(width=24, address=address, size=2048, passes=10) is None
