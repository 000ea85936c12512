"""A host tree on disk: the files of another machine below a folder, for example what hwloc-gather-topology wrote.

Every folder is opened from the one above it without following links; links are followed by hand, inside the root.
"""

from __future__ import annotations

import os
import stat as modes
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, TypeVar

from amdcheck.host.capture import command_key, selftest_key
from amdcheck.host.live import KINDS, answered, device_number, link_target, listing, no_file, read_whole
from amdcheck.host.paths import (
    FILE_LIMIT,
    IDENTITY_SOURCE,
    LINK_HOPS,
    SYSTEM_SOURCE,
    UDEV_SOURCE,
    utf8_text,
)
from amdcheck.host.protocol import (
    READ_LIMIT,
    Command,
    CommandResult,
    Identity,
    OpenOutcome,
    SelfTest,
    SelfTestResult,
    Stat,
    SystemAnswers,
    UdevDevice,
)
from amdcheck.model.value import Known, Reason, Unknown, Value

T = TypeVar("T")

_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_LISTING = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
_DEPTH_LIMIT = 128  # folders
_OPEN_FOLDERS = 128  # descriptors kept
_NOTHING_BUT_FILES = "a host tree holds files only"


class _Unfound(Exception):
    """A path leads nowhere; the reason and a detail."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(reason, detail)
        self.reason: Reason = reason
        self.detail = detail


class TreeHost:
    """Answers from a folder.

    A path is `absent` only if its folder is in the tree and does not hold it; at the top of the tree even that says
    nothing, for most trees hold only parts of /sys and /proc. Owners and modes are those of whoever wrote the tree, so
    `stat` is known of device nodes alone.
    """

    source: Literal["live", "capture", "tree"] = "tree"

    def __init__(self, root: Path) -> None:
        """Raises OSError when the root cannot be opened."""
        self._fds: dict[bytes, int] = {}  # real folder -> descriptor
        self._root = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        self._places: dict[bytes, bytes | _Unfound] = {b"": b""}  # folder as asked for -> real folder
        self._link_targets: dict[bytes, bytes | None] = {}  # real path of a folder on the way -> its target

    def close(self) -> None:
        """Close the folders; the host answers nothing afterwards."""
        while self._fds:
            os.close(self._fds.popitem()[1])
        if self._root >= 0:
            os.close(self._root)
            self._root = -1

    def __del__(self) -> None:
        if hasattr(self, "_root"):
            self.close()

    def read(self, path: str, *, limit: int = READ_LIMIT) -> Value[str]:
        answer = self.read_bytes(path, limit=limit)
        return answer if isinstance(answer, Unknown) else Known(utf8_text(answer.value), path)

    def read_bytes(self, path: str, *, limit: int = READ_LIMIT) -> Value[bytes]:
        def content(raw: bytes) -> Value[bytes]:
            folder, name, found = self._find(raw)
            if not modes.S_ISREG(found.st_mode):
                return no_file(path, KINDS[modes.S_IFMT(found.st_mode)])
            fd = os.open(name, _FILE, dir_fd=self._fd(folder))
            try:
                return Known(read_whole(fd, min(limit, FILE_LIMIT)), path)
            finally:
                os.close(fd)

        return _answered(path, content)

    def entries(self, path: str) -> Value[tuple[str, ...]]:
        def names(raw: bytes) -> Value[tuple[str, ...]]:
            folder, name, found = self._find(raw)
            if not modes.S_ISDIR(found.st_mode):
                return Unknown("absent", path, "ENOTDIR")
            fd = os.open(name, _LISTING, dir_fd=self._fd(folder))
            try:
                return listing(path, list(map(os.fsencode, os.listdir(fd))))
            finally:
                os.close(fd)

        return _answered(path, names)

    def link(self, path: str) -> Value[str]:
        def leads(raw: bytes) -> Value[str]:
            folder, name = self._place(raw.rstrip(b"/"))
            try:
                return link_target(path, lambda: self._readlink(folder, name))
            except FileNotFoundError:
                raise _Unfound(_missing(folder), "ENOENT") from None

        return _answered(path, leads)

    def resolve(self, path: str) -> Value[str]:
        def real(raw: bytes) -> Value[str]:
            folder, name, _ = self._find(raw)
            return Known(utf8_text(folder + b"/" + name if name != b"." else folder or b"/"), path)

        return _answered(path, real)

    def stat(self, path: str) -> Value[Stat]:
        def status(raw: bytes) -> Value[Stat]:
            _, _, found = self._find(raw)
            return tree_stat(path, found.st_mode, found.st_uid, found.st_gid, device_number(found.st_rdev))

        return _answered(path, status)

    def probe_open(self, path: str) -> Value[OpenOutcome]:
        """Nothing is opened; a device that is not there could not be."""
        there = self.stat(path)
        if isinstance(there, Unknown) and there.reason != "not-recorded":
            return there
        return Unknown("not-recorded", path, _NOTHING_BUT_FILES)

    def udev(self, nodes: Sequence[str]) -> Value[tuple[UdevDevice, ...]]:
        return Unknown("not-recorded", UDEV_SOURCE, _NOTHING_BUT_FILES) if nodes else Known((), UDEV_SOURCE)

    def system(self) -> Value[SystemAnswers]:
        return Unknown("not-recorded", SYSTEM_SOURCE, _NOTHING_BUT_FILES)

    def identity(self) -> Value[Identity]:
        return Unknown("not-recorded", IDENTITY_SOURCE, _NOTHING_BUT_FILES)

    def run(self, commands: Sequence[Command]) -> tuple[Value[CommandResult], ...]:
        return tuple(Unknown("not-recorded", command_key(command.argv), _NOTHING_BUT_FILES) for command in commands)

    def selftest(self, test: SelfTest) -> Value[SelfTestResult]:
        return Unknown("not-recorded", selftest_key(test.name, test.params, test.python), _NOTHING_BUT_FILES)

    # Finding a path. Folders are bytes without a trailing slash; b"" is the root.

    def _find(self, path: bytes) -> tuple[bytes, bytes, os.stat_result]:
        """Real folder, name and status of what a path leads to, every link followed. Raises _Unfound or OSError."""
        for _ in range(LINK_HOPS):
            folder, name = self._place(path)
            try:
                found = os.stat(name, dir_fd=self._fd(folder), follow_symlinks=False)
            except FileNotFoundError:
                raise _Unfound(_missing(folder), "ENOENT") from None
            if not modes.S_ISLNK(found.st_mode):
                return folder, name, found
            target = self._readlink(folder, name)
            path = target if target.startswith(b"/") else folder + b"/" + target
        raise _Unfound("failed", "ELOOP")

    def _place(self, path: bytes) -> tuple[bytes, bytes]:
        """The real folder of a path and the name in it; "." for the folder itself."""
        asked, _, name = path.rpartition(b"/")
        if name in (b"", b".", b".."):
            return self._walk(path), b"."
        place = self._places.get(asked)
        if place is None:
            try:
                place = self._walk(asked)
            except _Unfound as none:
                place = none
            self._places[asked] = place
        if isinstance(place, _Unfound):
            raise place.with_traceback(None)
        return place, name

    def _walk(self, path: bytes) -> bytes:
        """The real folder that a path names, every link followed inside the root."""
        done, hops = b"", 0
        todo = path.split(b"/")[::-1]
        while todo:
            name = todo.pop()
            if name == b"..":
                done = done.rpartition(b"/")[0]
            elif name not in (b"", b"."):
                target = self._target(done, name)
                if target is None:
                    done = done + b"/" + name
                    if done.count(b"/") > _DEPTH_LIMIT:
                        raise _Unfound("failed", "ENAMETOOLONG")
                    continue
                hops += 1
                if hops > LINK_HOPS:
                    raise _Unfound("failed", "ELOOP")
                if target.startswith(b"/"):
                    done = b""
                todo.extend(target.split(b"/")[::-1])
        return done

    def _target(self, folder: bytes, name: bytes) -> bytes | None:
        """The target of a folder on the way, None when it is a real folder."""
        here = folder + b"/" + name
        if here not in self._link_targets:
            self._link_targets[here] = self._read_target(folder, name)
        return self._link_targets[here]

    def _read_target(self, folder: bytes, name: bytes) -> bytes | None:
        try:
            found = os.stat(name, dir_fd=self._fd(folder), follow_symlinks=False)
        except FileNotFoundError:
            raise _Unfound("not-recorded", "its folder is not in the tree") from None
        if modes.S_ISLNK(found.st_mode):
            return self._readlink(folder, name)
        if not modes.S_ISDIR(found.st_mode):
            raise _Unfound("absent", "ENOTDIR")
        return None

    def _readlink(self, folder: bytes, name: bytes) -> bytes:
        return os.readlink(name, dir_fd=self._fd(folder))

    def _fd(self, folder: bytes) -> int:
        """A descriptor of a real folder, opened from its parent's; the oldest ones are closed."""
        if not folder:
            return self._root
        fd = self._fds.get(folder)
        if fd is not None:
            return fd
        parent, _, name = folder.rpartition(b"/")
        fd = os.open(name, _FOLDER, dir_fd=self._fd(parent))
        if len(self._fds) >= _OPEN_FOLDERS:
            os.close(self._fds.pop(next(iter(self._fds))))
        self._fds[folder] = fd
        return fd


def _answered(path: str, ask: Callable[[bytes], Value[T]]) -> Value[T]:
    try:
        return answered(path, ask)
    except _Unfound as none:
        return Unknown(none.reason, path, none.detail)


def _missing(folder: bytes) -> Reason:
    """What it means that a folder of the tree does not hold a name; the top of a tree is never whole."""
    return "absent" if folder else "not-recorded"


def tree_stat(path: str, mode: int, uid: int, gid: int, device: tuple[int, int]) -> Value[Stat]:
    """What a tree's status of a path says of the machine: only root makes device nodes, and as they were there."""
    kind = KINDS[modes.S_IFMT(mode)]
    if kind not in ("char", "block"):
        return Unknown("not-recorded", path, "a host tree does not keep owners and modes")
    return Known(
        Stat(kind=kind, mode=modes.S_IMODE(mode), uid=uid, gid=gid, size=0, device=device, acl=(), filesystem=None),
        path,
    )
