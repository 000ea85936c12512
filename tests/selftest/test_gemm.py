"""Matrix products: exact for every shape, against integers computed elsewhere, and blind to no word."""

from __future__ import annotations

import ctypes
import itertools
import random
from collections.abc import Iterator
from typing import NamedTuple, TypeVar

import numpy as np
import pytest
from numpy.typing import NDArray

from amdcheck.knowledge.isa import isa_table
from amdcheck.selftest.buffer import Buffer
from amdcheck.selftest.library import Gemm, Library, Product
from tests.selftest.conftest import offered_flags
from tests.selftest.test_disassembly import build

Integers = NDArray[np.int64]
Kind = TypeVar("Kind", bound=np.generic)


class Tile(NamedTuple):
    """The register tile of a product and how many numbers one of its steps takes."""

    rows: int
    lanes: int
    group: int


TILES = {
    "fma": Tile(6, 16, 1),
    "avx2": Tile(4, 16, 4),
    "avx_vnni": Tile(6, 16, 4),
    "avx512f": Tile(14, 32, 1),
    "avx512_vnni": Tile(14, 32, 4),
    "avx512_bf16": Tile(14, 32, 2),
}
SIZES = {1: 4, 2: 2, 4: 1}  # bytes of a number, by how many of them make a word
BLOCK_STEPS, BLOCK_ROWS, BLOCK_COLUMNS = 256, 84, 4096  # of the driver: what it cuts a product into
OFFERED = [name for name in TILES if set(isa_table().isa[name].flags) <= offered_flags()]
EXACT_IN_BYTES = [name for name in OFFERED if TILES[name].group == 4 and name != "avx2"]


@pytest.fixture(scope="module", params=["gcc", "clang"])
def compiled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Library:
    return Library(str(build(request.param, tmp_path_factory.mktemp(f"gemm-{request.param}"))))


def gemm(library: Library, name: str) -> Gemm:
    found = library.find_gemm(name)
    assert found is not None
    return found


def raw(buffer: Buffer, kind: type[Kind]) -> NDArray[Kind]:
    """A buffer's memory as an array, not a copy."""
    return np.frombuffer(memoryview((ctypes.c_uint8 * buffer.size).from_address(buffer.address)), dtype=kind)


def numbers(product: Product, buffer: Buffer, rows: int, *, unsigned: bool) -> Integers:
    """An operand as the integers that it stands for; a float that is none of them is an error."""
    group = TILES[product.gemm.name].group
    if group == 4:
        byte = raw(buffer, np.uint8).astype(np.int64).reshape(rows, -1)
        return byte if unsigned else byte - 256 * (byte > 127)
    words = raw(buffer, np.uint32) if group == 1 else raw(buffer, np.uint16).astype(np.uint32) << 16
    values = words.view(np.float32)
    assert (values == np.rint(values)).all()
    return values.astype(np.int64).reshape(rows, -1)


def operands(product: Product) -> tuple[Integers, Integers]:
    m, _, k = product.shape
    return numbers(product, product._a, m, unsigned=True), numbers(product, product._b, k, unsigned=False)


def words(product: Product, integers: Integers) -> NDArray[np.uint32]:
    """Integers as the words of an answer: floats, or integers modulo 2^32."""
    if TILES[product.gemm.name].group == 4:
        return (integers & 0xFFFFFFFF).astype(np.uint32).ravel()
    return integers.astype(np.float32).view(np.uint32).ravel()


def got(product: Product) -> NDArray[np.uint32]:
    return raw(product._c, np.uint32)


def assert_exact(product: Product) -> None:
    """The kernel's answers, and the library's idea of them, are the integers that numpy computes from the operands."""
    a, b = operands(product)
    right = words(product, a @ b)
    assert (raw(product._want, np.uint32) == right).all(), product.shape
    raw(product._workspace, np.uint8)[:] = 0xFF  # what is not written there is no number
    product.run()
    assert (got(product) == right).all(), product.shape
    assert list(product.wrong_words()) == [], product.shape


def edges(tile: Tile) -> Iterator[tuple[int, int, int]]:
    """Shapes that end on, before and behind the edge of a tile, of a packed word, of a block of each dimension."""
    rows = (1, 2, 3, tile.rows - 1, tile.rows, tile.rows + 1, 2 * tile.rows + 3, 31)
    lanes = (1, 2, tile.lanes - 1, tile.lanes, tile.lanes + 1, 3 * tile.lanes + 5)
    block = BLOCK_STEPS * tile.group
    depths = (1, 2, 3, 4, 5, 7, 16, 61, block - 1, block, block + 1, 2 * block + 3)
    yield from itertools.product(rows, lanes, (1, 3, 5, 16))
    yield from ((tile.rows + 1, tile.lanes + 1, k) for k in depths)
    yield from ((m, 2 * tile.lanes + 1, block + 3) for m in range(BLOCK_ROWS - 1, BLOCK_ROWS + 4))
    yield from ((m, n, 29) for m, n in itertools.product((255, 256, 257), repeat=2))
    yield from ((3, n, 9) for n in range(BLOCK_COLUMNS - 1, BLOCK_COLUMNS + 2))
    yield (2 * BLOCK_ROWS + 5, tile.lanes + 3, 2 * block + 1)
    yield (1, 1, 4 * block + 1)


