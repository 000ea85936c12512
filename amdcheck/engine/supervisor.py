"""The supervisor: runs workers one after another until everything is judged, and never waits for one that blocks.

A read of a sick device can sleep uninterruptibly; nothing ends it. The supervisor then gives up that worker, says
what it blocked on, and starts another that answers `timeout` for that path alone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from posixpath import dirname

from msgspec.structs import replace as with_fields

from amdcheck.engine.frames import (
    Broke,
    CheckDone,
    CheckStarted,
    FactFailed,
    FactRead,
    Finished,
    Frame,
    FrameBuffer,
    FrameError,
    Opened,
    Refused,
)
from amdcheck.engine.own import PluginOutcome, plugin_finding
from amdcheck.engine.page import Doing, Page
from amdcheck.engine.registry import Check
from amdcheck.engine.worker import Plan, broken_fact, bug_of, crashed, run_worker
from amdcheck.host.capture import Hang, Unfinished
from amdcheck.host.paths import encodable
from amdcheck.host.pipes import readable
from amdcheck.host.processes import adopt_orphans, escaped_children, has_ended, kill_tree, state_of
from amdcheck.model.errors import InputError
from amdcheck.model.finding import HOST, Finding, Remedy, Step, undetermined

HANGS_PER_FOLDER = 3  # more under one device folder, and the whole folder answers `timeout`
HANGS_PER_RUN = 64
WAIT_FOR_THE_DEAD_S = 1.0
STUCK_NAMED = 256  # processes of one hang
STARVED_S = 8.0  # how much longer a read may take while its process waits for a CPU: that is no hang
_POLL_S = 0.25
# Announcements of code, ours or a plugin's: when it does not end, that alone is no hang of the host.
_CODE = ("open ", "check ", "fact ", "plugin ")


class WorkerBug(Exception):
    """The worker's own code is broken; the text is its traceback."""


@dataclass
class Outcome:
    """What a run of workers gave. Facts are msgpack-encoded by name; findings by check id, in order of execution.

    `own` are findings of no check. `unfinished` is what could not be done, and on replay what the recording run could
    not do. `hung_paths` holds what blocked, as it was announced; `hung_folders` folders in which too much did.
    """

    opened: Opened | None = None
    findings: dict[str, list[Finding]] = field(default_factory=dict)
    facts: dict[str, bytes] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)
    recorded: list[bytes] = field(default_factory=list)
    own: list[Finding] = field(default_factory=list)
    unfinished: Unfinished = field(default_factory=Unfinished)
    hung_paths: frozenset[str] = frozenset()
    hung_folders: frozenset[str] = frozenset()
    deadline_hit: bool = False


def supervise(
    plan: Plan,
    *,
    deadline_s: float | None,
    began: float | None = None,
    on_check: Callable[[int, str], None] | None = None,
) -> Outcome:
    """Carry out the plan; ends within `deadline_s` seconds plus the second it takes to give up a blocked worker.

    The seconds count from `began` (time.monotonic()), where that was before now.
    `on_check` is told how many checks are done and which one starts. Raises InputError when the host cannot be
    opened. Whatever ends it (a signal too), no worker is left but one in uninterruptible sleep.
    """
    adopt_orphans()
    return _Supervisor(plan, deadline_s, time.monotonic() if began is None else began, on_check).run()


