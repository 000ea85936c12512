"""Faults that are really provoked on the machine of the tests: each is named for what it is, and none blames the
hardware.
"""

from __future__ import annotations

import ctypes
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from amdcheck.model.finding import Finding
from benchmarks.provoke import (
    Masked,
    Substituted,
    Unavailable,
    apart,
    bound_to,
    cpu_quota,
    findings,
    has_cgroups,
    hogs,
)
from tests.selftest.conftest import missing, offered_flags

pytestmark = [
    pytest.mark.live,
    pytest.mark.usefixtures("alone"),
    pytest.mark.skipif(os.uname().machine != "x86_64", reason="the native kernels are for x86-64"),
]
CPU = "selftest.cpu.*"
SCALING, NEIGHBOUR, ISA = "selftest.cpu.scaling", "selftest.cpu.neighbour", "selftest.cpu.isa"
FIRST, *OTHERS = sorted(os.sched_getaffinity(0))
# What a busy or limited machine may be told. Everything else of a self-test's words would blame the hardware.
NO_BLAME = {
    "ok",
    "busy",
    "no-reference",
    "disturbed",
    "not-applicable",
    "absent",
    "pinned",
    "throttled-by-quota",
    "stolen",
}
CLONE_NEWNS = 0x20000
MS_RDONLY, MS_BIND, MS_REC, MS_PRIVATE = 1, 4096, 16384, 1 << 18


def outcomes(found: list[Finding], check: str) -> set[tuple[str, str]]:
    """Outcome and subject of what one check says."""
    return {(f.outcome, f.subject.id) for f in found if f.check == check}


def failures(found: list[Finding]) -> list[str]:
    return [f"{f.id} {f.subject.id}: {f.message}" for f in found if f.status == "fail"]


def the(found: list[Finding], id: str) -> Finding:
    (one,) = [f for f in found if f.id == id]
    return one


def test_hogs_on_every_cpu_make_them_busy() -> None:
    with hogs([FIRST, *OTHERS]):
        found = findings([SCALING, NEIGHBOUR])
    assert {(f.id, f.status) for f in found} == {(f"{SCALING}/busy", "skip"), (f"{NEIGHBOUR}/busy", "skip")}
    assert "the least of them CPU " in (found[0].evidence[0].value or "")


@pytest.mark.skipif(not OTHERS, reason="one CPU")
def test_a_hog_on_the_only_cpu_that_is_allowed_leaves_its_being_pinned_to_be_told() -> None:
    def step() -> list[Finding]:
        with bound_to({FIRST}), hogs([FIRST]):
            return findings([SCALING, NEIGHBOUR])

    found = apart(step)
    assert {(f.id, f.status) for f in found} == {(f"{SCALING}/pinned", "warn"), (f"{NEIGHBOUR}/busy", "skip")}


def test_a_hog_beside_an_allowed_self_test_disturbs_it_and_its_value_stays_right() -> None:
    """Half of the CPU is somebody else's: scaling says so, and the shortest slices still show what the core can do."""

    def step() -> list[Finding]:
        with hogs([FIRST, *OTHERS]):
            return findings([SCALING, NEIGHBOUR], allow_busy=True)

    found = apart(step)
    assert outcomes(found, SCALING) <= {("disturbed", "host"), ("stolen", "host"), ("pinned", "host")}
    # Of some attempts one may lie between two turns of the hog, and is undisturbed then.
    assert {outcome for outcome, _ in outcomes(found, NEIGHBOUR)} <= {"ok", "disturbed"}
    assert failures(found) == []


@pytest.mark.skipif(not OTHERS, reason="one CPU")
def test_with_a_hog_on_one_cpu_another_is_measured_or_all_are_busy() -> None:
    """Whoever else uses this machine may hold the others; the hog's CPU is never one of those that are judged."""
    with hogs([FIRST]):
        found = findings([SCALING, NEIGHBOUR])
    assert {f.outcome for f in found} <= NO_BLAME
    assert FIRST not in {int(f.subject.id) for f in found if f.check == NEIGHBOUR and f.outcome != "busy"}
    assert failures(found) == []


