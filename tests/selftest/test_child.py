"""The child process as the host starts it: one JSON document, whatever happens to its kernels."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from typing import Any

import pytest

from amdcheck.knowledge.isa import isa_table
from amdcheck.selftest.__main__ import TESTS, main
from tests.selftest.conftest import offered_flags

PR_SET_MDWE = 65
PR_MDWE_REFUSE_EXEC_GAIN = 1
OFFERED = [key for key, row in isa_table().isa.items() if set(row.flags) <= offered_flags()]


def child(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-m", "amdcheck.selftest", *arguments], capture_output=True, text=True, timeout=30
    )


def document(*arguments: str) -> dict[str, Any]:
    done = child(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    result: dict[str, Any] = json.loads(done.stdout)
    assert done.stdout.count("\n") == 1
    return result


def test_kernels_that_die_or_hang_do_not_hide_the_others() -> None:
    said = document("cpu.isa", "sse2", "hook-illegal", "hook-stray", "hook-endless", "avx2", "avx1024")
    assert [(k["name"], k["ended"]) for k in said["kernels"]] == [
        ("sse2", "returned"),
        ("hook-illegal", "SIGILL"),
        ("hook-stray", "SIGSEGV"),
        ("hook-endless", "timeout"),
        ("avx2", "returned"),
        ("avx1024", "not-built"),
    ]
    assert [k["result"]["wrong"] for k in said["kernels"] if k["result"]] == [0, 0]
    assert said["cpuid"]["ended"] == "returned"
    assert said["lacks"] is None


@pytest.mark.parametrize("arguments", [(), ("cpu.nonsense",), ("../cpu_isa",)])
def test_an_unknown_self_test_is_a_usage_error(arguments: tuple[str, ...]) -> None:
    done = child(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert "cpu.isa" in done.stderr


def test_every_named_self_test_answers(capsys: pytest.CaptureFixture[str]) -> None:
    for name in TESTS:
        assert main([name]) == 0
        assert json.loads(capsys.readouterr().out)["test"] == name


@pytest.mark.parametrize("asked", TESTS)
def test_the_child_starts_without_the_libraries_of_the_command_line(asked: str) -> None:
    """msgspec, typer, rich and numpy would each cost more than a kernel takes."""
    runs = (
        "main(['cpu.isa', 'sse2'])"
        if asked == "cpu.isa"
        else f"importlib.import_module('amdcheck.selftest.{TESTS[asked]}')"
    )
    program = (
        f"import importlib, sys; from amdcheck.selftest.__main__ import main; {runs};"
        "slow = {'msgspec', 'typer', 'rich', 'numpy', 'psutil', 'cpuinfo', 'importlib.resources'};"
        "print(sorted(slow & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_all_instruction_sets_of_this_machine_take_less_than_400_ms() -> None:
    """CPU time of the child and its steps, the best of three: what else runs here must not fail the test."""
    spent = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        document("cpu.isa", *OFFERED)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(spent) < 0.400, spent


def test_a_kernel_that_refuses_executable_pages_costs_nothing() -> None:
    """A process that may not gain executable memory, as hardened systems start theirs; refused by the kernel itself."""
    program = (
        "import ctypes, os, sys\n"
        f"if ctypes.CDLL(None).prctl({PR_SET_MDWE}, {PR_MDWE_REFUSE_EXEC_GAIN}, 0, 0, 0): sys.exit(77)\n"
        "os.execv(sys.executable, [sys.executable, '-I', '-m', 'amdcheck.selftest', 'cpu.isa', 'sse2'])\n"
    )
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, timeout=30)
    if done.returncode == 77:
        pytest.skip("Linux before 6.3 cannot refuse executable pages by prctl")
    said = json.loads(done.stdout)
    assert said["cpuid"]["ended"] == "returned"
    assert said["cpuid"]["result"]["leaves"].keys() >= {"0x0.0", "0x1.0", "0x7.0"}
    assert [(k["name"], k["ended"]) for k in said["kernels"]] == [("sse2", "returned")]


def test_an_installation_without_a_compiler_says_so_and_still_reads_cpuid(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("amdcheck.selftest.library.NAME", "libnot_built.so")
    assert main(["cpu.isa", "sse2"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["kernels"] == []
    assert f"without its native kernels for {os.uname().machine}: no C compiler was there" in said["lacks"]
    assert said["cpuid"]["ended"] == "returned"


def test_a_library_that_is_none_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("amdcheck.selftest.library.NAME", "library.py")
    assert main(["cpu.isa", "sse2"]) == 0
    assert "the native kernels do not load" in json.loads(capsys.readouterr().out)["lacks"]
