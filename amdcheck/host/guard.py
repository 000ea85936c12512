"""A host that says what it is about to do, and does not touch again what blocked before.

A read of a sick device can sleep in the kernel for ever. Whoever supervises this process then reads the last
announcement, ends the process, and starts another one that knows which path to leave alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, Protocol, TypeVar

from amdcheck.host.capture import command_key, selftest_key
from amdcheck.host.paths import IDENTITY_SOURCE, SYSTEM_SOURCE, UDEV_SOURCE
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
from amdcheck.model.value import Known, Unknown, Value

T = TypeVar("T")

FILE_SECONDS = 2.0
GRACE_SECONDS = 2.0  # for a command to be ended after its own deadline


class Announcer(Protocol):
    """Takes announcements; they nest."""

    def begin(self, what: str, seconds: float) -> None:
        """Something starts that should end within so many seconds: a path, "command LINE" or "selftest NAME"."""
        ...

    def end(self) -> None:
        """It ended."""
        ...


class GuardedHost:
    """Answers like `inner`; announces before everything that may block; `timeout` for what blocked before.

    `hung_paths` holds announcements as they were made; `hung_folders` folders, whose whole content is left alone.
    """

    def __init__(
        self, inner: Host, announcer: Announcer, hung_paths: frozenset[str], hung_folders: frozenset[str]
    ) -> None:
        self.source: Literal["live", "capture", "tree"] = inner.source
        self._inner = inner
        self._begin = announcer.begin
        self._end = announcer.end
        self._hung_paths = hung_paths
        self._hung_folders = tuple(folder.rstrip("/") + "/" for folder in hung_folders)
        self._anything_hung = bool(hung_paths or hung_folders)

    def read(self, path: str, *, limit: int = READ_LIMIT) -> Value[str]:
        return self._ask(path, lambda: self._inner.read(path, limit=limit))

    def read_bytes(self, path: str, *, limit: int = READ_LIMIT) -> Value[bytes]:
        return self._ask(path, lambda: self._inner.read_bytes(path, limit=limit))

    def entries(self, path: str) -> Value[tuple[str, ...]]:
        return self._ask(path, lambda: self._inner.entries(path))

    def link(self, path: str) -> Value[str]:
        return self._ask(path, lambda: self._inner.link(path))

    def resolve(self, path: str) -> Value[str]:
        return self._ask(path, lambda: self._inner.resolve(path))

    def stat(self, path: str) -> Value[Stat]:
        return self._ask(path, lambda: self._inner.stat(path))

    def probe_open(self, path: str) -> Value[OpenOutcome]:
        return self._ask(path, lambda: self._inner.probe_open(path))

    def udev(self, nodes: Sequence[str]) -> Value[tuple[UdevDevice, ...]]:
        return self._ask(UDEV_SOURCE, lambda: self._inner.udev(nodes)) if nodes else Known((), UDEV_SOURCE)

    def system(self) -> Value[SystemAnswers]:
        return self._ask(SYSTEM_SOURCE, lambda: self._inner.system())

    def identity(self) -> Value[Identity]:
        return self._ask(IDENTITY_SOURCE, lambda: self._inner.identity())

    def run(self, commands: Sequence[Command]) -> tuple[Value[CommandResult], ...]:
        keys = [command_key(command.argv) for command in commands]
        batch = f"command {'; '.join(keys)}"  # the word before it tells a program at /opt/rocm/bin from a file
        if batch in self._hung_paths:
            return tuple(_blocked(key) for key in keys)
        self._begin(batch, max((command.timeout_s for command in commands), default=0.0) + GRACE_SECONDS)
        try:
            return self._inner.run(commands)
        finally:
            self._end()

    def selftest(self, test: SelfTest) -> Value[SelfTestResult]:
        key = f"selftest {selftest_key(test.name, test.params, test.python)}"
        return self._ask(key, lambda: self._inner.selftest(test), seconds=test.timeout_s + GRACE_SECONDS)

    def _ask(self, what: str, ask: Callable[[], Value[T]], *, seconds: float = FILE_SECONDS) -> Value[T]:
        if self._anything_hung and (what in self._hung_paths or what.startswith(self._hung_folders)):
            return _blocked(what)
        self._begin(what, seconds)
        try:
            return ask()
        finally:
            self._end()


def _blocked(source: str) -> Unknown:
    return Unknown("timeout", source, "blocked earlier in this run")
