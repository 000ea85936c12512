"""The command line over the real engine, on the machine that runs the tests."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import jsonschema
import pytest

from amdcheck.engine.lock import only_run
from tests.cli.command import ROOT, amdcheck, environment
from tests.schemas import schema

# One run at a time holds the lock of the machine.
pytestmark = [pytest.mark.live, pytest.mark.usefixtures("alone")]

VERDICTS = (0, 1, 3)


def test_live_json_satisfies_the_schema_and_is_alone() -> None:
    result = amdcheck("all", "--level", "quick", "--format", "json")
    report = json.loads(result.stdout)
    jsonschema.Draft202012Validator(schema("report")).validate(report)
    assert result.returncode == report["summary"]["exit_code"]
    assert result.returncode in VERDICTS
    assert result.stderr == ""


def test_live_json_never_loads_rich() -> None:
    program = "import sys; from amdcheck.cli import main; main(); sys.exit('rich' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", program, "all", "--level", "quick", "--format", "json"],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 0


def test_live_report_for_people_ends_with_its_headline() -> None:
    result = amdcheck("all", "--level", "quick")
    headline = amdcheck("all", "--level", "quick", "--quiet").stdout
    assert result.stdout.endswith(headline)
    assert result.stdout.count(headline) == 1


def test_recording_made_here_gives_the_same_verdict_and_unpacks(tmp_path: Path) -> None:
    file, folder = tmp_path / "here.amdcheck.json.xz", tmp_path / "tree"
    assert amdcheck("capture", "--level", "quick", "-o", str(file)).returncode == 0
    live, replay = (
        json.loads(amdcheck("all", "--level", "quick", "--format", "json", *words).stdout)
        for words in ((), ("--host", str(file)))
    )
    assert replay["run"]["source"] == "capture"
    assert [(f["id"], f["subject"], f["status"]) for f in replay["findings"]] == [
        (f["id"], f["subject"], f["status"]) for f in live["findings"]
    ]
    assert replay["summary"] == live["summary"]
    assert amdcheck("capture", "--unpack", str(folder), str(file)).returncode == 0
    assert (folder / "proc/cpuinfo").read_text() == Path("/proc/cpuinfo").read_text()


def test_recording_holds_what_its_schema_says(tmp_path: Path) -> None:
    import lzma

    file = tmp_path / "here.amdcheck.json.xz"
    amdcheck("capture", "--level", "quick", "-o", str(file))
    document = json.loads(lzma.decompress(file.read_bytes()))
    jsonschema.Draft202012Validator(schema("capture")).validate(document)
    assert document["manifest"]["redacted"] is False


@pytest.mark.parametrize(("words", "reason"), [(("--host", "{}/none"), "none"), (("--host", "{}/broken"), "broken")])
def test_host_that_is_missing_or_broken_is_one_sentence(tmp_path: Path, words: tuple[str, ...], reason: str) -> None:
    (tmp_path / "broken").write_bytes(b"\xfd7zXZ\x00 nothing behind it")
    result = amdcheck("all", *(word.format(tmp_path) for word in words))
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith(f"amdcheck: {tmp_path}/{reason}: ")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("glob", ["gpu.nothing", "nothing.*"])
def test_glob_that_matches_nothing_is_a_usage_error(glob: str) -> None:
    result = amdcheck("run", glob)
    assert result.returncode == 2
    assert glob in result.stderr


@pytest.mark.parametrize("command", ["all", "list"])
def test_installation_without_checks_is_a_bug_never_ready(command: str) -> None:
    program = "import sys; sys.modules['amdcheck.checks'] = None; from amdcheck.cli import main; sys.exit(main())"
    result = subprocess.run(
        [sys.executable, "-c", program, command],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 70
    assert result.stdout == ""
    assert "no built-in check is registered: this installation of amdcheck is broken" in result.stderr


def test_second_run_is_refused_and_names_the_first() -> None:
    with only_run(60):
        result = amdcheck("all", "--level", "quick")
    assert result.returncode == 3
    assert f"pid {os.getpid()}" in result.stderr


def test_second_run_gives_its_report_to_whoever_collects_them(tmp_path: Path) -> None:
    with only_run(60):
        result = amdcheck("all", "--level", "quick", "--format", "json", "--output", f"json={tmp_path}/r.json")
    report = json.loads(result.stdout)
    jsonschema.Draft202012Validator(schema("report")).validate(report)
    assert (result.returncode, report["summary"]["exit_code"], report["summary"]["verdict"]) == (3, 3, "undetermined")
    assert [(f["id"], f["status"]) for f in report["findings"]] == [("amdcheck.run/already-running", "unknown")]
    assert (tmp_path / "r.json").read_text() == result.stdout
    assert f"pid {os.getpid()}" in result.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_run_leaves_no_process_and_no_lock(tmp_path: Path, number: signal.Signals, code: int) -> None:
    sleeper = tmp_path / "python3"
    seconds = f"61.{os.getpid()}"  # tells our sleep from any other
    sleeper.write_text(f"#!/bin/sh\nsleep {seconds}\n")
    sleeper.chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, "-m", "amdcheck", "run", "selftest.cpu.alignment", "--python", str(sleeper)],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        deadline = time.monotonic() + 20
        while not processes_with(seconds):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, "the self-test's child did not start"
            time.sleep(0.05)
        process.send_signal(number)
        _, stderr = process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == code
    assert stderr == f"amdcheck: ended by {number.name}\n"
    assert processes_with(seconds) == []
    assert amdcheck("run", "cpu.vendor").returncode in VERDICTS  # the lock is free


def processes_with(word: str) -> list[int]:
    """Processes whose command line holds the word: found without anything of amdcheck."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                command = (folder / "cmdline").read_bytes()
            except OSError:
                continue
            if word.encode() in command:
                found.append(int(folder.name))
    return found


