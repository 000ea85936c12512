"""selftest.cpu.alignment: what is normal passes, what breaks a promise is a warning, and nothing is ever a fail."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from amdcheck.facts.selftests import AlignmentSelfTest
from amdcheck.host.live import LiveHost
from amdcheck.host.protocol import CommandResult, SelfTest, SelfTestResult
from amdcheck.host.recording import RecordingHost, merge
from amdcheck.host.snapshot import SnapshotHost
from amdcheck.knowledge.remedies import remedies
from amdcheck.model.expectations import Expectations
from amdcheck.model.finding import Finding
from amdcheck.model.value import Known, Unknown, Value
from tests.judge import judge, read_fact
from tests.memory_host import memory_host

ID = "selftest.cpu.alignment"
PYTHON = "/opt/venv/bin/python"
SIZES = ((64, 32), (4096, 32), (1 << 20, 16), (64 << 20, 4))
Document = dict[str, Any]


def counts(*aligned: int) -> list[dict[str, int]]:
    """How many buffers of each size began on a line; all of them where nothing is said."""
    return [
        {"bytes": size, "held": held, "aligned": aligned[i] if aligned else held}
        for i, (size, held) in enumerate(SIZES)
    ]


def allocator(**functions: list[dict[str, int]]) -> Document:
    """A child's answer on glibc, in which large blocks of malloc begin 16 bytes into a page."""
    result = {
        "name": "glibc 2.36",
        "malloc": counts(8, 8, 0, 0),
        "posix_memalign": counts(),
        "aligned_alloc": counts(),
        **functions,
    }
    by_offset = [{"offset": offset, "seconds": s} for offset, s in ((0, 2e-10), (16, 3.4e-10), (32, 2e-10))]
    loads = {"width": 32, "by_offset": by_offset}
    return {
        "test": "cpu.alignment",
        "allocator": {"ended": "returned", "detail": None, "result": result},
        "loads": {"ended": "returned", "detail": None, "result": loads},
    }


def numpy(**arrays: Any) -> Document:
    """A judged interpreter's answer."""
    measured = {
        "empty": counts(8, 8, 0, 0),
        "sliced": counts(),
        "allocated": counts(),
        "contiguous_tried": 4,
        "contiguous_same": 4,
        **arrays,
    }
    return {
        "test": "numpy_alignment",
        "python": "3.12.3",
        "lacks": None,
        "numpy": "2.1.0",
        "handler": "default_allocator",
        "measured": measured,
    }


def without_numpy() -> Document:
    lacks = "ModuleNotFoundError: No module named 'numpy'"
    return {**numpy(), "lacks": lacks, "numpy": None, "handler": None, "measured": None}


def answer(name: str, params: tuple[str, ...], python: str | None, said: Document | str, rc: int = 0) -> SelfTestResult:
    result = CommandResult(
        argv=(name, *params),
        rc=rc,
        stdout=said if isinstance(said, str) else json.dumps(said) + "\n",
        stderr="",
        duration_s=0.1,
        timed_out=False,
        truncated=False,
        stuck=(),
    )
    return SelfTestResult(name=name, params=params, python=python, result=result)


def machine(own: Document | str, judged: Document | str | None = None, *, rc: int = 0) -> SnapshotHost:
    """A recorded EPYC 7763, whose widest load is 32 bytes, with what both children printed."""
    cpuinfo = (
        "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 1\nflags\t\t: fpu sse2 avx avx2\n\n"
    )
    tests = [answer("cpu.alignment", ("32",), None, own)]
    if judged is not None:
        tests.append(answer("numpy_alignment", (), PYTHON, judged, rc))
    return memory_host({"/proc/cpuinfo": cpuinfo}, selftests=tests)


def findings(host: SnapshotHost, python: str | None = PYTHON) -> dict[str, Finding]:
    return {finding.subject.id: finding for finding in judge(ID, host, Expectations(python=python))}


def evidence_of(finding: Finding) -> dict[str | None, tuple[str | None, bool]]:
    """Value and volatility by note."""
    return {item.note: (item.value, item.volatile) for item in finding.evidence}


