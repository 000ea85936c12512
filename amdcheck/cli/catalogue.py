"""What can be listed and explained: the checks, and the outcomes that have a remedy of their own."""

from __future__ import annotations

import re
from collections.abc import Mapping

from msgspec import Struct

from amdcheck.cli.ending import NO_CHECKS, Ending
from amdcheck.cli.output import tell
from amdcheck.engine import plugins
from amdcheck.engine.registry import GROUPS, Check, Needs, all_checks
from amdcheck.knowledge.remedies import RemedyTemplate, Ways, remedies, steps_on
from amdcheck.knowledge.selftests import Limit, limits
from amdcheck.knowledge.tables import Confidence
from amdcheck.model.expectations import Level
from amdcheck.model.finding import Action, Owner, Status, Step

_WORST_FIRST: tuple[Status, ...] = ("fail", "warn", "unknown", "manual")
_HOLE = re.compile(r"\{(\w+):\w+\}")


class ListedCheck(Struct, frozen=True, kw_only=True):
    """A check as `list` shows it."""

    id: str
    title: str
    level: Level
    needs: Needs
    required: bool
    origin: str  # the module that brings it


class OutcomePage(Struct, frozen=True, kw_only=True):
    """What an outcome means and what to do about it; the holes of commands are shown as NAME."""

    id: str
    status: Status | None  # the worst that it may have; None where that depends on the check
    meaning: str
    action: Action | None
    owner: Owner | None
    steps: tuple[Step, ...]
    reference: str | None


class HeldLimit(Struct, frozen=True, kw_only=True):
    """A number that a check holds what it measures against, and where it comes from."""

    name: str
    value: float
    unit: str
    meaning: str
    source: str
    confidence: Confidence


class CheckPage(Struct, frozen=True, kw_only=True):
    """The manual page of a check, what it holds figures against, and the outcomes that are its own, the worst first."""

    check: ListedCheck
    page: str
    limits: tuple[HeldLimit, ...]
    outcomes: tuple[OutcomePage, ...]


def every_check() -> Mapping[str, Check]:
    """All checks by id, in order; plugins that cannot be used are told.

    Raises Ending when the installation has brought none of its own.
    """
    if not all_checks():
        raise Ending("bug", NO_CHECKS)
    brought = plugins.load_plugins()
    for finding in brought.failed:
        tell(finding.message)
    return plugins.every_check(brought)


def listed(check: Check) -> ListedCheck:
    return ListedCheck(
        id=check.id,
        title=check.title,
        level=check.level,
        needs=check.needs,
        required=check.required,
        origin=check.origin,
    )


def check_page(check: Check) -> CheckPage:
    own = (page for id, page in every_outcome().items() if id.partition("/")[0] == check.id)
    worst_first = sorted(own, key=lambda page: _WORST_FIRST.index(page.status or "manual"))
    held = tuple(_held(name, row) for name, row in limits().items() if check.id in row.checks)
    return CheckPage(check=listed(check), page=check.page, limits=held, outcomes=tuple(worst_first))


def _held(name: str, row: Limit) -> HeldLimit:
    return HeldLimit(
        name=name,
        value=row.value,
        unit=row.unit,
        meaning=row.meaning,
        source=row.source,
        confidence=row.confidence,
    )


def every_outcome() -> Mapping[str, OutcomePage]:
    """All outcomes with a remedy of their own by finding id, in order."""
    return {id: _outcome_page(id, row) for group in GROUPS for id, row in sorted(remedies(group).items())}


def _outcome_page(id: str, row: RemedyTemplate) -> OutcomePage:
    return OutcomePage(
        id=id,
        status=row.status,
        meaning=row.meaning,
        action=row.action,
        owner=row.owner,
        steps=(
            *_steps(row),
            *(_steps(row.in_guest, where="In a virtual machine or container: ") if row.in_guest else ()),
        ),
        reference=row.reference,
    )


def _steps(ways: Ways, *, where: str = "") -> tuple[Step, ...]:
    return tuple(
        Step(
            text=where + _named(step.text),
            argv=tuple(_named(word) for word in step.argv) or None,
            root=step.root,
            reboot=step.reboot,
        )
        for template in ways.steps
        for step in steps_on(template, None)
    )


def _named(template: str) -> str:
    return _HOLE.sub(lambda hole: hole[1].upper(), template)
