"""Asking a MIOpen library for its version: libraries that answer, refuse, lack the call, or crash."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from amdcheck.facts.miopen import MiopenInstalls
from amdcheck.host.live import LiveHost
from amdcheck.host.protocol import SelfTest
from amdcheck.model.expectations import Expectations
from amdcheck.model.value import Known, Unknown
from amdcheck.selftest.miopen_version import run
from tests.judge import read_fact

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler here")
SIGNATURE = "int miopenGetVersion(unsigned long *a, unsigned long *b, unsigned long *c)"
ANSWERS = SIGNATURE + " { *a = 3; *b = 3; *c = 0; return 0; }"


def library(folder: Path, code: str) -> Path:
    """A library of this code, under MIOpen's name."""
    source, built = folder / "x.c", folder / "libMIOpen.so.1"
    source.write_text(code)
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(built), str(source)], check=True)
    return built


@needs_compiler
def test_library_answers(tmp_path: Path) -> None:
    said = run((str(library(tmp_path, ANSWERS)),))
    assert (said["ended"], said["result"]) == ("returned", {"version": "3.3.0"})


@needs_compiler
@pytest.mark.parametrize(
    ("code", "ended"),
    [
        (SIGNATURE + " { return 7; }", "failed"),
        ("int nothing;", "failed"),
        (SIGNATURE + " { *(volatile int *)0 = 0; return 0; }", "SIGSEGV"),
        ("#include <stdlib.h>\n__attribute__((constructor)) void now(void) { abort(); }", "SIGABRT"),
    ],
)
def test_library_that_does_not_answer_says_how_it_ended(tmp_path: Path, code: str, ended: str) -> None:
    said = run((str(library(tmp_path, code)),))
    assert (said["ended"], said["result"]) == (ended, None)


@pytest.mark.parametrize("params", [(), ("/nowhere/libMIOpen.so.1",)])
def test_no_library(params: tuple[str, ...]) -> None:
    assert run(params)["ended"] == "failed"


@needs_compiler
def test_version_reaches_the_fact_through_a_child(tmp_path: Path) -> None:
    root = tmp_path / "rocm-6.3.3"
    (root / ".info").mkdir(parents=True)
    (root / ".info" / "version").write_text("6.3.3-74\n")
    (root / "lib").mkdir()
    built = library(root / "lib", ANSWERS)
    expect = Expectations(level="standard", rocm_root=str(root))
    (install,) = read_fact(MiopenInstalls, LiveHost(), expect).installs
    assert install.version == Known("3.3.0", f"miopenGetVersion of {built}")


def test_child_ends_well_even_when_the_library_is_missing() -> None:
    answer = LiveHost().selftest(SelfTest(name="miopen-version", params=("/nowhere",)))
    assert not isinstance(answer, Unknown)
    assert answer.value.result.rc == 0
