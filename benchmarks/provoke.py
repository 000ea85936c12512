"""Faults of a processor, really provoked on this machine for a moment, and what the self-tests say of them."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import msgspec
from msgspec.structs import replace

from amdcheck.engine.injection import FactStore
from amdcheck.engine.registry import all_checks
from amdcheck.engine.selection import select
from amdcheck.host.apart import apart as asked_apart
from amdcheck.host.live import LiveHost
from amdcheck.host.processes import die_with_parent
from amdcheck.host.protocol import READ_LIMIT, Host, SelfTest, SelfTestResult
from amdcheck.model.expectations import Expectations
from amdcheck.model.finding import HOST, Finding, skipped
from amdcheck.model.value import Known, Unknown, Value

_STEP_SECONDS = 300.0  # of a step that runs self-tests again and again


class Unavailable(Exception):
    """This machine or container does not let the fault be provoked; the text says why."""


def findings(globs: Sequence[str], host: Host | None = None, *, allow_busy: bool = False) -> list[Finding]:
    """What the checks say of this machine, or of the given host, at level standard."""
    expect = Expectations(level="standard", allow_busy=allow_busy)
    facts = FactStore(host or LiveHost(), expect)
    found: list[Finding] = []
    for check in select(all_checks(), globs, (), "standard"):
        reason = check.applies(**facts.supply(check.applies_parameters)) if check.applies else None
        found += [skipped(check.id, HOST, reason)] if reason else check.function(**facts.supply(check.parameters))
    return found


class Substituted(LiveHost):
    """This machine, with one kernel of the instruction sets replaced by one that misbehaves on purpose."""

    def __init__(self, name: str, hook: str) -> None:
        super().__init__()
        self._name, self._hook = name, hook

    def selftest(self, test: SelfTest) -> Value[SelfTestResult]:
        params = tuple(self._hook if test.name == "cpu.isa" and name == self._name else name for name in test.params)
        answer = super().selftest(replace(test, params=params))
        if isinstance(answer, Unknown):
            return answer
        result = answer.value.result
        said = result.stdout.replace(f'"{self._hook}"', f'"{self._name}"')
        told = replace(answer.value, params=test.params, result=replace(result, stdout=said))
        return Known(told, answer.source)


class Masked(LiveHost):
    """This machine under a kernel that does not offer one instruction set which the processor has."""

    def __init__(self, flag: str) -> None:
        super().__init__()
        self._flag = flag

    def read(self, path: str, *, limit: int = READ_LIMIT) -> Value[str]:
        answer = super().read(path, limit=limit)
        if path != "/proc/cpuinfo":
            return answer
        return answer.parse(self._without)

    def _without(self, text: str) -> str:
        return re.sub(rf"\b{self._flag}\b", "", text)


@contextmanager
def hogs(cpus: Sequence[int]) -> Iterator[None]:
    """One process on each of the CPUs that computes without end."""
    children = []
    try:
        for cpu in cpus:
            child = os.fork()
            if child == 0:
                _compute_on(cpu)
            children.append(child)
        time.sleep(0.05)  # until they compute
        yield
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _compute_on(cpu: int) -> NoReturn:
    try:
        die_with_parent()
        os.sched_setaffinity(0, {cpu})
        while True:
            pass
    finally:
        os._exit(1)


@contextmanager
def bound_to(cpus: set[int]) -> Iterator[None]:
    """This process and those it starts may run on these CPUs alone."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@contextmanager
def cpu_quota(cpus: float) -> Iterator[None]:
    """This process and those it starts have so many CPUs, by a control group. Raises Unavailable."""
    home, folder, files = _new_group(cpus)
    try:
        folder.mkdir()
        for name, text in files.items():
            (folder / name).write_text(text)
    except OSError as error:
        if folder.is_dir():
            folder.rmdir()
        raise Unavailable(f"no control group with a CPU quota can be made: {error}") from error
    try:
        (folder / "cgroup.procs").write_text(str(os.getpid()))
        yield
    finally:
        (home / "cgroup.procs").write_text(str(os.getpid()))
        folder.rmdir()


def has_cgroups() -> bool:
    """Whether a CPU controller is mounted at all, writable or not."""
    controllers = Path("/sys/fs/cgroup/cgroup.controllers")
    return Path("/sys/fs/cgroup/cpu").is_dir() or (controllers.is_file() and "cpu" in controllers.read_text().split())


def _new_group(cpus: float) -> tuple[Path, Path, dict[str, str]]:
    """Our own group, a folder for a new one and what makes it a quota: below ours in version 1, else in version 2."""
    quota, name = f"{round(100_000 * cpus)}", f"amdcheck-quota-{os.getpid()}"
    ours = "/"
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        ours = path if controllers == "" else ours
        if "cpu" in controllers.split(","):
            top = Path("/sys/fs/cgroup", controllers)
            top = top if top.is_dir() else Path("/sys/fs/cgroup/cpu")
            home = top / path.lstrip("/")
            return home, home / name, {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": quota}
    top = Path("/sys/fs/cgroup")
    if not (top / "cgroup.controllers").is_file():
        raise Unavailable("no control groups are mounted here")
    with_cpu = top / "cgroup.subtree_control"
    if "cpu" not in with_cpu.read_text().split():
        try:
            with_cpu.write_text("+cpu")
        except OSError as error:
            raise Unavailable(f"the CPU controller is not given to groups here: {error}") from error
    return top / ours.lstrip("/"), top / name, {"cpu.max": f"{quota} 100000"}


def apart(step: Callable[[], list[Finding]]) -> list[Finding]:
    """What a step finds in a process of its own, which may limit itself. Raises RuntimeError when it broke."""
    said = asked_apart(lambda: msgspec.msgpack.encode(step()), seconds=_STEP_SECONDS)
    return msgspec.msgpack.decode(said, type=list[Finding])
