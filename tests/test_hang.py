"""A composed machine with one sick GPU: its attribute's read sleeps in the kernel and SIGKILL does not end it."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.compose import compose
from tests.standins.hungfs import hung_file

# One run at a time holds the lock of the machine.
pytestmark = [pytest.mark.live, pytest.mark.usefixtures("alone")]

MACHINE = "mi210-8gpu-2hive-epyc7763x2"
SICK = "0000:03:00.0"
ATTRIBUTE = f"/sys/bus/pci/devices/{SICK}/mem_info_vram_total"
READ_DEADLINE_S, FOR_THE_DEAD_S, RUN_S = 2.0, 1.0, 4.0


def test_one_hung_gpu_costs_seconds_and_no_other_gpu(tmp_path: Path) -> None:
    tree = tmp_path / "machine"
    compose(MACHINE).write_tree(tree)
    amdcheck = str(Path(sys.executable).parent / "amdcheck")
    argv = [amdcheck, "all", "--level", "quick", "--host", str(tree), "--format", "json"]
    with hung_file((tree / ATTRIBUTE.lstrip("/")).resolve()):
        began = time.monotonic()
        # A caller that captures both streams is kept waiting by anything that holds on to them.
        done = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)
        took = time.monotonic() - began
        report = json.loads(done.stdout)
        findings = report["findings"]
        (hang,) = [f for f in findings if f["id"].endswith("/hang")]
        (stuck,) = [e["value"] for e in hang["evidence"] if "wchan" in e["source"]]
        pid, state, wchan = stuck.split()[1], stuck.split()[3], stuck.split()[-1]
        assert Path(f"/proc/{pid}/wchan").read_text() == wchan  # it is still there, and it is that one
    assert done.stderr == ""
    assert took < READ_DEADLINE_S + FOR_THE_DEAD_S + RUN_S
    assert (state, hang["status"], hang["subject"]) == ("D", "unknown", {"kind": "path", "id": ATTRIBUTE})
    assert report["summary"]["verdict"] == "undetermined"
    assert done.returncode == 3
    widths = {f["subject"]["id"]: f["status"] for f in findings if f["check"] == "pci.link-width"}
    assert len(widths) == 8
    assert set(widths.values()) == {"pass"}
    assert len(report["host"]["gpus"]) == 8
    assert [g["bdf"] for g in report["host"]["gpus"] if g["vram_mib"] is None] == [SICK]


def test_a_recording_of_the_hung_gpu_is_judged_as_the_machine_was(tmp_path: Path) -> None:
    tree, recording = tmp_path / "machine", tmp_path / "sick.amdcheck.json.xz"
    compose(MACHINE).write_tree(tree)
    amdcheck = str(Path(sys.executable).parent / "amdcheck")

    def asked(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([amdcheck, *words], capture_output=True, text=True, timeout=60, check=False)

    with hung_file((tree / ATTRIBUTE.lstrip("/")).resolve()):
        live = asked("all", "--level", "quick", "--host", str(tree), "--format", "json")
        assert asked("capture", "-o", str(recording), "--level", "quick", "--host", str(tree)).returncode == 0
    replay = asked("all", "--host", str(recording), "--format", "json")
    reports = [json.loads(done.stdout) for done in (live, replay)]
    told = [{(f["id"], f["subject"]["id"], f["status"]) for f in report["findings"]} for report in reports]
    assert ("amdcheck.host/hang", ATTRIBUTE, "unknown") in told[0]
    assert told[0] == told[1]
    assert [report["summary"]["verdict"] for report in reports] == ["undetermined"] * 2
    assert (live.returncode, replay.returncode) == (3, 3)
    (stuck,) = [e for f in reports[1]["findings"] if f["id"] == "amdcheck.host/hang" for e in f["evidence"]]
    assert "state D" in stuck["value"]
    assert stuck["volatile"]


def test_the_lock_is_free_while_a_worker_is_stuck(tmp_path: Path) -> None:
    """The run lock is inherited by nobody: else it would be held until the machine is rebooted."""
    from amdcheck.engine.lock import lock_path, only_run
    from amdcheck.engine.supervisor import supervise
    from amdcheck.engine.worker import Plan
    from amdcheck.model.expectations import Expectations
    from tests.engine import sick

    for card in sick.CARDS:
        folder = tmp_path / "sys" / "cards" / card
        folder.mkdir(parents=True)
        (folder / "gpu_busy_percent").write_text("0\n")
    plan = Plan(
        host=tmp_path,
        expectations=Expectations(level="quick"),
        record=False,
        checks=(sick.make_check("gpu.cards", sick.cards_busy),),
        extra_facts=(),
    )
    with hung_file(tmp_path / "sys" / "cards" / "card3" / "gpu_busy_percent"):
        with only_run(30.0):
            outcome = supervise(plan, deadline_s=30.0)
        ((stuck,),) = (hang.stuck for hang in outcome.unfinished.hangs)
        assert os.path.exists(f"/proc/{stuck.pid}")
        fd = os.open(lock_path(), os.O_RDWR)
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError while anyone holds it
        os.close(fd)
