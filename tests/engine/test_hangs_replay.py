"""A run in which something blocked, did not end or was cut, and the replay of its recording: both say the same."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from amdcheck.engine.page import Page
from amdcheck.engine.run import RunRequest, run
from amdcheck.host.capture import Capture, Hang, Unfinished
from amdcheck.host.capture_file import encode
from amdcheck.host.open import open_host
from amdcheck.host.processes import Stuck
from amdcheck.host.protocol import Command, SelfTest
from amdcheck.host.snapshot import SnapshotHost
from amdcheck.model.finding import Finding
from amdcheck.model.report import Report
from tests.compose import compose

MACHINE = "mi210-8gpu-2hive-epyc7763x2"  # ready, as composed
GPU = "/sys/bus/pci/devices/0000:03:00.0"
ATTRIBUTE = f"{GPU}/mem_info_vram_total"
TOPOLOGY = "/opt/rocm-6.3.3/bin/rocm-smi --showtopo --json"
ALIGNMENT = "cpu.alignment 32"
DEADLINE_S = 0.5  # of what blocks here; everything else keeps its own

Outcomes = set[tuple[str, str, str, str]]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("machine") / "healthy.amdcheck.json.xz"
    path.write_bytes(encode(compose(MACHINE).capture()))
    assert run(RunRequest(host=path)).report.summary.verdict == "ready"
    return path


class Sick:
    """Lets questions to the host block, in the workers of runs that are started until `cured`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._patches = monkeypatch
        begin = Page.begin
        self._short: list[str] = []

        def begin_short(page: Page, what: str, seconds: float) -> None:
            begin(page, what, DEADLINE_S if any(word in what for word in self._short) else seconds)

        monkeypatch.setattr(Page, "begin", begin_short)

    def blocks(self, question: str, is_sick: Callable[[Any], bool], *announced: str) -> None:
        """The host's method `question` never answers where `is_sick` says so of its argument."""
        self._short += announced
        answer = getattr(SnapshotHost, question)

        def ask(host: SnapshotHost, about: object, **options: object) -> object:
            return endless() if is_sick(about) else answer(host, about, **options)

        self._patches.setattr(SnapshotHost, question, ask)

    def spins(self, code: str, announced: str) -> None:
        """The function at `code` never ends."""
        self._short.append(announced)
        self._patches.setattr(code, endless)

    def cured(self) -> None:
        self._patches.undo()


@pytest.fixture
def sick(monkeypatch: pytest.MonkeyPatch) -> Sick:
    return Sick(monkeypatch)


def endless(*_: object, **__: object) -> Any:
    time.sleep(600)


def recorded_and_replayed(
    machine: Path, sick: Sick, tmp_path: Path, *, deadline_s: float = 60.0
) -> tuple[Report, Report, Capture]:
    """The report of the run in which something is sick, of its replay where nothing is, and what was recorded."""
    first = run(RunRequest(host=machine, capture=True, deadline_s=deadline_s))
    assert first.capture is not None
    path = tmp_path / "sick.amdcheck.json.xz"
    path.write_bytes(first.capture)
    sick.cured()
    host = open_host(path)
    assert isinstance(host, SnapshotHost)
    return first.report, run(RunRequest(host=path)).report, host.capture


def said(report: Report) -> Outcomes:
    return {(f.id, f.subject.kind, f.subject.id, f.status) for f in report.findings}


def assert_same(first: Report, replay: Report) -> None:
    assert said(first) == said(replay)
    assert len(first.findings) == len(replay.findings)
    assert (first.summary.verdict, first.summary.exit_code) == (replay.summary.verdict, replay.summary.exit_code)


def hangs(report: Report) -> list[Finding]:
    return [f for f in report.findings if f.outcome == "hang"]


def test_a_gpu_attribute_that_blocks(machine: Path, sick: Sick, tmp_path: Path) -> None:
    sick.blocks("read_bytes", lambda path: path == ATTRIBUTE, ATTRIBUTE)
    first, replay, capture = recorded_and_replayed(machine, sick, tmp_path)
    assert capture.outcomes[ATTRIBUTE] == "timeout"
    assert capture.unfinished == Unfinished(hangs=[Hang(what=ATTRIBUTE, stuck=())])
    assert_same(first, replay)
    for report in (first, replay):
        (hang,) = hangs(report)
        assert (hang.id, hang.status) == ("amdcheck.host/hang", "unknown")
        assert (hang.subject.kind, hang.subject.id) == ("path", ATTRIBUTE)
        assert hang.evidence[0].value == "blocked past its deadline; the process could be ended"
        assert report.summary.verdict == "undetermined"
        assert report.summary.reason.startswith(f"amdcheck: undetermined: amdcheck.host/hang on {ATTRIBUTE}: ")


def test_a_folder_whose_listing_blocks(machine: Path, sick: Sick, tmp_path: Path) -> None:
    folder = "/sys/class/kfd/kfd/topology/nodes"
    sick.blocks("entries", lambda path: path == folder, folder)
    first, replay, capture = recorded_and_replayed(machine, sick, tmp_path)
    assert capture.outcomes[folder] == "timeout"
    assert_same(first, replay)
    assert [f.subject.id for f in hangs(replay)] == [folder]


