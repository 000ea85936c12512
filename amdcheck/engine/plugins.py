"""Checks of other packages: learned of and run in processes of their own, never in this one.

A plugin's module may do anything while it is imported: print, hang, end its process, change what it finds. So a forked
child imports it and says what it registered; this process knows those checks by their descriptions alone. After all
built-in checks are done, a worker of the plugin's own imports it again and runs them.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import EntryPoint, distributions
from typing import NoReturn, Union

from amdcheck.engine.frames import Described, DescribedCheck, FrameBuffer, FrameError, Refused, send
from amdcheck.engine.own import PluginOutcome, plugin_finding
from amdcheck.engine.registry import Check, Plugin, all_checks, described
from amdcheck.engine.supervisor import Outcome
from amdcheck.engine.worker import IMPORT_SECONDS, Plan
from amdcheck.facts.registry import all_facts
from amdcheck.host.pipes import readable
from amdcheck.host.processes import adopt_orphans, escaped_children, has_ended, kill_tree, let_go_of_the_caller
from amdcheck.model.errors import in_words
from amdcheck.model.finding import Finding
from amdcheck.model.text import printable

ENTRY_POINTS = "amdcheck.checks"
_POLL_S = 0.25
_PAGE_LINES = 500


@dataclass(frozen=True)
class Plugins:
    """The plugins that can be used, and a finding for each that cannot."""

    usable: tuple[Plugin, ...]
    failed: tuple[Finding, ...]

    @property
    def checks(self) -> Mapping[str, Check]:
        """What they bring, by id."""
        return {check.id: check for plugin in self.usable for check in plugin.checks}

    def without(self, plan: Plan) -> Plan:
        """The plan with the built-in checks alone."""
        theirs = self.checks
        if not theirs:
            return plan

        def ours(checks: tuple[Check, ...]) -> tuple[Check, ...]:
            return tuple(check for check in checks if check.id not in theirs)

        at = {recorded: (level, ours(checks)) for recorded, (level, checks) in plan.at.items()}
        return replace(plan, checks=ours(plan.checks), at=at)

    def parts(self, plan: Plan, done: Outcome, *, and_their_facts: bool) -> Iterator[Plan]:
        """A plan for each plugin with its checks of `plan`, from the facts that are known by then."""
        left = {check.id: check for check in plan.checks}
        facts, broken = dict(done.facts), dict(done.broken)
        for plugin in self.usable:
            checks = tuple(left.pop(check.id) for check in plugin.checks if check.id in left)
            wanted = tuple(name for name in plugin.facts if name not in done.facts) if and_their_facts else ()
            if checks or wanted:
                yield replace(
                    plan,
                    checks=checks,
                    extra_facts=(),
                    facts=facts,
                    broken=broken,
                    hung_paths=done.hung_paths,
                    hung_folders=done.hung_folders,
                    plugin=plugin,
                    plugin_facts=wanted,
                )


def add(outcome: Outcome, part: Plan, said: Outcome) -> None:
    """Add what a plugin's worker said, of its own checks and facts alone."""
    for check in part.checks:
        outcome.findings[check.id] = said.findings.get(check.id, [])
    for name in part.plugin_facts:
        if name in said.facts:
            outcome.facts[name] = said.facts[name]
        else:
            given_up = "; ".join(finding.message for finding in said.own)
            outcome.broken[name] = said.broken.get(name, given_up or "not read before the deadline")
    outcome.own += said.own
    outcome.recorded += said.recorded
    outcome.unfinished.add(said.unfinished)
    outcome.hung_paths |= said.hung_paths
    outcome.hung_folders |= said.hung_folders
    outcome.deadline_hit |= said.deadline_hit


def every_check(plugins: Plugins) -> Mapping[str, Check]:
    """The built-in checks and those of plugins by id, in order of id."""
    return dict(sorted({**all_checks(), **plugins.checks}.items()))


@functools.cache
def load_plugins(seconds: float = IMPORT_SECONDS) -> Plugins:
    """Learn what the installed plugins bring; ends within `seconds` seconds and one for those that hang."""
    entries, failed = _entry_points()
    usable: list[Plugin] = []
    for entry, answer in zip(entries, _ask(entries, seconds) if entries else (), strict=True):
        package = _package(entry)
        if isinstance(answer, Described):
            plugin = _plugin(entry, package, answer)
            clash = _clash(plugin, usable)
            if clash is None:
                usable.append(plugin)
                continue
            failed.append(plugin_finding(entry.name, package, "failed", clash))
        else:
            failed.append(plugin_finding(entry.name, package, *answer))
    return Plugins(tuple(usable), tuple(failed))


def _entry_points() -> tuple[list[EntryPoint], list[Finding]]:
    """Every entry of the group once, and a finding for each package whose list of entries cannot be read."""
    entries: dict[tuple[str, str], EntryPoint] = {}
    failed = []
    for distribution in distributions():
        try:
            for entry in distribution.entry_points.select(group=ENTRY_POINTS):
                entries.setdefault((entry.name, entry.value), entry)
        except Exception as error:
            name = str(getattr(distribution, "_path", "?")).rpartition("/")[2]
            why = f"its entry points cannot be read: {in_words(error)}"
            failed.append(plugin_finding(name, name, "failed", why))
    return [entries[key] for key in sorted(entries)], failed


