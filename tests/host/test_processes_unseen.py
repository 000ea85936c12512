"""Where /proc is not mounted, a deadline still ends what it should."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = """
import os, time
from amdcheck.host.apart import apart
from amdcheck.host.processes import kill_tree, let_go_of_the_caller
assert not os.listdir("/proc")
ours, theirs = os.pipe()
pid = os.fork()
if pid == 0:
    let_go_of_the_caller(theirs)
    if os.fork() == 0:
        time.sleep(30)
    os.write(theirs, b"up")
    time.sleep(30)
os.close(theirs)
assert os.read(ours, 2) == b"up"
assert kill_tree(pid) == ()
assert os.read(ours, 1) == b""  # its child is dead too: nobody holds the pipe
assert apart(lambda: b"answer") == b"answer"
print("ended")
"""


def test_a_worker_and_its_children_end_without_proc(tmp_path: Path) -> None:
    mount = 'mount -t tmpfs none /proc && exec "$@"'
    argv = ["unshare", "--mount", "sh", "-c", mount, "sh", sys.executable, "-c", PROGRAM]
    began = time.monotonic()
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0 and ("unshare" in done.stderr or "mount" in done.stderr):
        pytest.skip("no mount namespace")
    assert (done.stdout, done.stderr) == ("ended\n", "")
    assert time.monotonic() - began < 20.0
