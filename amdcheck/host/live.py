"""The machine we run on, read in bounded, non-blocking, read-only ways."""

from __future__ import annotations

import errno
import os
import stat as modes
import struct
from collections.abc import Callable, Sequence
from typing import Literal, TypeVar

from amdcheck.host.capture import command_key, selftest_key
from amdcheck.host.paths import (
    FILE_LIMIT,
    IDENTITY_SOURCE,
    NAMES_LIMIT,
    SYSTEM_SOURCE,
    UDEV_SOURCE,
    bad_path,
    utf8_text,
)
from amdcheck.host.protocol import (
    READ_LIMIT,
    AclEntry,
    Command,
    CommandResult,
    FileKind,
    Identity,
    OpenOutcome,
    SelfTest,
    SelfTestResult,
    Stat,
    SystemAnswers,
    UdevDevice,
)
from amdcheck.model.expectations import Level
from amdcheck.model.value import Known, Unknown, Value

T = TypeVar("T")

_READ_ONLY = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_CHUNK = 1 << 16
_PAGE = 4096
_KMSG = "/dev/kmsg"
_KMSG_RECORD = 8192  # bytes; CONSOLE_EXT_LOG_MAX of the kernel: a shorter read of a longer record is EINVAL

KINDS: dict[int, FileKind] = {
    modes.S_IFREG: "file",
    modes.S_IFDIR: "dir",
    modes.S_IFLNK: "link",
    modes.S_IFCHR: "char",
    modes.S_IFBLK: "block",
    modes.S_IFIFO: "fifo",
    modes.S_IFSOCK: "socket",
}


def unread(path: str, error: OSError) -> Unknown:
    """The outcome that an errno means; its name is the detail.

    EPERM is a refusal too, but not one that root lifts: amdgpu answers it while the device is in reset or suspended,
    KFD for nodes that the device cgroup hides.
    """
    name = errno.errorcode.get(error.errno or 0, str(error.errno))
    if error.errno in (errno.ENOENT, errno.ENOTDIR):
        return Unknown("absent", path, name)
    if error.errno in (errno.EACCES, errno.EPERM):
        return Unknown("denied", path, name)
    return Unknown("failed", path, name)


def answered(path: str, ask: Callable[[bytes], Value[T]]) -> Value[T]:
    """What `ask` answers for a path; the outcome of the OSError that it raises; of no host's path nothing is asked."""
    bad = bad_path(path)
    if bad is not None:
        return bad
    try:
        return ask(path.encode())
    except OSError as error:
        return unread(path, error)


class LiveHost:
    """The live machine. At level quick no device is opened, no command and no self-test is started."""

    source: Literal["live", "capture", "tree"] = "live"

    def __init__(self, *, level: Level = "standard") -> None:
        self._quick = level == "quick"

    def read(self, path: str, *, limit: int = READ_LIMIT) -> Value[str]:
        answer = self.read_bytes(path, limit=limit)
        return answer if isinstance(answer, Unknown) else Known(utf8_text(answer.value), path)

    def read_bytes(self, path: str, *, limit: int = READ_LIMIT) -> Value[bytes]:
        """Regular files and the kernel log; every other kind is `failed`, for opening it may change something."""
        return answered(path, lambda raw: _content(path, raw, min(limit, FILE_LIMIT)))

    def entries(self, path: str) -> Value[tuple[str, ...]]:
        return answered(path, lambda raw: listing(path, os.listdir(raw)))

    def link(self, path: str) -> Value[str]:
        return answered(path, lambda raw: link_target(path, lambda: os.readlink(raw)))

    def resolve(self, path: str) -> Value[str]:
        return answered(path, lambda raw: Known(utf8_text(os.path.realpath(raw, strict=True)), path))

    def stat(self, path: str) -> Value[Stat]:
        return answered(path, lambda raw: Known(_status(raw), path))

    def probe_open(self, path: str) -> Value[OpenOutcome]:
        """At level quick `not-recorded`: no device is opened, so nothing is known of it."""
        if self._quick:
            return bad_path(path) or Unknown("not-recorded", path, "devices are opened at level standard and deep only")
        return answered(path, lambda raw: _opened(path, raw))

    def udev(self, nodes: Sequence[str]) -> Value[tuple[UdevDevice, ...]]:
        """The records there are; a node that the database does not know is left out."""
        from amdcheck.host.machine import udev_records

        return udev_records(nodes) if nodes else Known((), UDEV_SOURCE)

    def system(self) -> Value[SystemAnswers]:
        from amdcheck.host.machine import system_answers

        return Known(system_answers(), SYSTEM_SOURCE)

    def identity(self) -> Value[Identity]:
        from amdcheck.host.machine import our_identity

        return Known(our_identity(self), IDENTITY_SOURCE)

    def run(self, commands: Sequence[Command]) -> tuple[Value[CommandResult], ...]:
        """At level quick all are `not-recorded`: no external tool is started."""
        if self._quick:
            why = "commands run at level standard and deep only"
            return tuple(Unknown("not-recorded", command_key(command.argv), why) for command in commands)
        from amdcheck.host.commands import run_commands

        return run_commands(commands)

    def selftest(self, test: SelfTest) -> Value[SelfTestResult]:
        """At level quick `not-recorded`; `absent` when the interpreter or the self-test does not exist."""
        if self._quick:
            key = selftest_key(test.name, test.params, test.python)
            return Unknown("not-recorded", key, "self-tests run at level standard and deep only")
        from amdcheck.host.commands import run_selftest

        return run_selftest(test)


