"""Lists and masks of numbers as the kernel prints them."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amdcheck.facts.cpulist import ID_LIMIT, format_cpulist, parse_cpulist, parse_cpumap
from tests.facts.small_machine import mask


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("0-5,48-53\n", (0, 1, 2, 3, 4, 5, 48, 49, 50, 51, 52, 53)),
        ("0\n", (0,)),
        ("\n", ()),
        ("", ()),
        ("0-1\n\0", (0, 1)),  # two recorded trees end their node lists with a NUL
        ("0,8,250-252\n", (0, 8, 250, 251, 252)),
        ("3,1,2\n", (1, 2, 3)),
        ("1-3,2-4\n", (1, 2, 3, 4)),
    ],
)
def test_lists(text: str, numbers: tuple[int, ...]) -> None:
    assert parse_cpulist(text) == numbers


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("00000000,003f0000,0000003f\n", (0, 1, 2, 3, 4, 5, 48, 49, 50, 51, 52, 53)),
        ("1\n", (0,)),  # ARM prints no leading zeroes
        ("ffc00\n", tuple(range(10, 20))),
        ("0000,00000000,00000001\n", (0,)),  # POWER's first group has four digits
        ("1,1\n", (0, 32)),  # a group stands for 32 numbers however it is printed
        ("00000000\n", ()),
    ],
)
def test_masks(text: str, numbers: tuple[int, ...]) -> None:
    assert parse_cpumap(text) == numbers


@pytest.mark.parametrize(
    "text",
    ["0-99999999999", "0-65536", "65536", "5-1", "-1", "0-", "a", "0;1", "1 2", "0x1", "²", "1-2-3", ",", "0,,1"],
)
def test_what_is_no_list_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a list of numbers"):
        parse_cpulist(text)


@pytest.mark.parametrize("text", ["", "xyz", "0x1f", "123456789", ",", "1,,1", "-1", "f" * 9, ",".join(["0"] * 2049)])
def test_what_is_no_mask_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a mask"):
        parse_cpumap(text)


def test_a_hostile_list_costs_neither_memory_nor_time() -> None:
    """A megabyte that names the largest range over and over."""
    hostile = ",".join([f"0-{ID_LIMIT - 1}"] * 100_000)
    began = time.process_time()
    with pytest.raises(ValueError, match="not a list of numbers below") as error:
        parse_cpulist(hostile)
    assert time.process_time() - began < 0.5
    assert len(str(error.value)) < 200


def test_the_largest_mask_is_read_in_time() -> None:
    began = time.process_time()
    assert parse_cpumap(",".join(["ffffffff"] * (ID_LIMIT // 32))) == tuple(range(ID_LIMIT))
    assert time.process_time() - began < 0.5


@given(st.sets(st.integers(0, ID_LIMIT - 1), max_size=200))
def test_what_is_printed_is_read_back(numbers: set[int]) -> None:
    assert parse_cpulist(format_cpulist(numbers)) == tuple(sorted(numbers))
    assert parse_cpumap(mask(numbers)) == tuple(sorted(numbers))


@given(st.text(alphabet=st.sampled_from("0123456789,- \n\0abcdefx²\ud800٣"), max_size=60) | st.text(max_size=60))
def test_no_text_breaks_the_parsers(text: str) -> None:
    for parse in (parse_cpulist, parse_cpumap):
        try:
            numbers = parse(text)
        except ValueError:
            continue
        assert len(numbers) <= ID_LIMIT
        assert list(numbers) == sorted(set(numbers))