def _package(entry: EntryPoint) -> str:
    return "an unknown package" if entry.dist is None else str(entry.dist.name)


# What an entry point registers, or why it cannot be used
_Answer = Union[Described, tuple[PluginOutcome, str]]


@dataclass(frozen=True)
class _Asked:
    """A process that imports an entry point, and the pipe on which it answers."""

    pid: int
    pipe: int
    frames: FrameBuffer


def _ask(entries: Sequence[EntryPoint], seconds: float) -> list[_Answer]:
    """Import each entry point in a process of its own, side by side."""
    all_checks()  # before the fork: what is registered by then is built in
    adopt_orphans()
    before = escaped_children()
    end = time.monotonic() + seconds
    asked: list[_Asked] = []
    answers: dict[int, _Answer] = {}  # by pid
    try:
        for entry in entries:
            ours, theirs = os.pipe()
            pid = os.fork()
            if pid == 0:
                _describe(entry, theirs)
            os.close(theirs)
            asked.append(_Asked(pid, ours, FrameBuffer()))
        while len(answers) < len(asked) and (left := end - time.monotonic()) > 0:
            waiting = [one for one in asked if one.pid not in answers]
            ready = readable([one.pipe for one in waiting], min(left, _POLL_S))
            for one in waiting:
                answer = _answer(one, wait=one.pipe not in ready)
                if answer is not None:
                    answers[one.pid] = answer
        late: _Answer = ("hang", f"importing it took over {seconds:g} s")
        return [answers.get(one.pid, late) for one in asked]
    finally:
        for one in asked:
            os.close(one.pipe)
            kill_tree(one.pid, escaped_but=before)


def _answer(asked: _Asked, *, wait: bool) -> _Answer | None:
    """What the process says, as far as it is there; `wait`: only if it is dead."""
    if wait and not has_ended(asked.pid):
        return None
    # What a dead process left behind may hold the pipe open, so that its end does not show there.
    data = os.read(asked.pipe, 1 << 18) if readable([asked.pipe], 0) else b""
    if not data:
        return "crashed", "its process ended while it was imported"
    try:
        for frame in asked.frames.feed(data):
            if isinstance(frame, Described):
                return frame
            if isinstance(frame, Refused):
                return "failed", frame.sentence
    except FrameError as error:
        return "failed", f"what it registers is nonsense: {in_words(error)}"
    return None


def _describe(entry: EntryPoint, pipe: int) -> NoReturn:
    """The child: imports the entry point and says what it registered."""
    pid = os.getpid()
    try:
        let_go_of_the_caller(pipe)
        checks, facts = all_checks(), dict(all_facts())
        answer: Described | Refused
        try:
            entry.load()
            answer = _registered(checks, facts)
        except BaseException as error:
            answer = Refused(in_words(error))
        if os.getpid() == pid:  # code that forked and came back twice must not answer twice
            send(pipe, answer)
    finally:
        os._exit(0)


def _registered(checks: Mapping[str, Check], facts: Mapping[str, object]) -> Described:
    """What is registered beyond these, the built-in ones. Raises ValueError when one of them is no longer there."""
    checks_now, facts_now = all_checks(), dict(all_facts())
    for kind, was, now in (("check", checks, checks_now), ("fact", facts, facts_now)):
        for name, one in was.items():
            if now.get(name) is not one:
                raise ValueError(f"it replaces the built-in {kind} {name}")
    brought = [check for id, check in checks_now.items() if id not in checks]
    for check in brought:
        if check.group == "amdcheck":
            raise ValueError(f"{check.id}: the group amdcheck is what amdcheck says of itself")
    return Described(
        checks=tuple(
            DescribedCheck(
                id=check.id,
                title=printable(check.title),
                level=check.level,
                needs=check.needs,
                required=check.required,
                page="\n".join(map(printable, check.page.splitlines()[:_PAGE_LINES])),
                origin=printable(str(check.origin)),
            )
            for check in brought
        ),
        facts={name: printable(str(fact.__module__)) for name, fact in facts_now.items() if name not in facts},
    )


def _plugin(entry: EntryPoint, package: str, answer: Described) -> Plugin:
    checks = tuple(
        described(
            check.id,
            title=check.title,
            level=check.level,
            needs=check.needs,
            required=check.required,
            page=check.page,
            origin=entry.module if check.origin.startswith("amdcheck.") else check.origin,  # built in is only ours
        )
        for check in answer.checks
    )
    return Plugin(entry, package, checks, answer.facts)


def _clash(plugin: Plugin, others: Sequence[Plugin]) -> str | None:
    """What another plugin has registered already. Two entries of one package may well share a module."""
    for other in others:
        theirs = {check.id: check.origin for check in other.checks}
        ours = {check.id: check.origin for check in plugin.checks}
        for kind, first, second in (("check", theirs, ours), ("fact", other.facts, plugin.facts)):
            for name in sorted(first.keys() & second.keys()):
                if first[name] != second[name]:
                    return f"the {kind} {name} is brought by {other.package} already ({first[name]})"
    return None
