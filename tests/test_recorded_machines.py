"""Whole runs over recorded machines that were not made here: none crashes, none is judged for what it has not."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from amdcheck.engine.run import RunRequest, run
from amdcheck.model.finding import Finding
from amdcheck.model.report import Report
from tests.corpus import CORPUS, needs_corpus

pytestmark = needs_corpus


def trees(folder: str) -> list[Path]:
    return sorted((CORPUS / folder).glob("*.tar.xz")) if CORPUS.is_dir() else []


def names(paths: list[Path]) -> list[str]:
    return [path.name.partition(".")[0] for path in paths]


@cache
def report_of(path: Path) -> Report:
    return run(RunRequest(host=path, level="quick")).report


def by_check(report: Report, check: str) -> list[Finding]:
    return [finding for finding in report.findings if finding.check == check]


ALL = [*trees("fsroot"), *trees("fsroot-controls"), *trees("kfd")]


@pytest.mark.parametrize("path", ALL, ids=names(ALL))
def test_no_check_breaks_and_no_pass_is_vacuous(path: Path) -> None:
    report = report_of(path)
    broken = [f"{f.id}: {f.message}" for f in report.findings if f.outcome in ("crashed", "no-finding", "timeout")]
    assert broken == []
    assert all(any(e.value for e in f.evidence) for f in report.findings if f.status == "pass")


@pytest.mark.parametrize("path", ALL, ids=names(ALL))
def test_a_partial_tree_gives_no_false_fail(path: Path) -> None:
    """Their trees show no fault, but for the missing partition and the copied node of two KFD trees."""
    fails = {f.id for f in report_of(path).findings if f.status == "fail"}
    assert fails == FAILS.get(path.name.partition(".")[0], set())


# What is really wrong with the machines, by their index: a partition is missing; one node is a copy of another.
FAILS: dict[str, set[str]] = {
    "mi300x-8gpu-cpx-63of64-epyc96x2": {"gpu.topology/partition-missing"},
    "vega10-1gpu-copied-as-2": {"gpu.topology/inconsistent"},
}

CONTROLS = trees("fsroot-controls")


@pytest.mark.parametrize("path", CONTROLS, ids=names(CONTROLS))
def test_a_machine_without_amd_silicon_gets_no_amd_verdict(path: Path) -> None:
    report = report_of(path)
    assert report.host.gpus == ()
    assert report.summary.verdict == "undetermined"
    assert not [
        f.id
        for f in report.findings
        if f.check.startswith(("gpu.", "pci.", "rocm.", "miopen.")) and f.status in ("pass", "warn", "fail")
    ]
    assert by_check(report, "cpu.vendor")[0].status == "skip" or by_check(report, "cpu.vendor")[0].status == "unknown"


def test_mi210_tree_counts_eight_devices_in_two_hives() -> None:
    report = report_of(CORPUS / "kfd" / "mi210-8gpu-2hive-epyc64x2.tar.xz")
    (present,) = by_check(report, "gpu.present")
    assert present.id == "gpu.present/ok"
    assert len(report.host.gpus) == 8
    assert {gpu.gfx for gpu in report.host.gpus} == {"gfx90a"}


def test_mi300x_tree_counts_devices_not_partitions() -> None:
    report = report_of(CORPUS / "kfd" / "mi300x-8gpu-cpx-63of64-epyc96x2.tar.xz")
    assert len(report.host.gpus) == 8
    assert sorted(len(gpu.partitions) for gpu in report.host.gpus) == [7, 8, 8, 8, 8, 8, 8, 8]
    missing = [f for f in by_check(report, "gpu.topology") if f.status in ("warn", "fail")]
    assert ["0000:e5:00.0" in f.subject.id for f in missing] == [True]


def test_a_copied_node_is_no_second_gpu() -> None:
    report = report_of(CORPUS / "kfd" / "vega10-1gpu-copied-as-2.tar.xz")
    (gpu,) = report.host.gpus
    assert [part.kfd_node for part in gpu.partitions] == [1]
    inconsistent = [f for f in report.findings if f.id == "gpu.topology/inconsistent"]
    assert [(f.subject.kind, f.subject.id, f.status) for f in inconsistent] == [("link", "node2", "fail")]
    assert inconsistent[0].evidence[0].value == "node 2 repeats gpu_id 13261 of node 1"
