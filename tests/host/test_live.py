"""LiveHost: every kind of path has its outcome, nothing blocks, and errno becomes a reason."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from amdcheck.host.live import LiveHost, parse_acl, unread
from amdcheck.host.protocol import AclEntry, Command, SelfTest
from amdcheck.model.value import Known, Unknown
from tests.host.unprivileged import as_nobody

HOST = LiveHost()


def outcome(value: object) -> tuple[str, str | None]:
    assert isinstance(value, Unknown), value
    return value.reason, value.detail


def test_a_file_is_read_whole_and_in_part(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"gr\xc3\xb6\xff\n" * 50_000)
    text = HOST.read(str(file))
    assert text == Known("grö\\xff\n" * 50_000, str(file))
    assert HOST.read_bytes(str(file), limit=5).or_none() == b"gr\xc3\xb6\xff"
    assert HOST.read(str(file), limit=3).or_none() == "gr\\xc3"


def test_no_file_gives_more_than_4_mib(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"x" * (5 << 20))
    assert len(HOST.read_bytes(str(file), limit=1 << 30).or_none() or b"") == 4 << 20


def test_proc_and_sys_are_read() -> None:
    assert (HOST.read("/proc/version").or_none() or "").startswith("Linux")
    assert (HOST.read("/proc/self/status").or_none() or "").count("\n") > 20
    assert (HOST.read("/sys/kernel/mm/transparent_hugepage/enabled").or_none() or "never").strip()


def test_what_is_no_file_is_not_opened(tmp_path: Path) -> None:
    fifo, listening, folder = str(tmp_path / "fifo"), str(tmp_path / "socket"), str(tmp_path)
    os.mkfifo(fifo)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(listening)
        assert outcome(HOST.read(fifo)) == ("failed", "a fifo, not a file")
        assert outcome(HOST.read(listening)) == ("failed", "a socket, not a file")
    assert outcome(HOST.read(folder)) == ("failed", "EISDIR")
    assert outcome(HOST.read("/dev/zero")) == ("failed", "a char, not a file")
    assert outcome(HOST.entries(fifo)) == ("absent", "ENOTDIR")


def test_missing_and_broken_paths(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("")
    os.symlink("round", tmp_path / "round")
    ask: list[Callable[[str], object]] = [HOST.read, HOST.read_bytes, HOST.entries, HOST.resolve, HOST.stat, HOST.link]
    for question in ask:
        assert outcome(question(str(tmp_path / "gone"))) == ("absent", "ENOENT")
        assert outcome(question(str(tmp_path / "f" / "below"))) == ("absent", "ENOTDIR")
        assert outcome(question("proc/version"))[0] == "failed"
        assert outcome(question("/a\0b"))[0] == "failed"
        assert outcome(question("/\udcff"))[0] == "failed"
        assert outcome(question("/" + "x" * 300)) == ("failed", "ENAMETOOLONG")
    assert outcome(HOST.read(str(tmp_path / "round"))) == ("failed", "ELOOP")
    assert outcome(HOST.link(str(tmp_path / "f"))) == ("absent", "EINVAL")


@pytest.mark.parametrize(
    ("number", "reason"),
    [
        (errno.EPERM, "denied"),
        (errno.EACCES, "denied"),
        (errno.ENODATA, "failed"),
        (errno.EIO, "failed"),
        (errno.EBUSY, "failed"),
    ],
)
def test_errno_becomes_a_reason_and_stays_named(number: int, reason: str) -> None:
    assert outcome(unread("/sys/x", OSError(number, ""))) == (reason, errno.errorcode[number])


def test_links_folders_and_real_paths(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "b").touch()
    (tmp_path / "real" / "a").touch()
    (tmp_path / os.fsdecode(b"real/\xff")).touch()
    os.symlink("real", tmp_path / "link")
    link = str(tmp_path / "link")
    assert HOST.entries(link).or_none() == ("\\xff", "a", "b")
    assert HOST.link(link).or_none() == "real"
    assert HOST.resolve(f"{link}/a") == Known(os.path.realpath(tmp_path / "real" / "a"), f"{link}/a")


def test_stat_says_kind_owner_mode_and_file_system(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_text("12345")
    file.chmod(0o640)
    stat = HOST.stat(str(file)).or_none()
    assert stat is not None
    assert (stat.kind, stat.mode, stat.uid, stat.gid, stat.size) == ("file", 0o640, os.getuid(), os.getgid(), 5)
    assert (stat.device, stat.acl) == (None, ())
    null = HOST.stat("/dev/null").or_none()
    assert null is not None
    assert (null.kind, null.device) == ("char", (1, 3))
    proc = HOST.stat("/proc").or_none()
    assert proc is not None
    assert proc.filesystem == 0x9FA0  # PROC_SUPER_MAGIC


def test_acl_of_a_device_shared_with_a_group() -> None:
    header = struct.pack("<I", 2)
    rows = [(0x01, 6, 0xFFFFFFFF), (0x02, 6, 1000), (0x04, 6, 0xFFFFFFFF), (0x08, 4, 992), (0x10, 6, 0xFFFFFFFF)]
    acl = parse_acl(header + b"".join(struct.pack("<HHI", *row) for row in rows))
    assert acl == (
        AclEntry(tag="owner", id=None, permissions=6),
        AclEntry(tag="user", id=1000, permissions=6),
        AclEntry(tag="owning-group", id=None, permissions=6),
        AclEntry(tag="group", id=992, permissions=4),
        AclEntry(tag="mask", id=None, permissions=6),
    )


@pytest.mark.parametrize("data", [b"", b"\2\0\0", b"\1\0\0\0", b"\2\0\0\0\1", b"\2\0\0\0" + b"\x40" + b"\0" * 7])
def test_what_is_no_acl_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="ACL"):
        parse_acl(data)


def test_acl_of_a_real_file_is_read(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.touch()
    rows = [
        (0x01, 6, 0xFFFFFFFF),
        (0x02, 4, 65534),
        (0x04, 0, 0xFFFFFFFF),
        (0x10, 4, 0xFFFFFFFF),
        (0x20, 0, 0xFFFFFFFF),
    ]
    data = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *row) for row in rows)
    try:
        os.setxattr(file, "system.posix_acl_access", data)
    except OSError as error:
        pytest.skip(f"this file system has no ACLs: {error}")
    stat = HOST.stat(str(file)).or_none()
    assert stat is not None
    assert AclEntry(tag="user", id=65534, permissions=4) in stat.acl


def test_denied_without_privilege(tmp_path: Path) -> None:
    secret, closed = tmp_path / "secret", tmp_path / "closed"
    secret.write_text("x")
    secret.chmod(0o600)
    (closed / "in").mkdir(parents=True)
    closed.chmod(0o700)

    def answers() -> list[object]:
        host = LiveHost()
        return [
            host.read(str(secret)),
            host.entries(str(closed)),
            host.read(str(closed / "in")),
            host.stat(str(closed / "in")),
            host.identity(),
        ]

    read, entries, below, stat, identity = as_nobody(answers, tmp_path)
    for answer in (read, entries, below, stat):
        assert outcome(answer) == ("denied", "EACCES")
    assert isinstance(identity, Known)
    assert identity.value.uid == 65534


def test_a_device_is_opened_only_above_quick(tmp_path: Path) -> None:
    opened = HOST.probe_open("/dev/null").or_none()
    assert opened is not None
    assert opened.errno is None
    assert outcome(LiveHost(level="quick").probe_open("/dev/null"))[0] == "not-recorded"
    assert outcome(HOST.probe_open(str(tmp_path))) == ("failed", "a dir, not a device")
    assert outcome(HOST.probe_open(str(tmp_path / "gone"))) == ("absent", "ENOENT")


def test_opening_a_device_that_is_not_ours_names_the_errno(tmp_path: Path) -> None:
    denied = as_nobody(lambda: LiveHost().probe_open("/dev/kmsg"), tmp_path)
    assert isinstance(denied, Known)
    assert denied.value.errno in ("EACCES", "EPERM")


def test_quick_starts_nothing() -> None:
    host = LiveHost(level="quick")
    (answer,) = host.run([Command(argv=("true",))])
    assert outcome(answer)[0] == "not-recorded"
    assert outcome(host.selftest(SelfTest(name="cpu_isa")))[0] == "not-recorded"


def test_the_kernel_log_is_read_to_its_end() -> None:
    log = HOST.read("/dev/kmsg", limit=4 << 20)
    if isinstance(log, Unknown):
        assert log.reason == "denied"
        return
    assert "," in log.value.splitlines()[0]
    assert len(HOST.read_bytes("/dev/kmsg", limit=100).or_none() or b"") <= 100


def test_psutil_and_identity_answer() -> None:
    system = HOST.system().or_none()
    assert system is not None
    assert system.logical_cpus is not None
    assert system.memory_bytes is not None
    identity = HOST.identity().or_none()
    assert identity is not None
    assert identity.uid == os.geteuid()
    assert os.getegid() in identity.groups


def test_udev_is_unknown_or_says_what_it_knows() -> None:
    answer = HOST.udev(["/dev/null", "/dev/there-is-no-such"])
    if isinstance(answer, Unknown):
        assert answer.reason == "absent"
    else:
        assert all(device.node == "/dev/null" for device in answer.value)
    assert HOST.udev([]).or_none() == ()
