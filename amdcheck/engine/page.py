"""A page of memory that worker and supervisor share: what the worker is about to do, and until when.

The worker writes before everything that may block. When it does block, the page still says on what.
"""

from __future__ import annotations

import mmap
import os
import struct
import time
from typing import NamedTuple

_HEAD = struct.Struct("<QdI")
_SIZE = 8192
_TEXT_LIMIT = _SIZE - _HEAD.size


class Doing(NamedTuple):
    """What the worker does: a path, an argv, "fact NAME" or "check ID", and the moment by which it should end."""

    what: str
    deadline: float  # time.monotonic()


class _Entry:
    """One announcement: its text, when it began and by when it should end."""

    __slots__ = ("began", "deadline", "text")

    def __init__(self, text: bytes, began: float, deadline: float) -> None:
        self.text = text
        self.began = began
        self.deadline = deadline


class Page:
    """An Announcer (see host.guard) whose announcements the supervisor reads. They nest: a read inside a fact."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, _SIZE)
        self._stack: list[_Entry] = []
        self._sequence = 0
        self._owner = 0  # whose announcements count; 0: anybody's

    def own(self) -> None:
        """From now on only this process announces: a child that it forks shares the memory, and must not write."""
        self._owner = os.getpid()

    def begin(self, what: str, seconds: float) -> None:
        """Say what comes, and how many seconds it may take."""
        if self._owner not in (0, os.getpid()):
            return
        now = time.monotonic()
        entry = _Entry(what.encode("utf-8", "surrogateescape")[:_TEXT_LIMIT], now, now + seconds)
        self._stack.append(entry)
        self._write(entry.deadline, entry.text)

    def end(self) -> None:
        """It is over: what was announced before it counts again, and gets the time back that this took."""
        if self._owner not in (0, os.getpid()):
            return
        took = time.monotonic() - self._stack.pop().began
        for outer in self._stack:
            outer.deadline += took
        if self._stack:
            self._write(self._stack[-1].deadline, self._stack[-1].text)
        else:
            self._write(0.0, b"")

    def _write(self, deadline: float, text: bytes) -> None:
        self._sequence += 2
        memory = self._memory
        _HEAD.pack_into(memory, 0, self._sequence - 1, deadline, len(text))
        memory[_HEAD.size : _HEAD.size + len(text)] = text
        _HEAD.pack_into(memory, 0, self._sequence, deadline, len(text))

    def read(self) -> Doing | None:
        """What the worker does now; None between two announcements, or while one is being written."""
        sequence, deadline, length = _HEAD.unpack_from(self._memory, 0)
        text = self._memory[_HEAD.size : _HEAD.size + length]
        if sequence % 2 or sequence != _HEAD.unpack_from(self._memory, 0)[0] or not length:
            return None
        return Doing(text.decode("utf-8", "surrogateescape"), deadline)

    def clear(self) -> None:
        """Forget everything, before a new worker starts."""
        self._stack.clear()
        self._write(0.0, b"")
