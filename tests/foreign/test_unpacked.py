"""A recording, unpacked, is a host tree for tools that were not written here: they see what they see live."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.foreign.conftest import output, tool

# One run at a time holds the lock of the machine.
pytestmark = [pytest.mark.live, pytest.mark.usefixtures("alone")]

AMDCHECK = str(Path(sys.executable).parent / "amdcheck")
# What lscpu says that no recording of the topology holds: what the processor says of itself, and its weak points.
NOT_TOPOLOGY = (
    "Vulnerability",
    "Hypervisor",
    "Virtualization",
    "Flags",
    "BogoMIPS",
    "CPU op-mode",
    "Address sizes",
    "Architecture",
    "Byte Order",
)


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This machine, recorded and unpacked."""
    folder = tmp_path_factory.mktemp("recorded")
    recording, tree = folder / "here.amdcheck.json.xz", folder / "tree"
    subprocess.run([AMDCHECK, "capture", "--level", "quick", "-o", recording], check=True, capture_output=True)
    subprocess.run([AMDCHECK, "capture", "--unpack", tree, recording], check=True, capture_output=True)
    return tree


def test_lscpu_says_of_the_recording_what_it_says_live(unpacked: Path) -> None:
    lscpu = tool("lscpu", "util-linux")

    def topology(text: str) -> list[str]:
        lines = (" ".join(line.split()) for line in text.splitlines())  # the columns shift with the longest name
        return [line for line in lines if not line.startswith(NOT_TOPOLOGY)]

    live = topology(output([lscpu]))
    assert topology(output([lscpu, "--sysroot", str(unpacked)])) == live
    assert any(line.startswith("L3") for line in live)


def test_lstopo_draws_of_the_recording_what_it_draws_live(unpacked: Path) -> None:
    draw = [tool("lstopo-no-graphics", "hwloc-nox"), "--no-io", "-"]
    live = output(draw, HWLOC_COMPONENTS="linux,stop")
    assert output(draw, HWLOC_COMPONENTS="linux,stop", HWLOC_FSROOT=str(unpacked)) == live
    assert "PU L#0" in live
