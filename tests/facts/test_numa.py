"""NUMA facts: of recorded machines against what other programs said, and of one machine for each trap."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amdcheck.facts.nps import Nps
from amdcheck.facts.numa import Numa
from amdcheck.model.value import Known, Unknown
from tests.corpus import CORPUS, needs_corpus
from tests.facts.recorded import host_of, lscpu_columns, name_of, numbers, tree, trees, truth_of
from tests.facts.small_machine import NODE, machine, without
from tests.judge import read_fact
from tests.memory_host import memory_host

POWER9 = "ctl-power9-nvidia-gpu-numa-nodes"


def numa_of(files: dict[str, str]) -> Numa:
    return read_fact(Numa, memory_host(files))


def node_files(rows: dict[int, str], *, memory: int | dict[int, int] = 1_000_000) -> dict[str, str]:
    """Nodes of four CPUs each, in ascending order, with these distance rows."""
    files = {}
    for place, (number, row) in enumerate(rows.items()):
        files[f"{NODE}/node{number}/cpulist"] = f"{4 * place}-{4 * place + 3}\n"
        files[f"{NODE}/node{number}/distance"] = f"{row}\n"
        kib = memory if isinstance(memory, int) else memory[number]
        files[f"{NODE}/node{number}/meminfo"] = f"Node {number} MemTotal:       {kib} kB\n"
    return files


@needs_corpus
@pytest.mark.parametrize("path", trees(), ids=[name_of(path) for path in trees()])
def test_recorded_machine(path: Path) -> None:
    numa, truth = read_fact(Numa, host_of(path)), truth_of(path)
    expected = truth["nodes"]
    assert [node.id for node in numa.nodes] == sorted(map(int, expected))
    assert [set(node.cpus.or_none() or ()) for node in numa.nodes] == [
        numbers(expected[str(n.id)][0]) for n in numa.nodes
    ]
    memory = [expected[str(node.id)][1] for node in numa.nodes]
    assert [node.memory_kib.or_none() for node in numa.nodes] == [m and int(m) for m in memory]
    rows = [" ".join(map(str, node.distances.or_none() or ())) or None for node in numa.nodes]
    assert rows == truth["distances"]
    if truth["node_online"] is None:
        assert numa.online == Known(tuple(node.id for node in numa.nodes), NODE)
    else:
        assert set(numa.online.or_none() or ()) == numbers(truth["node_online"])
        assert set(numa.possible.or_none() or ()) == numbers(truth["node_possible"])
    assert numa.missing == ()


@needs_corpus
@pytest.mark.parametrize("name", ["epyc7451-2s-8node", "opteron6328-offline-possible"])
def test_nodes_are_lscpus(name: str) -> None:
    """Only masks there, no lists, no meminfo, no distances."""
    numa = read_fact(Numa, host_of(tree(name)))
    text = (CORPUS / "fsroot" / f"{name}.expected-lscpu.txt").read_text(encoding="utf-8")
    assert {frozenset(node.cpus.or_none() or ()) for node in numa.nodes} == lscpu_columns(text)["Node"]
    assert {node.memory_kib for node in numa.nodes if isinstance(node.memory_kib, Known)} == set()
    assert all(node.distances == Unknown("absent", f"{node.path}/distance") for node in numa.nodes)


@needs_corpus
def test_opteron6134_memory_is_hwlocs() -> None:
    name = "opteron6134-4s8n-offline-possible"
    root = ElementTree.parse(CORPUS / "fsroot" / f"{name}.expected-hwloc.xml").getroot()
    theirs = {
        int(o.attrib["os_index"]): int(o.attrib["local_memory"]) for o in root.iter("object") if o.get("local_memory")
    }
    numa = read_fact(Numa, host_of(tree(name)))
    assert theirs
    assert {n.id: (n.memory_kib.or_none() or 0) * 1024 for n in numa.nodes if n.id in theirs} == theirs


@needs_corpus
def test_power9_nodes_of_gpu_memory_have_no_cpus() -> None:
    numa = read_fact(Numa, host_of(tree(POWER9)))
    assert [node.id for node in numa.with_cpus] == [0, 8]
    assert [node.id for node in numa.nodes if not node.cpus.or_none()] == [250, 251, 252, 253, 254, 255]
    assert {node.memory_kib.or_none() for node in numa.nodes if node.id >= 250} == {15728640}
    assert (8, 250, 80) in set(numa.distances())
    nps = read_fact(Nps, host_of(tree(POWER9)))
    assert (nps.per_socket, nps.nodes_of) == (1, {0: (0,), 8: (8,)})


@needs_corpus
def test_offline_node_leaves_a_distance_row_over_the_possible_nodes() -> None:
    """One node is online, its row has two numbers: they stand for nodes 0 and 1, so node 1 is 10 from itself."""
    numa = read_fact(Numa, host_of(tree("ctl-intel-offline-cpu0-node0")))
    assert numa.nodes[0].distances.or_none() == (21, 10)
    assert list(numa.distances()) == [(1, 0, 21), (1, 1, 10)]


@needs_corpus
def test_numactl_text_of_an_epyc_9375f_pair() -> None:
    """The recorded output of numactl -H, put back into the files that it was made from."""
    text = (CORPUS / "text" / "numactl-H-epyc9375Fx2-smtoff-nps1.txt").read_text(encoding="utf-8")
    files = machine(sockets=2, ccx=4, cores=8, threads=1, name="AMD EPYC 9375F 32-Core Processor", family=26, model=2)
    cpus = {int(n): list(map(int, row.split())) for n, row in re.findall(r"node (\d+) cpus:([ 0-9]+)", text)}
    sizes = {int(n): int(mb) for n, mb in re.findall(r"node (\d+) size: (\d+) MB", text)}
    rows = re.findall(r"^ +(\d+): +([ 0-9]+?) *$", text, re.MULTILINE)
    for number, row in rows:
        files[f"{NODE}/node{number}/distance"] = f"{row}\n"
        files[f"{NODE}/node{number}/meminfo"] = f"Node {number} MemTotal: {sizes[int(number)] * 1024} kB\n"
        files[f"{NODE}/node{number}/cpulist"] = ",".join(map(str, cpus[int(number)])) + "\n"
    numa, nps = numa_of(files), read_fact(Nps, memory_host(files))
    assert [node.cpus.or_none() for node in numa.nodes] == [tuple(range(32)), tuple(range(32, 64))]
    assert [node.memory_kib.or_none() for node in numa.nodes] == [773271 * 1024, 774028 * 1024]
    assert list(numa.distances()) == [(0, 0, 10), (0, 1, 32), (1, 0, 32), (1, 1, 10)]
    assert (nps.per_socket, nps.slices) == (1, False)


def test_sparse_ids_take_their_distances_by_position() -> None:
    ids = (0, 1, 2, 33, 34, 45, 72, 73)
    rows = {n: " ".join("10" if n == m else str(20 + abs(a - b)) for b, m in enumerate(ids)) for a, n in enumerate(ids)}
    numa = numa_of(node_files(rows) | {f"{NODE}/online": "0-2,33-34,45,72-73\n", f"{NODE}/possible": "0-73\n"})
    table = {(a, b): d for a, b, d in numa.distances()}
    assert table[33, 33] == 10
    assert table[0, 73] == 27
    assert table[45, 34] == 21
    assert len(table) == 64


def test_epyc7551_with_memory_on_two_of_eight_nodes_is_divided_by_those() -> None:
    files = machine(sockets=2, ccx=8, cores=4, nodes=4, l3="8192K", name="AMD EPYC 7551 32-Core Processor", family=23)
    files |= {f"{NODE}/node{n}/meminfo": f"Node {n} MemTotal:       0 kB\n" for n in (1, 2, 3, 5, 6, 7)}
    assert [node.memory_kib.or_none() for node in numa_of(files).nodes] == [263_000_000, 0, 0, 0, 263_000_000, 0, 0, 0]
    nps = read_fact(Nps, memory_host(files))
    assert (nps.per_socket, nps.nodes_of) == (1, {0: (0,), 1: (4,)})


def test_a_row_of_a_length_that_fits_nothing_is_placed_nowhere() -> None:
    files = node_files({0: "10 20 30", 1: "20 10"}) | {f"{NODE}/online": "0-1\n", f"{NODE}/possible": "0-3\n"}
    assert list(numa_of(files).distances()) == [(1, 0, 20), (1, 1, 10)]


def test_a_node_said_to_be_online_without_a_folder_is_missing() -> None:
    numa = numa_of(node_files({0: "10 20", 2: "20 10"}) | {f"{NODE}/online": "0,2,5\n"})
    assert numa.missing == (5,)
    assert [node.id for node in numa.nodes] == [0, 2]


def test_no_node_folder_is_absent() -> None:
    numa = numa_of({"/sys/devices/system/cpu/online": "0\n"})
    assert numa.nodes == ()
    assert numa.online == Unknown("absent", f"{NODE}/online")


@pytest.mark.parametrize(
    ("shape", "per_socket", "slices"),
    [
        ({"sockets": 2, "ccx": 8, "nodes": 1}, 1, False),
        ({"sockets": 2, "ccx": 8, "nodes": 2}, 2, False),
        ({"sockets": 2, "ccx": 8, "nodes": 4}, 4, False),
        ({"sockets": 2, "ccx": 8, "nodes": 8}, 8, True),  # L3 as NUMA
        ({"sockets": 2, "ccx": 8, "nodes": 0}, 0, False),  # NPS0: one node over both sockets
        ({"sockets": 1, "ccx": 4, "nodes": 4}, 4, True),  # NPS4 on four CCXs: the same nodes either way
    ],
)
def test_nps(shape: dict[str, int], per_socket: int, slices: bool) -> None:
    nps = read_fact(Nps, memory_host(machine(**shape)))  # type: ignore[arg-type]
    assert (nps.per_socket, nps.slices) == (per_socket, slices)


def test_sockets_that_are_divided_differently_have_no_nps() -> None:
    files = without(machine(sockets=2, ccx=2, nodes=2), "node3/cpulist", "node3/cpumap")
    files |= {f"{NODE}/node3/cpulist": "\n", f"{NODE}/node2/cpulist": "8-15,24-31\n"}
    nps = read_fact(Nps, memory_host(files))
    assert (nps.per_socket, nps.nodes_of) == (None, {0: (0, 1), 1: (2,)})


@given(
    st.dictionaries(
        st.sampled_from(["online", "possible", "node0/cpulist", "node0/cpumap", "node0/distance", "node1/meminfo"]),
        st.text(max_size=40) | st.sampled_from(["0-99999999999\n", "10 20\n", "MemTotal: 9 kB", "9" * 40]),
    )
)
def test_no_file_breaks_the_reader(files: dict[str, str]) -> None:
    numa = numa_of({f"{NODE}/{name}": text for name, text in files.items()})
    assert all(distance < 1000 for _, _, distance in numa.distances())
