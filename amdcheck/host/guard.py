"""A host that says what it is about to do, and does not touch again what blocked before.

A read of a sick device can sleep in the kernel for ever. Whoever supervises this process then reads the last
announcement, ends the process, and starts another one that knows which path to leave alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

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
        if self._anything_hung and self._is_hung(path):
            return _blocked(path)
        self._begin(path, FILE_SECONDS)
        try:
            return self._inner.read(path, limit=limit)
        finally:
            self._end()

    def read_bytes(self, path: str, *, limit: int = READ_LIMIT) -> Value[bytes]:
        if self._anything_hung and self._is_hung(path):
            return _blocked(path)
        self._begin(path, FILE_SECONDS)
        try:
            return self._inner.read_bytes(path, limit=limit)
        finally:
            self._end()

    def entries(self, path: str) -> Value[tuple[str, ...]]:
        if self._anything_hung and self._is_hung(path):
            return _blocked(path)
        self._begin(path, FILE_SECONDS)
        try:
            return self._inner.entries(path)
        finally:
            self._end()

    def link(self, path: str) -> Value[str]:
        if self._anything_hung and self._is_hung(path):
            return _blocked(path)
        self._begin(path, FILE_SECONDS)
        try:
            return self._inner.link(path)
        finally:
            self._end()

    def resolve(self, path: str) -> Value[str]:
        if self._anything_hung and self._is_hung(path):
            return _blocked(path)
        self._begin(path, FILE_SECONDS)
        try:
            return self._inner.resolve(path)
        finally:
            self._end()

    def stat(self, path: str) -> Value[Stat]:
        if self._anything_hung and self._is_hung(path):
            return _blocked(path)
        self._begin(path, FILE_SECONDS)
        try:
            return self._inner.stat(path)
        finally:
            self._end()

    def probe_open(self, path: str) -> Value[OpenOutcome]:
        if self._anything_hung and self._is_hung(path):
            return _blocked(path)
        self._begin(path, FILE_SECONDS)
        try:
            return self._inner.probe_open(path)
        finally:
            self._end()

    def udev(self, nodes: Sequence[str]) -> Value[tuple[UdevDevice, ...]]:
        if not nodes:
            return Known((), UDEV_SOURCE)
        if UDEV_SOURCE in self._hung_paths:
            return _blocked(UDEV_SOURCE)
        self._begin(UDEV_SOURCE, FILE_SECONDS)
        try:
            return self._inner.udev(nodes)
        finally:
            self._end()

    def system(self) -> Value[SystemAnswers]:
        if SYSTEM_SOURCE in self._hung_paths:
            return _blocked(SYSTEM_SOURCE)
        self._begin(SYSTEM_SOURCE, FILE_SECONDS)
        try:
            return self._inner.system()
        finally:
            self._end()

    def identity(self) -> Value[Identity]:
        if IDENTITY_SOURCE in self._hung_paths:
            return _blocked(IDENTITY_SOURCE)
        self._begin(IDENTITY_SOURCE, FILE_SECONDS)
        try:
            return self._inner.identity()
        finally:
            self._end()

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
        if key in self._hung_paths:
            return _blocked(key)
        self._begin(key, test.timeout_s + GRACE_SECONDS)
        try:
            return self._inner.selftest(test)
        finally:
            self._end()

    def _is_hung(self, path: str) -> bool:
        return path in self._hung_paths or path.startswith(self._hung_folders)


def _blocked(source: str) -> Unknown:
    return Unknown("timeout", source, "blocked earlier in this run")
