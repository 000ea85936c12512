"""The Host protocol: every way to get evidence. Each answer is a value, never an exception."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from msgspec import Struct

from amdcheck.model.value import Value

READ_LIMIT = 1 << 20  # bytes; the largest file a fact reads whole (kernel log excepted)
FileKind = Literal["file", "dir", "link", "char", "block", "fifo", "socket"]


class AclEntry(Struct, frozen=True, kw_only=True):
    """One entry of a POSIX access ACL; `id` is the uid or gid of a named entry, else None."""

    tag: Literal["user", "group", "mask", "other", "owner", "owning-group"]
    id: int | None
    permissions: int  # rwx as 0..7


class Stat(Struct, frozen=True, kw_only=True):
    """What stat(2) says, links followed; `mode` is the permission bits alone; `device` is (major, minor)."""

    kind: FileKind
    mode: int
    uid: int
    gid: int
    size: int
    device: tuple[int, int] | None
    acl: tuple[AclEntry, ...]
    filesystem: int | None  # statfs magic of the file system it lies on


class OpenOutcome(Struct, frozen=True, kw_only=True):
    """What opening a device read-write gave: None, or the name of the errno (EACCES, EPERM, ENODEV ...)."""

    errno: str | None


class UdevDevice(Struct, frozen=True, kw_only=True):
    """What the udev database says of one device node."""

    node: str
    properties: dict[str, str]
    tags: tuple[str, ...]


class SystemAnswers(Struct, frozen=True, kw_only=True):
    """psutil's answers, recorded as data. They cross-check the kernel files and decide nothing alone."""

    logical_cpus: int | None
    physical_cores: int | None
    memory_bytes: int | None
    available_bytes: int | None
    load_1m: float | None
    boot_time: float | None


class Identity(Struct, frozen=True, kw_only=True):
    """Who asks: the effective uid and all groups of the process that reads, and the names behind them."""

    uid: int
    user: str | None
    groups: tuple[int, ...]
    group_names: dict[str, int]  # groups of the host that matter here: render, video
    node_name: str | None  # SLURMD_NODENAME or NODE_NAME


class Command(Struct, frozen=True, kw_only=True):
    """A command to run: no shell, PATH lookup on argv[0], its own session, deadline in seconds."""

    argv: tuple[str, ...]
    timeout_s: float = 10.0


class CommandResult(Struct, frozen=True, kw_only=True):
    """How a command ended. `rc` is negative for a signal, None when it had to be ended at its deadline."""

    argv: tuple[str, ...]
    rc: int | None
    stdout: str
    stderr: str
    duration_s: float
    timed_out: bool
    truncated: bool = False  # output beyond the cap was dropped
    stuck: tuple[str, ...] = ()  # children that SIGKILL did not end: "pid 123 (wchan)"


class SelfTest(Struct, frozen=True, kw_only=True):
    """A self-test to run in a child process: its name, parameters and deadline in seconds."""

    name: str
    params: tuple[str, ...] = ()
    python: str | None = None  # the interpreter that is judged, else our own
    timeout_s: float = 10.0


class SelfTestResult(Struct, frozen=True, kw_only=True):
    """How the child ended; `result.stdout` holds its JSON document when it ended well."""

    name: str
    params: tuple[str, ...]
    python: str | None
    result: CommandResult


class Host(Protocol):
    """A machine. Paths are absolute as on that machine; nothing leaves its root; nothing is written.

    A path below a folder that cannot be searched is `denied`; a missing one is `absent` on a live host and
    `not-recorded` where a recording cannot tell.
    """

    @property
    def source(self) -> Literal["live", "capture", "tree"]: ...

    def read(self, path: str, *, limit: int = READ_LIMIT) -> Value[str]:
        """The file's text, as it is (callers strip). Bytes that are not UTF-8 come as backslash escapes: \\xff."""
        ...

    def read_bytes(self, path: str, *, limit: int = READ_LIMIT) -> Value[bytes]:
        """The file's first `limit` bytes, as they are."""
        ...

    def entries(self, path: str) -> Value[tuple[str, ...]]:
        """The sorted names in a folder (links to folders are followed), undecodable bytes escaped as in `read`."""
        ...

    def link(self, path: str) -> Value[str]:
        """The target text of a symbolic link; `absent` when the path is missing or is no link."""
        ...

    def resolve(self, path: str) -> Value[str]:
        """The path with every link followed, as seen inside the host's root; `absent` when nothing is there."""
        ...

    def stat(self, path: str) -> Value[Stat]: ...

    def probe_open(self, path: str) -> Value[OpenOutcome]:
        """Open a device read-write, close it at once, and say how it went. Only at level standard and above."""
        ...

    def udev(self, nodes: Sequence[str]) -> Value[tuple[UdevDevice, ...]]:
        """The udev database's records of these device nodes (pyudev)."""
        ...

    def system(self) -> Value[SystemAnswers]:
        """psutil's answers."""
        ...

    def identity(self) -> Value[Identity]: ...

    def run(self, commands: Sequence[Command]) -> tuple[Value[CommandResult], ...]:
        """Run commands side by side; the answers come in the order asked. `absent`: no such program."""
        ...

    def selftest(self, test: SelfTest) -> Value[SelfTestResult]:
        """Run a self-test in a child process of its own, alone."""
        ...
