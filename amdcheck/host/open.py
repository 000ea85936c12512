"""What --host names: a capture, a host tree, or an archive of one."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO, Literal

from amdcheck.host.packed import unpacked
from amdcheck.host.paths import TREE_FOLDERS
from amdcheck.host.protocol import Host
from amdcheck.model.errors import InputError

_KINDS = "give a capture (.json.xz), a host tree, or a .tar, .tar.gz, .tar.bz2 or .tar.xz of one"
_HEAD_LIMIT = 1 << 21  # bytes; more than the first piece


def open_host(path: Path) -> Host:
    """The recorded machine in this file or folder.

    Raises InputError with one sentence when there is none, or when what is there is damaged or too large.
    """
    try:
        if path.is_dir():
            return _open_tree(path)
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); {_KINDS}") from None
    except ValueError as error:
        raise InputError(f"--host: no such path ({error}); {_KINDS}") from None
    with os.fdopen(fd, "rb") as file:
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            raise InputError(f"{path}: is neither a file nor a folder; {_KINDS}")
        try:
            return _open_file(file, str(path))
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror or error})") from None


def _open_file(file: BinaryIO, name: str) -> Host:
    from amdcheck.host.snapshot import SnapshotHost

    kind = _kind(file, name)
    if kind == "archive":
        from amdcheck.host.archive import read_archive

        return SnapshotHost(read_archive(file, name=name), source="tree")
    if kind == "capture":
        from amdcheck.host.capture_file import decode

        return SnapshotHost(decode(file, name=name))
    raise InputError(f"{name}: is neither a capture nor an archive of a host tree; {_KINDS}")


def _kind(file: BinaryIO, name: str) -> Literal["capture", "archive"] | None:
    """By what the file holds; its name decides only where that says nothing. The file is left at its start."""
    head = next(unpacked(file, name, limit=_HEAD_LIMIT), b"")
    file.seek(0)
    if head[257:262] == b"ustar" or name.endswith((".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")):
        return "archive"
    return "capture" if head.lstrip()[:1] == b"{" or name.endswith((".json", ".json.xz")) else None


def _open_tree(path: Path) -> Host:
    from amdcheck.host.tree import TreeHost

    root = _root_of_tree(path)
    if root is None:
        raise InputError(f"{path}: holds neither proc nor sys, so it is no host tree; {_KINDS}")
    return TreeHost(root)


def _root_of_tree(path: Path) -> Path | None:
    """The folder itself, or the one folder in it that alone holds proc or sys."""
    if _holds_host(path):
        return path
    inside = [folder for folder in path.iterdir() if not folder.is_symlink() and _holds_host(folder)]
    return inside[0] if len(inside) == 1 else None


def _holds_host(folder: Path) -> bool:
    return any((folder / name).is_dir() for name in TREE_FOLDERS)
