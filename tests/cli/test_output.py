"""What is written where: machine formats alone on stdout, files whole, recordings private and never overwritten."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from tests.cli.command import answered


def test_json_on_stdout_is_alone_there() -> None:
    result = answered("narrow_links", "all", "--format", "json")
    assert json.loads(result.stdout)["summary"]["verdict"] == "not-ready"
    assert result.stderr == ""


def test_json_never_loads_rich() -> None:
    result = answered("narrow_links", "all", "--format", "json", env={"AMDCHECK_TEST_MODULES": "1"})
    assert result.stderr.split() == ["loaded:"]


@pytest.mark.parametrize("words", [("--help",), ("all", "--help"), ("list",), ("schema",), ("explain", "nothing")])
def test_commands_that_draw_nothing_never_load_rich(words: tuple[str, ...]) -> None:
    result = answered("ready", *words, env={"AMDCHECK_TEST_MODULES": "1"})
    assert result.stderr.splitlines()[-1].split() == ["loaded:"]


def test_console_does_load_rich() -> None:
    result = answered("ready", "all", env={"AMDCHECK_TEST_MODULES": "1"})
    assert result.stderr.split() == ["loaded:", "rich"]


def test_a_format_asked_for_by_name_wins_over_the_line_of_the_style() -> None:
    result = answered("narrow_links", "all", "--format", "json", "--exit-style", "nagios")
    assert json.loads(result.stdout)["summary"]["exit_code"] == 2
    assert result.returncode == 2


def test_files_are_written_beside_what_stdout_shows(tmp_path: Path) -> None:
    machine, person = tmp_path / "r.json", tmp_path / "r.txt"
    result = answered("narrow_links", "all", "--output", f"json={machine}", "--output", f"console={person}", "--quiet")
    assert result.stdout.startswith("✗ Not ready: ")
    assert json.loads(machine.read_text())["schema"] == "amdcheck.report/1"
    assert "✗ FAIL pci.link-width/degraded" in person.read_text()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["r.json", "r.txt"]


def test_report_replaces_an_older_one(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    file.write_text("old")
    answered("ready", "all", "--output", f"json={file}")
    assert json.loads(file.read_text())["summary"]["verdict"] == "ready"


def test_file_that_cannot_be_written_is_said_before_the_run(tmp_path: Path) -> None:
    result = answered("bug", "all", "--output", f"json={tmp_path}/no/r.json")
    assert result.returncode == 74
    assert result.stderr == f"amdcheck: cannot write {tmp_path}/no/r.json: there is no folder {tmp_path}/no\n"


def test_folder_is_no_file_to_write(tmp_path: Path) -> None:
    result = answered("ready", "all", "--output", f"json={tmp_path}")
    assert result.returncode == 74
    assert "it is a folder" in result.stderr


def test_full_device_loses_the_file_but_not_the_verdict_on_stdout() -> None:
    result = answered("narrow_links", "all", "--quiet", "--output", "json=/dev/full")
    assert result.returncode == 74
    assert result.stdout.startswith("✗ Not ready: ")
    assert result.stderr == "amdcheck: cannot write /dev/full: No space left on device\n"


def test_quiet_and_verbose_contradict_each_other() -> None:
    assert answered("ready", "all", "--quiet", "--verbose").returncode == 2


def test_locale_of_c_gets_ascii() -> None:
    result = answered("narrow_links", "all", env={"LANG": "C"})
    assert result.stdout.isascii()
    assert "x FAIL pci.link-width/degraded" in result.stdout


def test_recording_is_private_raw_and_says_so(tmp_path: Path) -> None:
    file = tmp_path / "node.amdcheck.json.xz"
    result = answered("narrow_links", "capture", "-o", str(file))
    assert result.returncode == 0
    assert result.stdout == ""
    assert file.read_bytes() == b"recording"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "redacted: false" in result.stderr
    assert f"amdcheck all --host {file}" in result.stderr


def test_recording_is_never_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "node.amdcheck.json.xz"
    file.write_bytes(b"the only trace of a dead node")
    result = answered("ready", "capture", "-o", str(file))
    assert result.returncode == 2
    assert file.read_bytes() == b"the only trace of a dead node"
    assert result.stderr == f"amdcheck: {file} exists; a recording is not overwritten, choose another name\n"


def test_recording_can_be_piped() -> None:
    result = answered("ready", "capture", "-o", "-")
    assert result.stdout == "recording"
    assert "redacted: false" in result.stderr
