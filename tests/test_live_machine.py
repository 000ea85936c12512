"""`amdcheck` on the machine that runs the tests, whatever it is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from amdcheck.engine.run import RunRequest, run
from amdcheck.model.finding import Finding
from amdcheck.model.report import Report

# One run at a time holds the lock of the machine.
pytestmark = [pytest.mark.live, pytest.mark.usefixtures("alone")]


def amd_silicon() -> bool:
    """Told apart without our own code."""
    with open("/proc/cpuinfo") as file:
        if "AuthenticAMD" in file.read():
            return True
    devices = Path("/sys/bus/pci/devices")
    return any(
        (d / "vendor").read_text().strip() == "0x1002" and (d / "class").read_text()[2:4] in ("03", "12")
        for d in (devices.iterdir() if devices.is_dir() else ())
    )


no_amd = pytest.mark.skipif(amd_silicon(), reason="this machine has AMD silicon")


def amdcheck(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(sys.executable).parent / "amdcheck"), *arguments],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
        env={**os.environ, **environment},
    )


# These run whatever else does. The others need CPUs that are idle, and tell what a neighbour does to them: between two
# runs that changes here, so that their findings, and the numbers of findings, are left out.
STEADY = ("selftest.cpu.isa", "selftest.cpu.alignment")


def without_volatile(report: Report) -> dict[str, object]:
    """What two runs on an unchanged host have in common, by the contract."""
    steady = [f for f in report.findings if not f.check.startswith("selftest.") or f.check in STEADY]
    data: dict[str, object] = json.loads(msgspec.json.encode(msgspec.structs.replace(report, findings=tuple(steady))))
    del data["run"]
    del data["summary"]["counts"]  # type: ignore[attr-defined]
    data["summary"]["headline"] = report.summary.headline.partition(";")[0]  # type: ignore[index]
    data["host"]["uptime_s"] = None  # type: ignore[index]
    data["policy"]["date"] = None  # type: ignore[index]
    for finding in data["findings"]:  # type: ignore[attr-defined]
        finding["duration_ms"] = None
        finding["evidence"] = [e for e in finding["evidence"] if not e["volatile"]]
        finding["metrics"] = [m for m in finding["metrics"] if not m["volatile"]]
    return data


def test_two_runs_are_equal_but_for_what_is_marked_volatile() -> None:
    first, second = (run(RunRequest(level="standard")).report for _ in range(2))
    assert without_volatile(first) == without_volatile(second)


def test_a_capture_replays_to_the_same_findings(tmp_path: Path) -> None:
    live = run(RunRequest(level="standard", capture=True))
    path = tmp_path / "here.amdcheck.json.xz"
    assert live.capture is not None
    path.write_bytes(live.capture)
    replay = run(RunRequest(level="standard", host=path)).report
    assert replay.run.source == "capture"
    assert [said(f) for f in replay.findings] == [said(f) for f in live.report.findings]
    summary = live.report.summary  # what an option would change is told of a live machine alone
    assert replay.summary == replace(summary, headline=summary.headline.replace(" (--allow-busy)", ""))


def said(finding: Finding) -> tuple[object, ...]:
    """Everything a finding says, but how long it took to say it; a raw capture holds the very values."""
    return (
        finding.id,
        finding.subject,
        finding.status,
        finding.message,
        finding.expected,
        finding.actual,
        finding.evidence,
        finding.remedy,
        finding.metrics,
    )


@no_amd
def test_a_machine_without_amd_silicon_is_undetermined() -> None:
    done = amdcheck("all", "--format", "json")
    report = json.loads(done.stdout)
    assert done.returncode == 3
    assert report["summary"]["verdict"] == "undetermined"
    assert report["summary"]["exit_code"] == 3


@no_amd
@pytest.mark.parametrize(("style", "code"), [("gate", 1), ("nagios", 2), ("npd", 1)])
def test_gpus_that_are_expected_and_gone_fail(style: str, code: int) -> None:
    done = amdcheck("all", "--level", "quick", "--expect-gpus", "8", "--exit-style", style, "--format", "json")
    assert done.returncode == code


@no_amd
def test_the_finding_names_what_is_gone() -> None:
    report = json.loads(amdcheck("all", "--level", "quick", "--expect-gpus", "8", "--format", "json").stdout)
    (present,) = [f for f in report["findings"] if f["check"] == "gpu.present"]
    assert (present["id"], present["status"]) == ("gpu.present/none", "fail")


def test_json_is_alone_on_stdout() -> None:
    done = amdcheck("all", "--level", "quick", "--format", "json")
    assert json.loads(done.stdout)["schema"] == "amdcheck.report/1"
