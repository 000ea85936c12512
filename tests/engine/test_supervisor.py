from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from amdcheck.engine.supervisor import Outcome, supervise
from amdcheck.engine.worker import Plan
from amdcheck.host.processes import descendants
from amdcheck.model.errors import InputError
from amdcheck.model.expectations import Expectations
from amdcheck.model.finding import Finding
from tests.engine import sick
from tests.engine.sick import CARDS, make_check
from tests.standins.hungfs import hungfs


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A host of eight cards."""
    (tmp_path / "proc").mkdir()
    for card in CARDS:
        folder = tmp_path / "sys" / "cards" / card
        folder.mkdir(parents=True)
        (folder / "gpu_busy_percent").write_text("0\n")
    return tmp_path


@pytest.fixture(autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """No process of a run outlives it, but one in uninterruptible sleep, which is gone once its server is."""
    before = descendants([os.getpid()])
    yield
    end = time.monotonic() + 5
    while descendants([os.getpid()]) - before and time.monotonic() < end:
        with suppress(ChildProcessError):
            os.waitpid(-1, os.WNOHANG)  # a worker that was given up dies once its read is let go
        time.sleep(0.05)
    assert descendants([os.getpid()]) <= before


def outcome_of(tree: Path, *checks: str, deadline_s: float | None = 30.0) -> Outcome:
    plan = Plan(
        host=tree,
        expectations=Expectations(level="quick"),
        record=False,
        checks=tuple(make_check(f"cpu.{name}", getattr(sick, name)) for name in checks),
        extra_facts=(),
    )
    return supervise(plan, deadline_s=deadline_s)


def only(outcome: Outcome, check: str) -> Finding:
    (finding,) = outcome.findings[check]
    return finding


def test_a_read_that_sleeps_uninterruptibly_costs_one_card(tree: Path) -> None:
    sick_card = tree / "sys" / "cards" / "card3"
    path = "/sys/cards/card3/gpu_busy_percent"
    plan = Plan(
        host=tree,
        expectations=Expectations(level="quick"),
        record=False,
        checks=(make_check("gpu.cards", sick.cards_busy), make_check("cpu.fine", sick.fine)),
        extra_facts=(),
    )
    with hungfs({"gpu_busy_percent": None}, at=sick_card):
        began = time.monotonic()
        outcome = supervise(plan, deadline_s=30.0)
        took = time.monotonic() - began
    assert took < 2.0 + 1.0 + 1.5  # the read's deadline, one second for the dead, and the run itself
    (hang,) = outcome.unfinished.hangs
    assert hang.what == path
    (stuck,) = hang.stuck
    assert stuck.state == "D"
    assert "fuse" in stuck.wchan or "request_wait" in stuck.wchan
    assert {f.subject.id: f.id for f in outcome.findings["gpu.cards"]} == {
        card: "gpu.cards/timeout" if card == "card3" else "gpu.cards/ok" for card in CARDS
    }
    assert only(outcome, "cpu.fine").id == "cpu.fine/ok"


@pytest.mark.parametrize(
    ("name", "outcome", "words"),
    [
        ("broken", "crashed", "ZeroDivisionError: a bug of ours"),
        ("dying", "crashed", "the worker ended"),
        ("raising", "crashed", "KeyError"),
        ("silent", "no-finding", "without saying anything"),
        ("endless", "timeout", "did not end within its time"),
        ("nonsense", "crashed", "yielded a int, not a Finding"),
        ("anothers", "crashed", "cpu.fine/ok, which is another check's"),
        ("vacuous", "crashed", "a pass needs evidence"),
        ("malformed", "crashed", "malformed finding"),
        ("exiting", "crashed", "the worker ended"),
    ],
)
def test_a_check_that_misbehaves_is_unknown_and_the_run_goes_on(
    tree: Path, name: str, outcome: str, words: str
) -> None:
    result = outcome_of(tree, name, "fine")
    finding = only(result, f"cpu.{name}")
    assert (finding.id, finding.status) == (f"cpu.{name}/{outcome}", "unknown")
    assert words in finding.message
    assert finding.remedy is not None
    assert only(result, "cpu.fine").status == "pass"


def test_a_predicate_that_never_ends_costs_its_check_alone(tree: Path) -> None:
    plan = Plan(
        host=tree,
        expectations=Expectations(level="quick"),
        record=False,
        checks=(make_check("cpu.never", sick.fine, applies=sick.hangs_before), make_check("cpu.fine", sick.fine)),
        extra_facts=(),
    )
    result = supervise(plan, deadline_s=None)
    assert only(result, "cpu.never").id == "cpu.never/timeout"
    assert only(result, "cpu.fine").status == "pass"


def test_what_blocks_outside_of_all_checks_is_named_too(tree: Path) -> None:
    plan = Plan(host=tree, expectations=Expectations(level="quick"), record=False, checks=(), extra_facts=(sick.Cards,))
    with hungfs({"gpu_busy_percent": None}, at=tree / "sys" / "cards" / "card3"):
        outcome = supervise(plan, deadline_s=30.0)
    (hang,) = outcome.unfinished.hangs
    assert hang.what == "/sys/cards/card3/gpu_busy_percent"
    assert "Cards" in outcome.facts


def test_a_deadline_in_the_middle_of_a_hang_names_it(tree: Path) -> None:
    plan = Plan(
        host=tree,
        expectations=Expectations(level="quick"),
        record=False,
        checks=(make_check("gpu.cards", sick.cards_busy),),
        extra_facts=(),
    )
    with hungfs({"gpu_busy_percent": None}, at=tree / "sys" / "cards" / "card3"):
        outcome = supervise(plan, deadline_s=1.0)
    (hang,) = outcome.unfinished.hangs
    assert (hang.what, [stuck.state for stuck in hang.stuck]) == ("/sys/cards/card3/gpu_busy_percent", ["D"])
    assert only(outcome, "gpu.cards").id == "gpu.cards/timeout"


def test_a_check_that_yields_for_ever_is_cut(tree: Path) -> None:
    result = outcome_of(tree, "flooding", "fine")
    assert {f.id for f in result.findings["cpu.flooding"]} == {"cpu.flooding/ok", "cpu.flooding/crashed"}
    assert only(result, "cpu.fine").status == "pass"


def test_a_read_that_waits_for_a_cpu_is_no_hang(tree: Path) -> None:
    finding = only(outcome_of(tree, "busy"), "cpu.busy")
    assert (finding.id, finding.evidence[0].value) == ("cpu.busy/ok", "0")


def test_a_process_that_forks_twice_does_not_escape(tree: Path) -> None:
    assert only(outcome_of(tree, "escaping"), "cpu.escaping").status == "pass"


def test_programs_that_misbehave_end_in_time_side_by_side() -> None:
    plan = Plan(
        host=None,
        expectations=Expectations(level="standard"),
        record=False,
        checks=(make_check("cpu.programs", sick.programs), make_check("cpu.fine", sick.fine)),
        extra_facts=(),
    )
    began = time.monotonic()
    outcome = supervise(plan, deadline_s=30.0)
    assert time.monotonic() - began < 1.0 + 1.0 + 1.0  # their deadline, a second for the dead, the run itself
    assert {f.subject.id: (f.outcome, f.evidence[0].value) for f in outcome.findings["cpu.programs"]} == {
        "hangs": ("timeout", None),
        "forks-twice": ("ok", "rc 0"),
        "floods": ("timeout", None),
        "garbage": ("ok", "rc 0"),
        "killed": ("ok", "rc -11"),
        "not-executable": ("denied", None),
        "missing": ("absent", None),
    }
    flood = next(f for f in outcome.findings["cpu.programs"] if f.subject.id == "floods")
    assert flood.evidence[0].note == f"timeout: {1 << 20} characters"
    assert only(outcome, "cpu.fine").status == "pass"


def test_the_deadline_cuts_the_run_and_says_what_was_not_run(tree: Path) -> None:
    result = outcome_of(tree, "fine", "endless", "silent", deadline_s=0.8)
    assert result.deadline_hit
    assert only(result, "cpu.fine").status == "pass"
    assert only(result, "cpu.silent").id == "cpu.silent/timeout"
    assert "deadline of 0.8 s" in only(result, "cpu.silent").message


def test_a_host_that_cannot_be_opened_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        outcome_of(tmp_path / "none", "fine")


def test_more_than_three_hangs_under_one_folder_give_it_up(tree: Path) -> None:
    folder = tree / "sys" / "cards"
    for card in CARDS:
        (folder / card / "gpu_busy_percent").unlink()
        (folder / card).rmdir()

    # Eight attributes of one device, all of which block.
    names = {f"attr{n}": None for n in range(8)}
    with hungfs(names, at=folder):
        plan = Plan(
            host=tree,
            expectations=Expectations(level="quick"),
            record=False,
            checks=(make_check("gpu.attributes", sick.attributes),),
            extra_facts=(),
        )
        outcome = supervise(plan, deadline_s=60.0)
    assert [hang.what for hang in outcome.unfinished.hangs] == [f"/sys/cards/attr{n}" for n in range(4)]
    assert outcome.hung_folders == {"/sys/cards"}
    assert [f.outcome for f in outcome.findings["gpu.attributes"]] == ["timeout"] * 8
