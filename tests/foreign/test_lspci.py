"""pciutils' lspci reads composed machines: configuration space, links, BARs, drivers, NUMA nodes."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable

import pytest

from tests.compose import machine_names
from tests.foreign.conftest import Rendered, output, tool

_GPU_MACHINES = [name for name in machine_names() if name.startswith(("mi", "w7900"))]


def lspci(rendered: Rendered, *arguments: str) -> str:
    path = f"sysfs.path={rendered.root}/sys/bus/pci"
    return output([tool("lspci", "pciutils"), "-A", "linux-sysfs", "-O", path, "-D", *arguments])


@functools.cache
def details(rendered: Rendered) -> dict[str, str]:
    """All that lspci says of each function, by its address."""
    return {block[:12]: f"{block}\n" for block in lspci(rendered, "-vvnn").split("\n\n") if block}


@pytest.mark.parametrize("machine", machine_names())
def test_lspci_reads_every_function_without_complaint(machine: str, rendered: Callable[..., Rendered]) -> None:
    tree = rendered(machine)
    lines = lspci(tree, "-n").splitlines()
    assert [line.split()[0] for line in lines] == sorted(p.name for p in (tree.root / "sys/bus/pci/devices").iterdir())
    text = "".join(details(tree).values())
    assert "!!!" not in text  # how lspci marks headers and capabilities that it does not understand
    assert "access denied" not in text
    assert "Chain broken" not in text


@pytest.mark.parametrize("machine", _GPU_MACHINES)
def test_lspci_lists_the_described_gpus(machine: str, rendered: Callable[..., Rendered]) -> None:
    tree = rendered(machine)
    product = tree.plan.gpu_product
    assert product is not None
    listed = lspci(tree, "-n", "-d", f"1002:{product.device}").splitlines()
    assert {line.split()[0] for line in listed} == {gpu.bdf for gpu in tree.plan.gpus}
    assert {line.split()[1] for line in listed} == {f"{product.class_code[:4]}:"}


@pytest.mark.parametrize("machine", _GPU_MACHINES)
def test_lspci_shows_driver_node_and_the_whole_memory_in_the_bar(
    machine: str, rendered: Callable[..., Rendered]
) -> None:
    tree = rendered(machine)
    product = tree.plan.gpu_product
    assert product is not None
    for gpu in tree.plan.gpus:
        text = details(tree)[gpu.bdf]
        assert "Kernel driver in use: amdgpu" in text
        assert (f"NUMA node: {gpu.node}" in text) is (gpu.node >= 0)
        size = re.search(r"Region 0: Memory at \w+ \(64-bit, prefetchable\) \[size=(\d+)G\]", text)
        assert size is not None
        assert int(size[1]) / 2 < product.vram_mib / 1024 <= int(size[1])


@pytest.mark.parametrize("machine", [name for name in _GPU_MACHINES if "vf" not in name])
def test_lspci_shows_the_link_of_every_hop_at_its_maximum(machine: str, rendered: Callable[..., Rendered]) -> None:
    tree = rendered(machine)
    for gpu in tree.plan.gpus:
        place = (tree.root / "sys/bus/pci/devices" / gpu.bdf).resolve()
        hops = [name for name in place.parts if re.fullmatch(r"[0-9a-f]{4}:[0-9a-f:.]{7}", name)]
        assert hops[0] == gpu.slot.port
        assert hops[-1] == gpu.bdf
        for hop in hops:
            text = details(tree)[hop]
            status = re.search(r"LnkSta:\tSpeed ([\d.]+)GT/s, Width x(\d+)\n", text)  # else: (downgraded)
            assert status is not None, text
            outside = hop in (gpu.slot.port, *hops[1:-2])
            assert int(status[2]) == (gpu.slot.lanes if outside and len(hops) > 2 else 16)


def test_lspci_shows_no_link_of_a_virtual_function(rendered: Callable[..., Rendered]) -> None:
    assert "LnkSta:\tSpeed unknown, Width x0" in details(rendered("mi300x-1vf-kvm"))["0000:06:00.0"]


def test_lspci_calls_a_slot_at_half_width_downgraded(rendered: Callable[..., Rendered]) -> None:
    said = details(rendered("mi210-8gpu-2hive-epyc7763x2", "link-width-x8"))
    assert "LnkSta:\tSpeed 16GT/s, Width x8 (downgraded)" in said["0000:01:00.0"]
    assert "LnkSta:\tSpeed 16GT/s, Width x8\n" in said["0000:00:01.1"]  # of root ports lspci does not judge it
    assert "LnkSta:\tSpeed 32GT/s, Width x16\n" in said["0000:03:00.0"]  # the card's own link tells nothing


def test_lspci_finds_nothing_behind_the_port_of_a_gpu_that_is_gone(rendered: Callable[..., Rendered]) -> None:
    tree = rendered("mi300x-8gpu-spx-epyc9654x2", "one-gpu-missing")
    assert len(lspci(tree, "-n", "-d", "1002:74a1").splitlines()) == 7
    assert "0000:47:00.0" not in lspci(tree)
