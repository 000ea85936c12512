"""The KFD topology as facts, on recorded trees and on machines in memory."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amdcheck.facts.kfd import LINK_XGMI, TOPOLOGY, Kfd, gfx_name, parse_properties
from amdcheck.facts.topology import Topology
from amdcheck.host.open import open_host
from amdcheck.host.protocol import READ_LIMIT
from amdcheck.host.snapshot import SnapshotHost
from amdcheck.model.value import Known, Unknown, Value
from tests.corpus import CORPUS, needs_corpus
from tests.gpu_hosts import Machine, gpu_host
from tests.judge import read_fact


def recorded(name: str) -> Kfd:
    return read_fact(Kfd, open_host(CORPUS / "kfd" / f"{name}.tar.xz"))


@needs_corpus
def test_recorded_mi210_has_eight_gpus_in_two_hives_of_four() -> None:
    kfd = recorded("mi210-8gpu-2hive-epyc64x2")
    assert len(kfd.nodes) == 10
    assert len(kfd.gpu_nodes) == 8
    assert {node.gfx for node in kfd.gpu_nodes} == {"gfx90a"}
    assert {node.compute_units for node in kfd.gpu_nodes} == {104}
    assert kfd.gpu_nodes[0].location == (0, 0x63, 0, 0)
    for node in kfd.gpu_nodes:
        xgmi = {link.node_to for link in node.links if link.type == LINK_XGMI}
        assert xgmi == ({2, 3, 4, 5} if node.id < 6 else {6, 7, 8, 9}) - {node.id}
    assert {link.weight for node in kfd.nodes for link in node.links} == {15, 20, 32, 52, 72}
    assert [node.link_faults for node in kfd.nodes if node.link_faults] == []


@needs_corpus
def test_recorded_mi300x_cpx_has_63_partitions_of_8_devices() -> None:
    kfd = recorded("mi300x-8gpu-cpx-63of64-epyc96x2")
    assert len(kfd.gpu_nodes) == 63
    assert {node.compute_units for node in kfd.gpu_nodes} == {38}
    buses = [node.location[1] for node in kfd.gpu_nodes if node.location]
    assert len(set(buses)) == 8
    assert buses.count(0xE5) == 7
    assert sum(len(node.links) for node in kfd.nodes) == 4034
    assert [node.link_faults for node in kfd.nodes if node.link_faults] == []


@needs_corpus
def test_recorded_vega10_copy_is_flagged_and_is_no_second_gpu() -> None:
    kfd = recorded("vega10-1gpu-copied-as-2")
    assert [node.id for node in kfd.gpu_nodes] == [1]
    copy = kfd.nodes[2]
    assert copy.copy_of == 1
    assert copy.link_faults == (
        "node 2 repeats gpu_id 13261 of node 1",
        "io_links/0 of node 2 says that it starts at node 1",
    )
    assert kfd.gpu_nodes[0].gfx is None
    assert kfd.gpu_nodes[0].compute_units == 64
    assert kfd.gpu_nodes[0].memory_bytes.or_none() == 17163091968


@needs_corpus
def test_a_whole_topology_of_4034_links_reads_every_file_once_or_twice() -> None:
    reads = 0

    class Counting(SnapshotHost):
        def read(self, path: str, *, limit: int = READ_LIMIT) -> Value[str]:
            nonlocal reads
            reads += 1
            return super().read(path, limit=limit)

    tree = open_host(CORPUS / "kfd" / "mi300x-8gpu-cpx-63of64-epyc96x2.tar.xz")
    assert isinstance(tree, SnapshotHost)
    read_fact(Kfd, Counting(tree.capture, source="tree"))
    assert 4034 < reads < 4034 + 5 * 65


@pytest.mark.parametrize(
    ("version", "name"),
    [
        (90006, "gfx906"),
        (90010, "gfx90a"),
        (90402, "gfx942"),
        (90500, "gfx950"),
        (110501, "gfx1151"),
        (120001, "gfx1201"),
    ],
)
def test_gfx_steppings_are_hexadecimal(version: int, name: str) -> None:
    assert gfx_name(version) == name


def test_properties_are_unsigned_64_bit_and_odd_lines_are_passed_over() -> None:
    text = "hive_id 18446744073709551615\nunique_id 18446744073709551616\nname gfx\nsibling_map 0,1\nsimd_count 4\n"
    assert parse_properties(text) == {"hive_id": 2**64 - 1, "simd_count": 4}


@given(st.text(max_size=300))
def test_properties_take_any_text(text: str) -> None:
    try:
        assert all(0 <= value < 2**64 for value in parse_properties(text).values())
    except ValueError:
        assert True


def test_a_node_that_the_device_cgroup_hides_is_neither_gpu_nor_fault() -> None:
    machine = gpu_host("mi210", 2, hives=(2,))
    hide(machine, 2)
    kfd = read_fact(Kfd, machine.host())
    assert [(node.id, node.hidden) for node in kfd.nodes] == [(0, False), (1, False), (2, True)]
    assert [node.id for node in kfd.gpu_nodes] == [1]
    assert [node.link_faults for node in kfd.nodes if node.link_faults] == []
    assert kfd.hidden == 1


def hide(machine: Machine, node: int) -> None:
    """As a container sees a GPU that it was not given: every file of it, and of links to it, answers EPERM."""
    for path, text in list(machine.files.items()):
        own = path.startswith(f"{TOPOLOGY}/nodes/{node}/")
        to_it = "_links/" in path and f"node_to {node}\n" in str(text)
        if own or to_it:
            del machine.files[path]
            machine.outcomes[path] = "denied"


def test_more_nodes_than_are_read_are_not_a_part_of_them() -> None:
    machine = gpu_host("mi210", 1)
    for number in range(2000):
        machine.files[f"{TOPOLOGY}/nodes/{number}/gpu_id"] = f"{number}\n"
    kfd = read_fact(Kfd, machine.host())
    assert kfd.listing == Unknown("failed", f"{TOPOLOGY}/nodes", "more than 1024 entries")
    assert kfd.nodes == ()


def test_newer_drivers_count_partitions_above_the_address() -> None:
    machine = gpu_host("mi300x", 1, partitions=2)
    path = f"{TOPOLOGY}/nodes/2/properties"
    machine.files[path] = str(machine.files[path]).replace(f"location_id {0x1201}", f"location_id {0x10001200}")
    assert [node.location for node in read_fact(Kfd, machine.host()).gpu_nodes] == [(0, 0x12, 0, 0)] * 2


def test_a_topology_that_moves_is_read_once_more() -> None:
    generations = iter(["2\n", "3\n", "3\n", "3\n"])
    kfd = read_fact(Kfd, moving(gpu_host("mi210", 2), generations))
    assert kfd.generation == Known(3, f"{TOPOLOGY}/generation_id")


def test_a_topology_that_keeps_moving_is_unknown() -> None:
    generations = iter(["2\n", "3\n", "4\n", "5\n"])
    kfd = read_fact(Kfd, moving(gpu_host("mi210", 2), generations))
    assert isinstance(kfd.generation, Unknown)
    assert "kept changing" in str(kfd.generation.detail)


def moving(machine: Machine, generations: object) -> SnapshotHost:
    class Moving(SnapshotHost):
        def read(self, path: str, *, limit: int = READ_LIMIT) -> Value[str]:
            if path == f"{TOPOLOGY}/generation_id":
                return Known(next(generations), path)  # type: ignore[call-overload]
            return super().read(path, limit=limit)

    return Moving(machine.host().capture)


def test_links_of_one_direction_are_found_by_device() -> None:
    machine = gpu_host("mi210", 4, hives=(4,))
    machine.unlink(3, 1)
    links = read_fact(Topology, machine.host())
    assert [(one.node_from, one.node_to, one.type, one.back) for one in links.one_way] == [(1, 3, "xGMI", None)]
    assert links.one_way[0].subject.id == "0000:12:00.0-0000:32:00.0"
