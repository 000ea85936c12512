"""Ceilings: the loops on registers count what they say, and no matrix product is faster than its own."""

from __future__ import annotations

import statistics

import pytest

from amdcheck.selftest.library import Library
from tests.selftest.test_gemm import OFFERED, TILES, gemm

SLICES = 40  # of which the shortest counts: some are undisturbed on a busy machine too


@pytest.mark.parametrize("name", OFFERED)
def test_a_repeat_is_24_vectors_of_multiplications_and_additions(library: Library, name: str) -> None:
    tile = TILES[name]
    vector_bytes = 4 * tile.lanes // 2  # a tile is two vectors wide
    numbers = vector_bytes // gemm(library, name).size
    assert gemm(library, name).ports_operations == 2 * 24 * numbers


def at_best(*slices: float) -> float:
    assert min(slices) > 0
    return min(slices)


@pytest.mark.parametrize("name", OFFERED)
def test_ten_times_the_repeats_take_ten_times_as_long(library: Library, name: str) -> None:
    kernel = gemm(library, name)
    few = at_best(*(kernel.time_ports(2_000) for _ in range(SLICES)))
    many = at_best(*(kernel.time_ports(20_000) for _ in range(SLICES)))
    assert 5 < many / few < 20


@pytest.mark.parametrize("name", OFFERED)
def test_no_matrix_product_is_faster_than_the_ports_allow(library: Library, name: str) -> None:
    """A ceiling that is counted too low would be broken through; the clock moves, so that a little more is allowed."""
    kernel = gemm(library, name)
    product = kernel.prepare(m=252, n=256, k=256, seed=1)
    ports, products = [], []
    for _ in range(SLICES):
        ports.append(kernel.time_ports(2_000))
        products.append(product.run())
    assert product.operations / at_best(*products) < 1.2 * 2_000 * kernel.ports_operations / at_best(*ports)


def test_both_chains_tell_the_same_clock(library: Library) -> None:
    best = {"imul": 1.0, "add": 1.0}
    for _ in range(5 * SLICES):
        for name, seconds in (("imul", library.time_imul(50)), ("add", library.time_add(50))):
            assert seconds is not None
            best[name] = at_best(best[name], seconds)
    assert 0.8 < best["imul"] / best["add"] < 1.25
    assert 0.1e9 < 300 * 50 / best["imul"] < 10e9


def test_a_core_begins_some_instructions_a_cycle(library: Library) -> None:
    """Four to eight, and twice as many where two that do nothing are taken as one; half where it is shared."""
    paces = [library.pace() for _ in range(5 * SLICES)]
    issued = statistics.median(pace.issued for pace in paces if pace is not None and pace.issued is not None)
    assert 1.0 < issued < 20.0
