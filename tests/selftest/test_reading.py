"""The best of short slices, and what disturbed them."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import pytest

from amdcheck.knowledge.selftests import limits
from amdcheck.selftest import reading, stat
from amdcheck.selftest.library import Pace
from amdcheck.selftest.limits import limit_value
from amdcheck.selftest.reading import (
    DISTURBED_LOOKS,
    PAUSES_S,
    Judged,
    judged,
    least_rates,
    looks,
    raise_clock,
    read,
    stolen_by_cpu,
    stolen_since_boot,
)


def spin(seconds: float) -> float:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
    return seconds


def test_what_it_costs_to_read_proc_stat_is_no_cpu_time_of_the_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reading that had half of its CPU shows it, however long /proc/stat of a large machine takes to read."""

    def piece() -> float:
        time.sleep(0.002)
        return spin(0.002)

    def large() -> list[str]:
        spin(0.05)
        return []

    monkeypatch.setattr(stat, "lines", large)
    told = read(piece, budget_s=0.02)
    assert told["cpu_share"] < 0.75
    assert told["attempts"] == reading.ATTEMPTS


def test_the_shortest_slice_is_told_and_the_first_one_does_not_count() -> None:
    slices = iter([0.1, *(4.0, 3.0, 2.0, 5.0) * 1000])
    told = read(lambda: next(slices) + 0 * spin(0.001), budget_s=0.006)
    assert told["best_s"] == 2.0
    assert told["slices"] >= reading.LEAST_SLICES


def test_the_clock_is_taken_beside_every_slice_and_that_of_the_shortest_is_told() -> None:
    """A core that was at 4 GHz in another slice was not in this one."""
    slices, paces = (
        iter([9.0, *[4.0, 2.0, 3.0] * 100]),
        iter([Pace(5e-10, 5.0), Pace(4e-10, 5.0), Pace(2.5e-10, 5.0)] * 100),
    )
    told = read(lambda: next(slices) + 0 * spin(0.001), pace=lambda: next(paces), budget_s=0.006)
    assert (told["best_s"], told["cycle_s"]) == (2.0, 4e-10)
    for none in (
        read(lambda: spin(0.001), pace=lambda: None, budget_s=0.003),  # no such loops
        read(lambda: spin(0.001), budget_s=0.003),
    ):
        assert (none["cycle_s"], none["issued"]) == (None, None)


def test_a_slice_at_whose_end_the_clock_moved_counts_only_if_all_are_such() -> None:
    slices, paces = iter([9.0, *[4.0, 2.0] * 100]), iter([Pace(5e-10, 5.0), Pace(4e-10, None)] * 100)
    told = read(lambda: next(slices) + 0 * spin(0.001), pace=lambda: next(paces), budget_s=0.009)
    assert (told["best_s"], told["median_s"], told["cycle_s"]) == (4.0, 4.0, 5e-10)
    told = read(lambda: next(slices) + 0 * spin(0.001), pace=lambda: Pace(4e-10, None), budget_s=0.009)
    assert (told["best_s"], told["cycle_s"], told["issued"]) == (2.0, 4e-10, None)


@pytest.mark.parametrize(
    ("begun", "told"),
    [
        ([5.0, 5.0, 2.9], 5.0),
        ([5.0, 2.9, 2.9], 2.9),
        ([None, 5.0, 3.0, 5.0], 5.0),  # the clock moved
    ],
)
def test_what_the_core_mostly_began_is_told(begun: list[float | None], told: float) -> None:
    paces = iter([Pace(3e-10, one) for one in begun] * 1000)
    assert read(lambda: spin(0.0001), pace=lambda: next(paces), budget_s=0.01)["issued"] == told


def test_a_few_looks_at_the_front_end_say_nothing() -> None:
    paces = iter([Pace(3e-10, 5.0), Pace(3e-10, 5.0), *100 * [Pace(3e-10, None)]])
    told = read(lambda: spin(0.001), pace=lambda: next(paces), budget_s=0.006)
    assert (told["cycle_s"], told["issued"]) == (3e-10, None)


