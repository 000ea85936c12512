"""The run lock: ours or root's own file, or nobody's."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from amdcheck.engine import lock
from amdcheck.engine.lock import Held, NoLock, only_run
from tests.standins.hungfs import dead_mount


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "amdcheck.lock"
    monkeypatch.setattr(lock, "lock_path", lambda: path)
    return path


def test_a_second_run_is_refused_and_the_file_is_private(place: Path) -> None:
    with only_run(5.0):
        assert stat.S_IMODE(place.stat().st_mode) == 0o600
        with pytest.raises(Held), only_run(5.0):
            pass
    with only_run(5.0):
        pass


@pytest.mark.parametrize(
    "make",
    [
        os.mkfifo,
        os.mkdir,
        lambda path: os.symlink("/etc/passwd", path),
        lambda path: os.symlink("nowhere", path),
        lambda path: os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3)),
    ],
    ids=["pipe", "folder", "link", "dangling link", "device"],
)
def test_what_is_no_file_is_no_lock(place: Path, make: Callable[[Path], None]) -> None:
    try:
        make(place)
    except PermissionError:
        pytest.skip("only root makes device nodes")
    with pytest.raises(NoLock, match=r"is in the way of the lock and is no file"), only_run(5.0):
        pass


def test_the_lock_of_another_user_is_not_obeyed(place: Path) -> None:
    place.touch()
    place.chmod(0o666)
    try:
        os.chown(place, 12345, 12345)
    except PermissionError:
        pytest.skip("only root gives files away")
    with pytest.raises(NoLock, match=r"is the lock of another user \(uid 12345\)"), only_run(5.0):
        pass


def test_a_runtime_folder_that_does_not_answer_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with dead_mount() as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
        assert lock.lock_path() == Path("/tmp/amdcheck-1000.lock")
