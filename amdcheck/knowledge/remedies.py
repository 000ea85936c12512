"""Remedies by finding id: argv templates with typed holes, so that nothing else from a host enters a command."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from amdcheck.knowledge.distributions import Manager, distributions, manager_of
from amdcheck.knowledge.raw import read_toml
from amdcheck.model.finding import Action, Owner, Remedy, Status, Step

# What a value must look like to enter a command, by the type that the template names.
HOLES: Mapping[str, re.Pattern[str]] = {
    "bdf": re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]"),
    "int": re.compile(r"\d{1,10}"),
    "syspath": re.compile(r"/(sys|proc|dev|opt|usr|etc|home|root|var|tmp)(/[A-Za-z0-9._:+@-]+)*"),
    "package": re.compile(r"[a-z0-9][a-z0-9.+-]{0,80}"),
    "option": re.compile(r"-{0,2}[a-z][a-z-]{0,40}"),  # of a program: a subcommand, or an option without a value
    "user": re.compile(r"[a-z_][a-z0-9_-]{0,31}\$?"),
    "version": re.compile(r"\d+(\.\d+){0,3}"),
}
_HOLE = re.compile(r"\{(\w+):(\w+)\}")


class StepTemplate(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One step; `on` holds its command where that differs by distribution."""

    text: str
    argv: tuple[str, ...] = ()
    on: Mapping[Manager, tuple[str, ...]] = {}
    root: bool = False
    reboot: bool = False


class Ways(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Who does what."""

    action: Action
    owner: Owner
    steps: tuple[StepTemplate, ...]


class RemedyTemplate(Ways, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One row: keyed by the finding id, for example "pci.link-width/degraded"."""

    status: Status = "warn"  # the worst that the finding may have
    in_guest: Ways | None = None  # instead, in a virtual machine or a container, whose hardware is another's
    reference: str
    meaning: str  # one sentence: what this outcome says of the machine; shown by `amdcheck explain`


@functools.cache
def remedies(group: str) -> Mapping[str, RemedyTemplate]:
    """All remedies of a group of checks, from knowledge/remedies/GROUP.toml."""
    try:
        raw = read_toml(f"remedies/{group}")
    except FileNotFoundError:
        return {}
    return msgspec.convert(raw, dict[str, RemedyTemplate])


def remedy(finding_id: str, *, os_id: str | None = None, **values: str | int) -> Remedy:
    """The remedy of a finding, its holes filled; `os_id` is the ID of os-release, for commands that differ by it.

    Raises KeyError for an id without a row. A value that does not fit its hole leaves that step without a command:
    it came from the host and must not reach a shell.
    """
    template = remedies(finding_id.partition(".")[0])[finding_id]
    return _made(template, template.reference, os_id, {name: str(value) for name, value in values.items()})


def remedy_in_guest(finding_id: str) -> Remedy:
    """The remedy in a virtual machine or container, where the row has another one for those. Raises KeyError."""
    template = remedies(finding_id.partition(".")[0])[finding_id]
    return _made(template.in_guest or template, template.reference, None, {})


def _made(ways: Ways, reference: str, os_id: str | None, words: Mapping[str, str]) -> Remedy:
    return Remedy(
        action=ways.action,
        owner=ways.owner,
        steps=tuple(_fill(step, words) for each in ways.steps for step in steps_on(each, os_id)),
        reference=reference,
    )


def steps_on(step: StepTemplate, os_id: str | None) -> tuple[StepTemplate, ...]:
    """The step with this distribution's command; where it is in no table, the step once for each command there is."""
    manager = manager_of(os_id)
    if manager is not None and manager in step.on:
        return (replace(step, argv=step.on[manager], on={}),)
    if not step.on:
        return (step,)
    titles: dict[tuple[str, ...], list[str]] = {}
    for other, argv in step.on.items():
        titles.setdefault(argv, []).append(distributions()[other].title)
    return tuple(
        replace(step, text=f"{step.text} (on {', '.join(names)})", argv=argv, on={}) for argv, names in titles.items()
    )


def _fill(step: StepTemplate, values: Mapping[str, str]) -> Step:
    fits = True

    def put(match: re.Match[str]) -> str:
        nonlocal fits
        value = values[match[1]]
        fits = fits and HOLES[match[2]].fullmatch(value) is not None
        return value

    text = _HOLE.sub(put, step.text)
    fits = True  # the text is only read; what counts is what enters the command
    argv = tuple(_HOLE.sub(put, word) for word in step.argv)
    return Step(
        text=text,
        argv=argv if argv and fits else None,
        root=step.root,
        reboot=step.reboot,
    )
