"""The worker: a forked process that reads the host, runs the checks and streams what it finds.

It may block for ever in the kernel. So it holds nothing of the caller but its own pipe: standard streams go to
/dev/null, and every other descriptor (the run lock, earlier workers' pipes) is closed before the first read.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as with_changes
from itertools import islice
from pathlib import Path
from typing import NoReturn, Protocol

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from amdcheck.engine.frames import (
    Broke,
    CheckDone,
    CheckStarted,
    FactFailed,
    FactRead,
    Finished,
    Frame,
    Opened,
    Refused,
    send,
)
from amdcheck.engine.injection import FactBroke, FactStore
from amdcheck.engine.page import Page
from amdcheck.engine.registry import Check, Plugin, all_checks, is_builtin
from amdcheck.facts.registry import all_facts
from amdcheck.host.capture import Unfinished
from amdcheck.host.guard import GuardedHost
from amdcheck.host.interpreter import python_to_judge
from amdcheck.host.processes import become_subreaper, let_go_of_the_caller
from amdcheck.host.protocol import Host
from amdcheck.model.errors import InputError, in_words
from amdcheck.model.expectations import Expectations, Level
from amdcheck.model.finding import HOST, Finding, Remedy, Step, Subject, skipped, undetermined
from amdcheck.model.text import printable

IMPORT_SECONDS = 5.0  # of a plugin
CHECK_SECONDS = 2.0
FACT_SECONDS = 10.0  # its own work; waiting for the host does not count
OPEN_SECONDS = 15.0
_FINDINGS_LIMIT = 10_000  # of one check; a plugin that yields for ever must end


@dataclass(frozen=True)
class Plan:
    """What a worker has to do; a later worker of the same run starts from what earlier ones learned."""

    host: Path | None
    expectations: Expectations
    record: bool
    checks: tuple[Check, ...]
    extra_facts: tuple[type[Struct], ...]
    facts: Mapping[str, bytes] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    hung_paths: frozenset[str] = frozenset()
    hung_folders: frozenset[str] = frozenset()
    # A worker runs the code of one plugin, or of none; `plugin_facts` are the names of its facts to read besides.
    plugin: Plugin | None = None
    plugin_facts: tuple[str, ...] = ()
    # When no level was asked for: which level and checks, by the level of the recording, known once it is open.
    at: Mapping[Level, tuple[Level, tuple[Check, ...]]] = field(default_factory=dict)

    def replaying(self, recorded: Level | None) -> Plan:
        """The plan for a recording made at that level."""
        if recorded is None or recorded not in self.at:
            return self
        level, checks = self.at[recorded]
        return with_changes(self, checks=checks, expectations=replace(self.expectations, level=level), at={})


def run_worker(plan: Plan, pipe: int, page: Page) -> NoReturn:
    """Entry of the forked process. Ends by os._exit, so that nothing of the parent's is flushed or unlocked twice."""
    code, pid = 1, os.getpid()
    try:
        let_go_of_the_caller(pipe)
        become_subreaper()
        page.own()
        _Worker(plan, pipe, page).work()
        code = 0
    except BaseException:
        import traceback

        if os.getpid() == pid:
            send(pipe, Broke(printable(traceback.format_exc())))
    finally:
        os._exit(code)


class Recorder(Host, Protocol):
    """A host that can be asked for what it recorded since the last time."""

    def take(self) -> Struct: ...


