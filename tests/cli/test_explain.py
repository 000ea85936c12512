"""Pages of checks and outcomes, and the way to them from a near miss."""

from __future__ import annotations

import json
import re
from typing import get_args

import pytest

from amdcheck.cli.catalogue import CheckPage, OutcomePage, every_check, every_outcome
from amdcheck.cli.explain import _check, find_page
from amdcheck.cli.sheet import Sheet
from amdcheck.engine.registry import Check
from amdcheck.knowledge.remedies import remedy, remedy_in_guest
from amdcheck.knowledge.selftests import limit
from amdcheck.model.errors import InputError
from amdcheck.model.finding import Action, Owner, Step
from amdcheck.report.view import View
from tests.cli.command import amdcheck
from tests.schemas import committed_schema


def check(id: str, page: str = "What it looks at.") -> Check:
    return Check(
        id=id,
        title="A title",
        level="quick",
        needs="user",
        required=True,
        function=lambda: iter(()),
        parameters={},
        applies=None,
        applies_parameters={},
        page=page,
        origin="amdcheck.checks.pci.link_width",
    )


def outcome(id: str) -> OutcomePage:
    step = Step(text="Look at BDF", argv=("lspci", "-s", "BDF"), root=True, reboot=False)
    return OutcomePage(
        id=id,
        status="fail",
        meaning="It is narrow.",
        action="reset",
        owner="node",
        steps=(step,),
        reference="PCIe",
    )


CHECKS = {id: check(id) for id in ("pci.link-width", "pci.link-speed", "cpu.isa")}
OUTCOMES = {id: outcome(id) for id in ("pci.link-width/degraded", "amdcheck.run/already-running")}


def test_check_has_a_page() -> None:
    page = find_page("cpu.isa", CHECKS, OUTCOMES)
    assert isinstance(page, CheckPage)
    assert page.check.id == "cpu.isa"


def test_outcome_has_its_meaning_and_remedy() -> None:
    assert find_page("pci.link-width/degraded", CHECKS, OUTCOMES) == OUTCOMES["pci.link-width/degraded"]


def test_outcome_of_the_engine_has_no_check_but_a_page() -> None:
    assert find_page("amdcheck.run/already-running", CHECKS, OUTCOMES) == OUTCOMES["amdcheck.run/already-running"]


def test_reserved_outcome_means_the_same_for_every_check() -> None:
    page = find_page("cpu.isa/denied", CHECKS, OUTCOMES)
    assert isinstance(page, OutcomePage)
    assert page.meaning == "the evidence exists but this user may not read it"


def test_what_is_no_matter_of_reading_is_not_told_to_be_read() -> None:
    told = {
        o: amdcheck("explain", f"selftest.cpu.clock/{o}").stdout for o in ("busy", "crashed", "not-in-table", "hang")
    }
    assert "--allow-busy" in told["busy"]
    assert "Report it" in told["crashed"]
    assert "Update amdcheck" in told["not-in-table"]
    assert [o for o, said in told.items() if "what could not be read" in said] == ["hang"]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("pci.linkwidth", "pci.link-width"),
        ("pci.link-width/degrade", "pci.link-width/degraded"),
        ("link-width", "pci.link-width"),
        ("cpu.iso", "cpu.isa"),
    ],
)
def test_near_miss_names_the_right_id(typed: str, meant: str) -> None:
    with pytest.raises(InputError, match=rf"'{typed}' is neither a check nor an outcome; did you mean .*{meant}"):
        find_page(typed, CHECKS, OUTCOMES)


@pytest.mark.parametrize("typed", ["", "zzz", "nothing/ok"])
def test_nothing_near_points_to_the_list(typed: str) -> None:
    with pytest.raises(InputError, match="`amdcheck list` shows the checks"):
        find_page(typed, CHECKS, OUTCOMES)


def test_page_is_wrapped_with_its_lists_and_code_is_kept() -> None:
    sheet = Sheet(View(width=40))
    sheet.page(
        "One paragraph of words that is longer than\nforty columns.\n\n"
        "- a list whose first item is as long as\n  this\n"
        "- of two\n\n  1. numbered and set in, longer than forty\n\n    code  kept\n| a | row  |\n"
    )
    assert sheet.text().splitlines() == [
        "One paragraph of words that is longer",
        "than forty columns.",
        "",
        "- a list whose first item is as long as",
        "  this",
        "- of two",
        "",
        "  1. numbered and set in, longer than",
        "     forty",
        "",
        "    code  kept",
        "| a | row  |",
    ]


def test_a_line_that_happens_to_begin_with_a_number_and_a_stop_is_no_item() -> None:
    """PCI classes, years and versions: "0300." at the start of a line of a docstring, and " - " of a pair."""
    sheet = Sheet(View(width=72))
    sheet.page(
        "never by class alone, for MI300 are 1200 and Radeon\n0300. A device is what has an address: a link is\n"
        "- as a pair - told by both\n\n"
        "1. the first takes until the year\n   2026. It goes on\n2. the second\n\n3. the third, of another block\n\n"
        "7. is no item here"
    )
    assert sheet.text().splitlines() == [
        "never by class alone, for MI300 are 1200 and Radeon 0300. A device is",
        "what has an address: a link is - as a pair - told by both",
        "",
        "1. the first takes until the year 2026. It goes on",
        "2. the second",
        "",
        "3. the third, of another block",
        "",
        "7. is no item here",
    ]


def test_list_fits_a_screen_of_80_columns() -> None:
    lines = amdcheck("list", env={"COLUMNS": "80"}).stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert max(map(len, amdcheck("list", "--profiles", env={"COLUMNS": "80"}).stdout.splitlines())) <= 80