def test_the_library_has_every_product_and_names_its_numbers(library: Library) -> None:
    assert {name: gemm(library, name).size for name in TILES} == {n: SIZES[t.group] for n, t in TILES.items()}
    assert library.find_gemm("avx1024") is None


@pytest.mark.parametrize("name", OFFERED)
def test_a_product_of_any_shape_is_exact(compiled: Library, name: str) -> None:
    kernel = gemm(compiled, name)
    for number, (m, n, k) in enumerate(edges(TILES[name])):
        assert_exact(kernel.prepare(m=m, n=n, k=k, seed=number))


@pytest.mark.parametrize("name", OFFERED)
def test_a_product_of_random_shape_and_seed_is_exact(library: Library, name: str) -> None:
    choose = random.Random(name)
    for _ in range(40):
        m, n, k = (choose.choice((1, 2, 5, 13, 17, 41, 97, 128, 167, 211, 300)) for _ in range(3))
        assert_exact(gemm(library, name).prepare(m=m, n=n, k=k, seed=choose.randrange(1 << 64)))


@pytest.mark.parametrize("name", OFFERED)
def test_a_large_product_is_exact(library: Library, name: str) -> None:
    assert_exact(gemm(library, name).prepare(m=353, n=389, k=1031, seed=5))


@pytest.mark.parametrize("name", OFFERED)
def test_a_word_planted_anywhere_in_a_small_product_is_found_there_and_nowhere_else(
    compiled: Library, name: str
) -> None:
    tile = TILES[name]
    product = gemm(compiled, name).prepare(m=tile.rows + 1, n=tile.lanes + 1, k=9, seed=2)
    for word in range(product.words):
        product.run(wrong=word)
        assert list(product.wrong_words()) == [word]
        assert product.got(word) == product.want(word) ^ 1
    product.run()
    assert list(product.wrong_words()) == []


