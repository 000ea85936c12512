"""A step in a process of its own: whatever ends it is told by its name, and nothing is left behind."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import time
from typing import Any, NoReturn

import pytest

from amdcheck.facts import cpu_memory as facts_of_memory
from amdcheck.facts import cpu_pattern as facts_of_pattern
from amdcheck.facts import selftests
from amdcheck.facts.cpu_compute import BF16, FP32, INT8
from amdcheck.host.processes import children
from amdcheck.host.protocol import SelfTest
from amdcheck.knowledge.isa import isa_table
from amdcheck.selftest import (
    cpu_alignment,
    cpu_compute,
    cpu_cores,
    cpu_isa,
    cpu_memory,
    cpu_pattern,
    isolate,
    miopen_version,
)
from amdcheck.selftest.isolate import Ended, Isolated, Record, all_ended, isolated
from amdcheck.selftest.library import Library

PRODUCTS = (*FP32, *INT8, *BF16)


def _ended(ended: str, detail: str | None = None) -> Ended:
    return Ended(ended=ended, detail=detail, result=None)


def _run_hook(library: Library, name: str) -> Record:
    kernel = library.find(name)
    assert kernel is not None
    kernel.prepare(blocks=1, seed=1).run()
    return {}


def _nap() -> Record:
    time.sleep(5)
    return {}


def _raise(error: BaseException) -> NoReturn:
    raise error


def test_a_step_that_returns_hands_its_result_over() -> None:
    big = {"values": list(range(100_000))}  # more than a pipe holds
    assert isolated(lambda: big, deadline_s=5) == Ended(ended="returned", detail=None, result=big)


def test_an_illegal_instruction_is_contained_and_named(library: Library) -> None:
    assert isolated(lambda: _run_hook(library, "hook-illegal"), deadline_s=5) == _ended("SIGILL")


def test_a_stray_store_is_contained_and_named(library: Library) -> None:
    assert isolated(lambda: _run_hook(library, "hook-stray"), deadline_s=5) == _ended("SIGSEGV")


def test_an_endless_kernel_is_ended_at_its_deadline(library: Library) -> None:
    start = time.monotonic()
    ended = isolated(lambda: _run_hook(library, "hook-endless"), deadline_s=0.2)
    assert ended == _ended("timeout", "not finished within 0.2 s")
    assert 0.2 <= time.monotonic() - start < 2


class Unkillable:
    """Steps on which SIGKILL has no effect, as on those that sleep in the kernel, until they leave by themselves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.killed: list[int] = []
        monkeypatch.setattr(isolate.Isolated, "kill", lambda step: self.killed.append(step._child))

    def bury(self) -> None:
        for child in self.killed:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def test_steps_that_do_not_die_of_sigkill_are_left_behind_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for them would lose the results of all others; they leave after five seconds."""
    unkillable = Unkillable(monkeypatch)
    start = time.monotonic()
    steps = {key: Isolated(_nap) for key in range(4)}
    steps[4] = Isolated(lambda: {"done": True})
    ended = all_ended(steps, began=start, deadline_s=0.2)
    took = time.monotonic() - start
    unkillable.bury()
    assert len(unkillable.killed) == 4
    late = _ended("timeout", "not finished within 0.2 s")
    assert ended == {**dict.fromkeys(range(4), late), 4: Ended(ended="returned", detail=None, result={"done": True})}
    assert took < 0.2 + isolate.GONE_S + 1


def test_a_step_that_leaves_one_of_its_own_behind_has_told_its_result() -> None:
    """What is left behind holds the descriptor that the result is written to."""

    def step() -> Record:
        Isolated(_nap)
        return {"done": True}

    start = time.monotonic()
    assert isolated(step, deadline_s=3) == Ended(ended="returned", detail=None, result={"done": True})
    assert time.monotonic() - start < 2


_CORES_S = selftests.TIMEOUT_S - cpu_cores.BEGIN_WITHIN_S


@pytest.mark.parametrize(
    ("steps", "deadline_s", "timeout_s"),
    [
        pytest.param(len(isa_table().isa) + 1, cpu_isa.DEADLINE_S, selftests.TIMEOUT_S, id="cpu.isa"),
        pytest.param(2, cpu_alignment.DEADLINE_S, selftests.TIMEOUT_S, id="cpu.alignment"),
        pytest.param(2 + len(PRODUCTS), cpu_compute.DEADLINE_S, selftests.TIMEOUT_S, id="cpu.compute"),
        # Attempts begin within a time; one may be on its way then, and all CPUs together come after it.
        pytest.param(2, cpu_cores.READY_S + 1 + cpu_cores.TOGETHER_S, _CORES_S, id="cpu.cores"),
        pytest.param(4, cpu_memory.DEEP_DEADLINE_S, facts_of_memory.TIMEOUT_S, id="cpu.memory"),
        pytest.param(1, cpu_pattern.DEADLINE_S, facts_of_pattern.TIMEOUT_S, id="cpu.pattern"),
        pytest.param(1, miopen_version._DEADLINE_S, SelfTest(name="miopen-version").timeout_s, id="miopen-version"),
    ],
)
def test_a_child_outlasts_all_its_steps(steps: int, deadline_s: float, timeout_s: float) -> None:
    """Else steps that are slow or stuck one after the other would lose what all of them said; a second is to start."""
    assert 1 + steps * (deadline_s + isolate.GONE_S) <= timeout_s


@pytest.mark.parametrize("deadline_s", [cpu_memory.DEADLINE_S, cpu_memory.DEEP_DEADLINE_S])
def test_a_step_outlasts_its_own_processes(deadline_s: float) -> None:
    assert cpu_memory.WITHIN * deadline_s + isolate.GONE_S < deadline_s


def test_too_little_memory_is_named() -> None:
    def step() -> Record:
        resource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28))
        return {"length": len(bytearray(1 << 30))}

    assert isolated(step, deadline_s=5) == _ended("memory", "out of memory")


def test_a_step_that_the_system_kills_is_named() -> None:
    def step() -> Record:
        os.kill(os.getpid(), signal.SIGKILL)
        return {}

    assert isolated(step, deadline_s=5) == _ended("SIGKILL")


@pytest.mark.parametrize(
    ("error", "ended"),
    [
        (PermissionError("no executable pages"), _ended("denied", "no executable pages")),
        (ValueError("odd"), _ended("failed", "ValueError: odd")),
        (SystemExit(3), _ended("failed", "SystemExit: 3")),
    ],
)
def test_an_exception_is_told_and_reaches_nobody_else(error: BaseException, ended: Ended) -> None:
    assert isolated(lambda: _raise(error), deadline_s=5) == ended


def test_a_step_that_leaves_without_a_word_failed() -> None:
    assert isolated(lambda: os._exit(0), deadline_s=5) == _ended("failed", "left without a result")


def test_a_result_that_is_no_json_failed() -> None:
    assert isolated(lambda: {"x": object()}, deadline_s=5) == _ended("failed", "left without a result")


def test_steps_run_side_by_side_and_leave_no_child_and_no_descriptor() -> None:
    before = sorted(os.listdir("/proc/self/fd"))
    others = children()  # of tests that ran in this process before

    def sleep() -> Record:
        time.sleep(0.3)
        return {"pid": os.getpid()}

    start = time.monotonic()
    steps = [Isolated(sleep) for _ in range(4)]
    ended = list(all_ended(dict(enumerate(steps)), began=time.monotonic(), deadline_s=5).values())
    assert time.monotonic() - start < 1.0
    pids = {(e["result"] or {})["pid"] for e in ended}
    assert len(pids) == 4
    assert os.getpid() not in pids
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert children() <= others


def test_a_dying_step_leaves_no_core_file(library: Library, tmp_path: Any) -> None:
    """Core files are asked for, and the step is killed where one would be written."""
    soft, hard = resource.getrlimit(resource.RLIMIT_CORE)
    if hard == 0:
        pytest.skip("core files are forbidden here")
    resource.setrlimit(resource.RLIMIT_CORE, (hard, hard))
    before = os.getcwd()
    os.chdir(tmp_path)
    try:
        dumped: list[bool] = []

        def step() -> Record:
            dumped.append(bool(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0)))  # PR_GET_DUMPABLE
            return {"dumpable": dumped[0], "core": resource.getrlimit(resource.RLIMIT_CORE)[0]}

        assert isolated(step, deadline_s=5)["result"] == {"dumpable": False, "core": 0}
        assert isolated(lambda: _run_hook(library, "hook-illegal"), deadline_s=5) == _ended("SIGILL")
        assert list(tmp_path.iterdir()) == []
    finally:
        os.chdir(before)
        resource.setrlimit(resource.RLIMIT_CORE, (soft, hard))


def test_a_step_dies_with_the_self_test_that_started_it() -> None:
    """The child is killed while its step is endless; the step must not go on alone."""
    import subprocess

    program = (
        "import os, sys, threading\n"
        "from amdcheck.selftest.isolate import Isolated\n"
        "import time\n"
        "step = Isolated(lambda: time.sleep(60))\n"
        "time.sleep(0.3)\n"
        "print(step._child, flush=True)\n"
        "time.sleep(60)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        step = int(child.stdout.readline())
        os.kill(step, 0)
    finally:
        child.kill()
        child.wait()
    until = time.monotonic() + 5
    while _alive(step):
        assert time.monotonic() < until, "the step outlived its parent"
        time.sleep(0.02)


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_a_step_that_is_refused_a_process_has_failed_and_leaves_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, "fork", refused)
    ended = isolated(lambda: {}, deadline_s=1)
    assert (ended["ended"], ended["result"]) == ("failed", None)
    assert "Resource temporarily unavailable" in (ended["detail"] or "")
    assert len(os.listdir("/proc/self/fd")) == before


def test_many_late_steps_are_waited_for_together() -> None:
    """Each with a grace of its own would outlast whoever waits for all of them."""
    began = time.monotonic()
    steps = {key: Isolated(_nap) for key in range(30)}
    ended = all_ended(steps, began=began - 10, deadline_s=0.1)
    assert {one["ended"] for one in ended.values()} == {"timeout"}
    assert time.monotonic() - began < 0.3 + isolate.GONE_S
