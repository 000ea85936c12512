"""Writing files whole: a reader sees the old content or the new, never a part."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from pathlib import Path


def write_whole(path: Path, data: bytes, *, private: bool) -> None:
    """Write `data` to a temporary file beside `path`, bring it to the disk, and rename it into place.

    A private file is readable by its owner alone. A link is followed; a device or pipe is written to as it is, for a
    rename would put a file in its place. Raises OSError; what was there before then stays, and nothing else is left.
    """
    target = os.path.realpath(path)
    if _is_special(path):
        with open(path, "wb") as file:
            file.write(data)
        return
    if os.path.isdir(target):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    temporary = f"{target}.{secrets.token_hex(4)}.tmp"
    mode = 0o600 if private else 0o666
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    try:
        with os.fdopen(fd, "wb") as file:
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
