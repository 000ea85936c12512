"""The benchmarks count what was measured alone on the core, and no more than was asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from benchmarks import readings
from benchmarks.readings import Figures, best_series, series
from benchmarks.timing import Front

ALONE, SHARED = 5.4, 2.9


def kind(*begun: float) -> Callable[[], Figures]:
    """Readings that are twice as fast alone, and differ by a thousandth; what was begun beside them, over and over."""

    def endless() -> Iterator[Figures]:
        number = 0
        while True:
            issued = begun[number % len(begun)]
            rate = (2.0 if issued == ALONE else 1.0) + 0.001 * (number % 2)
            yield Figures(rate, rate, 0.01, 1.0, issued)
            number += 1

    return endless().__next__


def test_readings_beside_a_neighbour_are_made_up_for() -> None:
    told = series({"quiet": kind(ALONE), "shared at times": kind(ALONE, SHARED)}, 10, Front(), rounds=3)
    assert (told["quiet"].undisturbed, told["quiet"].readings) == (10, 10)
    assert told["shared at times"].undisturbed == 10
    assert told["shared at times"].readings in (19, 20)
    assert told["shared at times"].a_cycle < 0.001


def test_a_neighbour_who_hardly_rests_leaves_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readings, "LATER_S", 0.0)
    told = best_series({"shared": kind(ALONE, *14 * [SHARED])}, 30, 3)["shared"]
    assert told.undisturbed < readings.LEAST
    assert not told.told


def test_what_was_seen_alone_once_is_remembered_from_series_to_series() -> None:
    front = Front()
    series({"quiet": kind(ALONE)}, 10, front)
    assert series({"shared": kind(SHARED)}, 10, front)["shared"].undisturbed == 0


def test_what_nobody_looked_at_is_alone() -> None:
    assert series({"clock": kind(float("inf")), "shared": kind(SHARED)}, 10, Front())["clock"].undisturbed == 10


def test_a_neighbour_who_never_rests_during_one_kernel_is_told_by_what_was_seen_before() -> None:
    assert Front().was_alone(SHARED)
    assert not Front(ALONE).was_alone(SHARED)
