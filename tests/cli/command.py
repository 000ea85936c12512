"""Runs the command line as a child: the real one, or the real one over an engine that answers as told."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[2]
Result = subprocess.CompletedProcess[str]

# What would change the outcome of a test when the developer's shell has it.
_TAKEN_OUT = ("AMDCHECK_EXIT_STYLE", "AMDCHECK_DEBUG", "NO_COLOR", "COLUMNS", "LC_ALL", "LC_CTYPE", "LANG", "TERM")


def environment(**variables: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in _TAKEN_OUT}
    return {**kept, "LANG": "C.UTF-8", **variables}


def answered(answer: str, *words: str, env: Mapping[str, str] | None = None, shell: str | None = None) -> Result:
    """`amdcheck WORDS` over the driver's engine; `shell` is appended to the command line, for redirections."""
    return _run([sys.executable, "-m", "tests.cli.driver", answer, *words], env, shell)


def amdcheck(*words: str, env: Mapping[str, str] | None = None, shell: str | None = None) -> Result:
    """`amdcheck WORDS`."""
    return _run([sys.executable, "-m", "amdcheck", *words], env, shell)


def slow_run(style: str) -> tuple[subprocess.Popen[str], int]:
    """`amdcheck all` under an exit style, amid a run of a minute, and the pid of the run's child."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.cli.driver", "slow", "all", "--exit-style", style],
        cwd=ROOT,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    return process, int(process.stderr.readline().removeprefix("child "))


def _run(argv: list[str], env: Mapping[str, str] | None, shell: str | None) -> Result:
    if shell is not None:
        argv = ["bash", "-c", f'set -o pipefail; "$@" {shell}', "bash", *argv]
    return subprocess.run(
        argv, cwd=ROOT, env=environment(**(env or {})), capture_output=True, text=True, timeout=60, check=False
    )
