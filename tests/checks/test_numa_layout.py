"""numa.layout: nodes, memory, distances, and how many nodes a socket should have."""

from __future__ import annotations

from collections import Counter

import pytest

from amdcheck.model.finding import Finding
from tests.checks.saying import only, sources, summary, values
from tests.corpus import needs_corpus
from tests.facts.recorded import host_of, tree
from tests.facts.small_machine import (
    CPU,
    DMI,
    MI100,
    MI210,
    MI300X,
    NODE,
    ZEN3,
    driver_link,
    gpu,
    machine,
    without,
)
from tests.judge import judge
from tests.memory_host import memory_host

NAPLES = {"name": "AMD EPYC 7551 32-Core Processor", "family": 23}


def layout(files: dict[str, str]) -> list[Finding]:
    return judge("numa.layout", memory_host(files, links=driver_link()))


def test_two_sockets_in_nps1_pass() -> None:
    finding = only(layout(machine(sockets=2, ccx=8, cores=8)))
    assert summary(finding) == ("numa.layout/ok", "pass", "host host")
    assert finding.message == "2 nodes (NPS1), whose CPUs, memory and distances fit together."
    assert values(finding) == ["0-1", "0: 0-63,128-191; 1: 64-127,192-255", "0: 263000000; 1: 263000000"]


def test_one_socket_in_one_node_passes_without_its_memory_and_distances() -> None:
    finding = only(layout(without(machine(), "node0/meminfo", "node0/distance")))
    assert summary(finding) == ("numa.layout/ok", "pass", "host host")
    assert finding.message == "One node holds every CPU (NPS1)."


@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_without_gpus_every_nps_passes(nodes: int) -> None:
    finding = only(layout(machine(sockets=2, ccx=8, nodes=nodes)))
    assert summary(finding) == ("numa.layout/ok", "pass", "host host")
    assert finding.actual == f"{2 * nodes} nodes (NPS{nodes})"


def test_mi300x_host_in_nps4_is_warned() -> None:
    finding = only(layout(machine(sockets=2, ccx=8, nodes=4) | gpu(**MI300X)))
    assert summary(finding) == ("numa.layout/nps", "warn", "host host")
    assert (finding.expected, finding.actual) == ("NPS1", "NPS4")
    assert values(finding)[0] == "socket 0: 4; socket 1: 4"
    assert finding.remedy is not None
    assert (finding.remedy.owner, finding.remedy.steps[0].reboot) == ("node", True)


def test_mi300x_host_in_nps1_passes() -> None:
    assert only(layout(machine(sockets=2, ccx=8) | gpu(**MI300X))).id == "numa.layout/ok"


@pytest.mark.parametrize("card", [MI210, MI100])
def test_mi210_and_mi100_hosts_in_nps4_pass(card: dict[str, int]) -> None:
    assert only(layout(machine(sockets=2, ccx=8, nodes=4) | gpu(**card))).id == "numa.layout/ok"


def test_naples_has_four_nodes_a_socket_and_no_setting_for_it() -> None:
    files = machine(sockets=2, ccx=8, nodes=4, l3="8192K", **NAPLES) | gpu(**MI300X)  # type: ignore[arg-type]
    assert only(layout(files)).id == "numa.layout/ok"


def test_every_l3_slice_as_a_node_is_warned_on_a_gpu_host_alone() -> None:
    files = machine(sockets=2, ccx=8, nodes=8)
    assert only(layout(files)).id == "numa.layout/ok"
    finding = only(layout(files | gpu(**MI210)))
    assert summary(finding) == ("numa.layout/l3-as-numa", "warn", "host host")
    assert finding.actual == "8 nodes a socket"


def test_one_node_over_two_sockets_is_nps0() -> None:
    finding = only(layout(machine(sockets=2, ccx=8, nodes=0)))
    assert summary(finding) == ("numa.layout/nps0", "warn", "host host")
    assert finding.actual == "NPS0"


def test_one_node_over_two_sockets_of_intels_is_nobodys_nps() -> None:
    files = machine(sockets=2, nodes=0, vendor="GenuineIntel", family=6, model=143, name="Intel(R) Xeon(R)")
    assert only(layout(files)).message == "One node holds every CPU."


def test_nodes_of_a_guest_are_the_hypervisors() -> None:
    files = machine(sockets=2, ccx=8, nodes=4, flags=f"{ZEN3} hypervisor") | gpu(**MI300X)
    finding = only(layout(files | {f"{DMI}/sys_vendor": "QEMU\n"}))
    assert summary(finding) == ("numa.layout/ok", "pass", "host host")
    assert finding.actual == "8 nodes"


def test_sockets_divided_differently_are_uneven() -> None:
    files = machine(sockets=2, ccx=2, nodes=2)
    files |= {f"{NODE}/node3/cpulist": "\n", f"{NODE}/node2/cpulist": "8-15,24-31\n"}
    finding = only(layout(files))
    assert summary(finding) == ("numa.layout/uneven", "warn", "host host")
    assert finding.actual == "socket 0: 2; socket 1: 1"


def test_a_socket_without_any_memory_fails() -> None:
    finding = only(layout(machine(sockets=2) | {f"{NODE}/node1/meminfo": "Node 1 MemTotal:  0 kB\n"}))
    assert summary(finding) == ("numa.layout/socket-without-memory", "fail", "cpu socket 1")
    assert (values(finding), sources(finding)) == (["0"], [f"{NODE}/node1/meminfo"])


