"""A recorded machine: answers from a capture what was recorded, and `not-recorded` for everything else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeVar

from amdcheck.host.capture import (
    Capture,
    Operation,
    Text,
    command_key,
    selftest_key,
    text_bytes,
)
from amdcheck.host.paths import FILE_LIMIT, IDENTITY_SOURCE, LINK_HOPS, SYSTEM_SOURCE, UDEV_SOURCE, bad_path, utf8_text
from amdcheck.host.protocol import (
    READ_LIMIT,
    Command,
    CommandResult,
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


class SnapshotHost:
    """Replays a capture.

    A path is looked up as it is asked for, then with the recorded links followed. It is `absent` when the capture says
    so, when the recorded listing of its folder does not name it, or when a file stands where a folder would have to be.
    With source "tree" the capture holds what an archived host tree held.
    """

    def __init__(self, capture: Capture, *, source: Literal["capture", "tree"] = "capture") -> None:
        self.source: Literal["live", "capture", "tree"] = source
        self.capture = capture
        # Host trees are often parts of one: only what is missing from a folder that is there is surely absent.
        self._is_partial = capture.manifest.source == "tree"
        self._stats = {device.path: device.stat for device in capture.devices if device.stat is not None}
        self._opens = {device.path: device.open for device in capture.devices if device.open is not None}
        self._udev = {device.path: device.udev for device in capture.devices if device.udev is not None}
        self._commands = {command_key(command.argv): command for command in capture.commands}
        self._selftests = {selftest_key(t.name, t.params, t.python): t for t in capture.selftests}
        self._cut = frozenset(capture.cut)
        self._folders: dict[str, str | Unknown] = {"": ""}  # a folder as asked for -> its real path
        self._names: dict[str, frozenset[str]] = {}

    def read(self, path: str, *, limit: int = READ_LIMIT) -> Value[str]:
        found = self._find("read", path, self.capture.files)
        if isinstance(found, Unknown):
            return found
        key, text = found
        limit = min(limit, FILE_LIMIT)
        if isinstance(text, str) and len(text) * 4 <= limit and key not in self._cut:  # whatever its characters take
            return Known(text, path)
        head = self._head(path, key, text, limit)
        return head if isinstance(head, Unknown) else Known(utf8_text(head.value), path)

    def read_bytes(self, path: str, *, limit: int = READ_LIMIT) -> Value[bytes]:
        found = self._find("read", path, self.capture.files)
        if isinstance(found, Unknown):
            return found
        head = self._head(path, *found, min(limit, FILE_LIMIT))
        return head if isinstance(head, Unknown) else Known(head.value, path)

    def entries(self, path: str) -> Value[tuple[str, ...]]:
        found = self._find("entries", path, self.capture.dirs)
        return found if isinstance(found, Unknown) else Known(found[1], path)

    def link(self, path: str) -> Value[str]:
        found = self._find("link", path, self.capture.links)
        return found if isinstance(found, Unknown) else Known(found[1], path)

    def resolve(self, path: str) -> Value[str]:
        found = self._find("resolve", path, self.capture.resolved)
        if not isinstance(found, Unknown):
            return Known(found[1], path)
        if found.reason == "not-recorded" and self.capture.real_paths:
            real = self._real(path, follow_last=True)
            if isinstance(real, str) and self._exists(real):
                return Known(real, path)
        return found

    def stat(self, path: str) -> Value[Stat]:
        found = self._find("stat", path, self._stats)
        return found if isinstance(found, Unknown) else Known(found[1], path)

    def probe_open(self, path: str) -> Value[OpenOutcome]:
        found = self._find("open", path, self._opens)
        return found if isinstance(found, Unknown) else Known(found[1], path)

    def udev(self, nodes: Sequence[str]) -> Value[tuple[UdevDevice, ...]]:
        records = []
        refused = self.capture.unanswered.get("udev", {})
        for node in nodes:
            if node in self._udev:
                records.append(self._udev[node])
            elif refused.get(node) != "absent":  # absent: the database does not know it
                return Unknown(refused.get(node) or refused.get("", "not-recorded"), UDEV_SOURCE)
        return Known(tuple(records), UDEV_SOURCE)

    def system(self) -> Value[SystemAnswers]:
        return self._manifest("system", self.capture.manifest.system, SYSTEM_SOURCE)

    def identity(self) -> Value[Identity]:
        return self._manifest("identity", self.capture.manifest.identity, IDENTITY_SOURCE)

    def run(self, commands: Sequence[Command]) -> tuple[Value[CommandResult], ...]:
        return tuple(self._command(command) for command in commands)

    def selftest(self, test: SelfTest) -> Value[SelfTestResult]:
        key = selftest_key(test.name, test.params, test.python)
        recorded = self._selftests.get(key)
        if recorded is None:
            return Unknown(self._reason("selftest", key) or "not-recorded", key)
        return Known(recorded, key)

    # How answers are found.

    def _find(self, operation: Operation, path: str, recorded: Mapping[str, T]) -> tuple[str, T] | Unknown:
        """The recorded answer and the path under which it stands; else why there is none."""
        answer = recorded.get(path)
        if answer is not None:
            return path, answer
        reason = self._reason(operation, path)
        if reason is not None:
            return Unknown(reason, path)
        bad = bad_path(path)
        if bad is not None:
            return bad
        real = self._real(path, follow_last=operation != "link")
        if isinstance(real, Unknown):
            return Unknown(real.reason, path, real.detail)
        answer = recorded.get(real)
        if answer is not None:
            return real, answer
        reason = self._reason(operation, real)
        if reason is not None:
            return Unknown(reason, path)
        return self._why_none(operation, path, real)

    def _reason(self, operation: Operation, key: str) -> Reason | None:
        """The recorded reason why this question has no answer."""
        own = self.capture.unanswered.get(operation)
        if own is not None and key in own:
            return own[key]
        return self.capture.outcomes.get(key)

    def _real(self, asked: str, *, follow_last: bool) -> str | Unknown:
        """The path with the recorded links followed; those of its folder are remembered."""
        folder, _, name = asked.rpartition("/")
        real = self._folders.get(folder)
        if real is None:
            real = self._folders[folder] = self._walk(folder)
        if isinstance(real, Unknown):
            return real
        if name in ("", ".", ".."):
            return self._walk(asked) or "/"
        path = f"{real}/{name}"
        return (self._walk(path) or "/") if follow_last and path in self.capture.links else path

    def _walk(self, path: str) -> str | Unknown:
        """Follow every link; "" is the root."""
        done, hops = "", 0
        todo = path.split("/")[::-1]
        while todo:
            name = todo.pop()
            if name == "..":
                if not self.capture.real_paths:  # a folder on the way may be a link that was not recorded
                    return Unknown("not-recorded", path)
                if done and done not in self.capture.dirs:
                    is_sure = done in self.capture.files or not self._is_partial
                    return Unknown("absent" if is_sure else "not-recorded", path)
                done = done.rpartition("/")[0]
            elif name not in ("", "."):
                done = f"{done}/{name}"
                target = self.capture.links.get(done)
                if target is not None:
                    hops += 1
                    if hops > LINK_HOPS:
                        return Unknown("failed", path, "ELOOP")
                    done = "" if target.startswith("/") else done.rpartition("/")[0]
                    todo.extend(target.split("/")[::-1])
        return done

    def _exists(self, real: str) -> bool:
        """Is there surely something at this real path?"""
        recorded = self.capture
        if real in recorded.files or real in recorded.dirs or real in self._stats or real in self._opens:
            return True
        parent, _, name = real.rpartition("/")
        return name in self._listing(parent or "/")

    def _why_none(self, operation: Operation, path: str, real: str) -> Unknown:
        """Why there is no answer, from what is recorded around the path."""
        if operation == "read" and (path in self.capture.dirs or real in self.capture.dirs):
            return Unknown("failed", path, "EISDIR")
        if operation == "entries" and (path in self.capture.files or real in self.capture.files):
            return Unknown("absent", path, "ENOTDIR")
        if operation == "link" and self.capture.real_paths and self._exists(real):
            return Unknown("absent", path, "no link")
        missing = self._missing_from_part if self._is_partial else self._missing
        reason: Reason = "not-recorded"
        if all(part not in ("", ".", "..") for part in path[1:].split("/")):
            reason = missing(path)
        if reason == "not-recorded" and real != path:
            reason = missing(real)
        return Unknown(reason, path)

    def _missing(self, path: str) -> Reason:
        """What the nearest recorded folder above the path says of it."""
        recorded = self.capture
        while path not in ("", "/"):
            parent, _, name = path.rpartition("/")
            if (parent or "/") in recorded.dirs:
                return "not-recorded" if name in self._listing(parent or "/") else "absent"
            if parent in recorded.files:
                return "absent"
            if recorded.outcomes.get(parent, "failed") != "failed":
                return recorded.outcomes[parent]
            path = parent
        return "not-recorded"

    def _missing_from_part(self, path: str) -> Reason:
        """The same where the folders themselves may be missing; at the top of a tree most are."""
        parent, _, name = path.rpartition("/")
        if parent.strip("/") and parent in self.capture.dirs:
            return "not-recorded" if name in self._listing(parent) else "absent"
        while parent and parent not in self.capture.files:
            parent = parent.rpartition("/")[0]
        return "absent" if parent else "not-recorded"

    def _listing(self, folder: str) -> frozenset[str]:
        names = self._names.get(folder)
        if names is None:
            names = self._names[folder] = frozenset(self.capture.dirs.get(folder, ()))
        return names

    def _head(self, path: str, key: str, text: Text, limit: int) -> Value[bytes]:
        """The first `limit` bytes of a recorded file."""
        try:
            content = text_bytes(text)
        except ValueError as error:
            return Unknown("failed", path, f"the recording is damaged: {error}")
        if len(content) < limit and key in self._cut:
            return Unknown("not-recorded", path, f"only the first {len(content)} bytes are recorded")
        return Known(content[:limit], path)

    def _manifest(self, operation: Operation, answer: T | None, source: str) -> Value[T]:
        if answer is None:
            return Unknown(self._reason(operation, "") or "not-recorded", source)
        return Known(answer, source)

    def _command(self, command: Command) -> Value[CommandResult]:
        key = command_key(command.argv)
        recorded = self._commands.get(key)
        if recorded is None:
            return Unknown(self._reason("run", key) or "not-recorded", key)
        return Known(recorded, key)
