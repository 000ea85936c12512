"""The child that measures the cores beside each other: what it tells, whatever its processes meet."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence

import pytest

from amdcheck.selftest import cpu_cores, idle
from amdcheck.selftest.cgroup import Quota
from amdcheck.selftest.cpu_cores import _alone, _best, _of_alone, _waves, run
from amdcheck.selftest.idle import Busy
from amdcheck.selftest.isolate import Record
from amdcheck.selftest.library import Gemm, Library, Product
from tests.selftest.conftest import offered_flags

ASKED = ("fma", "allow-busy")
needs_fma = pytest.mark.skipif("fma" not in offered_flags(), reason="this processor has no FMA")
ALLOWED = sorted(os.sched_getaffinity(0))


@pytest.fixture(autouse=True)
def no_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under one of the tests' own fewer CPUs are measured."""
    monkeypatch.setattr("amdcheck.selftest.cgroup.quotas", dict)


def every(document: Record) -> list[Record]:
    return [*document["alone"], *document["together"]]


@needs_fma
def test_every_process_stays_on_its_cpu_and_every_word_is_right() -> None:
    said = run(ASKED)
    assert (said["lacks"], said["busy"], said["allowed"]) == (None, None, ALLOWED)
    assert {one["cpu"] for one in said["together"]} == (set(ALLOWED) if len(ALLOWED) > 1 else set())
    for one in every(said):
        result = one["result"]
        assert (one["ended"], result["cpus"], result["wrong"]) == ("returned", [one["cpu"]], 0)
        assert (result["planted"], result["noticed"]) == (4, 4)
        assert result["compared"] == result["slices"] * 96 * 96 > 0
        assert 0 < result["product_best_s"] <= result["product_median_s"]
        assert 0 < result["cpu_share"] <= 1


@needs_fma
def test_a_word_that_one_core_gets_wrong_is_counted_there(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Product.run
    broken = ALLOWED[-1]

    def run_wrong(self: Product, *, wrong: int = -1) -> float:
        return honest(self, wrong=7 if wrong < 0 and os.sched_getaffinity(0) == {broken} else wrong)

    monkeypatch.setattr(Product, "run", run_wrong)
    said = run(ASKED)
    wrong = {one["cpu"]: one["result"]["wrong"] for one in every(said)}
    assert wrong.pop(broken) > 0
    assert set(wrong.values()) <= {0}


@needs_fma
def test_a_comparison_that_sees_nothing_notices_no_planted_word(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Product, "wrong_words", lambda self: [])
    assert {one["result"]["noticed"] for one in every(run(ASKED))} == {0}


@needs_fma
@pytest.mark.parametrize(("number", "ended"), [(signal.SIGKILL, "SIGKILL"), (signal.SIGBUS, "SIGBUS")])
def test_processes_that_die_are_told_by_their_signal(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals, ended: str
) -> None:
    def die(*_: object, **__: object) -> Record:
        os.kill(os.getpid(), number)
        raise AssertionError

    monkeypatch.setattr(cpu_cores, "measure", die)
    assert {one["ended"] for one in every(run(ASKED))} == {ended}


@needs_fma
def test_processes_that_never_end_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def sleep(*_: object, **__: object) -> Record:
        time.sleep(60)
        return {}

    monkeypatch.setattr(cpu_cores, "measure", sleep)
    monkeypatch.setattr(cpu_cores, "READY_S", 0.3)
    began = time.monotonic()
    assert {one["ended"] for one in every(run(ASKED))} == {"timeout"}
    assert time.monotonic() - began < 20


@needs_fma
def test_no_more_processes_are_told_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refused)
    said = every(run(ASKED))
    assert {one["ended"] for one in said} == {"failed"}
    assert "Resource temporarily unavailable" in said[0]["detail"]


def test_a_machine_in_use_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def busy(*, allow_busy: bool) -> tuple[int, ...]:
        raise Busy("every CPU is in use")

    monkeypatch.setattr(cpu_cores, "idle_cpus", busy)
    said = run(("fma",))
    assert (said["busy"], said["lacks"], every(said)) == ("every CPU is in use", None, [])


def test_without_a_product_nothing_is_measured_and_an_unknown_one_is_lacking() -> None:
    assert every(run(("allow-busy",))) == []
    assert run(("avx1024",))["lacks"] == "the compiler that built amdcheck knows no avx1024"


def attempt(share: float = 1.0, *, rate: float = 1.0, wrong: int = 0, noticed: int = 4) -> list[Record]:
    result = {"cpu_share": share, "rate": rate, "wrong": wrong, "planted": 4, "noticed": noticed}
    return [{"cpu": 0, "ended": "returned", "detail": None, "result": result}]


DIED = [{"cpu": 0, "ended": "SIGBUS", "detail": None, "result": None}]


@pytest.mark.parametrize(
    ("attempts", "told"),
    [
        ([attempt(), attempt(0.99)], 0),
        ([attempt(0.5), attempt()], 1),
        ([attempt(0.5), attempt(0.7), attempt(0.6)], 1),
        ([attempt(rate=0.6), attempt(rate=1.1)], 1),
        ([attempt(rate=0.6), attempt(rate=0.7), attempt(rate=0.5)], 1),
        ([attempt(0.5, rate=1.2), attempt(rate=0.9), attempt(0.5)], 1),
        ([attempt(0.5, wrong=1), attempt()], 0),
        ([attempt(0.5, noticed=3), attempt()], 0),
        ([attempt(0.5), DIED, attempt()], 1),
    ],
)
def test_the_best_attempt_is_told_and_never_instead_of_a_wrong_one(attempts: list[list[Record]], told: int) -> None:
    made: Iterator[list[Record]] = iter(attempts)

    def rate(runs: list[Record]) -> float:
        return float(runs[0]["result"]["rate"])

    assert _best(lambda: next(made), 3, rate, time.monotonic() + 60) is attempts[told]