def _content(path: str, raw: bytes, limit: int) -> Value[bytes]:
    if not path.startswith("/sys/"):  # where there are no devices
        kind = KINDS[modes.S_IFMT(os.stat(raw).st_mode)]
        if kind != "file" and not (kind == "char" and path == _KMSG):
            return no_file(path, kind)
    fd = os.open(raw, _READ_ONLY)
    try:
        if path == _KMSG:
            return Known(_read_records(fd, limit), path)
        kind = KINDS[modes.S_IFMT(os.fstat(fd).st_mode)]
        if kind != "file":
            return no_file(path, kind)
        return Known(read_whole(fd, limit, sysfs=path.startswith("/sys/")), path)
    finally:
        os.close(fd)


def link_target(path: str, readlink: Callable[[], bytes]) -> Value[str]:
    """Where a link leads; what is there and is no link has no target."""
    try:
        return Known(utf8_text(readlink()), path)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return Unknown("absent", path, "EINVAL")


def _status(raw: bytes) -> Stat:
    found = os.stat(raw)
    kind = KINDS[modes.S_IFMT(found.st_mode)]
    return Stat(
        kind=kind,
        mode=modes.S_IMODE(found.st_mode),
        uid=found.st_uid,
        gid=found.st_gid,
        size=found.st_size,
        device=device_number(found.st_rdev) if kind in ("char", "block") else None,
        acl=_access_acl(raw),
        filesystem=_filesystem(raw),
    )


def _opened(path: str, raw: bytes) -> Value[OpenOutcome]:
    kind = KINDS[modes.S_IFMT(os.stat(raw).st_mode)]
    if kind not in ("char", "block"):
        return Unknown("failed", path, f"a {kind}, not a device")
    try:
        os.close(os.open(raw, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY))
    except OSError as error:
        return Known(OpenOutcome(errno=errno.errorcode.get(error.errno or 0, str(error.errno))), path)
    return Known(OpenOutcome(errno=None), path)


def no_file(path: str, kind: FileKind) -> Unknown:
    return Unknown("failed", path, "EISDIR" if kind == "dir" else f"a {kind}, not a file")


def listing(path: str, names: list[bytes]) -> Value[tuple[str, ...]]:
    """The names in a folder, sorted as text."""
    if len(names) > NAMES_LIMIT:
        return Unknown("failed", path, f"it holds more than {NAMES_LIMIT} names")
    return Known(tuple(sorted(map(utf8_text, names))), path)


def read_whole(fd: int, limit: int, *, sysfs: bool = False) -> bytes:
    """Read to the end or the limit. A sysfs attribute shorter than a page comes whole with the first read."""
    first = os.read(fd, min(limit, _CHUNK))
    if not first or len(first) >= limit or (sysfs and len(first) < _PAGE):
        return first
    parts, size = [first], len(first)
    while size < limit:
        part = os.read(fd, min(limit - size, _CHUNK))
        if not part:
            break
        parts.append(part)
        size += len(part)
    return b"".join(parts)


def _read_records(fd: int, limit: int) -> bytes:
    """All records of the kernel log there are now; EPIPE says that some were overwritten before they could be read."""
    parts: list[bytes] = []
    size = 0
    while size < limit:
        try:
            record = os.read(fd, _KMSG_RECORD)
        except BlockingIOError:
            break
        except BrokenPipeError:
            continue
        if not record:
            break
        parts.append(record)
        size += len(record)
    return b"".join(parts)[:limit]


def device_number(number: int) -> tuple[int, int]:
    """Major and minor."""
    return os.major(number), os.minor(number)


_ACL_TAGS: dict[int, Literal["user", "group", "mask", "other", "owner", "owning-group"]] = {
    0x01: "owner",
    0x02: "user",
    0x04: "owning-group",
    0x08: "group",
    0x10: "mask",
    0x20: "other",
}
_ACL_VERSION = 2


def parse_acl(data: bytes) -> tuple[AclEntry, ...]:
    """Parse the attribute system.posix_acl_access: a version, then entries of tag, permissions and id, little-endian.

    Source: Linux include/uapi/linux/posix_acl_xattr.h. Raises ValueError for anything else.
    """
    if len(data) < 4 or len(data) % 8 != 4 or struct.unpack_from("<I", data)[0] != _ACL_VERSION:
        raise ValueError("not a POSIX ACL of version 2")
    entries = []
    for tag, permissions, id in struct.iter_unpack("<HHI", data[4:]):
        if tag not in _ACL_TAGS:
            raise ValueError(f"unknown ACL tag {tag:#x}")
        named = _ACL_TAGS[tag] in ("user", "group")
        entries.append(AclEntry(tag=_ACL_TAGS[tag], id=id if named else None, permissions=permissions & 7))
    return tuple(entries)


def _access_acl(path: bytes) -> tuple[AclEntry, ...]:
    """The access ACL, empty where there is none. Raises OSError when it is there and cannot be read."""
    try:
        return parse_acl(os.getxattr(path, "system.posix_acl_access"))
    except OSError as error:
        if error.errno in (errno.ENODATA, errno.EOPNOTSUPP):
            return ()
        raise
    except ValueError as error:
        raise OSError(errno.EBADMSG, str(error)) from error


def _filesystem(path: bytes) -> int | None:
    """The magic number of the file system (statfs f_type), which os.statvfs does not tell."""
    import ctypes

    buffer = ctypes.create_string_buffer(256)  # struct statfs is 120 bytes; f_type is its first word
    if ctypes.CDLL(None, use_errno=True).statfs(path, buffer) != 0:
        return None
    return ctypes.c_long.from_buffer(buffer).value & 0xFFFFFFFF