def test_glibc_and_numpy_as_they_are_pass_and_the_two_ways_are_named() -> None:
    found = findings(machine(allocator(), numpy()))
    assert {key: (f.status, f.outcome) for key, f in found.items()} == {"libc": ("pass", "ok"), "numpy": ("pass", "ok")}
    libc, arrays = found["libc"], found["numpy"]
    assert libc.message == "posix_memalign and aligned_alloc give 64-byte aligned memory; malloc does not"
    assert evidence_of(libc) == {
        "the C allocator": ("glibc 2.36", False),
        "malloc": ("aligned of held: 64 B 8/32, 4 KiB 8/32, 1 MiB 0/16, 64 MiB 0/4", True),
        "posix_memalign": ("every buffer of 64 B to 64 MiB aligned", False),
        "aligned_alloc": ("every buffer of 64 B to 64 MiB aligned", False),
    }
    assert [(cost.name, cost.value, cost.unit, cost.volatile) for cost in libc.metrics] == [
        ("load-256-bit-at-16", 1.7, "x", True),
        ("load-256-bit-at-32", 1.0, "x", True),
    ]
    assert arrays.message == (
        "numpy does not align arrays to 64 bytes; over-allocating and slicing and memory of posix_memalign do"
    )
    assert evidence_of(arrays)["numpy.ascontiguousarray"] == ("4 of 4 arrays returned as they are", False)
    assert evidence_of(arrays)["Python 3.12.3, allocator default_allocator"] == ("numpy 2.1.0", False)


def test_an_allocator_that_aligns_by_itself_is_told_so() -> None:
    found = findings(machine(allocator(malloc=counts()), numpy(empty=counts())))
    assert found["libc"].message.endswith("here malloc does too")
    assert found["numpy"].message == "numpy gives 64-byte aligned arrays by itself"


@pytest.mark.parametrize("function", ["posix_memalign", "aligned_alloc"])
def test_a_replaced_allocator_that_breaks_its_promise_is_a_warning(function: str) -> None:
    finding = findings(machine(allocator(**{function: counts(32, 32, 15, 4)})))["libc"]
    assert (finding.status, finding.id) == ("warn", f"{ID}/allocator")
    assert finding.message == f"{function} of glibc 2.36 returned memory that is not aligned as asked"
    assert evidence_of(finding)[function] == ("aligned of held: 64 B 32/32, 4 KiB 32/32, 1 MiB 15/16, 64 MiB 4/4", True)


def test_a_numpy_in_which_neither_way_works_is_a_warning() -> None:
    finding = findings(machine(allocator(), numpy(sliced=counts(0, 0, 0, 0), allocated=counts(0, 0, 0, 0))))["numpy"]
    assert (finding.status, finding.id) == ("warn", f"{ID}/no-way")
    assert finding.message == (
        f"in {PYTHON}, over-allocating and slicing and memory of posix_memalign did not give 64-byte aligned arrays"
    )
    assert finding.remedy is not None
    assert finding.remedy.owner == "user"


def test_without_a_python_to_judge_numpy_is_skipped_and_the_allocator_judged() -> None:
    found = findings(machine(allocator()), python=None)
    assert (found["numpy"].status, found["numpy"].message) == (
        "skip",
        "there is no Python to judge: name one with --python",
    )
    assert found["libc"].status == "pass"


def test_a_python_without_numpy_is_skipped_with_what_it_lacks() -> None:
    finding = findings(machine(allocator(), without_numpy()))["numpy"]
    assert (finding.status, finding.outcome) == ("skip", "not-applicable")
    assert finding.evidence[0].value == "ModuleNotFoundError: No module named 'numpy'"


def test_a_python_that_greets_before_the_document_is_understood() -> None:
    said = "Welcome to the cluster\n" + json.dumps(numpy()) + "\n"
    assert findings(machine(allocator(), said))["numpy"].status == "pass"


