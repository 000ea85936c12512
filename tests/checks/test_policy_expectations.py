"""What a policy expects of GPUs and ROCm is judged, never dropped."""

from __future__ import annotations

import pytest

from amdcheck.api import Expectations
from tests.compose import compose, fault, fault_names
from tests.judge import judge

MI210 = "mi210-8gpu-2hive-epyc7763x2"


def test_gpus_of_another_target_fail_one_by_one() -> None:
    findings = judge("gpu.present", compose(MI210).host, Expectations(gfx="gfx942"))
    wrong = [f for f in findings if f.id == "gpu.present/other-target"]
    assert len(wrong) == 8
    assert (wrong[0].subject.id, wrong[0].status) == ("0000:03:00.0", "fail")
    assert (wrong[0].expected, wrong[0].actual) == ("gfx942 (policy)", "gfx90a")
    assert wrong[0].evidence[0].value == "gfx90a"


def test_gpus_of_the_expected_target_say_nothing_more() -> None:
    assert {f.id for f in judge("gpu.present", compose(MI210).host, Expectations(gfx="gfx90a"))} == {"gpu.present/ok"}


@pytest.mark.parametrize("wanted", [None, ">=6.3,<7", "==6.3.3"])
def test_an_expected_rocm_release_passes(wanted: str | None) -> None:
    (finding,) = judge("rocm.version", compose(MI210).host, Expectations(rocm=wanted))
    assert (finding.id, finding.subject.id, finding.status) == ("rocm.version/ok", "/opt/rocm-6.3.3", "pass")
    assert finding.evidence[0].value == "6.3.3"


@pytest.mark.parametrize("wanted", [">=6.4", "<6", "==6.3.2"])
def test_another_rocm_release_than_expected_fails(wanted: str) -> None:
    (finding,) = judge("rocm.version", compose(MI210).host, Expectations(rocm=wanted))
    assert (finding.id, finding.subject.id, finding.status) == ("rocm.version/other-release", "/opt/rocm-6.3.3", "fail")
    assert (finding.expected, finding.actual) == (f"{wanted} (policy)", "6.3.3")


def test_rocm_is_not_asked_for_where_there_is_none() -> None:
    (finding,) = judge("rocm.version", compose("epyc7302p-cpu-only").host, Expectations(rocm=">=6.4"))
    assert (finding.id, finding.status) == ("rocm.version/not-applicable", "skip")


@pytest.mark.parametrize("check", ["rocm.version", "rocm.driver-compat", "miopen.version"])
def test_a_rocm_that_is_not_where_it_was_named_is_no_bug_of_the_check(check: str) -> None:
    findings = judge(check, compose(MI210).host, Expectations(rocm_root="/nonexistent"))
    assert findings
    assert {f.status for f in findings} <= {"unknown", "skip"}


def test_gpus_that_the_container_is_not_given_are_not_the_nodes_fault() -> None:
    (hidden,) = [n for n in fault_names() if n == "gpus-hidden-from-container"]
    machine = fault(hidden).machines[0]
    (fewer,) = [
        f
        for f in judge("gpu.present", compose(machine, hidden).host, Expectations(gpus=2))
        if f.id == "gpu.present/fewer"
    ]
    assert fewer.remedy is not None
    assert fewer.remedy.owner == "setup"
