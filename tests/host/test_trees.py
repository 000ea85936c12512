"""Host trees, as folders and as archives: the same answers either way, and nothing from outside of them."""

from __future__ import annotations

import contextlib
import functools
import gzip
import io
import os
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amdcheck.host.archive import read_archive
from amdcheck.host.open import open_host
from amdcheck.host.protocol import Command, Host, SelfTest
from amdcheck.host.snapshot import SnapshotHost
from amdcheck.host.tree import TreeHost
from amdcheck.model.errors import InputError
from amdcheck.model.value import Known, Unknown
from tests.corpus import CORPUS, needs_corpus
from tests.host.unprivileged import as_nobody
from tests.standins.hungfs import hungfs

BDF = "0000:03:00.0"
GPU = f"sys/devices/pci0000:00/0000:00:01.1/{BDF}"
FILES: dict[str, bytes] = {
    f"{GPU}/vendor": b"0x1002\n",
    f"{GPU}/rom": b"\xff\0\n",
    f"{GPU}/empty": b"",
    "proc/cpuinfo": b"processor\t: 0\n",
    "opt/rocm-6.4.0/.info/version": b"6.4.0-47\n\0",
    "outside": b"top",
}
LINKS = {
    f"sys/bus/pci/devices/{BDF}": f"../../../devices/pci0000:00/0000:00:01.1/{BDF}",
    f"{GPU}/subsystem": "../../../../bus/pci",
    "opt/rocm": "/opt/rocm-6.4.0",
    "etc/climbs": "../../../../outside",
    "sys/dangling": "bus/gone",
    "sys/elsewhere": "../not/here",
    "sys/round": "round",
    "sys/ping": "pong/x",
    "sys/pong": "ping/x",
}
EMPTY = ("sys/class/drm",)
PATHS = sorted(
    {f"/{path}" for path in (*FILES, *LINKS)}
    | {f"/{path}/.." for path in LINKS}
    | {
        "/",
        "//",
        "/sys",
        "/sys/",
        "/sys/bus/pci/devices",
        "/sys/class/drm",
        "/sys/class/drm/card0",
        "/sys/class/drm/card0/device",
        "/sys/gone",
        "/sys/module/amdgpu",
        "/dev",
        "/dev/kfd",
        "/proc/cpuinfo/x",
        "/proc/cpuinfo/x/y",
        "/proc//cpuinfo",
        "/proc/./cpuinfo",
        "/proc/../../proc/cpuinfo",
        "/opt/rocm/.info/version",
        "/opt/rocm/.info/gone",
        "/opt/rocm/lib/gone",
        f"/sys/bus/pci/devices/{BDF}/vendor",
        f"/sys/bus/pci/devices/{BDF}/gone",
        f"/sys/bus/pci/devices/{BDF}/subsystem/devices/{BDF}/rom",
        f"/sys/bus/pci/devices/{BDF}/../../0000:00:01.1/{BDF}/vendor",
        "/sys/elsewhere/x",
        "/sys/round/x",
        "/etc/climbs/x",
        "relative",
        "/a\0b",
        "",
    }
)


def write_tree(root: Path, links: dict[str, str] = LINKS) -> None:
    for path, content in FILES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(content)
    for path in EMPTY:
        (root / path).mkdir(parents=True)
    for path, target in links.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        os.symlink(target, root / path)


def pack(tree: Path, archive: Path, mode: str, *, top: str = "") -> Path:
    with tarfile.open(archive, mode) as tar:  # type: ignore[call-overload]
        if top:
            tar.add(tree, arcname=top)
        else:
            for inside in sorted(tree.iterdir()):
                tar.add(inside, arcname=inside.name)
    return archive


def answers(host: Host, path: str) -> list[object]:
    """Every question about a path; of an unknown the reason alone."""
    ask: list[Callable[[str], object]] = [
        host.read,
        host.read_bytes,
        host.entries,
        host.link,
        host.resolve,
        host.stat,
        host.probe_open,
    ]
    return [answer.reason if isinstance(answer := question(path), Unknown) else answer for question in ask]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "tree"
    root.mkdir()
    write_tree(root, {path: target for path, target in LINKS.items() if path != "etc/climbs"})
    return root


