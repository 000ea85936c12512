"""The series that counts how often faults are named right: it must itself notice what is not."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from amdcheck.host.live import LiveHost
from amdcheck.knowledge.remedies import remedy
from amdcheck.model.finding import HOST, Finding, Subject, failed, passed, shown, skipped, undetermined, warned
from benchmarks import truth
from benchmarks.truth import Fault, IdleRuns, Tally

SCALING, NEIGHBOUR = truth.SCALING, truth.NEIGHBOUR
SEEN = shown("selftest cpu.cores", "seen")


def warning(id: str, subject: str = "host") -> Finding:
    where = HOST if subject == "host" else Subject(kind="cpu", id=subject)
    return warned(id, where, "So it is.", SEEN, remedy=remedy(id))


FINE = passed(SCALING, HOST, "All is well.", SEEN)
BUSY = skipped(SCALING, HOST, "In use.", outcome="busy")
SLOW = warning(f"{SCALING}/slow-core", "3")
STOLEN = warning(f"{SCALING}/stolen")
DISTURBED = undetermined(
    SCALING, HOST, "Noise.", SEEN, outcome="disturbed", remedy=remedy("selftest.cpu.scaling/disturbed")
)
WRONG = failed(
    f"{SCALING}/wrong-result",
    Subject(kind="cpu", id="1"),
    "Wrong.",
    SEEN,
    remedy=remedy("selftest.cpu.scaling/wrong-result"),
)


def said(monkeypatch: pytest.MonkeyPatch, *found: Finding) -> None:
    monkeypatch.setattr(truth, "findings", lambda *_, **__: list(found))


def hog() -> Fault:
    says = frozenset({(f"{SCALING}/busy", "host")})
    return Fault(name="hog", around=nullcontext, host=LiveHost, checks=(SCALING,), says=says)


def test_a_fault_that_is_named_counts_whatever_others_do_to_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    said(monkeypatch, BUSY, STOLEN)
    assert hog().run() is None


@pytest.mark.parametrize(
    ("found", "instead"),
    [
        ([FINE], "nothing"),
        ([BUSY, SLOW], f"{SCALING}/busy host, {SCALING}/slow-core 3"),
        ([WRONG], f"{SCALING}/wrong-result 1"),
    ],
)
def test_a_fault_that_is_not_named_or_blames_the_hardware_is_wrong(
    monkeypatch: pytest.MonkeyPatch, found: list[Finding], instead: str
) -> None:
    said(monkeypatch, *found)
    assert hog().run() == instead


def idle_runs(monkeypatch: pytest.MonkeyPatch, *runs: list[Finding]) -> IdleRuns:
    monkeypatch.setattr(truth, "idle", lambda patience_s: True)
    quiet = IdleRuns()
    for found in runs:
        said(monkeypatch, *found)
        quiet.run()
    return quiet


def test_what_every_run_says_is_the_machine_and_what_one_says_is_an_alarm(monkeypatch: pytest.MonkeyPatch) -> None:
    always = warning(f"{SCALING}/low")
    quiet = idle_runs(monkeypatch, [always], [always, SLOW], [always, DISTURBED], [always, BUSY])
    assert quiet.always == [f"{SCALING}/low host"]
    assert quiet.false_alarms == [f"{SCALING}/slow-core 3"]


def test_a_single_run_is_not_always(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = idle_runs(monkeypatch, [SLOW])
    assert (quiet.always, quiet.false_alarms) == ([], [f"{SCALING}/slow-core 3"])


def test_a_machine_that_is_not_idle_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    said(monkeypatch, SLOW)
    monkeypatch.setattr(truth, "idle", lambda patience_s: False)
    quiet = IdleRuns()
    quiet.run()
    assert (quiet.said, quiet.not_idle) == ([], 1)


@pytest.mark.parametrize(
    ("runs", "wrong", "alarmed", "not_idle", "within"),
    [
        (100, 1, 0, 0, True),
        (100, 2, 0, 0, False),
        (1, 1, 0, 0, False),
        (100, 0, 1, 0, True),
        (100, 0, 2, 0, False),
        (100, 0, 0, 1001, False),
    ],
)
def test_the_budget_is_99_of_100_named_and_1_of_1000_alarms(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    runs: int,
    wrong: int,
    alarmed: int,
    not_idle: int,
    within: bool,
) -> None:
    quiet = idle_runs(monkeypatch, *[[SLOW]] * alarmed, *[[FINE]] * (1000 - alarmed))
    quiet.not_idle = not_idle
    tally = Tally(runs=runs, wrong=["nothing"] * wrong, seconds=1.0)
    assert truth._show([hog()], [tally], quiet, is_sample=False, save=False) is within
    assert f'"within_budget": {str(within).lower()}' in capsys.readouterr().out


def test_what_cannot_be_provoked_here_fails_the_series_and_not_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    quiet = idle_runs(monkeypatch, [FINE])
    tally = Tally(why_not="no control groups are mounted here")
    assert truth._show([hog()], [tally], quiet, is_sample=True, save=False)
    assert not truth._show([hog()], [tally], quiet, is_sample=False, save=False)
