"""Debian's rocm-smi 5.2.3, with the tree mounted over /sys in a mount namespace of its own.

It reads chips up to CDNA 2: it wants hwmon's in0_label, which MI300 does not have.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from tests.compose import ComposedHost
from tests.foreign.conftest import TIMEOUT_S, Rendered, output, tool

MACHINES = ["mi100-4gpu-epyc7452", "mi210-8gpu-2hive-epyc7763x2", "mi250x-4oam-8gcd-epyc7763x2"]

# rocm-smi keeps a mutex in /dev/shm; nothing of this may reach the mounts of the machine that runs the test.
_INSIDE = 'mount --make-rprivate / && mount -t tmpfs none /dev/shm && mount --bind "$1" /sys && shift && exec "$@"'


def rocm_smi(rendered: Rendered, *arguments: str) -> str:
    program, unshare = tool("rocm-smi", "rocm-smi"), tool("unshare", "util-linux")
    if os.geteuid() != 0:
        pytest.skip("a mount over /sys needs root")
    if subprocess.run([unshare, "--mount", "true"], capture_output=True, timeout=TIMEOUT_S).returncode != 0:
        pytest.skip("no mount namespace of its own may be made here")
    sys = str(rendered.root / "sys")
    return output([unshare, "--mount", "bash", "-c", _INSIDE, "inside", sys, program, *arguments])


def composed(host: ComposedHost, argument: str) -> Any:
    """What the composed machine says that its own rocm-smi prints."""
    from amdcheck.host.protocol import Command
    from amdcheck.model.value import Known

    (answer,) = host.host.run([Command(argv=("rocm-smi", argument, "--json"))])
    assert isinstance(answer, Known)
    return json.loads(answer.value.stdout)


@pytest.mark.parametrize("machine", MACHINES)
def test_rocm_smi_names_the_described_driver(machine: str, rendered: Callable[..., Rendered]) -> None:
    tree = rendered(machine)
    assert tree.plan.dkms is not None
    printed = json.loads(rocm_smi(tree, "--showdriverversion", "--json"))
    assert printed == {"system": {"Driver version": tree.plan.dkms.module}}
    assert printed == composed(tree.host, "--showdriverversion")


@pytest.mark.parametrize("machine", MACHINES)
def test_rocm_smi_prints_the_topology_that_the_composer_says(machine: str, rendered: Callable[..., Rendered]) -> None:
    """Link type, weight and hops of every pair, and each card's NUMA node: by the real tool and by the stand-in."""
    tree = rendered(machine)
    assert json.loads(rocm_smi(tree, "--showtopo", "--json")) == composed(tree.host, "--showtopo")


def test_rocm_smi_sees_two_hives_of_four_mi210(rendered: Callable[..., Rendered]) -> None:
    system = json.loads(rocm_smi(rendered("mi210-8gpu-2hive-epyc7763x2"), "--showtopo", "--json"))["system"]
    for a in range(8):
        for b in range(a + 1, 8):
            together = a // 4 == b // 4
            pair = f"between DRM devices {a} and {b}"
            assert system[f"(Topology) Link type {pair}"] == ("XGMI" if together else "PCIE")
            assert system[f"(Topology) Weight {pair}"] == ("15" if together else "72")
            assert system[f"(Topology) Hops {pair}"] == ("1" if together else "3")


@pytest.mark.parametrize("machine", MACHINES[:2])
def test_rocm_smi_reads_the_attributes_of_every_card(machine: str, rendered: Callable[..., Rendered]) -> None:
    tree = rendered(machine)
    product = tree.plan.gpu_product
    assert product is not None
    cards = json.loads(
        rocm_smi(
            tree, "--showuniqueid", "--showvbios", "--showmaxpower", "--showbus", "--showmeminfo", "vram", "--json"
        )
    )
    by_bus = {card["PCI Bus"].lower(): card for card in cards.values()}
    assert set(by_bus) == {gpu.bdf for gpu in tree.plan.gpus}
    for gpu in tree.plan.gpus:
        card = by_bus[gpu.bdf]
        assert int(card["Unique ID"], 16) == gpu.unique_id
        assert card["VBIOS version"] == product.vbios
        assert float(card["Max Graphics Package Power (W)"]) == product.power_w
        assert int(card["VRAM Total Memory (B)"]) == product.vram_mib << 20


def test_rocm_smi_sees_the_pair_whose_xgmi_link_is_down(rendered: Callable[..., Rendered]) -> None:
    system = json.loads(rocm_smi(rendered("mi210-8gpu-2hive-epyc7763x2", "xgmi-link-missing"), "--showtopo", "--json"))[
        "system"
    ]
    types = {key: value for key, value in system.items() if "Link type" in key}
    assert types["(Topology) Link type between DRM devices 0 and 1"] == "PCIE"
    assert types["(Topology) Link type between DRM devices 2 and 3"] == "XGMI"
