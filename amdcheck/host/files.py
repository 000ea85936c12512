"""Files that somebody named: read only if they are files, and written whole, so that no reader sees a part."""

from __future__ import annotations

import errno
import os
import select
import stat
import time
from pathlib import Path
from typing import BinaryIO

_READER_SECONDS = 1.0


def read_regular(path: Path, limit: int) -> bytes:
    """At most `limit` bytes of a file. Raises OSError, for everything that is no file too."""
    with open_regular(path) as file:
        return file.read(limit)


def open_regular(path: Path) -> BinaryIO:
    """Open a file for reading. Raises OSError, for everything that is no file too; waits for no writer of a pipe."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is not a file")
    return os.fdopen(fd, "rb")


def write_whole(path: Path, data: bytes, *, private: bool) -> None:
    """Write `data` to a temporary file beside `path`, bring it to the disk, and rename it into place.

    A private file is readable by its owner alone; any other keeps the mode of the one it replaces. A link is followed;
    a device or pipe is written to as it is, for a rename would put a file in its place; a pipe must have its reader.
    Raises OSError; what was there before then stays, and nothing else is left.
    """
    if _is_special(path):
        _write_to_special(path, data)
        return
    target = os.path.realpath(path)
    if os.path.isdir(target):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    temporary = f"{target}.{os.urandom(4).hex()}.tmp"
    mode = 0o600 if private else 0o666
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    try:
        with os.fdopen(fd, "wb") as file:
            if not private:
                _keep_mode(fd, target)
            file.write(data)
            file.flush()
            os.fsync(fd)
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
    _sync_folder(os.path.dirname(target))


def _is_special(path: Path) -> bool:
    """Is it a device, a pipe, or a name for an open file, such as /dev/stdout?"""
    if str(path).startswith(("/dev/std", "/dev/fd/", "/proc/")):
        return True
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _write_to_special(path: Path, data: bytes) -> None:
    fd = _open_special(path)
    try:
        write_all(fd, data)
    finally:
        os.close(fd)


def _open_special(path: Path) -> int:
    """Open it for writing; a pipe that nobody reads would block, so its reader has a second to come."""
    end = time.monotonic() + _READER_SECONDS
    while True:
        try:
            return os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError as error:
            if error.errno != errno.ENXIO:
                raise
            if time.monotonic() >= end:
                raise OSError(errno.ENXIO, "nobody reads this pipe") from None
            time.sleep(0.01)


def write_all(fd: int, data: bytes) -> None:
    """Write all of it, waiting for a reader whose descriptor does not block. Raises OSError."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(fd, rest) :]
        except BlockingIOError:
            select.select([], [fd], [])


def _keep_mode(fd: int, replaced: str) -> None:
    try:
        mode = stat.S_IMODE(os.stat(replaced).st_mode)
    except FileNotFoundError:
        return
    os.fchmod(fd, mode)


def _sync_folder(folder: str) -> None:
    """Bring the rename to the disk, where the file system can."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return
    try:
        os.fsync(fd)
    except OSError:
        pass
    finally:
        os.close(fd)
