"""rocm-smi and amd-smi as they behave: missing, hanging, flooding, silent. Stand-ins run for real, in processes."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from amdcheck.facts import smi
from amdcheck.facts.rocm import RocmInstalls, RocmRoot
from amdcheck.facts.smi import SmiRun, SmiTools
from amdcheck.host.live import LiveHost
from amdcheck.host.protocol import CommandResult
from amdcheck.knowledge.smi import table
from amdcheck.model.expectations import Expectations
from amdcheck.model.value import Known, Unknown
from tests.judge import read_fact
from tests.memory_host import memory_host

STANDINS = Path(__file__).parents[1] / "standins" / "smi"
STANDARD = Expectations(level="standard")


def installation(root: Path, version: str = "6.3.3") -> RocmRoot:
    return RocmRoot(
        root=str(root),
        links=(),
        version=Known(version, f"{root}/.info/version"),
        build=None,
        layout="legacy",
        found_by=str(root),
    )


def ask(folder: Path, standin: str) -> tuple[SmiRun, ...]:
    """The runs of a rocm-smi that behaves like the stand-in."""
    (folder / "bin").mkdir()
    (folder / "bin" / "rocm-smi").symlink_to(STANDINS / standin)
    rocm = RocmInstalls(searched=Known((), "/opt"), roots=(installation(folder),), broken=())
    return SmiTools.read(LiveHost(), rocm, STANDARD).tools[0].runs


def reason(run: SmiRun) -> str | None:
    return run.output.reason if isinstance(run.output, Unknown) else None


def test_tool_that_answers_is_believed_whatever_its_exit_code(tmp_path: Path) -> None:
    driver, topology = ask(tmp_path, "answers")
    assert driver.output.or_none() is not None
    assert driver.rc == 2
    assert topology.argv == (f"{tmp_path}/bin/rocm-smi", "--showtopo", "--json")


def test_tool_that_sleeps_is_ended_at_its_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = replace(table(), limits=replace(table().limits, deadline_s=0.5))
    monkeypatch.setattr(smi, "table", lambda: short)
    started = time.monotonic()
    runs = ask(tmp_path, "sleeps")
    assert [reason(run) for run in runs] == ["timeout", "timeout"]
    assert time.monotonic() - started < 5  # both at the same time, and no wait for the child


def test_tool_that_floods_is_cut_and_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    short = replace(table(), limits=replace(table().limits, deadline_s=2.0))
    monkeypatch.setattr(smi, "table", lambda: short)
    assert {reason(run) for run in ask(tmp_path, "floods")} <= {"failed", "timeout"}


def test_output_that_was_cut_is_not_believed_even_when_it_can_be_read() -> None:
    cut = CommandResult(
        argv=("rocm-smi", "--showtopo", "--json"),
        rc=0,
        stdout='{"card0": {"(Topology) Numa Affinity": "0"}}',
        stderr="",
        duration_s=0.1,
        timed_out=False,
        truncated=True,
        stuck=(),
    )
    topology = read_fact(SmiTools, memory_host({}, commands=[cut]), STANDARD).tools[0].runs[1]
    assert reason(topology) == "failed"


def test_tool_that_prints_garbage_is_not_understood(tmp_path: Path) -> None:
    runs = ask(tmp_path, "garbage")
    assert [reason(run) for run in runs] == ["failed", "failed"]
    assert not runs[0].silent


def test_tool_that_leaves_with_0_and_no_word(tmp_path: Path) -> None:
    runs = ask(tmp_path, "silent")
    assert [(reason(run), run.silent, run.rc) for run in runs] == [("failed", True, 0), ("failed", True, 0)]
    assert "Driver not initialized" in runs[0].complaint


def test_tool_that_wants_groups(tmp_path: Path) -> None:
    assert [reason(run) for run in ask(tmp_path, "ungrouped")] == ["denied", "denied"]


def test_tool_that_is_not_executable(tmp_path: Path) -> None:
    assert {reason(run) for run in ask(tmp_path, "not_executable")} == {"denied"}


def test_no_tool_at_all_is_absent() -> None:
    host = memory_host({}, unanswered={"run": {}}, commands=())
    tools = read_fact(SmiTools, host, STANDARD).tools
    assert [tool.name for tool in tools] == ["rocm-smi", "amd-smi"]
    assert all(isinstance(tool.driver, Unknown) for tool in tools)


def test_quick_starts_no_tool(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    marker = tmp_path / "started"
    tool = tmp_path / "bin" / "rocm-smi"
    tool.write_text(f"#!/bin/sh\ntouch {marker}\n")
    tool.chmod(0o755)
    rocm = RocmInstalls(searched=Known((), "/opt"), roots=(installation(tmp_path),), broken=())
    assert SmiTools.read(LiveHost(), rocm, Expectations(level="quick")).tools == ()
    assert not marker.exists()
    SmiTools.read(LiveHost(), rocm, STANDARD)
    assert marker.exists()


def test_the_newest_installation_lends_its_tool() -> None:
    files = {
        "/opt/rocm-6.2.4/.info/version": "6.2.4",
        "/opt/rocm-6.2.4/bin/rocm-smi": "",
        "/opt/rocm-6.4.1/.info/version": "6.4.1",
        "/opt/rocm-6.4.1/bin/rocm-smi": "",
    }
    rocm_smi, amd_smi = read_fact(SmiTools, memory_host(files), STANDARD).tools
    assert rocm_smi.runs[0].argv[0] == "/opt/rocm-6.4.1/bin/rocm-smi"
    assert amd_smi.runs[0].argv[0] == "amd-smi"  # in no installation: as PATH finds it


def test_answers_of_both_questions_are_put_together() -> None:
    def result(*argv: str, stdout: str) -> CommandResult:
        return CommandResult(
            argv=argv, rc=0, stdout=stdout, stderr="", duration_s=0.1, timed_out=False, truncated=False, stuck=()
        )

    host = memory_host(
        {},
        commands=[
            result("amd-smi", "static", "--json", stdout='{"gpu_data": [{"gpu": 0, "bus": {"bdf": "0000:03:00.0"}}]}'),
            result("amd-smi", "version", "--json", stdout='[{"tool": "AMDSMI Tool", "rocm_version": "7.0.2"}]'),
        ],
    )
    tool = read_fact(SmiTools, host, STANDARD).tools[1]
    assert tool.rocm_version == Known("7.0.2", "amd-smi version --json")
    gpus = tool.gpus
    assert isinstance(gpus, Known)
    assert (gpus.source, gpus.value[0].bdf) == ("amd-smi static --json", "0000:03:00.0")
    assert isinstance(tool.driver, Unknown)
    assert tool.driver.reason == "absent"