# ---- What a caller may hand on ----


def test_children_whose_ends_the_caller_ignores_are_waited_for() -> None:
    program = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'amdcheck', 'run', 'selftest.cpu.isa', '--format', 'json'])\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=60
    )
    (found,) = [f for f in json.loads(result.stdout)["findings"] if f["subject"]["id"] in ("sse2", "host")][:1]
    assert found["status"] in ("pass", "skip"), found


def test_more_descriptors_than_select_takes_are_no_bug() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 1300:
        pytest.skip("no more than 1300 descriptors may be open here")
    program = (
        "import os, resource, sys\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({min(hard, 4096)}, {hard}))\n"
        "for _ in range(1100): os.set_inheritable(os.open('/dev/null', os.O_RDONLY), True)\n"
        "os.execv(sys.executable, [sys.executable, '-m', 'amdcheck', *sys.argv[1:]])\n"
    )
    for words in (("all", "--level", "quick"), ("run", "selftest.cpu.isa")):
        result = subprocess.run(
            [sys.executable, "-c", program, *words],
            cwd=ROOT,
            env=environment(),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert result.returncode in VERDICTS, result.stderr


def test_what_the_caller_left_in_the_background_is_not_ours_to_end() -> None:
    """By `exec` a shell's job becomes our child, and what the job leaves behind would come to us."""
    seconds = f"47.{os.getpid()}"
    shell = f'(sleep 1.2; setsid sleep {seconds} & ) & exec "$@"'
    words = ["run", "selftest.cpu.*"]
    command = ["sh", "-c", shell, "sh", sys.executable, "-m", "amdcheck", *words]
    subprocess.run(command, cwd=ROOT, env=environment(), stdout=subprocess.DEVNULL, timeout=60)
    time.sleep(0.5)
    left = processes_with(seconds)
    for pid in left:
        os.kill(pid, signal.SIGTERM)
    assert len(left) == 1


@pytest.mark.skipif(
    os.geteuid() != 0 or os.uname().machine != "x86_64",
    reason="only root is told that more rights do not help, and the number of the call is that of x86-64",
)
def test_a_self_test_that_a_filter_of_system_calls_refuses_is_denied_and_says_what_to_look_for() -> None:
    """As under SystemCallFilter=~@resources, which takes sched_setaffinity away."""
    program = (
        "import ctypes, struct, sys\n"
        "rows = ((0x20, 0, 0, 0), (0x15, 0, 1, 203), (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7fff0000))\n"
        "filters = b''.join(struct.pack('HBBI', *row) for row in rows)\n"
        "held = ctypes.create_string_buffer(filters)\n"
        "fprog = ctypes.create_string_buffer(struct.pack('HxxxxxxQ', len(rows), ctypes.addressof(held)))\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, fprog, 0, 0) == 0, ctypes.get_errno()\n"
        "sys.argv[0] = 'amdcheck'\n"
        "from amdcheck.cli import main; sys.exit(main())\n"
    )
    words = ["run", "selftest.cpu.gemm-fp32", "--allow-busy", "--format", "json"]
    result = subprocess.run(
        [sys.executable, "-c", program, *words], cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=60
    )
    found = [f for f in json.loads(result.stdout)["findings"] if f["status"] != "skip"]
    assert {f["id"] for f in found} == {"selftest.cpu.gemm-fp32/denied"}, result.stdout
    assert all("SystemCallFilter" in f["remedy"]["steps"][0]["text"] for f in found)
