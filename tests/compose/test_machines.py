"""The machines as they should be: amdcheck finds nothing to fail, and only the unknowns that are listed beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from amdcheck.engine.run import RunRequest, run
from amdcheck.host.capture_file import encode
from amdcheck.model.finding import Finding
from amdcheck.model.report import Report
from tests.compose import ComposedHost, compose, machine_names


def told(findings: tuple[Finding, ...], status: str) -> set[str]:
    """Findings of one status as the descriptions list them: id and subject."""
    return {
        f"{f.id} host" if f.subject.kind == "host" else f"{f.id} {f.subject.kind} {f.subject.id}"
        for f in findings
        if f.status == status
    }


def report_of_capture(host: ComposedHost, folder: Path) -> Report:
    path = folder / f"{host.name}.amdcheck.json.xz"
    path.write_bytes(encode(host.capture()))
    return run(RunRequest(host=path)).report


@pytest.mark.parametrize("machine", machine_names())
def test_healthy_machine_is_ready(machine: str, tmp_path: Path) -> None:
    host = compose(machine)
    report = report_of_capture(host, tmp_path)
    healthy = host.plan.machine.healthy
    assert told(report.findings, "fail") == set()
    assert told(report.findings, "unknown") == set(healthy.unknown)
    assert told(report.findings, "warn") == set(healthy.warn)
    assert report.summary.verdict == ("ready-with-warnings" if healthy.warn else "ready")
    for finding in report.findings:
        if finding.status == "pass":
            assert any(e.value and e.value.lower() != "ok" for e in finding.evidence), finding.id


@pytest.mark.parametrize(
    ("machine", "gpus", "gfx", "sockets", "cores", "l3_kib"),
    [
        ("mi210-8gpu-2hive-epyc7763x2", 8, "gfx90a", 2, 128, [32768] * 16),
        ("mi300x-8gpu-cpx-epyc9654x2", 8, "gfx942", 2, 192, [32768] * 24),
        ("mi100-4gpu-epyc7452", 4, "gfx908", 1, 32, [16384] * 8),
        ("mi300x-1vf-kvm", 1, "gfx942", 1, 24, [32768]),
        ("epyc7302p-cpu-only", 0, None, 1, 16, [16384] * 8),
    ],
)
def test_report_describes_the_machine_that_was_composed(
    machine: str, gpus: int, gfx: str | None, sockets: int, cores: int, l3_kib: list[int], tmp_path: Path
) -> None:
    host = report_of_capture(compose(machine), tmp_path).host
    assert (host.cpu.sockets, host.cpu.cores, list(host.cpu.l3_kib_per_slice)) == (sockets, cores, l3_kib)
    assert {gpu.gfx for gpu in host.gpus} == ({gfx} if gfx else set())
    assert len(host.gpus) == gpus


@pytest.mark.parametrize("machine", ["mi100-4gpu-epyc7452", "mi300x-1vf-kvm", "epyc7302p-cpu-only"])
def test_tree_of_a_machine_is_judged_like_its_capture(machine: str, tmp_path: Path) -> None:
    """A tree holds no device nodes, programs or self-tests: what rests on them is unknown there, the rest is equal."""
    host = compose(machine)
    (tmp_path / "tree").mkdir()
    host.write_tree(tmp_path / "tree")
    tree = run(RunRequest(host=tmp_path / "tree")).report
    capture = report_of_capture(host, tmp_path)
    assert told(tree.findings, "fail") == set()
    for status in ("pass", "warn", "skip"):
        assert told(tree.findings, status) <= told(capture.findings, status)
    lost = {name.partition("/")[0] for name in told(capture.findings, "pass") - told(tree.findings, "pass")}
    lost = {check for check in lost if not check.startswith("selftest.")}
    assert lost <= {"gpu.device-access", "miopen.user-dirs", "rocm.smi-agreement"}
