"""One step of a self-test in a process of its own: what kills the step does not hide the other steps' results."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypedDict

from amdcheck.host.pipes import readable
from amdcheck.host.processes import die_with_parent, leave_no_core, signal_name

# The values that JSON has; a step returns what json.dumps takes.
Record = dict[str, Any]

GONE_S = 1.0  # that processes have to die when they are killed: one that sleeps in the kernel does not
_WHOLE = b"\n"  # behind a message, which has none itself


class Ended(TypedDict):
    """How a step ended.

    `ended`: returned, timeout, memory, failed (an exception), denied (a PermissionError), or the name of the signal
    that killed it, as SIGILL. `result` is what the step returned, else None.
    """

    ended: str
    detail: str | None
    result: Record | None


class Isolated:
    """A step that runs in a forked process from now on; `all_ended` waits for it.

    Raises OSError where no more processes are allowed.
    """

    def __init__(self, step: Callable[[], Record]) -> None:
        self._receiver, sender = os.pipe()
        try:
            self._child = os.fork()
        except OSError:
            os.close(self._receiver)
            os.close(sender)
            raise
        if self._child == 0:
            os.close(self._receiver)
            _run_and_leave(step, sender)
        os.close(sender)

    @property
    def runs(self) -> bool:
        """Whether the process is still there and has not left."""
        return os.waitid(os.P_PID, self._child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None

    def message(self, until: float) -> bytes | None:
        """What it wrote, None when it was not done in time."""
        try:
            return _receive(self._receiver, until)
        finally:
            os.close(self._receiver)

    def kill(self) -> None:
        os.kill(self._child, signal.SIGKILL)

    def status(self, until: float) -> int | None:
        """Its wait status; None when it is still there at the end, as one that sleeps in the kernel is."""
        while True:
            child, status = os.waitpid(self._child, os.WNOHANG)
            if child:
                return status
            if time.monotonic() >= until:
                return None
            time.sleep(0.001)


def isolated(step: Callable[[], Record], *, deadline_s: float) -> Ended:
    """Run `step` in a forked process and wait for it, at most `deadline_s` and GONE_S seconds.

    Never raises for what happened in there.
    """
    running, refused = started({0: step})
    return (refused | all_ended(running, began=time.monotonic(), deadline_s=deadline_s))[0]


def started(steps: Mapping[int, Callable[[], Record]]) -> tuple[dict[int, Isolated], dict[int, Ended]]:
    """Run steps beside each other: those that run, and those for which no more processes are allowed."""
    running, refused = dict[int, Isolated](), dict[int, Ended]()
    for key, step in steps.items():
        try:
            running[key] = Isolated(step)
        except OSError as error:
            refused[key] = Ended(ended="failed", detail=f"{type(error).__name__}: {error}", result=None)
    return running, refused


def all_ended(steps: Mapping[int, Isolated], *, began: float, deadline_s: float) -> dict[int, Ended]:
    """How each of some steps ended that run beside each other, all within `deadline_s` of `began` (time.monotonic).

    Those that are late are killed, and left behind together when they do not die of it.
    """
    late = f"not finished within {deadline_s:g} s"
    until = max(began + deadline_s, time.monotonic() + 0.01)
    messages = {key: step.message(until) for key, step in steps.items()}
    for key, step in steps.items():
        if messages[key] is None:
            step.kill()
    gone = time.monotonic() + GONE_S
    return {key: _end(messages[key], step.status(gone), late) for key, step in steps.items()}


def _end(message: bytes | None, status: int | None, late: str) -> Ended:
    """How a step ended, by what it wrote and by how its process left."""
    if message is None:
        return Ended(ended="timeout", detail=late, result=None)
    if message.endswith(_WHOLE):
        said: Ended = json.loads(message)
        return said
    if status is not None and os.WIFSIGNALED(status):
        return Ended(ended=signal_name(os.WTERMSIG(status)), detail=None, result=None)
    return Ended(ended="failed", detail="left without a result", result=None)


def _run_and_leave(step: Callable[[], Record], sender: int) -> NoReturn:
    """In the child: run the step, write how it ended, and leave without any of the parent's exit handlers."""
    try:
        document = json.dumps(_attempt(step)).encode() + _WHOLE
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
    """The whole message, or what there is of it when its writers are gone; None when neither happens in time.

    A step that was left behind may hold the descriptor of the one that started it: the end of file is not waited for.
    """
    message = b""
    while not message.endswith(_WHOLE):
        if not readable([receiver], until - time.monotonic()):
            return None
        part = os.read(receiver, 1 << 16)
        if not part:
            break
        message += part
    return message
