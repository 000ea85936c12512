"""Which interpreter is judged where nobody named one."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from amdcheck.engine.own import hang_findings
from amdcheck.engine.supervisor import supervise
from amdcheck.engine.worker import Plan
from amdcheck.host.interpreter import python_to_judge
from amdcheck.host.live import LiveHost
from amdcheck.model.expectations import Expectations
from tests.standins.hungfs import dead_mount


def interpreter(folder: Path) -> str:
    (folder / "bin").mkdir(parents=True)
    program = folder / "bin" / "python3"
    program.touch(mode=0o755)
    return str(program)


def test_the_active_environment_comes_before_the_path(tmp_path: Path) -> None:
    venv, conda, path = (interpreter(tmp_path / name) for name in ("venv", "conda", "usr"))
    environment = {"PATH": str(tmp_path / "usr/bin")}
    assert python_to_judge(LiveHost(), environment) == path
    environment["CONDA_PREFIX"] = str(tmp_path / "conda")
    assert python_to_judge(LiveHost(), environment) == conda
    environment["VIRTUAL_ENV"] = str(tmp_path / "venv")
    assert python_to_judge(LiveHost(), environment) == venv


def test_ours_relative_folders_and_what_cannot_run_are_passed_over(tmp_path: Path) -> None:
    Path(interpreter(tmp_path / "data")).chmod(0o644)
    (tmp_path / "folder/bin/python3").mkdir(parents=True)
    found = interpreter(tmp_path / "usr")
    folders = (f"{sys.prefix}/bin", "", "bin", f"{tmp_path}/data/bin", f"{tmp_path}/folder/bin", "/\udcff/bin")
    assert python_to_judge(LiveHost(), {"PATH": ":".join((*folders, f"{tmp_path}/usr/bin"))}) == found
    assert python_to_judge(LiveHost(), {"PATH": ":".join(folders), "VIRTUAL_ENV": sys.prefix}) is None
    assert python_to_judge(LiveHost(), {}) is None


def test_a_dead_mount_on_the_path_is_named_and_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = interpreter(tmp_path / "usr")
    plan = Plan(host=None, expectations=Expectations(level="quick"), record=False, checks=(), extra_facts=())
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.delenv("CONDA_PREFIX", raising=False)
    with dead_mount() as dead:
        monkeypatch.setenv("PATH", os.pathsep.join((str(dead), f"{tmp_path}/usr/bin")))
        outcome = supervise(plan, deadline_s=30.0)
    assert outcome.opened is not None
    assert outcome.opened.expectations.python == found
    (hang,) = hang_findings(outcome.unfinished.hangs)
    assert (hang.id, hang.status, hang.subject.id) == ("amdcheck.host/hang", "unknown", f"{dead}/python3")
