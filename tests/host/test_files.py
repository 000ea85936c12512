"""write_whole: the old file or the new one, never a part, and no device is replaced by a file."""

from __future__ import annotations

import os
import stat
import threading
import time
from pathlib import Path

import pytest

from amdcheck.host.files import read_regular, write_all, write_whole


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_is_written_and_replaced(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    write_whole(file, b"old", private=False)
    write_whole(file, b"new", private=False)
    assert file.read_bytes() == b"new"
    assert os.listdir(tmp_path) == ["report.json"]


def test_a_private_file_is_its_owners_alone(tmp_path: Path) -> None:
    file = tmp_path / "a.json.xz"
    file.write_bytes(b"")
    file.chmod(0o644)
    before = os.umask(0)
    try:
        write_whole(file, b"x", private=True)
        write_whole(tmp_path / "public", b"x", private=False)
    finally:
        os.umask(before)
    assert (mode(file), mode(tmp_path / "public")) == (0o600, 0o666)


def test_a_failure_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "report.json"
    file.write_bytes(b"old")

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_whole(file, b"new", private=False)
    assert file.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["report.json"]


@pytest.mark.parametrize("name", ["gone/report.json", "."])
def test_a_place_that_cannot_be_written_raises(tmp_path: Path, name: str) -> None:
    with pytest.raises(OSError, match=r"."):
        write_whole(tmp_path / name, b"x", private=False)
    assert os.listdir(tmp_path) == []


def test_a_link_is_followed(tmp_path: Path) -> None:
    os.symlink("real", tmp_path / "link")
    write_whole(tmp_path / "link", b"x", private=False)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_bytes() == b"x"


def test_a_device_and_a_pipe_are_written_to(tmp_path: Path) -> None:
    write_whole(Path("/dev/null"), b"x", private=True)
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_whole(pipe, b"through", private=False)
    reader.join(10)
    assert read == [b"through"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_a_pipe_that_nobody_reads_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="nobody reads this pipe"):
        write_whole(tmp_path / "pipe", b"x", private=False)


def test_a_slow_reader_of_a_pipe_gets_everything() -> None:
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    data = os.urandom(300_000)
    read = bytearray()

    def read_slowly() -> None:
        while piece := os.read(ours, 50_000):
            read.extend(piece)
            time.sleep(0.01)

    reader = threading.Thread(target=read_slowly)
    reader.start()
    write_all(theirs, data)
    os.close(theirs)
    reader.join(10)
    os.close(ours)
    assert read == data


@pytest.mark.parametrize("kept", [0o600, 0o640, 0o444])
def test_a_file_keeps_the_mode_of_the_one_it_replaces(tmp_path: Path, kept: int) -> None:
    file = tmp_path / "r.json"
    file.write_text("old")
    file.chmod(kept)
    write_whole(file, b"new", private=False)
    assert (file.read_bytes(), mode(file)) == (b"new", kept)


def test_a_pipe_is_no_file_to_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="it is not a file"):
        read_regular(tmp_path / "pipe", 10)
