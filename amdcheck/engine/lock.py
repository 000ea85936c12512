"""One run at a time on a machine: a lock whose file says who holds it and by when that run should end."""

from __future__ import annotations

import fcntl
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from msgspec import Struct


class Holder(Struct, frozen=True, kw_only=True):
    """Who runs: its pid and the latest moment (seconds since boot, CLOCK_BOOTTIME) at which it should be done."""

    pid: int
    ends: float | None


class Held(Exception):
    """Another run holds the lock. `overdue`: it is past its own deadline."""

    def __init__(self, path: Path, holder: Holder | None) -> None:
        super().__init__(str(path))
        self.path = path
        self.holder = holder

    @property
    def overdue(self) -> bool:
        ends = None if self.holder is None else self.holder.ends
        return ends is not None and _now() > ends


class NoLock(Exception):
    """What lies at the lock's place is nobody's lock: the sentence for the user."""


def _now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def lock_path() -> Path:
    """/run for root, else the user's runtime folder, else a file of the user's own in /tmp."""
    if os.geteuid() == 0 and os.access("/run", os.W_OK):
        return Path("/run/amdcheck.lock")
    runtime = os.environ.get("XDG_RUNTIME_DIR", "")
    if runtime.startswith("/"):
        from amdcheck.host.apart import apart

        with suppress(OSError):  # one that does not answer, too
            if apart(lambda: b"yes" if os.access(runtime, os.W_OK) else None):
                return Path(runtime, "amdcheck.lock")
    return Path(f"/tmp/amdcheck-{os.geteuid()}.lock")


@contextmanager
def only_run(deadline_s: float | None) -> Iterator[None]:
    """Hold the lock while the body runs. Raises Held, and NoLock for a lock that somebody else laid there.

    Where the file cannot be made (a read-only file system) nothing can be held, and the run goes on: a read-only
    look at the machine does no harm twice.
    """
    path = lock_path()
    with suppress(OSError):
        _refuse_what_is_no_lock(path, os.lstat(path))  # opening a device may do something
    try:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
    except OSError:
        yield
        return
    try:
        _refuse_what_is_no_lock(path, os.fstat(fd))
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Held(path, _read_holder(fd)) from None
        holder = Holder(pid=os.getpid(), ends=None if deadline_s is None else _now() + deadline_s + 5)
        with suppress(OSError):  # a full file system: the lock holds all the same, only its holder stays nameless
            os.ftruncate(fd, 0)
            os.pwrite(fd, msgspec.json.encode(holder), 0)
        yield
    finally:
        os.close(fd)


def _refuse_what_is_no_lock(path: Path, found: os.stat_result) -> None:
    """A link or pipe, or a file of another user, who could keep us from ever running. Raises NoLock."""
    if not stat.S_ISREG(found.st_mode):
        raise NoLock(f"{path} is in the way of the lock and is no file; remove it, then run again")
    if found.st_uid not in (0, os.geteuid()):
        raise NoLock(f"{path} is the lock of another user (uid {found.st_uid}); remove it, then run again")


def _read_holder(fd: int) -> Holder | None:
    try:
        return msgspec.json.decode(os.pread(fd, 4096, 0), type=Holder)
    except (OSError, msgspec.MsgspecError):
        return None