class _Worker:
    def __init__(self, plan: Plan, pipe: int, page: Page) -> None:
        self._plan = plan
        self._pipe = pipe
        self._pid = os.getpid()
        self._page = page
        self._recorder: Recorder | None = None
        self._privileged = False
        self._unfinished = Unfinished()

    def work(self) -> None:
        """Open the host, run the checks, read the facts that the report itself shows."""
        try:
            host, expectations = self._open()
        except InputError as error:
            self._send(Refused(str(error)))
            return
        if self._plan.plugin is not None:
            # Never ended: it watches over all that is in no check and no fact, such as a thread that stays.
            self._page.begin(f"plugin {self._plan.plugin.entry.name}", IMPORT_SECONDS)
            self._plan.plugin.entry.load()
        facts = FactStore(host, expectations, around=self._read_fact)
        kinds = all_facts()
        for name, data in self._plan.facts.items():
            facts.put(msgspec.msgpack.decode(data, type=kinds[name]))
        for name, why in (self._plan.broken | self._unfinished.broken).items():
            if name in kinds:  # a recording may name a fact of another version
                facts.put_broken(kinds[name], why)
        for check in self._plan.checks:
            if check.id in self._unfinished.not_run:
                continue
            self._send(CheckStarted(check.id))
            self._send(CheckDone(check.id, self._run_check(check, facts)))
        for kind in (*self._plan.extra_facts, *(kinds[name] for name in self._plan.plugin_facts)):
            try:
                facts.get(kind)
            except FactBroke as error:
                self._send(FactFailed(error.name, error.why))
        if self._recorder is not None and self._plan.plugin is None:
            from amdcheck.host.tool_reads import read_for_tools

            read_for_tools(host)
        self._send(Finished(self._take()))

    def _send(self, frame: Frame) -> None:
        if os.getpid() != self._pid:
            os._exit(0)  # code that forked and came back twice must not make two workers
        send(self._pipe, frame)

    def _open(self) -> tuple[Host, Expectations]:
        """The host to read, behind the guard; and the expectations, completed by what a recording was made with."""
        plan = self._plan
        expectations = plan.expectations
        recorded: Level | None = None
        inner: Host
        if plan.host is None:
            from amdcheck.host.live import LiveHost

            inner = LiveHost(level=expectations.level)
        else:
            from amdcheck.host.open import open_host
            from amdcheck.host.snapshot import SnapshotHost

            self._page.begin(f"open {plan.host}", OPEN_SECONDS)
            inner = open_host(plan.host)
            self._page.end()
            if isinstance(inner, SnapshotHost):
                manifest = inner.capture.manifest
                recorded = manifest.level
                self._unfinished = inner.capture.unfinished
                self._plan = plan = plan.replaying(recorded)
                expectations = plan.expectations
                if manifest.expectations is not None:
                    expectations = _completed(expectations, manifest.expectations)
        guarded = GuardedHost(inner, self._page, plan.hung_paths, plan.hung_folders)
        if plan.host is None and expectations.python is None:
            expectations = replace(expectations, python=python_to_judge(guarded, os.environ))
        identity = guarded.identity().or_none()
        self._privileged = identity is not None and identity.uid == 0
        self._send(Opened(inner.source, expectations, self._privileged, recorded, self._unfinished))
        if plan.record:
            from amdcheck.host.recording import RecordingHost

            self._recorder = RecordingHost(guarded)
        return self._recorder or guarded, expectations

    def _take(self) -> bytes | None:
        return None if self._recorder is None else msgspec.msgpack.encode(self._recorder.take())

    def _read_fact(self, kind: type[Struct], read: Callable[[], Struct]) -> Struct:
        self._page.begin(f"fact {kind.__name__}", FACT_SECONDS)
        try:
            value = read()
            if not isinstance(value, kind):
                raise TypeError(f"its read returned a {type(value).__name__}")
            data = msgspec.msgpack.encode(value)
            if self._plan.plugin is not None:
                value = msgspec.msgpack.decode(data, type=kind)  # constructors do not validate types
        except Exception:
            raise
        except BaseException as error:  # it meant to end this process
            raise FactBroke(kind.__name__, in_words(error)) from error
        finally:
            self._page.end()
        self._send(FactRead(kind.__name__, data, self._take()))
        return value

    def _run_check(self, check: Check, facts: FactStore) -> tuple[Finding, ...]:
        """The findings of a check, whatever its code does: what it said before it broke is kept."""
        found: list[Finding] = []
        began = time.perf_counter()
        self._page.begin(f"check {check.id}", CHECK_SECONDS)  # its facts have their own time
        try:
            if self._plan.plugin is not None:
                check = _with_code(check)
            reason = None if check.applies is None else check.applies(**facts.supply(check.applies_parameters))
            if reason is not None:
                return _accepted(check, (skipped(check.id, HOST, reason),), None)
            arguments = facts.supply(check.parameters)
            began = time.perf_counter()
            _collect(check.function(**arguments), found)
        except FactBroke as error:
            found.append(broken_fact(check, error.name, error.why))
        except BaseException as error:
            found.append(crashed(check, in_words(error)))
        finally:
            self._page.end()
        accepted = _accepted(check, found, (time.perf_counter() - began) * 1000)
        return tuple(map(_refused_to_root, accepted)) if self._privileged else accepted


def _with_code(check: Check) -> Check:
    """A check as its plugin described it, with the code that the plugin registered here."""
    code = all_checks()[check.id]
    return with_changes(
        check,
        function=code.function,
        parameters=code.parameters,
        applies=code.applies,
        applies_parameters=code.applies_parameters,
    )


def _collect(findings: Iterable[Finding], found: list[Finding]) -> None:
    """Take findings one by one; the generator ends with this function, while its check is still announced."""
    for finding in islice(findings, _FINDINGS_LIMIT):
        found.append(finding)