def test_epyc7551_with_memory_on_two_of_eight_nodes_is_warned_for_six() -> None:
    files = machine(sockets=2, ccx=8, nodes=4, l3="8192K", **NAPLES)  # type: ignore[arg-type]
    files |= {f"{NODE}/node{n}/meminfo": f"Node {n} MemTotal:       0 kB\n" for n in (1, 2, 3, 5, 6, 7)}
    findings = layout(files)
    assert [summary(f) for f in findings] == [
        ("numa.layout/node-without-memory", "warn", f"numa {n}") for n in (1, 2, 3, 5, 6, 7)
    ]
    assert values(findings[0]) == ["0", "8-15,72-79"]


def test_nodes_without_memory_do_not_make_the_sockets_uneven() -> None:
    files = machine(sockets=2, ccx=8, nodes=4, l3="8192K", **NAPLES)  # type: ignore[arg-type]
    finding = only(layout(files | {f"{NODE}/node1/meminfo": "Node 1 MemTotal:       0 kB\n"}))
    assert summary(finding) == ("numa.layout/node-without-memory", "warn", "numa 1")


def test_all_distances_equal_is_nonsense() -> None:
    files = machine(sockets=2) | {f"{NODE}/node{n}/distance": "10 10\n" for n in (0, 1)}
    finding = only(layout(files))
    assert summary(finding) == ("numa.layout/distance-flat", "warn", "host host")
    assert finding.message == "From node 0 to node 1 it is called as near as the own node (and 1 pairs more)."
    assert values(finding) == ["10 10", "10 10"]


def test_distances_that_differ_by_direction() -> None:
    finding = only(layout(machine(sockets=2) | {f"{NODE}/node1/distance": "21 10\n"}))
    assert summary(finding) == ("numa.layout/distance-asymmetric", "warn", "host host")
    assert finding.actual == "0 to 1: 32, 1 to 0: 21"
    assert sources(finding) == [f"{NODE}/node0/distance", f"{NODE}/node1/distance"]


@needs_corpus
def test_recorded_opteron6272_is_irregular_but_symmetric_and_passes() -> None:
    """Its CPU lists are not in the order of its nodes, and it is no EPYC with an NPS."""
    finding = only(judge("numa.layout", host_of(tree("opteron6272-r815-full-fsroot+cpuid"))))
    assert summary(finding) == ("numa.layout/ok", "pass", "host host")
    assert finding.actual == "8 nodes"


@needs_corpus
def test_recorded_power9_with_nodes_of_gpu_memory_passes() -> None:
    finding = only(judge("numa.layout", host_of(tree("ctl-power9-nvidia-gpu-numa-nodes"))))
    assert summary(finding) == ("numa.layout/ok", "pass", "host host")
    assert values(finding)[0] == "0,8,250-255"


@needs_corpus
def test_recorded_machine_whose_first_node_is_offline() -> None:
    """Nine of its CPUs stay online without a node; its distance row has one number too many, which is no finding."""
    finding = only(judge("numa.layout", host_of(tree("ctl-intel-offline-cpu0-node0"))))
    assert summary(finding) == ("numa.layout/cpus-without-node", "warn", "host host")
    assert finding.actual == "4,6,8,10,12,14,16,18,20 in none"


@needs_corpus
def test_recorded_epyc7451_without_meminfo_and_distances_is_unknown() -> None:
    finding = only(judge("numa.layout", host_of(tree("epyc7451-2s-8node"))))
    assert summary(finding) == ("numa.layout/absent", "unknown", "host host")
    assert sources(finding)[-1] == f"{NODE}/node0/meminfo"


@needs_corpus
def test_synthetic_machine_has_asymmetric_distances_and_cpus_without_a_node() -> None:
    ids = Counter(f.id for f in judge("numa.layout", host_of(tree("ctl-fake-hetero-cpu-numa"))))
    assert ids == {"numa.layout/cpus-without-node": 1, "numa.layout/distance-asymmetric": 1}


def test_a_distance_row_that_fits_no_node_count_is_unknown() -> None:
    finding = only(layout(machine(sockets=2) | {f"{NODE}/node1/distance": "32 10 40\n"}))
    assert summary(finding) == ("numa.layout/failed", "unknown", "host host")
    assert finding.evidence[-1].note == "failed: 32 10 40: not a number for each node"


def test_an_online_node_without_a_folder_is_unknown_and_named() -> None:
    finding = only(layout(machine() | {f"{NODE}/online": "0,3\n"}))
    assert summary(finding) == ("numa.layout/absent", "unknown", "numa 3")
    assert sources(finding) == [f"{NODE}/node3"]


@pytest.mark.parametrize(
    ("sockets", "id", "status"),
    [(1, "numa.layout/not-applicable", "skip"), (2, "numa.layout/absent", "unknown")],
)
def test_a_kernel_without_numa_is_well_on_one_socket_alone(sockets: int, id: str, status: str) -> None:
    files = {p: t for p, t in machine(sockets=sockets).items() if not p.startswith(NODE)}
    assert summary(only(layout(files))) == (id, status, "host host")


def test_nothing_recorded_is_unknown() -> None:
    finding = only(judge("numa.layout", memory_host({}, complete=False)))
    assert summary(finding) == ("numa.layout/not-recorded", "unknown", "host host")


def test_offline_cpus_of_a_node_do_not_count() -> None:
    files = machine(sockets=2, threads=1) | {f"{CPU}/online": "0-7\n", f"{CPU}/offline": "8-15\n"}
    files |= {f"{NODE}/node1/meminfo": "Node 1 MemTotal: 0 kB\n", f"{NODE}/node1/cpulist": "\n"}
    files |= {f"{NODE}/node1/cpumap": "0000\n"}
    assert only(layout(files)).id == "numa.layout/ok"