def test_a_gpu_whose_whole_folder_is_given_up(machine: Path, sick: Sick, tmp_path: Path) -> None:
    answers = {f"{GPU}/{name}" for name in ("class", "vendor", "device")}
    sick.blocks("read_bytes", lambda path: path.startswith(f"{GPU}/") and path not in answers, f"{GPU}/")
    first, replay, capture = recorded_and_replayed(machine, sick, tmp_path)
    assert capture.outcomes[GPU] == "timeout"
    assert len(capture.unfinished.hangs) == 4
    assert_same(first, replay)
    assert {f.subject.id for f in hangs(replay)} == {hang.what for hang in capture.unfinished.hangs}


def test_a_tool_that_cannot_be_ended_at_its_deadline(machine: Path, sick: Sick, tmp_path: Path) -> None:
    """It takes its worker along: the check that asked is advisory, and still nothing is ready."""

    def is_rocm_smi(commands: Sequence[Command]) -> bool:
        return any(command.argv[0].endswith("rocm-smi") for command in commands)

    sick.blocks("run", is_rocm_smi, "rocm-smi")
    first, replay, capture = recorded_and_replayed(machine, sick, tmp_path)
    assert capture.unanswered["run"][TOPOLOGY] == "timeout"
    assert_same(first, replay)
    (hang,) = hangs(replay)
    assert hang.subject.kind == "process"
    assert TOPOLOGY in hang.subject.id
    assert replay.summary.verdict == "undetermined"


def test_a_self_test_that_cannot_be_ended_at_its_deadline(machine: Path, sick: Sick, tmp_path: Path) -> None:
    def is_alignment(test: SelfTest) -> bool:
        return test.name == "cpu.alignment"

    sick.blocks("selftest", is_alignment, ALIGNMENT)
    first, replay, capture = recorded_and_replayed(machine, sick, tmp_path)
    assert capture.unanswered["selftest"] == {ALIGNMENT: "timeout"}
    assert_same(first, replay)
    assert [(f.subject.kind, f.subject.id) for f in hangs(replay)] == [("process", f"selftest {ALIGNMENT}")]
    assert replay.summary.verdict == "undetermined"


def test_a_fact_whose_code_does_not_end(machine: Path, sick: Sick, tmp_path: Path) -> None:
    """What it had read is lost with its worker, so the replay must not judge by the rest."""
    sick.spins("amdcheck.facts.numa.Numa.read", "fact Numa")
    first, replay, capture = recorded_and_replayed(machine, sick, tmp_path)
    assert capture.unfinished == Unfinished(broken={"Numa": "timeout: our code for it did not end"})
    assert_same(first, replay)
    assert ("numa.layout/timeout", "host", "host", "unknown") in said(replay)
    assert hangs(replay) == []


def test_a_check_that_is_slow_is_judged_again(machine: Path, sick: Sick, tmp_path: Path) -> None:
    """A check is a function of its facts, and those are recorded: a replay has time to hear it out."""
    sick.spins("amdcheck.checks.cpu.vendor.passed", "check cpu.vendor")
    first, replay, _ = recorded_and_replayed(machine, sick, tmp_path)
    assert [f.id for f in first.findings if f.check == "cpu.vendor"] == ["cpu.vendor/timeout"]
    assert [f.id for f in replay.findings if f.check == "cpu.vendor"] == ["cpu.vendor/ok"]


def test_a_run_that_its_deadline_cuts_while_something_blocks(machine: Path, sick: Sick, tmp_path: Path) -> None:
    """What was not run then is not run on replay: half of its evidence is missing."""
    sick.blocks("read_bytes", lambda path: path == "/proc/cpuinfo")  # within the two seconds that it has
    first, replay, capture = recorded_and_replayed(machine, sick, tmp_path, deadline_s=1.0)
    assert first.run.deadline_hit
    assert set(capture.unfinished.not_run.values()) == {"the run's deadline of 1 s passed first"}
    assert_same(first, replay)
    assert ("numa.layout/timeout", "host", "host", "unknown") in said(replay)


def test_the_recording_of_a_replay_says_the_same_again(machine: Path, sick: Sick, tmp_path: Path) -> None:
    sick.spins("amdcheck.facts.numa.Numa.read", "fact Numa")
    sick.blocks("read_bytes", lambda path: path == ATTRIBUTE, ATTRIBUTE)
    first, replay, capture = recorded_and_replayed(machine, sick, tmp_path)
    again, last, copy = recorded_and_replayed(tmp_path / "sick.amdcheck.json.xz", sick, tmp_path)
    assert copy.unfinished == capture.unfinished
    for report in (replay, again, last):
        assert_same(first, report)


def test_processes_that_could_not_be_ended_are_named_on_replay(machine: Path, tmp_path: Path) -> None:
    host = open_host(machine)
    assert isinstance(host, SnapshotHost)
    stuck = (Stuck(4711, "D", "amdgpu_dm_irq"),)
    hung = [Hang(what=ATTRIBUTE, stuck=stuck), Hang(what="", stuck=stuck)]
    unfinished = Unfinished(hangs=hung, broken={"FactOfLaterYears": "timeout"}, not_run={"gpu.later": "late"})
    path = tmp_path / "stuck.amdcheck.json.xz"
    path.write_bytes(encode(replace(host.capture, unfinished=unfinished)))
    report = run(RunRequest(host=path, select=("numa.layout",))).report
    named = hangs(report)
    assert [(f.subject.kind, f.subject.id) for f in named] == [("path", ATTRIBUTE), ("host", "host")]
    for hang in named:
        (seen,) = hang.evidence
        assert (seen.source, seen.value) == ("/proc/4711/wchan", "pid 4711 state D sleeps in amdgpu_dm_irq")
        assert seen.volatile
    assert report.summary.verdict == "undetermined"