@pytest.mark.parametrize("name", OFFERED)
def test_a_word_planted_at_the_edge_of_a_tile_or_block_is_found_there(compiled: Library, name: str) -> None:
    """Over several blocks of k the flip must enter once, in the last one."""
    tile = TILES[name]
    m, n, k = 2 * BLOCK_ROWS + 3, 2 * tile.lanes + 3, 2 * BLOCK_STEPS * tile.group + 1
    product = gemm(compiled, name).prepare(m=m, n=n, k=k, seed=3)
    block = -(-BLOCK_ROWS // tile.rows) * tile.rows  # rows of a block, whole tiles
    rows = {0, tile.rows - 1, tile.rows, block - 1, block, m // tile.rows * tile.rows - 1, m - 1}
    columns = {0, tile.lanes - 1, tile.lanes, 2 * tile.lanes - 1, n - 1}
    for row, column in itertools.product(sorted(rows), sorted(columns)):
        product.run(wrong=row * n + column)
        assert list(product.wrong_words()) == [row * n + column]


@pytest.mark.parametrize("name", OFFERED)
def test_words_that_are_not_written_or_changed_later_are_wrong(library: Library, name: str) -> None:
    product = gemm(library, name).prepare(m=9, n=35, k=7, seed=4)
    product.run()
    answers = got(product)
    answers[[0, 100, product.words - 1]] ^= np.uint32(1 << 31)
    assert list(product.wrong_words()) == [0, 100, product.words - 1]
    assert product.run() > 0
    assert list(product.wrong_words()) == []


@pytest.mark.parametrize("name", OFFERED)
def test_no_two_places_of_a_tile_have_the_same_answers_everywhere(library: Library, name: str) -> None:
    """A kernel that mixes up two lanes, two rows or two steps of its tile is wrong somewhere."""
    tile = TILES[name]
    m, n, k = 8 * tile.rows, 8 * tile.lanes, 64 * tile.group
    product = gemm(library, name).prepare(m=m, n=n, k=k, seed=6)
    want = raw(product._want, np.uint32).reshape(8, tile.rows, 8, tile.lanes)
    for one, other in itertools.combinations(range(tile.lanes), 2):
        assert (want[:, :, :, one] != want[:, :, :, other]).any(), (one, other)
    for one, other in itertools.combinations(range(tile.rows), 2):
        assert (want[:, one] != want[:, other]).any(), (one, other)
    a, b = operands(product)
    assert len({column.tobytes() for column in a.T}) == k
    assert len({row.tobytes() for row in b}) == k


@pytest.mark.parametrize("name", OFFERED)
def test_operands_reach_the_ends_of_their_range_and_no_order_of_addition_rounds(library: Library, name: str) -> None:
    tile = TILES[name]
    product = gemm(library, name).prepare(m=64, n=64, k=1000, seed=7)
    a, b = operands(product)
    if tile.group == 4:
        assert (a.min(), a.max()) == (0, 127 if name == "avx2" else 255)
        assert (b.min(), b.max()) == (-127, 127)
        return
    assert a.min() < -1000 < 1000 < a.max()
    assert b.min() < -1000 < 1000 < b.max()
    # Every product of a word's sum is a multiple of what its row and its column have in common: with less than 2^24 of
    # those in absolute value, a float holds each partial sum in whatever order.
    common = np.gcd.reduce(a, axis=1)[:, None] * np.gcd.reduce(b, axis=0)[None, :]
    assert (np.abs(a) @ np.abs(b) // common).max() < 1 << 24


def full_range(kernel: Gemm) -> Product:
    """A product over every byte there is, not the operands that its kernel asks for."""
    product = kernel.prepare(m=33, n=65, k=130, seed=8)
    choose = np.random.default_rng(9)
    for buffer in (product._a, product._b):
        memory = raw(buffer, np.uint8)
        memory[:] = choose.choice(np.array([0, 1, 127, 128, 129, 200, 255], np.uint8), buffer.size)
    return product


def saturating(a: Integers, b: Integers) -> Integers:
    """The sums of pairs of neighbours, each held in 16 bits as vpmaddubsw holds it."""
    products = a[:, :, None] * b[None, :, :]
    pairs = np.add.reduceat(products, np.arange(0, a.shape[1], 2), axis=1)
    total: Integers = np.clip(pairs, -(1 << 15), (1 << 15) - 1).sum(axis=1)
    return total


@pytest.mark.skipif("avx2" not in OFFERED, reason="no AVX2 here")
def test_avx2_saturates_for_bytes_of_full_range_exactly_where_a_pair_leaves_16_bits(compiled: Library) -> None:
    product = full_range(gemm(compiled, "avx2"))
    a, b = operands(product)
    product.run()
    assert (got(product) == words(product, saturating(a, b))).all()
    wrong = got(product) != words(product, a @ b)
    assert wrong.mean() > 0.5  # not just a word here and there


@pytest.mark.skipif("avx2" not in OFFERED, reason="no AVX2 here")
def test_avx2_is_exact_for_the_largest_bytes_of_seven_bits(compiled: Library) -> None:
    product = gemm(compiled, "avx2").prepare(m=5, n=17, k=66, seed=8)
    for buffer, value in ((product._a, 127), (product._b, -128)):
        memory = raw(buffer, np.int8)
        memory[:] = value
    product.run()
    assert (got(product) == np.uint32(-127 * 128 * 66 & 0xFFFFFFFF)).all()


@pytest.mark.parametrize("name", EXACT_IN_BYTES)
def test_vnni_is_exact_for_bytes_of_full_range(compiled: Library, name: str) -> None:
    product = full_range(gemm(compiled, name))
    a, b = operands(product)
    product.run()
    assert (got(product) == words(product, a @ b)).all()


@pytest.mark.parametrize("shape", [(1, 1, 1 << 24), (1 << 16, 1 << 16, 1), (1, 1, 1 << 57), (1 << 57, 1 << 57, 1)])
def test_a_product_whose_answers_are_too_many_or_not_exact_is_refused(
    library: Library, shape: tuple[int, int, int]
) -> None:
    """By the library too, before it touches anything."""
    with pytest.raises(ValueError, match=r"a matrix product of \d+ x"):
        gemm(library, "fma").prepare(m=shape[0], n=shape[1], k=shape[2], seed=1)
    handle = gemm(library, "fma")._handle
    assert library._library.amdcheck_gemm_operands(handle, 1, *shape, None, None, None) == -1


@pytest.mark.parametrize("shape", [(0, 1, 1), (1, 0, 1), (1, 1, 0), (-1, 2, 2)])
def test_a_product_of_nothing_is_refused(library: Library, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    with pytest.raises(ValueError, match=f"a matrix product of {m} x {n} x {k}"):
        gemm(library, "fma").prepare(m=m, n=n, k=k, seed=1)
