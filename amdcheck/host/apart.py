"""Asking in a process of its own, for paths that somebody named: one on a dead mount blocks whoever touches it.

SIGKILL does not end such a process, so it is given up: it holds nothing of the caller's but the pipe it answers on.
"""

from __future__ import annotations

import errno
import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

import msgspec

from amdcheck.host.pipes import readable
from amdcheck.host.processes import let_go_of_the_caller
from amdcheck.model.errors import InputError

ASK_SECONDS = 2.0  # to look at a path
_UNWIND_SECONDS = 1.0  # for one that is interrupted to take back what it began


def apart(call: Callable[[], bytes | None], *, seconds: float = ASK_SECONDS) -> bytes:
    """What `call` gives, run in a child (None comes as nothing).

    Raises what it raises of OSError and InputError, and TimeoutError when it is not done within so many seconds.
    """
    ours, theirs = os.pipe()
    try:
        pid = os.fork()
        if pid == 0:
            _answer(call, theirs)
    finally:
        os.close(theirs)
    try:
        answer = _received(ours, time.monotonic() + seconds)
    finally:
        os.close(ours)
        _end(pid)
    if answer is None:
        raise TimeoutError(errno.ETIMEDOUT, "it does not answer; it may lie on a dead mount")
    kind, number, data = answer
    if kind == "refused":
        raise InputError(data.decode())
    if kind == "failed":
        raise OSError(number, data.decode())
    if kind == "broke":
        raise RuntimeError(data.decode())
    return data


def _answer(call: Callable[[], bytes | None], pipe: int) -> None:
    """The child: never returns."""
    answer: tuple[str, int, bytes] = ("broke", 0, b"")
    try:
        let_go_of_the_caller(pipe)
        signal.signal(signal.SIGTERM, _interrupted)
        answer = ("value", 0, call() or b"")
    except InputError as error:
        answer = ("refused", 0, str(error).encode("utf-8", "backslashreplace"))
    except OSError as error:
        answer = ("failed", error.errno or 0, (error.strerror or str(error)).encode("utf-8", "backslashreplace"))
    except BaseException as error:
        answer = ("broke", 0, f"{type(error).__name__}: {error}".encode("utf-8", "backslashreplace"))
    finally:
        with suppress(BaseException):
            rest = memoryview(msgspec.msgpack.encode(answer))
            while rest:
                rest = rest[os.write(pipe, rest) :]
        os._exit(0)


def _interrupted(number: int, frame: FrameType | None) -> None:
    raise SystemExit  # so that temporary files go


def _received(pipe: int, end: float) -> tuple[str, int, bytes] | None:
    """The child's answer, None when it does not come in time."""
    data = b""
    while True:
        left = end - time.monotonic()
        if left <= 0 or not readable([pipe], left):
            return None
        piece = os.read(pipe, 1 << 20)
        if not piece:
            break
        data += piece
    try:
        return msgspec.msgpack.decode(data, type=tuple[str, int, bytes])
    except msgspec.DecodeError:
        return "broke", 0, b"the process that asked was killed"


def _end(pid: int) -> None:
    """Reap the child; one that is still at it is interrupted, then killed, then left."""
    end = time.monotonic() + _UNWIND_SECONDS
    with suppress(ProcessLookupError, ChildProcessError):
        if os.waitpid(pid, os.WNOHANG)[0]:
            return
        os.kill(pid, signal.SIGTERM)
        while time.monotonic() < end:
            if os.waitpid(pid, os.WNOHANG)[0]:
                return
            time.sleep(0.002)
        os.kill(pid, signal.SIGKILL)
        time.sleep(0.01)
        os.waitpid(pid, os.WNOHANG)
