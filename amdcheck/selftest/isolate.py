"""One step of a self-test in a process of its own: what kills the step does not hide the other steps' results."""

from __future__ import annotations

import json
import os
import select
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypedDict

from amdcheck.host.processes import die_with_parent, leave_no_core, signal_name

# The values that JSON has; a step returns what json.dumps takes.
Record = dict[str, Any]


class Ended(TypedDict):
    """How a step ended.

    `ended`: returned, timeout, memory, failed (an exception), denied (a PermissionError), or the name of the signal
    that killed it, as SIGILL. `result` is what the step returned, else None.
    """

    ended: str
    detail: str | None
    result: Record | None


class Isolated:
    """A step that runs in a forked process from now on; `ended` waits for it."""

    def __init__(self, step: Callable[[], Record]) -> None:
        self._receiver, sender = os.pipe()
        self._child = os.fork()
        if self._child == 0:
            os.close(self._receiver)
            _run_and_leave(step, sender)
        os.close(sender)

    @property
    def runs(self) -> bool:
        """Whether the process is still there and has not left."""
        return os.waitid(os.P_PID, self._child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def ended(self, *, deadline_s: float) -> Ended:
        """How it ended, at most `deadline_s` seconds from now. Never raises for what happened in there. Call once."""
        try:
            message = _receive(self._receiver, time.monotonic() + deadline_s)
        finally:
            os.close(self._receiver)
        if message is None:
            os.kill(self._child, signal.SIGKILL)
        _, status = os.waitpid(self._child, 0)
        if message is None:
            return Ended(ended="timeout", detail=f"not finished within {deadline_s:g} s", result=None)
        if os.WIFSIGNALED(status):
            return Ended(ended=signal_name(os.WTERMSIG(status)), detail=None, result=None)
        try:
            said: Record = json.loads(message)
        except ValueError:
            return Ended(ended="failed", detail="left without a result", result=None)
        return Ended(ended=said["ended"], detail=said["detail"], result=said["result"])


def isolated(step: Callable[[], Record], *, deadline_s: float) -> Ended:
    """Run `step` in a forked process and wait for it."""
    return Isolated(step).ended(deadline_s=deadline_s)


def all_ended(steps: Mapping[int, Isolated], *, began: float, deadline_s: float) -> dict[int, Ended]:
    """How each of some steps ended that run beside each other, all within `deadline_s` of `began` (time.monotonic)."""
    until, late = began + deadline_s, f"not finished within {deadline_s:g} s"
    ended = {key: step.ended(deadline_s=max(0.01, until - time.monotonic())) for key, step in steps.items()}
    return {key: {**one, "detail": late} if one["ended"] == "timeout" else one for key, one in ended.items()}


def _run_and_leave(step: Callable[[], Record], sender: int) -> NoReturn:
    """In the child: run the step, write how it ended, and leave without any of the parent's exit handlers."""
    try:
        document = json.dumps(_attempt(step)).encode()
        while document:
            document = document[os.write(sender, document) :]
    finally:
        os._exit(0)


def _attempt(step: Callable[[], Record]) -> Ended:
    try:
        _leave_no_traces()
        return Ended(ended="returned", detail=None, result=step())
    except MemoryError as error:
        return Ended(ended="memory", detail=str(error) or "out of memory", result=None)
    except PermissionError as error:
        return Ended(ended="denied", detail=str(error), result=None)
    except BaseException as error:
        return Ended(ended="failed", detail=f"{type(error).__name__}: {error}", result=None)


def _leave_no_traces() -> None:
    """No core file, no entry in a crash collector and no traceback for a step that dies; no orphan of a dead parent."""
    for fatal in (signal.SIGILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGABRT):
        signal.signal(fatal, signal.SIG_DFL)
    leave_no_core()
    die_with_parent()


def _receive(receiver: int, until: float) -> bytes | None:
    """Everything the child writes until it closes its end, None when that does not happen in time."""
    parts: list[bytes] = []
    while True:
        ready, _, _ = select.select([receiver], [], [], max(0.0, until - time.monotonic()))
        if not ready:
            return None
        part = os.read(receiver, 1 << 16)
        if not part:
            return b"".join(parts)
        parts.append(part)
