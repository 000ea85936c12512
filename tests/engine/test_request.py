"""What a request names must be there before anything is judged by it."""

from __future__ import annotations

import io
import os
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from amdcheck.engine.run import RunRequest, read_facts, run
from amdcheck.host.capture_file import decode, encode
from amdcheck.model.errors import InputError
from amdcheck.model.expectations import Expectations, Level
from tests.compose import compose
from tests.standins.hungfs import dead_mount


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (RunRequest(rocm="/nonexistent"), "--rocm /nonexistent: there is no such folder"),
        (RunRequest(python="/etc"), "--python /etc: not an interpreter"),
        (RunRequest(python="/etc/passwd"), "--python /etc/passwd: not an interpreter"),
        (RunRequest(pid=2**22 + 1), "there is no such process"),
        (RunRequest(pid=os.getpid(), service="x.service"), "--pid and --service name the same thing"),
        (RunRequest(service="a b"), "--service 'a b': not the name of a unit"),
        (RunRequest(service=""), "--service '': not the name of a unit"),
        (RunRequest(service="nothing-of-that-name"), "nothing-of-that-name.service: it neither runs nor has a unit"),
        (RunRequest(host=Path("/nonexistent"), service="../etc"), "--service '../etc': not the name of a unit"),
        (RunRequest(host=Path("")), "--host: give a recording"),
        (RunRequest(select=("gpu.*", "nothing.*")), "'nothing.*' matches no check"),
        (RunRequest(select=("selftest.cpu.*",), level="quick"), "runs at level quick; it takes --level standard"),
        (RunRequest(select=("selftest.cpu.memory-p*",)), "runs at level standard; it takes --level deep"),
        (RunRequest(profile="gpu"), "--profile gpu: no such profile"),
    ],
)
def test_an_option_that_names_nothing_gets_one_sentence(request_: RunRequest, sentence: str) -> None:
    with pytest.raises(InputError) as error:
        run(request_)
    assert sentence in str(error.value)


def test_a_profile_that_does_not_exist_is_blamed_on_the_policy_that_names_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('profile = "foo"')
    with pytest.raises(InputError) as error:
        run(RunRequest(policy=path))
    assert str(error.value).startswith(f"policy {path}: profile foo: no such profile")


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


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("recorded", [False, True])
def test_a_self_test_replays_whichever_cpus_it_might_use_when_it_was_recorded(
    recorded: bool, given: bool, tmp_path: Path
) -> None:
    """What is recorded is what was measured: --allow-busy is for a machine that is at hand."""
    path = tmp_path / "machine.json.xz"
    expect = Expectations(level="standard", allow_busy=recorded)
    whole = compose("epyc9575fx2-cpu", "every-cpu-in-use").capture(expect)
    assert {"allow-busy" in test.params for test in whole.selftests if test.name == "cpu.cores"} == {recorded}
    path.write_bytes(encode(replace(whole, manifest=replace(whole.manifest, level="standard", expectations=expect))))
    result = run(RunRequest(host=path, allow_busy=given, select=("selftest.cpu.*",), capture=True))
    busy = {f.check for f in result.report.findings if f.outcome == "busy"}
    assert {"selftest.cpu.clock", "selftest.cpu.scaling", "selftest.cpu.triad"} <= busy
    assert "unknown" not in {f.status for f in result.report.findings}
    assert result.report.summary.headline.endswith(f"{len(busy)} self-tests not run: CPUs in use")
    assert result.capture is not None
    again = decode(io.BytesIO(result.capture), name="again").manifest
    assert again.expectations is not None
    assert again.expectations.allow_busy == recorded


@pytest.mark.parametrize(("level", "tools"), [(None, 0), ("standard", 2)])
def test_facts_of_a_recording_are_read_at_its_level(quick_recording: Path, level: Level | None, tools: int) -> None:
    """At level quick no tool is asked; at standard both are, and a quick recording has no answer of theirs."""
    facts = read_facts(RunRequest(host=quick_recording, level=level))
    assert len(facts["SmiTools"]["tools"]) == tools  # type: ignore[index]


def recorded(folder: Path, machine: str, fault: str | None = None) -> Path:
    path = folder / "machine.json.xz"
    host = compose(machine, fault) if fault else compose(machine)
    path.write_bytes(encode(host.capture()))
    return path


LOST = ("mi300x-8gpu-spx-epyc9654x2", "gpus-off-the-bus")


@pytest.mark.parametrize(
    "request_",
    [
        RunRequest(select=("cpu.*",)),
        RunRequest(skip=("gpu.present",)),
        RunRequest(skip=("gpu.*",)),
        RunRequest(select=("cpu.vendor",), skip=("*.present",), expect_gpus=8),
    ],
)
def test_gpus_that_are_gone_are_never_ready_whatever_was_asked_for(tmp_path: Path, request_: RunRequest) -> None:
    report = run(replace(request_, host=recorded(tmp_path, *LOST), level="quick")).report
    assert [(f.id, f.subject.id, f.status) for f in report.findings if f.check == "gpu.present"] == [
        ("gpu.present/none", "host", "fail")
    ]
    assert (report.summary.verdict, report.summary.exit_code, report.summary.drain) == ("not-ready", 1, True)
    assert "NOT READY: gpu.present/none: AMD GPUs are expected" in report.summary.headline
    assert "gpu.present" not in report.run.not_selected


