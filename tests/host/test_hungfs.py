"""The stand-in for a dead device: it serves, it hangs, and it lets go."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from tests.standins.hungfs import hung_file, hungfs


def _reader(path: Path) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            os.read(os.open(path, os.O_RDONLY | os.O_NONBLOCK), 100)
        finally:
            os._exit(0)
    return pid


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


def _wait_for(pid: int, state: str) -> bool:
    end = time.monotonic() + 10
    while time.monotonic() < end:
        if _state(pid) == state:
            return True
        time.sleep(0.01)
    return False


def test_it_serves_lists_and_hangs_until_the_context_is_left() -> None:
    with hungfs({"gpu_busy_percent": None, "vendor": "0x1002\n", "rom": b"\xff\0"}) as folder:
        assert sorted(os.listdir(folder)) == ["gpu_busy_percent", "rom", "vendor"]
        assert (folder / "vendor").read_text() == "0x1002\n"
        assert (folder / "rom").read_bytes() == b"\xff\0"
        assert not (folder / "gone").exists()
        pid = _reader(folder / "gpu_busy_percent")
        time.sleep(0.2)
        os.kill(pid, signal.SIGKILL)
        assert _wait_for(pid, "D"), "SIGKILL ended the reader, so this stands in for nothing"
    os.waitpid(pid, 0)
    assert not folder.exists()


def test_one_file_of_a_tree_can_be_covered(tmp_path: Path) -> None:
    for name in ("power", "vendor"):
        (tmp_path / name).write_text("1\n")
    with hung_file(tmp_path / "power"):
        assert (tmp_path / "vendor").read_text() == "1\n"
        pid = _reader(tmp_path / "power")
        time.sleep(0.2)
        os.kill(pid, signal.SIGKILL)
        assert _wait_for(pid, "D")
    os.waitpid(pid, 0)
    assert (tmp_path / "power").read_text() == "1\n"


def test_a_folder_of_a_tree_can_be_covered(tmp_path: Path) -> None:
    with hungfs({"a": "x"}, at=tmp_path):
        assert os.listdir(tmp_path) == ["a"]
    assert os.listdir(tmp_path) == []
