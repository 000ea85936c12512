"""hwloc's lstopo reads composed machines: packages, caches, NUMA nodes and distances, and where the GPUs hang."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from xml.etree.ElementTree import Element

import pytest

from tests.compose import machine_names
from tests.foreign.conftest import Rendered, output, tool

# GB/s of sixteen lanes as hwloc computes it from the config space's link status.
_GB_X16 = {2.5: 4.0, 5.0: 8.0, 8.0: 15.75, 16.0: 31.51, 32.0: 63.0}


def lstopo(rendered: Rendered) -> Element:
    """The topology; only what the tree says, nothing of this machine."""
    text = output(
        [tool("lstopo-no-graphics", "hwloc-nox"), "--of", "xml", "--whole-io"],
        HWLOC_FSROOT=str(rendered.root),
        HWLOC_COMPONENTS="linux,stop",
        HWLOC_THISSYSTEM="0",
    )
    return ElementTree.fromstring(text)


def objects(topology: Element, kind: str) -> list[Element]:
    return [o for o in topology.iter("object") if o.get("type") == kind]


def with_node(element: Element, node: str | None = None) -> Iterator[tuple[Element, str | None]]:
    """Every object with the node set of the nearest object above it that has one."""
    for child in element.findall("object"):
        near = child.get("nodeset", node)
        yield child, near
        yield from with_node(child, near)


@pytest.mark.parametrize("machine", machine_names())
def test_lstopo_counts_what_is_described(machine: str, rendered: Callable[..., Rendered]) -> None:
    tree = rendered(machine)
    topology, cpu, product = lstopo(tree), tree.plan.machine.cpu, tree.plan.cpu
    assert len(objects(topology, "Package")) == cpu.sockets
    assert len(objects(topology, "Core")) == cpu.sockets * product.cores
    assert len(objects(topology, "PU")) == cpu.sockets * product.cores * (2 if cpu.smt else 1)
    slices = objects(topology, "L3Cache")
    assert len(slices) == cpu.sockets * product.cores // product.cores_per_ccx
    assert {int(s.get("cache_size", "0")) for s in slices} == {product.l3_mib_per_ccx << 20}
    nodes = objects(topology, "NUMANode")
    assert [int(node.get("os_index", "-1")) for node in nodes] == [node.id for node in tree.plan.nodes]
    memory = sum(int(node.get("local_memory", "0")) for node in nodes)
    assert 0.97 < memory / (cpu.memory_gib << 30) < 1


@pytest.mark.parametrize(
    ("machine", "distances"),
    [
        ("mi210-8gpu-2hive-epyc7763x2", "10 32 32 10"),
        ("epyc7763-cpu-nps4", "10 12 12 12 12 10 12 12 12 12 10 12 12 12 12 10"),
        ("epyc9654x2-cpu", "10 12 32 32 12 10 32 32 32 32 10 12 32 32 12 10"),
    ],
)
def test_lstopo_reads_the_distances(machine: str, distances: str, rendered: Callable[..., Rendered]) -> None:
    matrix = lstopo(rendered(machine)).find("distances2")
    assert matrix is not None
    values = " ".join(" ".join((row.text or "").split()) for row in matrix.findall("u64values"))
    assert values == distances


@pytest.mark.parametrize("machine", [name for name in machine_names() if name.startswith(("mi", "w7900"))])
def test_lstopo_finds_every_gpu_on_its_node(machine: str, rendered: Callable[..., Rendered]) -> None:
    tree = rendered(machine)
    product, topology = tree.plan.gpu_product, lstopo(tree)
    assert product is not None
    code = f"{product.class_code[:4]} [1002:{product.device}]"
    found = {
        device.get("pci_busid"): node
        for device, node in with_node(topology)
        if device.get("type") == "PCIDev" and device.get("pci_type", "").startswith(code)
    }
    everywhere = sum(1 << node.id for node in tree.plan.nodes)
    wanted = {gpu.bdf: f"0x{everywhere if gpu.node < 0 else 1 << gpu.node:08x}" for gpu in tree.plan.gpus}
    assert found == wanted


@pytest.mark.parametrize(
    "machine", ["mi210-8gpu-2hive-epyc7763x2", "mi300x-8gpu-spx-epyc9654x2", "mi100-4gpu-epyc7452"]
)
def test_lstopo_computes_the_speed_of_the_slots(machine: str, rendered: Callable[..., Rendered]) -> None:
    tree = rendered(machine)
    product = tree.plan.gpu_product
    assert product is not None
    ports = {slot.port for slot in tree.plan.machine.gpus.slot} if tree.plan.machine.gpus else set()
    bridges = {b.get("pci_busid"): float(b.get("pci_link_speed", "0")) for b in objects(lstopo(tree), "Bridge")}
    speeds = {port: bridges[port] for port in ports}
    assert speeds == {port: pytest.approx(_GB_X16[product.slot_gts], rel=0.01) for port in ports}


def test_lstopo_sees_a_slot_at_half_width(rendered: Callable[..., Rendered]) -> None:
    tree = rendered("mi210-8gpu-2hive-epyc7763x2", "link-width-x8")
    bridges = {b.get("pci_busid"): float(b.get("pci_link_speed", "0")) for b in objects(lstopo(tree), "Bridge")}
    assert bridges["0000:00:01.1"] == pytest.approx(_GB_X16[16.0] / 2, rel=0.01)
    assert bridges["0000:20:03.1"] == pytest.approx(_GB_X16[16.0], rel=0.01)
