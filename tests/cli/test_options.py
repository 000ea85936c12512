"""Words become a request: every option of the contract arrives where it belongs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from typer.exceptions import TyperException

from amdcheck.cli.app import Call, parse
from amdcheck.cli.options import EvidenceOptions, JudgeOptions
from amdcheck.cli.request import evidence_request, judge_request
from amdcheck.engine.exits import ExitStyle
from amdcheck.engine.run import RunRequest
from amdcheck.model.errors import InputError


def call_of(line: str, style: ExitStyle = "gate") -> partial[int]:
    call = parse(line.split(), style)
    assert isinstance(call, partial)
    return call


def request_of(line: str, style: ExitStyle = "gate") -> RunRequest:
    options, select = call_of(line, style).args
    return judge_request(options, select=select)


@pytest.mark.parametrize(
    ("words", "field", "value"),
    [
        ("--level quick", "level", "quick"),
        ("--skip gpu.* --skip cpu.isa", "skip", ("gpu.*", "cpu.isa")),
        ("--host node.amdcheck.json.xz", "host", Path("node.amdcheck.json.xz")),
        ("--policy p.toml", "policy", Path("p.toml")),
        ("--profile production", "profile", "production"),
        ("--expect-gpus 8", "expect_gpus", 8),
        ("--expect-gpus 0", "expect_gpus", 0),
        ("--service vllm.service", "service", "vllm.service"),
        ("--pid 77", "pid", 77),
        ("--python /opt/v/bin/python3", "python", "/opt/v/bin/python3"),
        ("--rocm /opt/rocm-6.4.1", "rocm", "/opt/rocm-6.4.1"),
        ("--fail-on warn", "fail_on", "warn"),
        ("--require-all", "require_all", True),
        ("--allow-busy", "allow_busy", True),
        ("--deadline 2.5", "deadline_s", 2.5),
        ("--exit-style nagios", "exit_style", "nagios"),
    ],
)
def test_option_arrives_in_the_request(words: str, field: str, value: object) -> None:
    request = request_of(f"all {words}")
    assert getattr(request, field) == value
    assert getattr(request_of("all"), field) != value


def test_all_without_options_asks_for_the_defaults_of_the_engine() -> None:
    assert request_of("all") == RunRequest()


def test_the_level_is_left_to_the_engine_unless_it_is_asked_for() -> None:
    assert request_of("all --host node.amdcheck.json.xz").level is None
    assert request_of("all --host node.amdcheck.json.xz --level standard").level == "standard"


def test_run_selects_what_it_is_given() -> None:
    assert request_of("run gpu.* cpu.isa --level quick").select == ("gpu.*", "cpu.isa")


def test_words_behind_the_dashes_are_ids() -> None:
    assert request_of("run -- gpu.*").select == ("gpu.*",)


def test_npd_implies_quick_and_four_seconds() -> None:
    request = request_of("all", style="npd")
    assert (request.level, request.deadline_s, request.exit_style) == ("quick", 4.0, "npd")


def test_npd_gives_way_to_what_is_written() -> None:
    request = request_of("all --level standard --deadline 20", style="npd")
    assert (request.level, request.deadline_s) == ("standard", 20.0)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_deadline_is_a_time_that_can_pass(seconds: float) -> None:
    with pytest.raises(InputError, match=r"^--deadline: "):
        evidence_request(EvidenceOptions(deadline=seconds))


def test_capture_asks_for_a_recording_of_everything() -> None:
    request = evidence_request(EvidenceOptions(), capture=True)
    assert request.capture
    assert request.select == ("*",)


@pytest.mark.parametrize(
    "line", ["capture", "capture -o a --unpack b c", "capture --unpack b", "capture c", "capture -o a c"]
)
def test_capture_either_records_or_unpacks(line: str) -> None:
    with pytest.raises(TyperException, match="either -o FILE"):
        parse(line.split(), "gate")


def test_records_have_the_options_that_the_help_shows(capsys: pytest.CaptureFixture[str]) -> None:
    outcome: Call | int = parse(["all", "--help"], "gate")
    assert outcome == 0
    shown = capsys.readouterr().out
    missing = [name for name in _option_names(JudgeOptions) if f" {name} " not in shown.replace("\n", " ")]
    assert missing == []


def _option_names(record: Any) -> list[str]:
    return ["--" + name.replace("_", "-") for name in record.__dataclass_fields__]