@pytest.mark.parametrize("id", every_check())
def test_every_check_can_be_explained_at_80_columns(id: str) -> None:
    page = find_page(id, every_check(), every_outcome())
    assert isinstance(page, CheckPage)
    assert len(page.page.split()) >= 20, "a manual page says what, why and what to do"
    sheet = Sheet(View(width=80))
    _check(sheet, page)
    lines = [line for line in sheet.text().splitlines() if not line.startswith("     $ ")]  # commands are not broken
    assert [line for line in lines if len(line) > 80] == []


@pytest.mark.parametrize("id", every_outcome())
def test_every_outcome_says_what_it_means_and_what_to_do(id: str) -> None:
    page = every_outcome()[id]
    assert page.meaning
    assert page.steps
    assert not any(re.search(r"\{\w+:\w+\}", w) for step in page.steps for w in (step.text, *(step.argv or ())))


def test_explain_shows_what_an_outcome_asks_for() -> None:
    id, page = next((id, page) for id, page in every_outcome().items() if any(s.argv for s in page.steps))
    shown = amdcheck("explain", id)
    assert shown.returncode == 0
    assert shown.stdout.splitlines()[0] == id
    assert f"To do: {page.action} (owner: {page.owner})" in shown.stdout
    assert "     $ " in shown.stdout


def test_explain_as_json_holds_the_same() -> None:
    id = next(iter(every_outcome()))
    assert json.loads(amdcheck("explain", id, "--format", "json").stdout)["meaning"] == every_outcome()[id].meaning


def test_explain_of_a_check_lists_its_outcomes_the_worst_first_and_what_to_do_about_that_one() -> None:
    shown = amdcheck("explain", "rocm.driver-compat", env={"COLUMNS": "80"}).stdout
    own = [o for o in every_outcome() if o.startswith("rocm.driver-compat/")]
    told = re.findall(r"^  ([a-z-]+) \((\w+)\): ", shown, re.MULTILINE)
    assert told[0] == ("unsupported", "fail")  # the only fail, and the last in the alphabet
    assert sorted(name for name, _ in told) == sorted(o.partition("/")[2] for o in own)
    todo = shown.partition("What to do about rocm.driver-compat/unsupported\n")[2]
    worst = every_outcome()["rocm.driver-compat/unsupported"]
    assert todo.startswith(f"To do: {worst.action} (owner: {worst.owner})\n  1. ")
    assert "what any check may end with: ok, denied, " in shown


def test_a_page_shows_what_figures_are_held_against_and_where_that_comes_from() -> None:
    shown = amdcheck("explain", "selftest.cpu.neighbour", env={"COLUMNS": "80"}).stdout
    held = " ".join(shown.partition("What it holds figures against\n")[2].partition("Outcomes, ")[0].split())
    row = limit("shared-core")
    assert f"shared-core: {row.value:g} {row.unit}: {row.meaning} {row.confidence}; {row.source}" in held
    page = json.loads(amdcheck("explain", "selftest.cpu.neighbour", "--format", "json").stdout)
    names = [held["name"] for held in page["limits"]]
    assert names == ["cpu-share", "cpu-in-use", "clock-of-nominal", "shared-core", "slow-of-siblings"]
    assert page["limits"][3] == {
        "name": "shared-core",
        "value": row.value,
        "unit": row.unit,
        "meaning": row.meaning,
        "source": row.source,
        "confidence": row.confidence,
    }


def test_a_check_without_figures_shows_none() -> None:
    assert "holds figures" not in amdcheck("explain", "numa.balancing").stdout


def test_help_of_explain_says_who_the_owners_are_and_what_the_actions_mean() -> None:
    shown = amdcheck("explain", "--help", env={"COLUMNS": "80"}).stdout
    for word in (*get_args(Action), *get_args(Owner)):
        assert re.search(rf"\b{word}\s\(", shown), word


def test_list_names_every_check_with_what_it_needs() -> None:
    lines = amdcheck("list", env={"COLUMNS": "200"}).stdout.splitlines()
    assert lines[0].split() == ["CHECK", "LEVEL", "NEEDS", "WEIGHT", "TITLE"]
    assert [line.split()[0] for line in lines[1:]] == list(every_check())
    first = next(iter(every_check().values()))
    assert lines[1].split(maxsplit=4)[1:] == [
        first.level,
        first.needs,
        "required" if first.required else "advisory",
        first.title,
    ]


def test_list_as_json_holds_the_same() -> None:
    listed = json.loads(amdcheck("list", "--format", "json").stdout)
    assert [entry["id"] for entry in listed] == list(every_check())
    assert set(listed[0]) == {"id", "title", "level", "needs", "required", "origin"}


def test_profiles_say_whose_unknowns_count() -> None:
    listed = json.loads(amdcheck("list", "--profiles", "--format", "json").stdout)
    assert set(listed) == {"node-gpu", "node-cpu", "container-gpu", "container-cpu", "production"}
    assert listed["production"]["require_all"] is True
    table = amdcheck("list", "--profiles").stdout
    assert "production" in table
    assert "numa.*" in table


@pytest.mark.parametrize("document", ["report", "capture", "policy"])
def test_schema_command_prints_the_committed_schema(document: str) -> None:
    assert amdcheck("schema", document).stdout == committed_schema(document)


def test_an_outcome_tells_what_guests_do_apart_from_the_others() -> None:
    """A finding in a virtual machine does not contradict the page."""
    texts = [step.text for step in every_outcome()["gpu.present/fewer"].steps]
    guests = [text for text in texts if text.startswith("In a virtual machine or container: ")]
    assert [step.text in guests[at] for at, step in enumerate(remedy_in_guest("gpu.present/fewer").steps)] == [True] * 2
    assert texts[: -len(guests)] == [step.text for step in remedy("gpu.present/fewer").steps]