def test_a_folder_answers_as_the_machine_would(tree: Path) -> None:
    host = open_host(tree)
    link = f"/sys/bus/pci/devices/{BDF}"
    assert host.source == "tree"
    assert host.read(f"{link}/vendor") == Known("0x1002\n", f"{link}/vendor")
    assert host.read_bytes(f"{link}/rom").or_none() == b"\xff\0\n"
    assert host.read(f"{link}/rom").or_none() == "\\xff\0\n"
    assert host.read(f"{link}/rom", limit=1).or_none() == "\\xff"
    assert host.entries(link).or_none() == ("empty", "rom", "subsystem", "vendor")
    assert host.link(link).or_none() == LINKS[link[1:]]
    assert host.resolve(f"{link}/vendor").or_none() == f"/{GPU}/vendor"
    assert host.read("/opt/rocm/.info/version").or_none() == "6.4.0-47\n\0"
    assert host.resolve("/").or_none() == "/"


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/sys/gone", "absent"),
        (f"/sys/bus/pci/devices/{BDF}/gone", "absent"),
        ("/proc/cpuinfo/x", "absent"),
        ("/sys/class/drm/card0", "absent"),
        ("/sys/dangling", "absent"),
        ("/sys/module/amdgpu", "not-recorded"),
        ("/sys/class/drm/card0/device", "not-recorded"),
        ("/dev", "not-recorded"),
        ("/dev/kfd", "not-recorded"),
        ("/sys/elsewhere/x", "not-recorded"),
        ("/sys/round", "failed"),
        ("/sys/ping", "failed"),
        ("/sys", "failed"),
    ],
)
def test_absent_only_where_the_folder_is_in_the_tree(tree: Path, path: str, reason: str) -> None:
    answer = open_host(tree).read(path)
    assert isinstance(answer, Unknown)
    assert answer.reason == reason


@pytest.mark.parametrize(
    ("suffix", "mode"), [("tar", "w"), ("tar.gz", "w:gz"), ("tar.bz2", "w:bz2"), ("tar.xz", "w:xz")]
)
@pytest.mark.parametrize("top", ["", "node-17"])
def test_an_archive_answers_like_its_folder(tree: Path, tmp_path: Path, suffix: str, mode: str, top: str) -> None:
    folder = open_host(tree)
    archive = open_host(pack(tree, tmp_path / f"a.{suffix}", mode, top=top))
    assert archive.source == "tree"
    for path in PATHS:
        assert answers(archive, path) == answers(folder, path), path


def test_what_a_tree_cannot_know_is_not_recorded(tree: Path, tmp_path: Path) -> None:
    for host in (open_host(tree), open_host(pack(tree, tmp_path / "a.tar", "w"))):
        (ran,) = host.run([Command(argv=("true",))])
        for answer in (
            host.identity(),
            host.system(),
            host.udev(["/dev/kfd"]),
            ran,
            host.selftest(SelfTest(name="cpu_isa")),
            host.stat("/proc/cpuinfo"),
            host.probe_open("/dev/kfd"),
        ):
            assert isinstance(answer, Unknown)
            assert answer.reason == "not-recorded"


def test_a_leading_folder_is_stripped_when_it_alone_holds_a_host(tree: Path, tmp_path: Path) -> None:
    above = tmp_path / "above"
    above.mkdir()
    tree.rename(above / "node-17")
    (above / "README").write_text("x")
    (above / "other").mkdir()
    assert open_host(above).read("/proc/cpuinfo").or_none() is not None
    assert open_host(pack(above, tmp_path / "a.tar", "w")).read("/proc/cpuinfo").or_none() is not None
    (above / "node-18" / "sys").mkdir(parents=True)
    for path in (above, pack(above, tmp_path / "b.tar", "w")):
        with pytest.raises(InputError, match="neither proc nor sys"):
            open_host(path)