@pytest.mark.skipif(not OTHERS, reason="one CPU")
def test_a_shell_bound_to_one_cpu_is_pinned_and_its_core_is_whole() -> None:
    def step() -> list[Finding]:
        with bound_to({FIRST}):
            return findings([CPU], allow_busy=True)

    found = apart(step)
    pinned = the(found, f"{SCALING}/pinned")
    assert (pinned.status, pinned.evidence[0].value) == ("warn", str(FIRST))
    assert failures(found) == []


@contextmanager
def quota(cpus: float) -> Iterator[None]:
    try:
        with cpu_quota(cpus):
            yield
    except Unavailable as why:
        if has_cgroups():
            missing(str(why))
        pytest.skip(str(why))


@pytest.mark.parametrize("cpus", [0.2, 0.8])
def test_a_quota_is_named_and_no_core_is_called_slow(cpus: float) -> None:
    with quota(cpus):
        found = findings([SCALING, NEIGHBOUR], allow_busy=True)
    throttled = the(found, f"{SCALING}/throttled-by-quota")
    assert (throttled.status, throttled.evidence[0].value) == ("warn", f"{cpus:g} CPUs")
    assert {f.outcome for f in found} <= NO_BLAME
    assert failures(found) == []


def test_a_wrong_result_is_found_on_the_set_that_gave_it() -> None:
    found = findings([ISA], Substituted("avx2", "hook-wrong"))
    assert [f.split(":")[0] for f in failures(found)] == [f"{ISA}/wrong-result avx2"]
    assert {f.outcome for f in found if f.subject.id != "avx2"} <= {"ok", "not-applicable", "masked"}


def test_an_instruction_set_that_is_offered_and_killed_is_told_by_its_signal() -> None:
    found = findings([ISA], Substituted("avx2", "hook-illegal"))
    assert [f.split(":")[0] for f in failures(found)] == [f"{ISA}/illegal-instruction avx2"]
    assert the(found, f"{ISA}/illegal-instruction").actual == "SIGILL"


def test_an_instruction_set_that_the_kernel_masks_is_told_and_not_run() -> None:
    if "avx2" not in offered_flags():
        pytest.skip("this processor has no AVX2")
    found = findings([ISA], Masked("avx2"))
    assert ("masked", "avx2") in outcomes(found, ISA)
    assert failures(found) == []


def limited(bytes: int) -> Callable[[], list[Finding]]:
    def step() -> list[Finding]:
        resource.setrlimit(resource.RLIMIT_AS, (bytes, bytes))
        return findings([CPU], allow_busy=True)

    return step


@pytest.mark.parametrize("mib", [96, 160])
def test_little_address_space_is_told_as_such_and_never_as_hardware(mib: int) -> None:
    """A batch system's memory limit: children may not start, steps may run out of memory; nothing is wrong or slow."""
    found = apart(limited(mib << 20))
    assert failures(found) == []
    assert {f.status for f in found} <= {"pass", "skip", "unknown", "manual", "warn"}
    assert {f.outcome for f in found if f.status == "warn"} <= NO_BLAME
    unknown = [f for f in found if f.status == "unknown"]
    assert unknown, "every self-test ran with so little"
    for one in unknown:
        assert one.outcome in {"absent", "failed", "died", "disturbed", "timeout"}, one


def mounted(*changes: tuple[str, str, str, int]) -> Callable[[], list[Finding]]:
    """The self-tests in a mount namespace of their own with these mounts: source, target, type, flags."""

    def step() -> list[Finding]:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(CLONE_NEWNS) != 0 or libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None) != 0:
            return []
        for source, target, kind, flags in changes:
            if libc.mount(source.encode(), target.encode(), kind.encode(), flags, None) != 0:
                return []
        return findings([CPU], allow_busy=True)

    return step


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param((("tmpfs", "/dev/shm", "tmpfs", MS_RDONLY),), id="read-only /dev/shm"),
        pytest.param((("/dev/null", "/proc/stat", "", MS_BIND),), id="no /proc/stat"),
        pytest.param((("tmpfs", "/proc", "tmpfs", 0),), id="no /proc"),
    ],
)
def test_what_a_container_may_lack_blames_no_hardware(changes: tuple[tuple[str, str, str, int], ...]) -> None:
    found = apart(mounted(*changes))
    if not found:
        missing("this container does not let a process have mounts of its own")
    assert failures(found) == []
    assert {
        (f.outcome, f.check) for f in found if f.check in (SCALING, NEIGHBOUR) and f.outcome not in NO_BLAME
    } == set()
