"""Recording: a host that keeps every answer it passes on, so that a capture replays exactly these."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping, Sequence
from typing import Literal, TypeVar

from msgspec import Struct, field
from msgspec.structs import replace

from amdcheck.host.capture import (
    SCHEMA,
    Capture,
    Device,
    Manifest,
    Operation,
    Outcome,
    Unfinished,
    command_key,
    selftest_key,
    to_text,
)
from amdcheck.host.environ import is_environment, without_secrets
from amdcheck.host.paths import FILE_LIMIT, bad_argv, bad_path, utf8_text
from amdcheck.host.protocol import (
    READ_LIMIT,
    Command,
    CommandResult,
    Host,
    Identity,
    OpenOutcome,
    SelfTest,
    SelfTestResult,
    Stat,
    SystemAnswers,
    UdevDevice,
)
from amdcheck.model.value import Known, Reason, Unknown, Value

T = TypeVar("T")

_PATH_OPERATIONS: tuple[Operation, ...] = ("read", "entries", "link", "resolve", "stat", "open")


class Recorded(Struct, kw_only=True):
    """Answers since the last `take`: what was known by question and path, and why the rest was not.

    A later answer to the same question replaces the earlier one.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    cut: set[str] = field(default_factory=set)  # files that end at the limit they were read with
    dirs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    resolved: dict[str, str] = field(default_factory=dict)
    stats: dict[str, Stat] = field(default_factory=dict)
    opens: dict[str, OpenOutcome] = field(default_factory=dict)
    udev: dict[str, UdevDevice] = field(default_factory=dict)
    system: dict[str, SystemAnswers] = field(default_factory=dict)
    identity: dict[str, Identity] = field(default_factory=dict)
    commands: dict[str, CommandResult] = field(default_factory=dict)
    selftests: dict[str, SelfTestResult] = field(default_factory=dict)
    unanswered: dict[Operation, dict[str, Reason]] = field(default_factory=dict)

    def keep(self, operation: Operation, into: MutableMapping[str, T], key: str, answer: Value[T]) -> None:
        """Note an answer, in place of an earlier one to the same question."""
        if isinstance(answer, Unknown):
            into.pop(key, None)
            self.unanswered.setdefault(operation, {})[key] = answer.reason
        else:
            into[key] = answer.value
            self.unanswered.get(operation, {}).pop(key, None)

    def keep_file(self, path: str, answer: Value[bytes], *, cut: bool) -> None:
        """Note a file's content; a piece of it does not replace a longer one."""
        if isinstance(answer, Known) and cut and len(self.files.get(path, b"")) > len(answer.value):
            return
        self.keep("read", self.files, path, answer)
        if cut:
            self.cut.add(path)
        else:
            self.cut.discard(path)

    def add(self, later: Recorded) -> None:
        """Take over what was recorded later."""
        for path, content in later.files.items():
            self.keep_file(path, Known(content, path), cut=path in later.cut)
        self._add_known("entries", self.dirs, later.dirs)
        self._add_known("link", self.links, later.links)
        self._add_known("resolve", self.resolved, later.resolved)
        self._add_known("stat", self.stats, later.stats)
        self._add_known("open", self.opens, later.opens)
        self._add_known("udev", self.udev, later.udev)
        self._add_known("system", self.system, later.system)
        self._add_known("identity", self.identity, later.identity)
        self._add_known("run", self.commands, later.commands)
        self._add_known("selftest", self.selftests, later.selftests)
        for operation, reasons in later.unanswered.items():
            known = self._known(operation)
            for key, reason in reasons.items():
                known.pop(key, None)
                self.unanswered.setdefault(operation, {})[key] = reason

    def _add_known(self, operation: Operation, mine: dict[str, T], theirs: dict[str, T]) -> None:
        mine.update(theirs)
        refused = self.unanswered.get(operation)
        if refused:
            for key in theirs:
                refused.pop(key, None)

    def _known(self, operation: Operation) -> MutableMapping[str, object]:
        known: dict[Operation, object] = {
            "read": self.files,
            "entries": self.dirs,
            "link": self.links,
            "resolve": self.resolved,
            "stat": self.stats,
            "open": self.opens,
            "udev": self.udev,
            "system": self.system,
            "identity": self.identity,
            "run": self.commands,
            "selftest": self.selftests,
        }
        return known[operation]  # type: ignore[return-value]  # they only share that keys are strings