def test_no_attempt_begins_after_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    made = iter([attempt(0.5), attempt(1.0)])
    assert _best(lambda: next(made), 3, lambda runs: 2.0, time.monotonic() - 1)[0]["result"]["cpu_share"] == 0.5


def test_a_core_is_measured_again_when_the_ports_of_another_show_that_it_is_shared() -> None:
    """Who takes half of a core takes half of its ports: beside them alone the product looks as it should."""
    asked = list[int]()

    def run_on(cpus: Sequence[int], window_s: float) -> list[Record]:
        asked.append(cpus[0])
        slow = 2.0 if cpus[0] == 0 else 1.0
        result = {"cpu_share": 1.0, "wrong": 0, "planted": 4, "noticed": 4, "chain_best_s": 1.0}
        result |= {"product_best_s": slow / 0.8, "ports_best_s": slow}
        return [{"cpu": cpus[0], "ended": "returned", "detail": None, "result": result}]

    told = _alone(run_on, [0, 1], 1.0, time.monotonic() + 60)
    assert [run["cpu"] for run in told] == [0, 1]
    assert asked == [0, 1] + [0] * cpu_cores.ATTEMPTS_ALONE


def test_a_core_that_computed_wrong_is_not_measured_again_until_it_does_not() -> None:
    def run_on(cpus: Sequence[int], window_s: float) -> list[Record]:
        asked.append(cpus[0])
        slow = 2.0 if cpus[0] == 0 else 1.0
        wrong = 1 if asked == [0] else 0
        result = {"cpu_share": 1.0, "wrong": wrong, "planted": 4, "noticed": 4, "chain_best_s": 1.0}
        result |= {"product_best_s": slow / 0.8, "ports_best_s": slow}
        return [{"cpu": cpus[0], "ended": "returned", "detail": None, "result": result}]

    asked = list[int]()
    told = _alone(run_on, [0, 1], 1.0, time.monotonic() + 60)
    assert [run["result"]["wrong"] for run in told] == [1, 0]
    assert asked == [0, 1]


def test_all_together_are_held_against_one_alone_and_against_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    def of(*medians: float) -> list[Record]:
        return [{"cpu": n, "result": {"product_median_s": s, "chain_best_s": 1.0}} for n, s in enumerate(medians)]

    monkeypatch.setattr(cpu_cores, "core_of", lambda cpu: (cpu,))
    assert _of_alone(of(1.0, 1.0), of(1.0)) > 1
    assert _of_alone(of(2.0, 2.0), of(1.0)) < 1
    assert _of_alone(of(1.0, 1.0, 1.0, 2.0), of(1.0)) < 1
    monkeypatch.setattr(cpu_cores, "core_of", lambda cpu: (cpu // 2 * 2, cpu // 2 * 2 + 1))
    assert _of_alone(of(2.0, 2.0), of(1.0)) > 1


@pytest.mark.parametrize(
    ("threads", "cpus", "waves"),
    [
        (1, 2, []),
        (1, 3, [[0, 1]]),
        (1, 8, [[0, 1], [0, 1, 2, 3]]),
        (2, 2, []),  # both threads of one core
        (2, 4, [[0, 2]]),  # all cores, before their other threads
        (2, 12, [[0, 2], [0, 2, 4, 6], [0, 2, 4, 6, 8, 10]]),
    ],
)
def test_every_core_gets_one_process_before_a_core_gets_two(
    monkeypatch: pytest.MonkeyPatch, threads: int, cpus: int, waves: list[list[int]]
) -> None:
    monkeypatch.setattr(idle, "core_of", lambda cpu: (cpu // threads,))
    assert [list(wave) for wave in _waves(range(cpus))] == waves


@needs_fma
def test_a_core_that_computes_wrong_only_beside_some_others_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It must not be lost with the sums of its wave."""
    monkeypatch.setattr(cpu_cores, "_waves", lambda cpus: [cpus])
    honest = cpu_cores._side_by_side

    def wrong_in_short_company(library: Library, gemm: Gemm, cpus: Sequence[int], window_s: float) -> list[Record]:
        runs = honest(library, gemm, cpus, window_s)
        if len(cpus) > 1 and window_s == cpu_cores.ALONE_S:
            runs[-1]["result"]["wrong"] = 3
        return runs

    monkeypatch.setattr(cpu_cores, "_side_by_side", wrong_in_short_company)
    if len(ALLOWED) > 1:
        said = run(ASKED)
        assert [one["result"]["wrong"] for one in said["together"]] == [0] * (len(ALLOWED) - 1) + [3]
        assert said["waves"] == []


@needs_fma
def test_under_a_quota_no_more_cpus_are_used_than_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amdcheck.selftest.cgroup.quotas", lambda: {"/sys/fs/cgroup/x": Quota(1.5, 0, 0.0, None)})
    said = run(ASKED)
    assert (len(said["alone"]), said["together"], said["quota"]["cpus"]) == (1, [], 1.5)


def test_a_library_that_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amdcheck.selftest.library.NAME", "libnot_built.so")
    assert "no C compiler was there" in run(ASKED)["lacks"]
