"""Processes that begin at one moment, whatever some of them meet."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

import pytest

from amdcheck.selftest.isolate import Isolated, Record
from amdcheck.selftest.together import Start, together


def live(start: Start) -> Record:
    return {"begun": start.wait(), "now": time.monotonic()}


def die(start: Start) -> Record:
    os.kill(os.getpid(), signal.SIGBUS)
    raise AssertionError


def test_all_are_told_the_same_moment_and_none_begins_before_it() -> None:
    ended, stolen = together(dict.fromkeys(range(5), live), ready_s=2.0, lasts_s=0.0, deadline_s=5.0)
    results = [one["result"] for one in ended.values()]
    assert list(ended) == list(stolen) == [0, 1, 2, 3, 4]
    assert len({result["begun"] for result in results if result}) == 1
    assert all(result is not None and result["now"] >= result["begun"] for result in results)


def test_one_that_dies_is_told_by_name_and_the_other_is_not_kept_waiting() -> None:
    began = time.monotonic()
    ended, _ = together({0: die, 1: live}, ready_s=5.0, lasts_s=0.0, deadline_s=10.0)
    assert (ended[0]["ended"], ended[1]["ended"]) == ("SIGBUS", "returned")
    assert time.monotonic() - began < 2.5


def test_those_that_hang_are_all_told_their_common_deadline() -> None:
    def hang(start: Start) -> Record:
        start.wait()
        time.sleep(60)
        raise AssertionError

    ended, _ = together({0: hang, 1: hang}, ready_s=0.5, lasts_s=0.0, deadline_s=1.0)
    assert [(one["ended"], one["detail"]) for one in ended.values()] == [("timeout", "not finished within 1 s")] * 2


def test_one_that_is_refused_a_process_keeps_no_other_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[object] = []

    def second_refused(step: Callable[[], Record]) -> Isolated:
        given.append(step)
        if len(given) == 2:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        return Isolated(step)

    monkeypatch.setattr("amdcheck.selftest.isolate.Isolated", second_refused)
    began = time.monotonic()
    ended, _ = together({7: live, 3: live, 9: live}, ready_s=5.0, lasts_s=0.0, deadline_s=10.0)
    assert [(cpu, one["ended"]) for cpu, one in ended.items()] == [(7, "returned"), (3, "failed"), (9, "returned")]
    assert "Resource temporarily unavailable" in str(ended[3]["detail"])
    assert time.monotonic() - began < 2.5