class RecordingHost:
    """Answers like `inner` and records every answer; of an environment only what may be known elsewhere."""

    def __init__(self, inner: Host) -> None:
        self.source: Literal["live", "capture", "tree"] = inner.source
        self._inner = inner
        self._recorded = Recorded()

    def take(self) -> Recorded:
        """What was recorded since the last call."""
        taken, self._recorded = self._recorded, Recorded()
        return taken

    def read(self, path: str, *, limit: int = READ_LIMIT) -> Value[str]:
        answer = self.read_bytes(path, limit=limit)
        return answer if isinstance(answer, Unknown) else Known(utf8_text(answer.value), answer.source)

    def read_bytes(self, path: str, *, limit: int = READ_LIMIT) -> Value[bytes]:
        answer = self._inner.read_bytes(path, limit=limit)
        if bad_path(path) is not None:
            return answer
        if is_environment(path) and isinstance(answer, Known):
            self._recorded.keep_file(path, Known(without_secrets(answer.value), answer.source), cut=False)
        else:
            cut = isinstance(answer, Known) and len(answer.value) >= min(limit, FILE_LIMIT)
            self._recorded.keep_file(path, answer, cut=cut)
        return answer

    def entries(self, path: str) -> Value[tuple[str, ...]]:
        return self._kept("entries", self._recorded.dirs, path, self._inner.entries(path))

    def link(self, path: str) -> Value[str]:
        return self._kept("link", self._recorded.links, path, self._inner.link(path))

    def resolve(self, path: str) -> Value[str]:
        return self._kept("resolve", self._recorded.resolved, path, self._inner.resolve(path))

    def stat(self, path: str) -> Value[Stat]:
        return self._kept("stat", self._recorded.stats, path, self._inner.stat(path))

    def probe_open(self, path: str) -> Value[OpenOutcome]:
        return self._kept("open", self._recorded.opens, path, self._inner.probe_open(path))

    def udev(self, nodes: Sequence[str]) -> Value[tuple[UdevDevice, ...]]:
        answer = self._inner.udev(nodes)
        if isinstance(answer, Unknown):
            self._recorded.unanswered.setdefault("udev", {})[""] = answer.reason  # true of the database, not of a node
            return answer
        found = {device.node: device for device in answer.value}
        for node in nodes:
            one: Value[UdevDevice] = Known(found[node], node) if node in found else Unknown("absent", node)
            self._kept("udev", self._recorded.udev, node, one)
        return answer

    def system(self) -> Value[SystemAnswers]:
        answer = self._inner.system()
        self._recorded.keep("system", self._recorded.system, "", answer)
        return answer

    def identity(self) -> Value[Identity]:
        answer = self._inner.identity()
        self._recorded.keep("identity", self._recorded.identity, "", answer)
        return answer

    def run(self, commands: Sequence[Command]) -> tuple[Value[CommandResult], ...]:
        answers = self._inner.run(commands)
        for command, answer in zip(commands, answers, strict=True):
            key = command_key(command.argv)
            if bad_argv(command.argv, key) is None:
                self._recorded.keep("run", self._recorded.commands, key, answer)
        return answers

    def selftest(self, test: SelfTest) -> Value[SelfTestResult]:
        answer = self._inner.selftest(test)
        key = selftest_key(test.name, test.params, test.python)
        if bad_argv((test.name, *test.params, test.python or ""), key) is None:
            self._recorded.keep("selftest", self._recorded.selftests, key, answer)
        return answer

    def _kept(self, operation: Operation, into: MutableMapping[str, T], path: str, answer: Value[T]) -> Value[T]:
        if bad_path(path) is None:  # every host refuses such a path in the same words, and no document can hold it
            self._recorded.keep(operation, into, path, answer)
        return answer


def merge(
    deltas: Iterable[Recorded],
    manifest: Manifest,
    *,
    blocked: Iterable[str] = (),
    unfinished: Unfinished | None = None,
) -> Capture:
    """One capture from what was taken, in order; the manifest gets the answers about the machine.

    `blocked` are paths of which some question never ended; what else is known of them stays.
    """
    whole = Recorded()
    for delta in deltas:
        whole.add(delta)
    outcomes = _outcomes(whole)
    for path in blocked:
        outcomes.setdefault(path, "timeout")
    unanswered = {
        operation: {
            key: reason
            for key, reason in sorted(reasons.items())
            if operation not in _PATH_OPERATIONS or outcomes.get(key) != reason
        }
        for operation, reasons in sorted(whole.unanswered.items())
    }
    nodes = sorted({*whole.stats, *whole.opens, *whole.udev})
    return Capture(
        schema=SCHEMA,
        manifest=replace(manifest, identity=whole.identity.get(""), system=whole.system.get("")),
        files={path: to_text(content) for path, content in sorted(whole.files.items())},
        links=dict(sorted(whole.links.items())),
        dirs=dict(sorted(whole.dirs.items())),
        outcomes=outcomes,
        commands=tuple(whole.commands.values()),
        devices=tuple(
            Device(path=node, stat=whole.stats.get(node), open=whole.opens.get(node), udev=whole.udev.get(node))
            for node in nodes
        ),
        selftests=tuple(whole.selftests.values()),
        resolved=dict(sorted(whole.resolved.items())),
        unanswered={operation: reasons for operation, reasons in unanswered.items() if reasons},
        cut=tuple(sorted(whole.cut)),
        unfinished=unfinished or Unfinished(),
    )


def _outcomes(whole: Recorded) -> dict[str, Outcome]:
    """The paths of which no question had an answer, all for one reason: that is true of the path itself."""
    asked: dict[str, set[Operation]] = {}
    reasons: dict[str, set[Reason]] = {}
    for operation in _PATH_OPERATIONS:
        for path, reason in whole.unanswered.get(operation, {}).items():
            asked.setdefault(path, set()).add(operation)
            reasons.setdefault(path, set()).add(reason)
    known = (whole.files, whole.dirs, whole.links, whole.resolved, whole.stats, whole.opens)
    outcomes: dict[str, Outcome] = {}
    for path, (reason, *others) in sorted(reasons.items()):
        if others or reason == "not-recorded" or any(path in answers for answers in known):
            continue
        if asked[path] != {"link"}:  # a path that is no link may well be there
            outcomes[path] = reason
    return outcomes