def test_fewer_gpus_than_are_expected_are_not_ready_for_a_part_of_the_checks(tmp_path: Path) -> None:
    path = recorded(tmp_path, "epyc7302p-cpu-only")
    report = run(RunRequest(host=path, level="quick", select=("cpu.*",), expect_gpus=8)).report
    assert [(f.id, f.expected) for f in report.findings if f.check == "gpu.present"] == [
        ("gpu.present/none", "8 GPUs (--expect-gpus or policy)")
    ]
    assert report.summary.verdict == "not-ready"


@pytest.mark.parametrize(("expected", "verdict"), [(8, "undetermined"), (None, "ready")])
def test_where_the_bus_cannot_be_read_a_part_is_undetermined_if_a_number_is_expected(
    tmp_path: Path, expected: int | None, verdict: str
) -> None:
    path = recorded(tmp_path, "epyc7302p-cpu-only", "bus-listing-unreadable")
    report = run(RunRequest(host=path, level="quick", select=("cpu.vendor",), expect_gpus=expected)).report
    assert report.summary.verdict == verdict
    assert ("gpu.present/unreadable" in {f.id for f in report.findings}) is (expected is not None)


def test_gpus_that_are_there_are_not_told_where_they_were_not_asked_for(tmp_path: Path) -> None:
    path = recorded(tmp_path, "mi210-8gpu-2hive-epyc7763x2")
    report = run(RunRequest(host=path, level="quick", select=("cpu.vendor",), expect_gpus=8)).report
    assert [f.id for f in report.findings] == ["cpu.vendor/ok"]
    assert "gpu.present" in report.run.not_selected
    assert report.summary.headline == "1 check alone: READY: 1 finding passed"


def test_none_expected_stands_in_the_report_and_makes_a_cpu_host(tmp_path: Path) -> None:
    """The driver is there for nothing, and who says 0 knows it."""
    report = run(RunRequest(host=recorded(tmp_path, *LOST), level="quick", expect_gpus=0)).report
    assert report.policy.expect == {"gpus": "0"}
    assert [(f.id, f.status) for f in report.findings if f.check == "gpu.present"] == [
        ("gpu.present/not-applicable", "skip")
    ]
    assert report.summary.headline.startswith("CPU host, no AMD GPU: ")


def test_gpus_that_are_there_although_none_is_expected_warn(tmp_path: Path) -> None:
    path = recorded(tmp_path, "mi210-8gpu-2hive-epyc7763x2")
    report = run(RunRequest(host=path, level="quick", expect_gpus=0)).report
    (finding,) = (f for f in report.findings if f.check == "gpu.present")
    assert (finding.id, finding.status, finding.expected, finding.actual) == (
        "gpu.present/more",
        "warn",
        "0 GPUs (--expect-gpus or policy)",
        "8",
    )


def test_a_service_that_did_not_run_when_the_machine_was_recorded_leaves_its_user_unknown(tmp_path: Path) -> None:
    """Its cgroup is there and empty, and no unit file says whose folders and rights to judge: none of it fails."""
    host = compose("w7900-2gpu-epyc9354")
    host.tree.files["/sys/fs/cgroup/system.slice/vllm.service/cgroup.procs"] = ""
    path = tmp_path / "machine.json.xz"
    path.write_bytes(encode(host.capture()))
    report = run(RunRequest(host=path, level="quick", service="vllm")).report
    assert [
        (f.id, f.subject.id, f.evidence[-1].source) for f in report.findings if f.status not in ("pass", "skip")
    ] == [
        ("gpu.device-access/absent", "/dev/kfd", "/etc/systemd/system/vllm.service"),
        ("miopen.user-dirs/absent", "host", "/etc/systemd/system/vllm.service"),
    ]
    assert report.summary.verdict == "undetermined"


@pytest.mark.parametrize("option", ["rocm", "python"])
def test_an_option_that_names_a_dead_mount_gets_one_sentence(option: str) -> None:
    with dead_mount() as folder, pytest.raises(InputError) as error:
        run(RunRequest(level="quick", **{option: f"{folder}/x"}))  # type: ignore[arg-type]
    assert str(error.value) == f"--{option} {folder}/x: it does not answer; it may lie on a dead mount"


def test_a_host_on_a_dead_mount_is_given_up_at_the_deadline() -> None:
    with dead_mount() as folder:
        began = time.monotonic()
        report = run(RunRequest(level="quick", host=folder / "tree", deadline_s=1.0)).report
        assert time.monotonic() - began < 5.0
    assert report.run.deadline_hit
    assert report.summary.exit_code == 3
    assert [f.subject.id for f in report.findings if f.id == "amdcheck.host/hang"] != []