def _completed(asked: Expectations, recorded: Expectations) -> Expectations:
    """A replay asks what the recording run asked, but for what is given now; the level is the plan's.

    CPUs were in use when it was recorded, or were not: what its self-tests might use is no question of now.
    """
    missing = {name: getattr(recorded, name) for name in asked.__struct_fields__ if getattr(asked, name) is None}
    return replace(asked, **missing, allow_busy=recorded.allow_busy)


def _accepted(check: Check, found: Iterable[Finding], duration_ms: float | None) -> tuple[Finding, ...]:
    """The findings of a check, validated: of its own id, one for each id and subject, well formed."""
    accepted: dict[tuple[str, Subject], Finding] = {}
    for yielded in found:
        finding = _valid(check, yielded)
        if isinstance(finding, Finding) and (finding.id, finding.subject) in accepted:
            finding = f"two findings {finding.id} on {finding.subject.kind} {finding.subject.id}"
        if isinstance(finding, str):
            accepted.setdefault((f"{check.id}/crashed", _origin(check)), crashed(check, finding))
        else:
            accepted[finding.id, finding.subject] = _titled(finding, check, duration_ms)
    if not accepted:
        return (_no_finding(check),)
    return tuple(accepted.values())


def _valid(check: Check, yielded: object) -> Finding | str:
    """What a check yielded, or what is wrong with it; constructors do not validate types, so plugins are."""
    if type(yielded) is not Finding:  # a class made from it could answer anything
        return f"it yielded a {type(yielded).__name__}, not a Finding"
    finding = yielded
    if not is_builtin(check):
        try:
            finding = msgspec.convert(msgspec.to_builtins(finding), Finding)
        except Exception as error:
            return f"it yielded a malformed finding: {in_words(error)}"
    if finding.check != check.id:
        return f"it yielded {finding.id}, which is another check's"
    return finding


def _titled(finding: Finding, check: Check, duration_ms: float | None) -> Finding:
    title = finding.title or check.title
    return replace(finding, title=title, duration_ms=None if duration_ms is None else round(duration_ms, 3))


def _origin(check: Check) -> Subject:
    return HOST if is_builtin(check) else Subject(kind="plugin", id=check.origin)


def bug_remedy(check: Check) -> Remedy:
    """What to do about a check that is itself broken."""
    step = Step(text=f"Report this to the authors of {check.origin}", argv=None, root=False, reboot=False)
    return Remedy(action="investigate", owner="setup", steps=(step,), reference=None)


def bug_of(check: Check, message: str, *, outcome: str) -> Finding:
    """The check itself, or our code for what it needs, is at fault."""
    finding = undetermined(check.id, _origin(check), message, outcome=outcome, remedy=bug_remedy(check))
    return _titled(finding, check, None)


def crashed(check: Check, why: str) -> Finding:
    """The check's own code went wrong."""
    return bug_of(check, f"The check broke: {why}", outcome="crashed")


def broken_fact(check: Check, fact: str, why: str) -> Finding:
    """Something the check needs could not be read because our code for it raised, or did not end."""
    message = f"{fact}, which the check needs, could not be read: {why}"
    return bug_of(check, message, outcome="timeout" if why.startswith("timeout") else "crashed")


def _no_finding(check: Check) -> Finding:
    return bug_of(check, "The check ended without saying anything", outcome="no-finding")


def _refused_to_root(finding: Finding) -> Finding:
    """More privilege is no remedy for what root itself was refused."""
    if finding.outcome != "denied" or finding.status != "unknown":
        return finding
    if finding.check.startswith("selftest."):
        filtered = Step(
            text="Root was refused this, so more rights do not help: see whether a filter of system calls is on (a "
            "container's seccomp profile, SystemCallFilter of a systemd unit); where amdcheck ran, Seccomp is 2 then",
            argv=("grep", "Seccomp", "/proc/self/status"),
            root=False,
            reboot=False,
        )
        return replace(
            finding,
            remedy=Remedy(action="investigate", owner="setup", steps=(filtered,), reference="Linux proc_pid_status(5)"),
        )
    steps = (
        Step(
            text="Root was refused this, so more rights do not help: see whether the device is in reset or suspended",
            argv=("dmesg", "--level=err,warn"),
            root=True,
            reboot=False,
        ),
        Step(
            text="In a container: see whether its device cgroup keeps the device away",
            argv=None,
            root=False,
            reboot=False,
        ),
    )
    remedy = Remedy(action="investigate", owner="node", steps=steps, reference="Linux amdgpu_pm.c: EPERM in reset")
    return replace(finding, remedy=remedy)