class _Supervisor:
    def __init__(
        self, plan: Plan, deadline_s: float | None, began: float, on_check: Callable[[int, str], None] | None
    ) -> None:
        self._plan = plan
        self._ends = None if deadline_s is None else began + deadline_s
        self._deadline_s = deadline_s
        self._on_check = on_check
        self._page = Page()
        self._outcome = Outcome()
        self._todo: dict[str, Check] = {check.id: check for check in plan.checks}
        self._current: Check | None = None
        self._hangs: dict[str, int] = {}
        self._finished = False

    def run(self) -> Outcome:
        while not self._finished:
            self._one_worker()
        return self._outcome

    # One worker, from fork to its end

    def _one_worker(self) -> None:
        self._page.clear()
        self._current = None
        plan = replace(
            self._plan,
            checks=tuple(self._todo.values()),
            facts={**self._plan.facts, **self._outcome.facts},
            broken={**self._plan.broken, **self._outcome.broken},
            hung_paths=self._plan.hung_paths | self._outcome.hung_paths,
            hung_folders=self._plan.hung_folders | self._outcome.hung_folders,
        )
        before = escaped_children()
        ours, theirs = os.pipe()
        pid = 0
        try:
            pid = os.fork()
            if pid == 0:
                run_worker(plan, theirs, self._page)
            os.close(theirs)
            why = self._listen(ours, pid)
        finally:
            os.close(ours)
            stuck = kill_tree(pid, wait_s=WAIT_FOR_THE_DEAD_S, escaped_but=before) if pid else ()
        doing = why if isinstance(why, Doing) else self._page.read()
        if stuck or (isinstance(why, Doing) and not why.what.startswith(_CODE)):
            what = "" if doing is None else encodable(doing.what)
            self._outcome.unfinished.hangs.append(Hang(what=what, stuck=stuck[:STUCK_NAMED]))
        if not self._finished:
            self._account_for(why)

    def _listen(self, pipe: int, worker: int) -> Doing | str:
        """Take frames until the worker is done, dies, or blocks; returns why: what it blocks on, or in words."""
        frames = FrameBuffer()
        while True:
            doing = self._page.read()
            now = time.monotonic()
            if self._ends is not None and now >= self._ends:
                self._outcome.deadline_hit = True
                self._finished = True
                self._leave_the_rest(f"the run's deadline of {self._deadline_s:g} s passed first")
                return "deadline"
            if doing is not None and now >= doing.deadline and not _starved(doing, now, worker):
                return doing
            wait = _POLL_S if doing is None else min(_POLL_S, max(doing.deadline - now, 0.0) + 0.01)
            if self._ends is not None:
                wait = min(wait, self._ends - now)
            if not readable([pipe], max(wait, 0.001)):
                # What it left behind may hold the pipe open, so that its end does not show there.
                if has_ended(worker) and not readable([pipe], 0):
                    return "it died"
                continue
            data = os.read(pipe, 1 << 18)
            if not data:
                return "it died"
            try:
                for frame in frames.feed(data):
                    self._take(frame)
            except FrameError as error:
                return f"it sent garbage ({error})"
            if self._finished:
                return "done"

    def _take(self, frame: Frame) -> None:
        outcome = self._outcome
        if isinstance(frame, CheckStarted):
            self._current = self._todo.get(frame.id)
            if self._on_check is not None:
                self._on_check(len(self._plan.checks) - len(self._todo), frame.id)
        elif isinstance(frame, CheckDone):
            outcome.findings.setdefault(frame.id, []).extend(frame.findings)
            self._todo.pop(frame.id, None)
            self._current = None
        elif isinstance(frame, FactRead):
            outcome.facts[frame.name] = frame.data
            if frame.recorded is not None:
                outcome.recorded.append(frame.recorded)
        elif isinstance(frame, FactFailed):
            outcome.broken[frame.name] = frame.why
        elif isinstance(frame, Opened):
            plan = self._plan.replaying(frame.recorded)
            if plan is not self._plan:
                self._plan, self._todo = plan, {check.id: check for check in plan.checks}
            if outcome.opened is None:
                self._leave_unfinished(frame.unfinished)
            outcome.opened = frame
        elif isinstance(frame, Refused):
            raise InputError(frame.sentence)
        elif isinstance(frame, Broke):
            if self._plan.plugin is None:
                raise WorkerBug(frame.traceback)
            self._give_plugin_up("crashed", f"the process that ran it broke: {frame.traceback}")
        elif isinstance(frame, Finished):
            if frame.recorded is not None:
                outcome.recorded.insert(0, frame.recorded)  # facts have the last word on what they read
            self._finished = True

    # When a worker ended before its work did

    def _account_for(self, why: Doing | str) -> None:
        """Take one thing out of the work, so that the next worker gets further."""
        if isinstance(why, str):
            self._died(self._page.read(), why)
            return
        kind, _, name = why.what.partition(" ")
        if kind == "open":
            raise InputError(f"--host {name}: opening it blocks; it may lie on a dead mount. Copy it to a local disk")
        if kind in ("check", "plugin") and self._current is not None:
            message = "The check did not end within its time"
            self._close(self._current, bug_of(self._current, message, outcome="timeout"))
        elif kind == "fact":
            self._break(name, "timeout: our code for it did not end")
        elif kind == "plugin":
            self._give_plugin_up("hang", "importing it, or what it left running then, did not end within its time")
        else:
            self._hung(why.what)

    def _died(self, doing: Doing | None, why: str) -> None:
        name = "" if doing is None else doing.what
        if name.startswith("fact "):
            self._break(name[5:], f"the worker ended: {why}")
        elif self._current is not None:
            doing_what = "its work" if not name or name.startswith("plugin ") else name
            self._close(self._current, crashed(self._current, f"the worker ended: {why} while doing {doing_what}"))
        elif name.startswith("plugin "):
            self._give_plugin_up("crashed", "its process ended outside of its checks and facts")
        elif self._outcome.opened is None:
            raise WorkerBug(f"the worker ended before the host was open: {why}")
        else:  # between two checks: nothing names a culprit, so do not try for ever
            self._finished = True
            for check in self._todo.values():
                self._outcome.findings.setdefault(check.id, []).append(crashed(check, f"the worker ended: {why}"))

    def _break(self, fact: str, why: str) -> None:
        """Give a fact up. What its code had read is lost with the worker, so a replay cannot run that code either."""
        self._outcome.broken[fact] = self._outcome.unfinished.broken[fact] = why
        if self._current is not None:
            self._close(self._current, broken_fact(self._current, fact, why))

    def _give_plugin_up(self, outcome: PluginOutcome, why: str) -> None:
        assert self._plan.plugin is not None
        left = f"; not judged: {', '.join(self._todo)}" if self._todo else ""
        finding = plugin_finding(self._plan.plugin.entry.name, self._plan.plugin.package, outcome, why + left)
        self._outcome.own.append(finding)
        self._finished = True

    def _close(self, check: Check, finding: Finding) -> None:
        self._outcome.findings.setdefault(check.id, []).append(finding)
        self._todo.pop(check.id, None)

    def _hung(self, what: str) -> None:
        outcome = self._outcome
        folder = dirname(what) if what.startswith("/") else what
        self._hangs[folder] = self._hangs.get(folder, 0) + 1
        outcome.hung_paths |= {what}
        if self._hangs[folder] > HANGS_PER_FOLDER:
            outcome.hung_folders |= {folder}
        if sum(self._hangs.values()) > HANGS_PER_RUN:
            self._finished = True
            self._leave_the_rest(f"more than {HANGS_PER_RUN} reads blocked")

    def _leave_unfinished(self, recorded: Unfinished) -> None:
        """Leave undone what the run did not do whose recording this is."""
        self._outcome.unfinished.add(recorded)  # something may have blocked before the host was open
        self._outcome.broken.update(recorded.broken)
        for id, why in recorded.not_run.items():
            if id in self._todo:
                self._leave_undone(self._todo[id], why)

    def _leave_the_rest(self, why: str) -> None:
        for check in tuple(self._todo.values()):
            self._leave_undone(check, why)

    def _leave_undone(self, check: Check, why: str) -> None:
        step = Step(
            text="Run this check alone, without a deadline that cuts it",
            argv=("amdcheck", "run", check.id, "--deadline", "600"),
            root=False,
            reboot=False,
        )
        remedy = Remedy(action="investigate", owner="setup", steps=(step,), reference=None)
        finding = undetermined(check.id, HOST, f"Not run: {why}", outcome="timeout", remedy=remedy)
        self._close(check, with_fields(finding, title=check.title))
        self._outcome.unfinished.not_run[check.id] = why


def _starved(doing: Doing, now: float, worker: int) -> bool:
    """Does a read last only because its process gets no CPU? One that blocks sleeps in the kernel."""
    return doing.what.startswith("/") and now < doing.deadline + STARVED_S and state_of(worker) == "R"
