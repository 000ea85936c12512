"""Asking in a process of its own: answers and errors come back, and what blocks is given up."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from amdcheck.host.apart import apart
from amdcheck.model.errors import InputError
from tests.standins.hungfs import dead_mount, hungfs


def refuse() -> bytes:
    raise InputError("no such thing: \udcff")


def test_the_answer_comes_back() -> None:
    assert apart(lambda: b"x" * (3 << 20)) == b"x" * (3 << 20)
    assert apart(lambda: None) == b""


def test_errors_come_back_as_they_were(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="No such file or directory"):
        apart((tmp_path / "none").read_bytes)
    with pytest.raises(InputError, match=r"^no such thing: \\udcff$"):
        apart(refuse)
    with pytest.raises(RuntimeError, match=r"^ZeroDivisionError: "):
        apart(lambda: b"x" * (1 // 0))
    with pytest.raises(RuntimeError, match=r"^the process that asked was killed$"):
        apart(lambda: os.kill(os.getpid(), 9))


@pytest.mark.parametrize(
    "question", [lambda p: os.stat(p).st_mode, lambda p: os.listdir(p), lambda p: (p / "x").read_bytes()]
)
def test_a_dead_mount_is_given_up(question: object) -> None:
    assert callable(question)
    with dead_mount() as folder:
        began = time.monotonic()
        with pytest.raises(TimeoutError, match="it may lie on a dead mount") as raised:
            apart(lambda: str(question(folder)).encode(), seconds=0.3)
        assert time.monotonic() - began < 2.0
    assert raised.value.errno == errno.ETIMEDOUT


def test_a_read_that_never_ends_is_given_up() -> None:
    with hungfs({"policy.toml": None}) as folder, pytest.raises(TimeoutError):
        apart((folder / "policy.toml").read_bytes, seconds=0.3)


def test_what_takes_too_long_takes_back_what_it_began(tmp_path: Path) -> None:
    def slow() -> bytes:
        temporary = tmp_path / "x.tmp"
        try:
            temporary.write_text("half")
            time.sleep(60)
        finally:
            temporary.unlink()
        return b""

    with pytest.raises(TimeoutError):
        apart(slow, seconds=0.3)
    assert list(tmp_path.iterdir()) == []


def test_the_child_holds_nothing_of_the_callers(tmp_path: Path) -> None:
    with (tmp_path / "open").open("w"):
        names = apart(lambda: " ".join(os.readlink(f"/proc/self/fd/{fd}") for fd in (0, 1, 2)).encode())
        assert names == b"/dev/null /dev/null /dev/null"
        open_ones = apart(lambda: " ".join(os.listdir("/proc/self/fd")).encode()).split()
        assert len(open_ones) == 5  # these, the pipe, and the one that lists
