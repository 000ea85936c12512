"""What callers get wrong, and what limits and file systems do: one sentence and the contract's code, in time."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.command import ROOT, amdcheck, answered, environment, slow_run
from tests.standins.hungfs import dead_mount

BYTE = "\udcff"  # how Python passes on a byte that is no UTF-8
LARGE = "1" + "0" * 30


@pytest.mark.parametrize(
    "words",
    [
        ("all", "--expect-gpus", LARGE),
        ("all", "--pid", LARGE),
        ("all", "--host", BYTE),
        ("all", "--policy", BYTE),
        ("all", "--rocm", BYTE),
        ("all", "--output", f"json={BYTE}"),
        ("run", BYTE),
        ("explain", BYTE),
        ("all", f"--{BYTE}"),
        (BYTE,),
        ("capture", "-o", BYTE),
        ("capture", "--unpack", BYTE, BYTE),
    ],
)
def test_words_that_mean_nothing_are_a_usage_error(words: tuple[str, ...]) -> None:
    result = answered("ready", *words)
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("amdcheck: ")
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("words", "code", "sentence"),
    [
        (("run", "cpu.vendor", "--policy", "{}"), 2, "policy {}: cannot be read: it is not a file"),
        (("run", "cpu.vendor", "--host", "{}"), 2, "{}: is neither a file nor a folder"),
        (("capture", "-o", "{}"), 2, "{} exists; a recording is not overwritten"),
        (("capture", "--unpack", "{}.folder", "{}"), 2, "{}: cannot be read (it is not a file)"),
    ],
)
def test_a_pipe_is_nothing_to_read(tmp_path: Path, words: tuple[str, ...], code: int, sentence: str) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    result = amdcheck(*(word.format(pipe) for word in words))
    assert result.returncode == code
    assert result.stderr.startswith(f"amdcheck: {sentence.format(pipe)}")
    assert result.stderr.count("\n") == 1


def test_a_pipe_that_nobody_reads_loses_the_report(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    result = answered("ready", "all", "--quiet", "--output", f"json={tmp_path}/pipe")
    assert result.returncode == 74
    assert result.stderr == f"amdcheck: cannot write {tmp_path}/pipe: nobody reads this pipe\n"


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("all", "--output", "json={}/r.json"), 74),
        (("all", "--output", "json={}"), 74),
        (("capture", "-o", "{}/c.amdcheck.json.xz"), 74),
        (("capture", "--unpack", "/nonexistent/folder", "{}/c.amdcheck.json.xz"), 2),
    ],
)
def test_a_dead_mount_keeps_nobody_waiting(words: tuple[str, ...], code: int) -> None:
    with dead_mount() as folder:
        began = time.monotonic()
        result = answered("ready", *(word.format(folder) for word in words))
        took = time.monotonic() - began
    assert result.returncode == code
    assert "it does not answer; it may lie on a dead mount" in result.stderr
    assert took < 20.0


def test_a_lost_file_under_npd_is_told_in_the_one_line() -> None:
    result = answered("narrow_links", "all", "--output", "json=/dev/full", "--exit-style", "npd")
    assert result.returncode == 2
    assert result.stdout == "cannot write /dev/full: No space left on device\n"


def test_a_lost_file_leaves_the_machine_format_alone_on_stdout() -> None:
    result = answered("narrow_links", "all", "--output", "json=/dev/full", "--exit-style", "npd", "--format", "json")
    assert result.returncode == 2
    assert result.stdout.startswith("{\n")
    assert result.stdout.endswith("}\n")


def test_help_into_a_full_disk_says_so() -> None:
    result = amdcheck("--help", shell="> /dev/full")
    assert result.returncode == 74
    assert result.stderr == "amdcheck: cannot write to standard output: No space left on device\n"


def test_messages_never_land_in_a_recording() -> None:
    result = answered("ready", "capture", "-o", "-", shell="2>&-")
    assert (result.returncode, result.stdout) == (0, "recording")


def test_a_reader_whose_pipe_does_not_block_gets_everything() -> None:
    ours, theirs = os.pipe()
    fcntl.fcntl(theirs, fcntl.F_SETFL, os.O_NONBLOCK)
    argv = [sys.executable, "-m", "tests.cli.driver", "huge", "all", "--format", "json"]
    process = subprocess.Popen(argv, cwd=ROOT, env=environment(), stdout=theirs)
    os.close(theirs)
    size = 0
    while piece := os.read(ours, 1 << 16):
        size += len(piece)
        time.sleep(0.001)
    os.close(ours)
    assert process.wait(30) == 0
    assert size > 1_000_000


def test_a_name_that_begins_like_a_command_to_a_log_is_no_line_of_its_own() -> None:
    result = amdcheck("all", "--host", "##[error]::x")
    assert result.returncode == 2
    assert "##[" not in result.stderr
    assert not any(line.startswith("::") for line in result.stderr.splitlines())


@pytest.mark.parametrize(("style", "code"), [("gate", 143), ("nagios", 3), ("npd", 2)])
def test_a_second_signal_changes_nothing(style: str, code: int) -> None:
    process, child = slow_run(style)
    try:
        for _ in range(20):
            process.send_signal(signal.SIGTERM)
            time.sleep(0.002)
        stdout, stderr = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == code
    assert stderr == "amdcheck: ended by SIGTERM\n"
    assert stdout.count("\n") == (0 if style == "gate" else 1)
    assert not Path(f"/proc/{child}").exists()


@pytest.mark.parametrize(("style", "code"), [("gate", 130), ("nagios", 3), ("npd", 2)])
def test_an_interrupt_while_it_starts_has_its_code(style: str, code: int) -> None:
    """The signal comes before anything of the command line is imported."""
    program = (
        "import os, signal, sys\n"
        "import amdcheck.cli\n"
        "real = signal.pthread_sigmask\n"
        "def mask(how, which):\n"
        "    before = real(how, which)\n"
        "    if how == signal.SIG_BLOCK: os.kill(os.getpid(), signal.SIGINT)\n"
        "    return before\n"
        "signal.pthread_sigmask = mask\n"
        "sys.exit(amdcheck.cli.main())\n"
    )
    argv = [sys.executable, "-c", program, "list", "--exit-style", style]
    result = subprocess.run(argv, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == code
    assert result.stderr == "amdcheck: ended by SIGINT\n"


def test_a_resource_limit_is_no_bug() -> None:
    result = answered("limited", "all")
    assert result.returncode == 3
    assert result.stderr.startswith(
        "amdcheck: cannot run within its resource limits: Resource temporarily unavailable ("
    )


@pytest.mark.parametrize(
    ("argv", "python_path"),
    [
        ([sys.executable, "-m", "amdcheck"], ""),
        ([sys.executable, "-m", "amdcheck"], ":/nonexistent"),
        ([str(Path(sys.executable).parent / "amdcheck")], ":/nonexistent"),
    ],
)
def test_no_code_is_taken_from_the_current_folder(tmp_path: Path, argv: list[str], python_path: str) -> None:
    for name in ("signal", "typer", "msgspec", "shlex", "difflib"):
        (tmp_path / f"{name}.py").write_text("import os; os.write(1, b'taken')\n")
    env = environment(PYTHONPATH=python_path)
    result = subprocess.run(
        [*argv, "explain", "nothing"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("amdcheck: 'nothing' is neither a check nor an outcome")


def test_a_folder_that_was_removed_is_no_place_to_fail(tmp_path: Path) -> None:
    argv = ["bash", "-c", 'mkdir gone; cd gone; rmdir ../gone; exec "$@"', "bash", sys.executable, "-m", "amdcheck"]
    result = subprocess.run(
        [*argv, "schema"], cwd=tmp_path, env=environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert (result.returncode, result.stderr) == (0, "")
