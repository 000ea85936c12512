"""`explain`: the manual page of a check, or what one of its outcomes means and asks for."""

from __future__ import annotations

import difflib
from collections.abc import Mapping

import msgspec

from amdcheck.cli.catalogue import CheckPage, OutcomePage, check_page, every_check, every_outcome
from amdcheck.cli.options import ShowOptions
from amdcheck.cli.output import to_stdout
from amdcheck.cli.sheet import Sheet
from amdcheck.cli.terminal import view_of_stdout
from amdcheck.engine.own import OWN
from amdcheck.engine.registry import Check
from amdcheck.model.errors import InputError
from amdcheck.model.finding import RESERVED_OUTCOMES
from amdcheck.model.text import printable
from amdcheck.report.text import command_line

# What to do about outcomes that no check has steps of its own for.
_TO_DO = dict.fromkeys(("ok", "not-applicable"), "There is nothing to do.")
_TO_DO |= dict.fromkeys(
    ("crashed", "no-finding"), "Report it to whom the check is from: the finding says what happened."
)
_TO_DO["busy"] = "Run it again when they are idle, or with --allow-busy; where a CPU quota leaves too few, raise it."
_TO_DO["disturbed"] = "Run it again when the machine is quiet."
_TO_DO["not-in-table"] = "Update amdcheck, whose tables may know it by now; what was read stands in the finding."
_UNREAD = "What to do depends on what could not be read: the finding says it, with its evidence."


def explain(options: ShowOptions, id: str) -> int:
    """Write the page. Raises InputError for an id that is neither a check's nor an outcome's."""
    page = find_page(id.strip(), {**every_check(), **OWN}, every_outcome())
    if options.format == "json":
        to_stdout(msgspec.json.format(msgspec.json.encode(page), indent=2) + b"\n")
        return 0
    sheet = Sheet(view_of_stdout(detail="normal", no_color=True))
    if isinstance(page, CheckPage):
        _check(sheet, page)
    else:
        _outcome(sheet, page)
    to_stdout(sheet.text())
    return 0


def find_page(id: str, checks: Mapping[str, Check], outcomes: Mapping[str, OutcomePage]) -> CheckPage | OutcomePage:
    """The page of a check, of an outcome with its own remedy, or of a reserved outcome of a check."""
    if id in checks:
        return check_page(checks[id])
    if id in outcomes:
        return outcomes[id]
    check, _, outcome = id.partition("/")
    known = check in checks or any(other.partition("/")[0] == check for other in outcomes)
    if known and outcome in RESERVED_OUTCOMES:
        meaning = RESERVED_OUTCOMES[outcome]
        return OutcomePage(id=id, status=None, meaning=meaning, action=None, owner=None, steps=(), reference=None)
    raise InputError(f"{printable(id)!r} is neither a check nor an outcome{_hint(id, checks, outcomes)}")


def _hint(id: str, checks: Mapping[str, Check], outcomes: Mapping[str, OutcomePage]) -> str:
    """The nearest right ids: for a bare word also those that end with it."""
    every = [*checks, *outcomes]
    named = [other for other in every if id and id in other.replace("/", ".").split(".")]
    close = difflib.get_close_matches(id, every, 3, 0.6)
    nearest = tuple(dict.fromkeys((*close, *named)))[:3]
    return f"; did you mean {' or '.join(nearest)}?" if nearest else "; `amdcheck list` shows the checks"


def _check(sheet: Sheet, page: CheckPage) -> None:
    check = page.check
    sheet.words(f"{check.id}: {check.title}", hang=2)
    weight = "required" if check.required else "advisory"
    sheet.words(f"level {check.level}, needs {check.needs}, {weight}, from {check.origin}", first="  ")
    sheet.line()
    sheet.page(page.page)
    if page.limits:
        sheet.line()
        sheet.line("What it holds figures against")
    for limit in page.limits:
        sheet.words(f"{limit.name}: {limit.value:g} {limit.unit}: {limit.meaning}", first="  ", hang=4)
        sheet.words(f"{limit.confidence}; {limit.source}", first="    ")
    if not page.outcomes:
        return
    sheet.line()
    sheet.words(f"Outcomes, the worst first ({check.id}/...)", hang=2)
    names = [outcome.id.partition("/")[2] for outcome in page.outcomes]
    for name, outcome in zip(names, page.outcomes, strict=True):
        sheet.words(f"{name} ({outcome.status}): {outcome.meaning}", first="  ", hang=4)
    sheet.words(
        ", ".join(o for o in RESERVED_OUTCOMES if o not in names), first="  what any check may end with: ", hang=4
    )
    sheet.line()
    sheet.line(f"What to do about {page.outcomes[0].id}")
    _to_do(sheet, page.outcomes[0])
    sheet.line()
    sheet.line("What to do about another one")
    sheet.line(f"  $ amdcheck explain {page.outcomes[-1].id}")


def _outcome(sheet: Sheet, page: OutcomePage) -> None:
    check, _, outcome = page.id.partition("/")
    sheet.line(page.id)
    sheet.words(f"an outcome of {check}; amdcheck explain {check} shows the page", first="  ")
    sheet.line()
    sheet.words(f"It means: {page.meaning}", hang=2)
    sheet.line()
    if page.action is None:
        sheet.words(_TO_DO.get(outcome, _UNREAD))
        return
    _to_do(sheet, page)


def _to_do(sheet: Sheet, page: OutcomePage) -> None:
    sheet.words(f"To do: {page.action} (owner: {page.owner})", hang=2)
    for number, step in enumerate(page.steps, start=1):
        command = command_line(step, privileged=False)
        by_hand = step.root and command is None  # else the command says sudo
        needs = " and ".join(w for w, needed in (("root", by_hand), ("a reboot", step.reboot)) if needed)
        sheet.words(step.text + (f" (needs {needs})" if needs else ""), first=f"  {number}. ")
        if command is not None:
            sheet.line(f"     $ {command}")
    if page.reference:
        sheet.words(page.reference, first="See ", hang=2)
