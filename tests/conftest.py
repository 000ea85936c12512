"""What tests of every folder share."""

from __future__ import annotations

import fcntl
import os
import signal
import time

import pytest

from amdcheck.engine.lock import lock_path

_PATIENCE_S = 60.0

# Under nohup and in the background of a script these are ignored, and programs that a test starts would inherit that.
# A handler that does nothing is not inherited, and leaves the tests as deaf to them as they were.
for _number in (signal.SIGINT, signal.SIGHUP):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, lambda *_: None)


@pytest.fixture
def alone() -> None:
    """Waits until no other run holds this machine's lock: somebody may use amdcheck beside the tests."""
    end = time.monotonic() + _PATIENCE_S
    fd = os.open(lock_path(), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        while time.monotonic() < end:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                time.sleep(0.1)
    finally:
        os.close(fd)
