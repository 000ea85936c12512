"""util-linux's lscpu reads composed machines and counts what their descriptions say."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.compose import machine_names
from tests.foreign.conftest import Rendered, output, tool

_UNITS = {"KiB": 1, "MiB": 1024, "GiB": 1024 * 1024}


def lscpu(rendered: Rendered) -> dict[str, str]:
    text = output([tool("lscpu", "util-linux"), "--sysroot", str(rendered.root)])
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}


def cache(text: str) -> tuple[int, int]:
    """KiB of all instances together, and how many there are."""
    match = re.fullmatch(r"([\d.]+) (\wiB) \((\d+) instances?\)", text)
    assert match is not None, text
    return round(float(match[1]) * _UNITS[match[2]]), int(match[3])


@pytest.mark.parametrize("machine", machine_names())
def test_lscpu_counts_what_is_described(machine: str, rendered: Callable[..., Rendered]) -> None:
    tree = rendered(machine)
    said, cpu, product = lscpu(tree), tree.plan.machine.cpu, tree.plan.cpu
    cores, threads = product.cores, 2 if cpu.smt else 1
    assert said["Vendor ID"] == "AuthenticAMD"
    assert said["Model name"] == product.model_name
    assert int(said["CPU family"]) == tree.plan.generation.family
    assert int(said["CPU(s)"]) == cpu.sockets * cores * threads
    assert int(said["Thread(s) per core"]) == threads
    assert int(said["Core(s) per socket"]) == cores
    assert int(said["Socket(s)"]) == cpu.sockets
    slices = cpu.sockets * cores // product.cores_per_ccx
    assert cache(said["L3 cache"]) == (slices * product.l3_mib_per_ccx * 1024, slices)
    assert cache(said["L2 cache"]) == (cpu.sockets * cores * tree.plan.generation.l2_kib, cpu.sockets * cores)
    assert ("avx512f" in said["Flags"].split()) is (product.generation in ("zen4", "zen5"))
    assert said.get("Hypervisor vendor") is None or tree.plan.guest


@pytest.mark.parametrize(
    ("machine", "nodes"),
    [
        ("epyc7302p-cpu-only", {0: "0-31"}),
        ("epyc7763-cpu-nps4", {0: "0-15,64-79", 1: "16-31,80-95", 2: "32-47,96-111", 3: "48-63,112-127"}),
        ("epyc9654x2-cpu", {0: "0-47", 1: "48-95", 2: "96-143", 3: "144-191"}),
        ("mi210-8gpu-2hive-epyc7763x2", {0: "0-63,128-191", 1: "64-127,192-255"}),
        ("mi300a-4apu", {0: "0-23,96-119", 1: "24-47,120-143", 2: "48-71,144-167", 3: "72-95,168-191"}),
    ],
)
def test_lscpu_sees_the_numa_nodes(machine: str, nodes: dict[int, str], rendered: Callable[..., Rendered]) -> None:
    said = lscpu(rendered(machine))
    assert int(said["NUMA node(s)"]) == len(nodes)
    assert {node: said[f"NUMA node{node} CPU(s)"] for node in nodes} == nodes
