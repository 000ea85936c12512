"""The exit table of the contract, event by event, under each style, as a caller sees it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import ROOT, amdcheck, answered, environment, slow_run

STYLES = ("gate", "nagios", "npd")

# event: (the engine's answer, the words, the codes under gate, nagios, npd)
EVENTS: dict[str, tuple[str, tuple[str, ...], tuple[int, int, int]]] = {
    "ready": ("ready", ("all",), (0, 0, 0)),
    "ready with warnings": ("warnings", ("all",), (0, 1, 0)),
    "ready with warnings, --fail-on warn": ("warnings", ("all", "--fail-on", "warn"), (1, 1, 0)),
    "not ready": ("narrow_links", ("all",), (1, 2, 1)),
    "undetermined": ("no_amd", ("run", "*"), (3, 3, 2)),
    "unknown option": ("ready", ("all", "--nope"), (2, 3, 2)),
    "unknown command": ("ready", ("nope",), (2, 3, 2)),
    "no command": ("ready", (), (2, 3, 2)),
    "bad option value": ("ready", ("all", "--level", "nope"), (2, 3, 2)),
    "bad number": ("ready", ("all", "--expect-gpus", "-1"), (2, 3, 2)),
    "deadline that is none": ("ready", ("all", "--deadline", "nan"), (2, 3, 2)),
    "format that does not exist": ("ready", ("all", "--format", "junit"), (2, 3, 2)),
    "output that is no pair": ("ready", ("all", "--output", "json"), (2, 3, 2)),
    "output of an unknown format": ("ready", ("all", "--output", "junit=x"), (2, 3, 2)),
    "unreadable policy": ("broken_policy", ("all",), (2, 3, 2)),
    "unknown id to explain": ("ready", ("explain", "gpu.nothing-of-this-name"), (2, 3, 2)),
    "report that cannot be written": ("ready", ("all", "--output", "json=/nonexistent/x"), (74, 3, 2)),
    "own bug": ("bug", ("all",), (70, 3, 2)),
    "resource limit": ("limited", ("all",), (3, 3, 2)),
    "no check registered": ("no_checks", ("all",), (70, 3, 2)),
    "another run": ("locked", ("all",), (3, 3, 2)),
}


HAS_A_REPORT = {event for event in EVENTS if event.startswith(("ready", "not ready", "undetermined"))}


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("event", EVENTS)
def test_event_ends_with_the_code_and_the_words_of_the_style(event: str, style: str) -> None:
    answer, words, codes = EVENTS[event]
    result = answered(answer, *words, env={"AMDCHECK_EXIT_STYLE": style})
    assert result.returncode == codes[STYLES.index(style)], result.stderr
    if event in HAS_A_REPORT:
        assert result.stderr == ""
    else:
        assert re.fullmatch(r"amdcheck: [^\n]+\n", result.stderr), result.stderr
    if style == "gate":
        assert bool(result.stdout) == (event in HAS_A_REPORT)
        return
    assert re.fullmatch(r"[^\n]+\n", result.stdout), result.stdout  # such callers read one line, whatever happens
    if style == "nagios":
        assert result.stdout.startswith("AMDCHECK ")
    else:
        assert len(result.stdout.encode()) <= 80


def test_bug_names_itself_and_shows_where_only_when_asked() -> None:
    result = answered("bug", "all")
    assert result.stderr == "amdcheck: bug: KeyError: 'nobody expected this' (AMDCHECK_DEBUG=1 shows where)\n"
    debugged = answered("bug", "all", env={"AMDCHECK_DEBUG": "1"})
    assert debugged.returncode == 70
    assert "Traceback" in debugged.stderr
    assert "_bug" in debugged.stderr


def test_lock_names_who_holds_it() -> None:
    told = "amdcheck.run/already-running: Another run (pid 7) holds /run/amdcheck.lock"
    assert answered("locked", "all").stderr == f"amdcheck: {told}\n"


def test_full_disk_loses_the_report_and_says_so() -> None:
    result = answered("ready", "all", shell="> /dev/full")
    assert result.returncode == 74
    assert result.stderr == "amdcheck: cannot write to standard output: No space left on device\n"


def test_closed_stdout_loses_the_report_and_says_so() -> None:
    result = answered("ready", "all", shell=">&-")
    assert result.returncode == 74
    assert result.stderr == "amdcheck: standard output is closed\n"


def test_everything_closed_still_ends_with_the_code() -> None:
    assert answered("ready", "all", shell="<&- >&- 2>&-").returncode == 74


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_reader_that_leaves_is_no_noise(unbuffered: str) -> None:
    result = answered("huge", "all", "--format", "json", shell="| head -n 1", env={"PYTHONUNBUFFERED": unbuffered})
    assert result.stdout == "{\n"
    assert result.stderr == ""
    assert result.returncode == 74


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_slow_reader_gets_everything(unbuffered: str) -> None:
    result = answered(
        "huge", "all", "--format", "json", shell="| (sleep 0.2; wc -c)", env={"PYTHONUNBUFFERED": unbuffered}
    )
    assert result.returncode == 0
    assert int(result.stdout) > 1_000_000


def test_reader_that_takes_all_it_wants_and_is_content_gets_the_verdict() -> None:
    result = answered("narrow_links", "all", shell="| cat")
    assert result.returncode == 1
    assert result.stderr == ""


def test_help_into_a_full_disk_is_no_traceback() -> None:
    result = amdcheck("--help", shell="> /dev/full")
    assert result.returncode == 74
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize(("number", "gate"), [(signal.SIGHUP, 129), (signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_ends_the_run_and_its_children(number: signal.Signals, gate: int, style: str) -> None:
    process, child = slow_run(style)
    try:
        process.send_signal(number)
        _, stderr = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == {"gate": gate, "nagios": 3, "npd": 2}[style]
    assert stderr == f"amdcheck: ended by {number.name}\n"
    assert not Path(f"/proc/{child}").exists()


def test_signal_that_the_caller_ignores_stays_ignored() -> None:
    """A job that a script starts in the background must not die of the terminal's Ctrl-C."""
    script = "trap '' INT; exec \"$@\""
    process = subprocess.Popen(
        ["bash", "-c", script, "bash", sys.executable, "-m", "tests.cli.driver", "slow", "all"],
        cwd=ROOT,
        env=environment(),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        process.stderr.readline()
        os.kill(process.pid, signal.SIGINT)
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=0.5)
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=20) == 143
    finally:
        process.kill()
        process.communicate()