def test_the_attempt_whose_core_was_most_alone_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shortest slice is of all attempts, and it is from there."""
    monkeypatch.setattr(reading, "limit_value", lambda name: 2.0)  # no attempt is undisturbed
    began = time.monotonic()
    told = read(
        lambda: spin(0.0001),
        pace=lambda: Pace(3e-10, 5.0 if time.monotonic() - began < 0.02 else 2.9),
        budget_s=0.02,
    )
    assert (told["attempts"], told["issued"]) == (reading.ATTEMPTS, 5.0)


def test_steal_is_told_of_every_cpu_that_has_the_column() -> None:
    text = [
        "cpu  1 2 3 4 5 6 7 900 0 0",
        "cpu0 1 2 3 4 5 6 7 800 0 0",
        "cpu11 1 2 3 4 5 6 7 50 0 0",
        "cpu12 1 2 3",
        "intr 9",
    ]
    assert stolen_by_cpu(text) == {0: 8.0, 11: 0.5}


def test_steal_since_boot_is_of_the_time_in_which_there_was_work() -> None:
    """user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice"""
    assert stolen_since_boot(["cpu  40 5 20 9000 900 5 5 25 7 7", "cpu0 1 2 3 4 5 6 7 800 0 0"]) == 0.25
    assert stolen_since_boot(["cpu  0 0 0 9000 0 0 0 0 0 0"]) is None
    assert stolen_since_boot(["cpu  40 5 20 9000"]) is None
    assert stolen_since_boot([]) is None


@pytest.mark.parametrize("scales", [True, False])
def test_a_clock_is_raised_where_a_governor_may_have_lowered_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, scales: bool
) -> None:
    monkeypatch.setattr(reading, "_CPUFREQ", str(tmp_path if scales else tmp_path / "none"))
    began = time.monotonic()
    raise_clock()
    assert (time.monotonic() - began >= reading.RAISE_S) is scales


GOOD, SLOW, DISTURBED = judged(1.05, 1.2), judged(1.05, 0.6), judged(0.5, 1.2)


@pytest.mark.parametrize(
    ("looked", "taken", "told"),
    [
        ([GOOD], 1, GOOD),
        ([SLOW, DISTURBED, GOOD], 3, GOOD),
        (6 * [SLOW], 6, SLOW),
        ([SLOW, SLOW, Judged(1.0, 0.7), *3 * [SLOW]], 6, Judged(1.0, 0.7)),
        (6 * [DISTURBED], DISTURBED_LOOKS, DISTURBED),
        ([DISTURBED, Judged(0.7, 1.1), *2 * [DISTURBED]], DISTURBED_LOOKS, Judged(0.7, 1.1)),
        # Two that share one core seem fast while one of them was kept from it: a disturbed look is no proof.
        ([Judged(0.5, 1.8), *5 * [SLOW]], 6, SLOW),
    ],
)
def test_looks_are_taken_until_there_is_nothing_to_find_and_the_best_is_first(
    looked: list[Judged], taken: int, told: Judged, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "PAUSES_S", len(PAUSES_S) * (0.0,))
    given = iter(looked)
    found = looks(lambda: next(given), lambda one: one, until=time.monotonic() + 60)
    assert (found[0], len(found)) == (told, taken)


def test_each_look_is_farther_off_than_the_one_before_and_none_begins_too_late() -> None:
    moments = list[float]()
    began = time.monotonic()

    def measure() -> Judged:
        moments.append(time.monotonic() - began)
        return SLOW

    looks(measure, lambda one: one, until=began + 0.5)
    pauses = [after - before for before, after in pairwise(moments)]
    assert pauses == sorted(pauses)
    assert 1 < len(moments) <= 4  # at 0, 0.05, 0.15 and 0.35 seconds, when nothing is late
    assert len(looks(measure, lambda one: one, until=began)) == 1


def test_the_least_rates_are_read_from_the_parameters() -> None:
    assert least_rates(["fma", "allow-busy", "least:clock=2.16e+09", "least:fma=24"]) == {"clock": 2.16e9, "fma": 24}
    with pytest.raises(ValueError, match="could not convert"):
        least_rates(["least:clock=fast"])


def test_a_look_that_would_last_too_long_is_not_begun() -> None:
    """Else the deadline would take what the first one compared."""
    taken = list[float]()

    def measure() -> Judged:
        taken.append(time.monotonic())
        time.sleep(0.3)
        return SLOW

    looks(measure, lambda one: one, until=time.monotonic() + 0.5)
    assert len(taken) == 1


def test_a_look_that_cannot_be_made_again_loses_nothing() -> None:
    given = iter([SLOW])

    def measure() -> Judged:
        for one in given:
            return one
        raise MemoryError

    assert looks(measure, lambda one: one, until=time.monotonic() + 60) == [SLOW]
    with pytest.raises(MemoryError):
        looks(measure, lambda one: one, until=time.monotonic() + 60)


def test_a_child_reads_the_same_numbers_as_the_checks() -> None:
    for name, row in limits().items():
        assert limit_value(name) == row.value
