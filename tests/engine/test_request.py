"""What a request names must be there before anything is judged by it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from amdcheck.engine.run import RunRequest, read_facts, run
from amdcheck.host.capture_file import encode
from amdcheck.model.errors import InputError
from amdcheck.model.expectations import Level
from tests.compose import compose


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (RunRequest(rocm="/nonexistent"), "--rocm /nonexistent: there is no such folder"),
        (RunRequest(python="/etc"), "--python /etc: not an interpreter"),
        (RunRequest(python="/etc/passwd"), "--python /etc/passwd: not an interpreter"),
        (RunRequest(pid=2**22 + 1), "there is no such process"),
        (RunRequest(pid=os.getpid(), service="x.service"), "--pid and --service name the same thing"),
        (RunRequest(host=Path("")), "--host: give a recording"),
        (RunRequest(select=("gpu.*", "nothing.*")), "'nothing.*' matches no check"),
        (RunRequest(profile="gpu"), "--profile gpu: no such profile"),
    ],
)
def test_an_option_that_names_nothing_gets_one_sentence(request_: RunRequest, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        run(request_)
    assert sentence in str(error.value)


def test_a_run_that_is_over_before_the_host_is_open_is_undetermined(tmp_path: Path) -> None:
    tree = tmp_path / "machine"
    compose("epyc7302p-cpu-only").write_tree(tree)
    report = run(RunRequest(host=tree, level="quick", deadline_s=0.001)).report
    assert report.run.deadline_hit
    assert (report.summary.verdict, report.summary.exit_code) == ("undetermined", 3)
    assert {f.outcome for f in report.findings} == {"timeout"}


def test_a_check_that_is_named_runs_with_its_facts_whatever_the_level(tmp_path: Path) -> None:
    path = tmp_path / "machine.json.xz"
    path.write_bytes(encode(compose("mi210-8gpu-2hive-epyc7763x2").capture()))
    report = run(RunRequest(host=path, level="quick", select=("rocm.smi-agreement",))).report
    assert report.run.level == "standard"
    assert {(f.id, f.subject.id) for f in report.findings} == {
        ("rocm.smi-agreement/ok", "rocm-smi"),
        ("rocm.smi-agreement/ok", "amd-smi"),
    }


@pytest.fixture(scope="module")
def quick_recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A machine recorded at level quick: no tool was asked, no self-test run, no device opened."""
    whole = compose("mi210-8gpu-2hive-epyc7763x2").capture()
    quick = replace(
        whole,
        manifest=replace(whole.manifest, level="quick"),
        commands=(),
        selftests=(),
        devices=tuple(replace(device, open=None) for device in whole.devices),
    )
    path = tmp_path_factory.mktemp("quick") / "machine.json.xz"
    path.write_bytes(encode(quick))
    return path


def test_a_replay_asks_what_was_recorded(quick_recording: Path) -> None:
    report = run(RunRequest(host=quick_recording)).report
    assert (report.run.level, report.summary.verdict) == ("quick", "ready")
    assert "selftest.cpu.isa" in report.run.not_selected
    assert {f.status for f in report.findings} == {"pass"}


def test_a_level_that_is_asked_for_wins_over_the_recorded_one(quick_recording: Path) -> None:
    report = run(RunRequest(host=quick_recording, level="standard")).report
    assert report.run.level == "standard"
    assert "selftest.cpu.isa/not-recorded" in {f.id for f in report.findings}


def test_a_check_that_is_named_runs_in_the_replay_of_a_lower_level(quick_recording: Path) -> None:
    report = run(RunRequest(host=quick_recording, select=("pci.*", "selftest.cpu.isa"))).report
    assert report.run.level == "standard"
    assert {f.check for f in report.findings} == {"pci.link-width", "selftest.cpu.isa"}


@pytest.mark.parametrize(("level", "tools"), [(None, 0), ("standard", 2)])
def test_facts_of_a_recording_are_read_at_its_level(quick_recording: Path, level: Level | None, tools: int) -> None:
    """At level quick no tool is asked; at standard both are, and a quick recording has no answer of theirs."""
    facts = read_facts(RunRequest(host=quick_recording, level=level))
    assert len(facts["SmiTools"]["tools"]) == tools  # type: ignore[index]
