"""The child that measures the cores beside each other: what it tells, whatever its processes meet."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from amdcheck.selftest import cpu_cores, idle, reading
from amdcheck.selftest.cgroup import Quota
from amdcheck.selftest.cpu_cores import _again, _alone, _judged_alone, _together, _waves, run
from amdcheck.selftest.idle import Busy
from amdcheck.selftest.isolate import Record
from amdcheck.selftest.library import Gemm, Library, Product
from amdcheck.selftest.reading import PAUSES_S, TELL_AT_ONCE, looks
from amdcheck.selftest.together import together
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


class OneByOne:
    """What each of two CPUs measures alone: a product of 1.25 s and a chain of 1 s, by what they are held up.

    `shares` and `wrong` are of the first CPU, one look after the other and the last one from then on.
    """

    def __init__(
        self,
        *,
        chain: float = 1.0,
        ports: Sequence[float] = (1.0,),
        shares: Sequence[float] = (1.0,),
        wrong: Sequence[int] = (0,),
    ) -> None:
        self.asked = list[int]()
        self._chain, self._ports, self._shares, self._wrong = chain, ports, shares, wrong

    def __call__(self, cpus: Sequence[int], window_s: float) -> list[Record]:
        look = self.asked.count(0)
        self.asked.append(cpus[0])
        chain, ports, share, wrong = 1.0, 1.0, 1.0, 0
        if cpus[0] == 0:
            chain, ports = self._chain, self._ports[min(look, len(self._ports) - 1)]
            share, wrong = self._shares[min(look, len(self._shares) - 1)], self._wrong[min(look, len(self._wrong) - 1)]
        result = {"cpu_share": share, "wrong": wrong, "planted": 4, "noticed": 4, "chain_best_s": chain}
        result |= {"product_best_s": 1.25 * chain * ports, "ports_best_s": chain * ports}
        return [{"cpu": cpus[0], "ended": "returned", "detail": None, "result": result}]

    def told(self, *, least_chain_s: float | None = None) -> list[Record]:
        judge = partial(_judged_alone, ports_operations=1.0, least_chain_s=least_chain_s)
        return _alone(self, [0, 1], judge, time.monotonic() + 60)


ALL_LOOKS = len(PAUSES_S)


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PAUSES_S", ALL_LOOKS * (0.0,))


@pytest.mark.usefixtures("no_pauses")
def test_a_core_is_measured_again_when_the_ports_of_another_show_that_it_is_shared() -> None:
    """Who takes half of a core takes half of its ports: beside them alone the product looks as it should."""
    cores = OneByOne(ports=[2.0])
    assert [run["cpu"] for run in cores.told()] == [0, 1]
    assert cores.asked == [0, 1] + [0] * ALL_LOOKS


@pytest.mark.usefixtures("no_pauses")
def test_a_core_is_measured_again_when_its_clock_is_below_another_one_s() -> None:
    cores = OneByOne(chain=1.5)
    cores.told()
    assert cores.asked == [0, 1] + [0] * ALL_LOOKS
    as_usual = OneByOne(chain=1.2)
    as_usual.told()
    assert as_usual.asked == [0, 1]


@pytest.mark.usefixtures("no_pauses")
def test_a_core_is_measured_again_when_its_clock_is_below_nominal() -> None:
    cores = OneByOne(chain=1.2)
    cores.told(least_chain_s=1.1)
    assert cores.asked == [0] * ALL_LOOKS + [1] + [0] * ALL_LOOKS


@pytest.mark.usefixtures("no_pauses")
def test_a_core_that_computed_wrong_is_not_measured_again_until_it_does_not() -> None:
    cores = OneByOne(ports=[2.0], wrong=[1, 0])
    assert [run["result"]["wrong"] for run in cores.told()] == [1, 0]
    assert cores.asked == [0, 1]


@pytest.mark.usefixtures("no_pauses")
def test_a_core_that_computes_wrong_when_it_is_measured_again_is_told() -> None:
    """However much more of its CPU the first run had."""
    cores = OneByOne(ports=[2.0], shares=[1.0, 0.96], wrong=[0, 2])
    assert [run["result"]["wrong"] for run in cores.told()] == [2, 0]
    assert cores.asked == [0, 1, 0]


@pytest.mark.usefixtures("no_pauses")
def test_a_neighbour_who_is_gone_when_it_is_measured_again_is_not_told() -> None:
    cores = OneByOne(ports=[2.0, 1.0], shares=[1.0, 0.96])
    assert [run["result"]["ports_best_s"] for run in cores.told()] == [1.0, 1.0]
    assert cores.asked == [0, 1, 0]


@pytest.mark.usefixtures("no_pauses")
def test_ports_that_show_only_beside_the_others_have_the_cores_measured_again() -> None:
    """Somebody shared all cores that were measured alone, and was gone when all were measured at once."""
    cores = OneByOne(ports=[2.0, 1.0])
    (slow,) = cores([0], 0.0)
    free = cores([1], 0.0)
    judge = partial(_judged_alone, ports_operations=1.0, least_chain_s=None)
    assert _again(cores, [slow], [], judge, time.monotonic() + 60) == [slow]
    assert _again(cores, [slow], free, judge, time.monotonic() + 60)[0]["result"]["ports_best_s"] == 1.0


held = partial(_together, least_chain_s=None)  # no nominal clock is known


def of(*medians: float, stolen: float | None = 0.0, share: float = 1.0, wrong: int = 0) -> list[Record]:
    result = {"chain_best_s": 1.0, "cpu_share": share, "took_s": 1.0, "stolen_s": stolen}
    result |= {"wrong": wrong, "planted": 4, "noticed": 4}
    return [{"cpu": n, "result": {**result, "product_median_s": s}} for n, s in enumerate(medians)]


def test_all_together_are_held_against_one_alone_and_against_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_cores, "core_of", lambda cpu: (cpu,))
    assert held(of(1.0, 1.0), of(1.0)).rate > 1
    assert held(of(2.0, 2.0), of(1.0)).rate < 1
    assert held(of(1.0, 1.0, 1.0, 2.0), of(1.0)).rate < 1
    assert held(of(1.0, 1.0, share=0.5), of(1.0)).cpu_share < 1
    assert _together(of(1.0, 1.0), of(1.0), least_chain_s=1.01).rate > 1
    assert _together(of(1.0, 1.0), of(1.0), least_chain_s=0.99).rate < 1  # their chains take longer
    one_woken_up = [*of(*31 * [1.0]), *of(1.0, share=0.85)]
    assert held(one_woken_up, of(1.0)).cpu_share == 1  # as the check has it
    monkeypatch.setattr(cpu_cores, "core_of", lambda cpu: (cpu // 2 * 2, cpu // 2 * 2 + 1))
    assert held(of(2.0, 2.0), of(1.0)).rate > 1


@pytest.mark.usefixtures("no_pauses")
def test_what_the_hypervisor_takes_is_judged_like_a_rate_and_any_look_without_it_is_better(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cpu_cores, "core_of", lambda cpu: (cpu,))
    assert held(of(1.0, 1.0, stolen=0.1), of(1.0)).rate >= 1
    assert held(of(1.0, 1.0, stolen=0.2), of(1.0)).rate < 1
    assert held(of(1.0, 1.0, stolen=None), of(1.0)).rate >= 1
    one, other = of(1.0, 1.0, stolen=0.2, share=0.99), of(1.0, 1.0, stolen=0.1, share=0.6)
    looked = iter([one, one, one, other])
    told = looks(lambda: next(looked), lambda one: held(one, of(1.0)), until=time.monotonic() + 60)
    assert (told[0], len(told)) == (other, 4)


@needs_fma
@pytest.mark.skipif(len(ALLOWED) < 2, reason="it takes two CPUs")
def test_every_look_at_all_cores_tells_what_was_stolen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PAUSES_S", (0.0, 0.0, 0.0))
    stolen = iter([dict.fromkeys(ALLOWED, 0.03), dict.fromkeys(ALLOWED, 0.03), dict.fromkeys(ALLOWED)])

    def taking(*steps: Any, lasts_s: float, **how: Any) -> Any:
        ended, told = together(*steps, lasts_s=lasts_s, **how)
        return ended, (next(stolen) if lasts_s == cpu_cores.TOGETHER_S else told)

    monkeypatch.setattr(cpu_cores, "together", taking)
    said = run(ASKED)
    assert len(said["stolen_looks"]) == 2  # and one that does not say
    assert all(0.3 < share < 0.8 for share in said["stolen_looks"])
    assert said["stolen_since_boot"] is None or 0 <= said["stolen_since_boot"] < 1


DIED: list[Record] = [{"cpu": 0, "ended": "SIGBUS", "detail": None, "result": None}]


@pytest.mark.parametrize("runs", [of(1.0, 1.0, share=0.5, wrong=1), DIED])
def test_what_went_wrong_is_told_at_once_and_not_hidden_by_a_better_look(runs: list[Record]) -> None:
    looked = iter([runs, of(1.0, 1.0)])
    assert held(runs, of(1.0)) == TELL_AT_ONCE
    assert looks(lambda: next(looked), lambda one: held(one, of(1.0)), until=time.monotonic() + 60) == [runs]


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