def test_links_do_not_leave_a_folder(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("SECRET")
    root = tmp_path / "tree"
    (root / "sys").mkdir(parents=True)
    (root / "proc").mkdir()
    (root / "outside").write_text("top")
    for name, target in {
        "absolute": str(secret),
        "up": "../../secret",
        "far": "../" * 50 + str(secret)[1:],
        "folder": "..",
        "magic": "/proc/self/root",
    }.items():
        os.symlink(target, root / "sys" / name)
    os.symlink("/proc/self/root", root / "proc" / "root")
    host = open_host(root)
    for path in ("absolute", "up", "far", f"folder/../..{secret}", "magic", f"magic{secret}"):
        assert isinstance(host.read(f"/sys/{path}"), Unknown), path
    assert isinstance(host.read(f"/proc/root{secret}"), Unknown)
    assert isinstance(host.read(f"/../../..{secret}"), Unknown)
    assert host.read("/sys/folder/outside").or_none() == "top"
    assert host.entries("/sys/folder/..").or_none() == ("outside", "proc", "sys")


def test_a_folder_swapped_for_a_link_later_is_not_followed(tree: Path, tmp_path: Path) -> None:
    (tmp_path / "evil").mkdir()
    (tmp_path / "evil" / "vendor").write_text("SECRET")
    host = TreeHost(tree)
    assert host.entries("/sys/bus/pci/devices").or_none() == (BDF,)
    assert host.read("/proc/cpuinfo").or_none() is not None
    (tree / "opt").rename(tree / "opt2")
    os.symlink(tmp_path / "evil", tree / "opt")
    assert isinstance(host.read("/opt/vendor"), Unknown)


def test_odd_files_of_a_folder_are_not_opened(tree: Path) -> None:
    os.mkfifo(tree / "sys" / "fifo")
    host = open_host(tree)
    answer = host.read("/sys/fifo")
    assert isinstance(answer, Unknown)
    assert (answer.reason, answer.detail) == ("failed", "a fifo, not a file")


def test_many_folders_do_not_use_up_descriptors(tree: Path) -> None:
    for number in range(400):
        (tree / f"sys/devices/cpu{number}").mkdir()
        (tree / f"sys/devices/cpu{number}/online").write_text(f"{number}")
    host = TreeHost(tree)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(2):
        for number in range(400):
            assert host.read(f"/sys/devices/cpu{number}/online").or_none() == f"{number}"
    assert len(os.listdir("/proc/self/fd")) - before < 200
    host.close()
    assert len(os.listdir("/proc/self/fd")) < before


def test_a_tree_without_permission_is_denied(tree: Path, tmp_path: Path) -> None:
    (tree / "proc" / "cpuinfo").chmod(0)
    (tree / "opt").chmod(0o700)

    def ask() -> list[object]:
        host = open_host(tree)
        return [host.read("/proc/cpuinfo"), host.read("/opt/rocm/.info/version"), host.entries("/opt")]

    for answer in as_nobody(ask, tmp_path):
        assert isinstance(answer, Unknown)
        assert answer.reason == "denied"


def test_a_hung_mount_inside_a_tree_harms_nothing_around_it(tree: Path) -> None:
    (tree / GPU / "hwmon").mkdir()
    with hungfs({"power1_average": None, "name": "amdgpu\n"}, at=tree / GPU / "hwmon"):
        host = open_host(tree)
        assert host.entries(f"/{GPU}/hwmon").or_none() == ("name", "power1_average")
        assert host.read(f"/{GPU}/hwmon/name").or_none() == "amdgpu\n"
        assert host.read(f"/{GPU}/vendor").or_none() == "0x1002\n"


# Archives that mean harm


def member(name: str, content: bytes = b"", **more: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    for attribute, value in more.items():
        setattr(info, attribute, value)
    return info, content


def archive(path: Path, *members: tuple[tarfile.TarInfo, bytes], mode: str = "w") -> Path:
    with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
        for info, content in (member("sys/ok", b"1"), *members):
            tar.addfile(info, io.BytesIO(content))
    return path


def refused(path: Path) -> str:
    before = sorted(os.walk(path.parent))
    with pytest.raises(InputError) as error:
        open_host(path)
    assert sorted(os.walk(path.parent)) == before, "something was written"
    sentence = str(error.value)
    assert sentence.startswith(str(path))
    assert sentence.isprintable()
    return sentence


SYMLINK, HARDLINK = tarfile.SYMTYPE, tarfile.LNKTYPE


@pytest.mark.parametrize(
    "harm",
    [
        member("../escape", b"x"),
        member("sys/../../escape", b"x"),
        member("/etc/passwd", b"x"),
        member("sys/" + "x" * 5000, b"x"),
        member("sys/up", type=SYMLINK, linkname="../../etc/passwd"),
        member("sys/up", type=SYMLINK, linkname="a/../../../b"),
        member("sys/hard", type=HARDLINK, linkname="/etc/passwd"),
        member("sys/hard", type=HARDLINK, linkname="../etc/passwd"),
        member("sys/hard", type=HARDLINK, linkname="sys/gone"),
        member("sys/\x1b[31m/../../x", b"x"),
    ],
    ids=lambda harm: f"{harm[0].name[:20]} {harm[0].linkname[:20]}".replace("\x1b", "ESC"),
)
def test_an_archive_that_names_what_is_outside_is_refused(tmp_path: Path, harm: tuple[tarfile.TarInfo, bytes]) -> None:
    assert "refused" in refused(archive(tmp_path / "a.tar", harm))


def test_absolute_links_are_the_hosts_own(tmp_path: Path) -> None:
    host = open_host(
        archive(
            tmp_path / "a.tar",
            member("opt/rocm", type=SYMLINK, linkname="/opt/rocm-6.4.0"),
            member("opt/rocm-6.4.0/v", b"6.4"),
        )
    )
    assert host.read("/opt/rocm/v").or_none() == "6.4"


def test_hard_links_devices_and_repeated_members(tmp_path: Path) -> None:
    host = open_host(
        archive(
            tmp_path / "a.tar",
            member("sys/hard", type=HARDLINK, linkname="sys/ok"),
            member("dev/kfd", type=tarfile.CHRTYPE, devmajor=511, devminor=0, mode=0o660, gid=109),
            member("dev/pipe", type=tarfile.FIFOTYPE),
            member("./sys//twice", b"old"),
            member("sys/twice", b"new"),
            member("sys/big", b"x" * (5 << 20)),
        )
    )
    assert host.read("/sys/hard").or_none() == "1"
    assert host.read("/sys/twice").or_none() == "new"
    assert len(host.read_bytes("/sys/big", limit=1 << 30).or_none() or b"") == 4 << 20
    kfd = host.stat("/dev/kfd").or_none()
    assert kfd is not None
    assert (kfd.kind, kfd.mode, kfd.gid, kfd.device) == ("char", 0o660, 109, (511, 0))
    for path in ("/dev/kfd", "/dev/pipe"):
        answer = host.read(path)
        assert isinstance(answer, Unknown)
        assert answer.reason == "failed"
    assert host.entries("/dev").or_none() == ("kfd", "pipe")


def test_ten_gigabytes_of_zeros_are_refused_in_time(tmp_path: Path) -> None:
    import bz2

    zeros = bz2.compress(b"\0" * (100 << 20))
    path = tmp_path / "a.tar.bz2"
    path.write_bytes(zeros * 100)
    began = time.monotonic()
    assert "more than 256 MiB" in refused(path)
    assert time.monotonic() - began < 20


def test_too_many_members_are_refused_in_time(tmp_path: Path) -> None:
    import gzip

    path = tmp_path / "a.tar.gz"
    header = tarfile.TarInfo("sys/x").tobuf()
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(400):
            file.write(header * 1000)
    began = time.monotonic()
    assert "300000 entries" in refused(path)
    assert time.monotonic() - began < 10


def test_a_member_with_a_huge_header_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    info = tarfile.TarInfo("sys/x")
    info.pax_headers = {"comment": "1" * 200_000}
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(info)
    assert "damaged" in refused(path)


def test_a_claimed_size_behind_the_end_is_refused(tmp_path: Path) -> None:
    info = tarfile.TarInfo("sys/x")
    info.size = 1 << 40
    (tmp_path / "a.tar").write_bytes(info.tobuf() + b"\0" * 2048)
    assert "damaged" in refused(tmp_path / "a.tar")


@pytest.mark.parametrize(
    ("suffix", "mode"), [("tar", "w"), ("tar.gz", "w:gz"), ("tar.bz2", "w:bz2"), ("tar.xz", "w:xz")]
)
def test_an_archive_that_is_cut_off_is_refused(tree: Path, tmp_path: Path, suffix: str, mode: str) -> None:
    data = pack(tree, tmp_path / f"whole.{suffix}", mode).read_bytes()
    for part in (0.3, 0.6):
        cut = tmp_path / f"cut.{suffix}"
        cut.write_bytes(data[: int(len(data) * part)])
        assert "cut off" in refused(cut) or "damaged" in refused(cut)


def test_a_file_that_is_no_archive_and_no_capture(tmp_path: Path) -> None:
    for name, content in {
        "a.tar": b"not a tar",
        "a.tar.gz": b"\x1f\x8bnot gzip",
        "a.tar.xz": b"\xfd7zXZ\0nope" * 10,
        "text": b"hello",
        "empty": b"",
        "a.json": b"{",
        "zeros.tar": b"\0" * 10240,
    }.items():
        (tmp_path / name).write_bytes(content)
        refused(tmp_path / name)


def test_what_is_neither_file_nor_folder(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "gone", tmp_path / "fifo", Path("/dev/null"), tmp_path, Path("/no/such/folder")):
        with pytest.raises(InputError) as error:
            open_host(path)
        assert str(path) in str(error.value)
    with pytest.raises(InputError):
        open_host(Path("a\0b"))


@needs_corpus
@pytest.mark.parametrize(
    "item",
    sorted(
        f"{folder}/{path.name}"
        for folder in ("fsroot", "fsroot-controls", "kfd")
        for path in (CORPUS / folder).glob("*.tar.xz")
    ),
)
def test_every_recorded_machine_opens(item: str) -> None:
    host = open_host(CORPUS / item)
    top = host.entries("/").or_none()
    assert top is not None
    assert {"proc", "sys"} & set(top)
    nodes = host.entries("/sys/class/kfd/kfd/topology/nodes" if item.startswith("kfd/") else "/sys/devices/system")
    assert isinstance(nodes, Known)
    assert len(nodes.value) >= 1
    if item.startswith("kfd/"):
        answer = host.entries("/sys/bus/pci/devices")
        assert isinstance(answer, Unknown)
        assert answer.reason == "not-recorded"


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_mutated_archive_is_read_or_refused(data: st.DataObject) -> None:
    content = bytearray(_whole_archive(data.draw(st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT]))))
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(content) - 1))
        content[at : at + 4] = data.draw(st.binary(min_size=4, max_size=4))
    with contextlib.suppress(InputError):
        host = SnapshotHost(read_archive(io.BytesIO(content), name="a.tar"), source="tree")
        for path in PATHS:
            answers(host, path)


@functools.cache
def _whole_archive(kind: int) -> bytes:
    """Every kind of member, with long names, in one format."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=kind) as tar:
        for name, text in FILES.items():
            info, content = member(name, text, mtime=1.5 if kind == tarfile.PAX_FORMAT else 1)
            tar.addfile(info, io.BytesIO(content))
        tar.addfile(member("sys/" + "long/" * 30 + "ö", type=SYMLINK, linkname="x" * 150)[0])
        tar.addfile(member("sys/hard", type=HARDLINK, linkname="proc/cpuinfo")[0])
        tar.addfile(member("dev/kfd", type=tarfile.CHRTYPE, devmajor=511)[0])
    return buffer.getvalue()


def test_an_archive_of_a_million_empty_pieces_is_refused_in_time(tmp_path: Path) -> None:
    (tmp_path / "x.tar.gz").write_bytes(gzip.compress(b"") * 300_000)
    began = time.monotonic()
    assert "is made of more than 10000 compressed pieces" in refused(tmp_path / "x.tar.gz")
    assert time.monotonic() - began < 10.0
