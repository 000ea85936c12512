"""Which ROCm release goes with which driver, by the tables and the rule behind them."""

from __future__ import annotations

import pytest

from amdcheck.knowledge.rocm import (
    compatibility,
    packaged_driver,
    release_of,
    table,
)


def basis(rocm: str, module: str) -> str:
    driver = packaged_driver(module)
    assert driver is not None
    return compatibility(rocm, driver).basis


@pytest.mark.parametrize(
    ("rocm", "module", "expected"),
    [
        # the release's own list
        ("10.0.0", "7.1.3.31500000", "listed"),
        ("10.0.0", "6.14.14", "listed"),  # eleven months older, and named
        ("7.14.0", "6.16.13", "listed"),
        ("7.2.1", "6.16.6", "listed"),
        # the driver's list
        ("6.3.3", "6.10.5", "listed"),
        ("6.1.2", "6.12.12", "listed"),  # three releases apart, and named
        ("10.0.0", "6.16.13.30300400", "listed"),  # 30.30.4 is in no list, its line is
        # no list names the pair
        ("7.1.1", "6.12.12", "inferred"),
        ("7.14.0", "7.1.3.31500000", "inferred"),
        ("10.0.0", "7.2.1.31600000", "inferred"),
        ("6.3.3", "6.16.6", "inferred"),
        # a list ends above or below it
        ("6.0.2", "6.10.5", "excluded"),
        ("6.1.5", "6.14.14", "excluded"),
        ("6.1.5", "6.16.6", "excluded"),  # what 30.10 excludes as too old, 30.20 does too
        ("10.0.0", "6.12.12", "excluded"),
        # outside the rule
        ("6.3.3", "6.3.6", "outside"),  # three releases, before 6.4
        ("6.3.3", "7.1.3.31500000", "outside"),
        ("7.2.4", "6.10.5", "outside"),  # the line began within a year, this point release did not
        ("7.2.0", "6.10.5", "inferred"),
        # previews go with their own drivers
        ("7.11.0", "6.19.14.31400100", "preview"),
        ("7.9.0", "6.14.14", "preview"),
        ("7.13.0", "6.19.4", "listed"),
        # newer than the tables, or unknown
        ("11.0.0", "7.1.3.31500000", "release-unknown"),
        ("7.15.0", "6.14.14", "release-unknown"),
        ("5.2", "6.14.14", "release-unknown"),
        ("10.0.0", "8.0.0.32000000", "driver-unknown"),
        ("7.2.0", "6.18.3", "driver-unknown"),
    ],
)
def test_pair(rocm: str, module: str, expected: str) -> None:
    assert basis(rocm, module) == expected


def test_numbers_are_not_contiguous_7_14_is_one_release_after_7_2() -> None:
    order = [row.rocm for row in table().release if not row.preview]
    assert order.index("7.14") == order.index("7.2") + 1
    assert order.index("10.0") == order.index("7.14") + 1


def test_newer_than_the_tables_says_so_with_their_date() -> None:
    driver = packaged_driver("6.14.14")
    assert driver is not None
    pair = compatibility("12.1.0", driver)
    assert pair.supported is None
    assert "newer than the tables of 20" in pair.why


def test_every_row_of_the_driver_table_is_reachable_from_a_module_string() -> None:
    lines = {row.line for row in table().driver}
    assert {row.line for row in table().module if row.line} <= lines
    assert all(
        set(row.drivers) <= {d for line in lines for d in (line, *(f"{line}.{n}" for n in range(10)))}
        for row in table().release
    )


def test_dated_releases_are_in_the_order_of_time() -> None:
    days = [row.released for row in table().release if row.released is not None and not row.preview]
    assert days == sorted(days)


@pytest.mark.parametrize(
    ("text", "line"),
    [("6.3.3-74", "6.3"), ("7.9.0rc20251008", "7.9"), ("10.0.0", "10.0"), ("6", None), ("", None), ("x6.3", None)],
)
def test_release_line_of_a_version(text: str, line: str | None) -> None:
    assert release_of(text) == line