@pytest.mark.parametrize(
    ("said", "rc", "note"),
    [
        ("", -11, "the child was killed by SIGSEGV"),
        ("", 1, "the child left with 1"),
        ("Welcome\n", 0, "malformed"),
        (json.dumps({**numpy(), "measured": None}), 0, "either something is lacking, or arrays were measured"),
        (json.dumps(numpy(sliced=[])), 0, "length >= 1"),
    ],
)
def test_a_judged_python_that_answers_nonsense_is_unknown(said: str, rc: int, note: str) -> None:
    found = findings(machine(allocator(), said, rc=rc))
    assert (found["numpy"].status, found["numpy"].outcome) == ("unknown", "failed")
    assert note in (found["numpy"].evidence[0].note or "")
    assert found["libc"].status == "pass"


def test_an_allocator_step_that_runs_out_of_memory_is_unknown() -> None:
    own = allocator()
    own["allocator"] = {"ended": "memory", "detail": "out of memory", "result": None}
    finding = findings(machine(own), python=None)["libc"]
    assert (finding.status, finding.outcome) == ("unknown", "failed")
    assert finding.evidence[0].note == "failed: memory: out of memory"


def test_without_the_native_kernels_only_the_cost_is_missing() -> None:
    own = allocator()
    own["loads"] = {"ended": "failed", "detail": "LibraryMissing: no C compiler was there", "result": None}
    finding = findings(machine(own), python=None)["libc"]
    assert finding.status == "pass"
    assert finding.metrics == ()
    assert any("no C compiler was there" in (item.note or "") for item in finding.evidence)


def test_a_recording_without_the_self_test_is_not_recorded() -> None:
    found = findings(memory_host({}))
    assert {key: (f.status, f.outcome) for key, f in found.items()} == {
        "libc": ("unknown", "not-recorded"),
        "numpy": ("unknown", "not-recorded"),
    }


def test_this_machine_and_its_numpy_pass_live_and_from_its_own_recording() -> None:
    pytest.importorskip("numpy")
    expect = Expectations(python=sys.executable)
    recording = RecordingHost(LiveHost())
    live = judge(ID, recording, expect)
    assert [(f.subject.id, f.status, f.outcome) for f in live] == [("libc", "pass", "ok"), ("numpy", "pass", "ok")]
    assert live[0].metrics[0].value > 0.5
    replay = SnapshotHost(merge([recording.take()], memory_host({}).capture.manifest))
    assert judge(ID, replay, expect) == live


def test_a_judged_python_that_does_not_exist_is_unknown() -> None:
    expect = Expectations(python="/nowhere/bin/python")
    finding = judge(ID, LiveHost(), expect)[1]
    assert (finding.subject.id, finding.status, finding.outcome) == ("numpy", "unknown", "absent")


def test_at_level_quick_no_child_is_started() -> None:
    class NoChildren(LiveHost):
        def selftest(self, test: SelfTest) -> Value[SelfTestResult]:
            raise AssertionError("a self-test was started")

    fact = read_fact(AlignmentSelfTest, NoChildren(), Expectations(level="quick", python=sys.executable))
    assert isinstance(fact.allocator, Unknown)
    assert isinstance(fact.numpy, Unknown)
    assert not isinstance(fact.loads, Known)
    findings = judge(ID, NoChildren(), Expectations(level="quick", python=sys.executable))
    assert {(f.id, f.status) for f in findings} == {(f"{ID}/not-recorded", "unknown")}


def test_every_outcome_that_needs_a_remedy_has_one() -> None:
    own = {f"{ID}/{outcome}" for outcome in ("allocator", "no-way")}
    assert {key for key in remedies("selftest") if key.startswith(f"{ID}/")} == own


@pytest.mark.parametrize(
    "by_offset",
    [
        [(0, 2e-10)],  # nothing to compare with
        [(16, 2e-10), (0, 2e-10)],  # the aligned ones are not the first
        [(0, 0.0), (16, 2e-10)],  # no time at all
    ],
)
def test_loads_that_cannot_be_are_told_as_not_measured(by_offset: list[tuple[int, float]]) -> None:
    document = allocator()
    document["loads"]["result"]["by_offset"] = [{"offset": offset, "seconds": s} for offset, s in by_offset]
    libc = findings(machine(document, numpy()))["libc"]
    assert (libc.status, libc.outcome, libc.metrics) == ("unknown", "failed", ())
