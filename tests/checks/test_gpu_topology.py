"""gpu.topology: hives, missing partitions, links of one direction, nodes that the driver left out."""

from __future__ import annotations

import pytest

from amdcheck.host.open import open_host
from amdcheck.knowledge.gpus import GpuProduct
from amdcheck.model.expectations import Expectations
from amdcheck.model.finding import Finding
from tests.corpus import CORPUS, needs_corpus
from tests.facts.test_kernel_log import kmsg
from tests.facts.test_kfd import hide
from tests.gpu_hosts import IN_DOCKER, TOPOLOGY, Machine, cpu_host, gpu_host
from tests.judge import judge


def found(machine: Machine) -> list[Finding]:
    return judge("gpu.topology", machine.host(), Expectations(level="quick"))


def ids(findings: list[Finding]) -> list[tuple[str, str, str]]:
    return [(f.id, f.subject.id, f.status) for f in findings]


def rewrite(machine: Machine, node: int, old: str, new: str) -> None:
    path = f"{TOPOLOGY}/nodes/{node}/properties"
    assert old in str(machine.files[path])
    machine.files[path] = str(machine.files[path]).replace(old, new)


@pytest.mark.parametrize(
    ("product", "gpus", "hives", "summary"),
    [
        ("mi300x", 8, (8,), "8 GPUs, 28 of 28 pairs linked by xGMI, in one hive of 8."),
        ("mi210", 8, (4, 4), "8 GPUs, 12 of 28 pairs linked by xGMI, in hives of 4 and 4."),
        ("mi210", 8, (), "8 GPUs, 0 of 28 pairs linked by xGMI."),
        ("mi250x", 8, (8,), "8 GPUs, 28 of 28 pairs linked by xGMI, in one hive of 8."),
        ("mi300a", 4, (4,), "4 GPUs, 6 of 6 pairs linked by xGMI, in one hive of 4."),
        ("w7900", 2, (), "2 GPUs, 0 of 1 pairs linked by xGMI."),
        ("mi100", 1, (), "One GPU, linked with the processor."),
    ],
)
def test_healthy_machines_pass(product: str, gpus: int, hives: tuple[int, ...], summary: str) -> None:
    (finding,) = found(gpu_host(product, gpus, hives=hives))
    assert ids([finding]) == [("gpu.topology/ok", "host", "pass")]
    assert finding.message == summary
    assert str(finding.evidence[0].value).startswith("0000:12:00.0 (node 1) xGMI to")


def test_64_cpx_partitions_pass() -> None:
    assert ids(found(gpu_host("mi300x", 8, hives=(8,), partitions=8))) == [("gpu.topology/ok", "host", "pass")]


def test_63_of_64_cpx_partitions_name_the_device() -> None:
    machine = gpu_host("mi300x", 8, hives=(8,), partitions=8)
    machine.forget_node(20)
    (finding,) = found(machine)
    assert ids([finding]) == [("gpu.topology/partition-missing", "0000:32:00.0", "fail")]
    assert (finding.expected, finding.actual) == ("8 partitions", "7")
    assert finding.evidence[0].value == "nodes 17, 18, 19, 21, 22, 23, 24"


def test_a_partition_mode_that_was_read_decides_how_many_there_are() -> None:
    machine = gpu_host("mi300x", 2, hives=(2,), partitions=4)
    for bdf in machine.bdfs:
        machine.set(bdf, current_compute_partition="CPX")
    findings = found(machine)
    assert ids(findings) == [("gpu.topology/partition-missing", bdf, "fail") for bdf in machine.bdfs]
    assert findings[0].expected == "8 partitions"


def test_partition_modes_and_wiring_that_are_not_verified_warn_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GpuProduct, "may_fail", lambda row, *fields: False)
    machine = gpu_host("mi300x", 8, hives=(4, 4), partitions=8)
    machine.forget_node(20)
    assert ids(found(machine)) == [
        ("gpu.topology/partition-missing", "0000:32:00.0", "warn"),
        ("gpu.topology/not-one-hive", "host", "warn"),
    ]


def test_a_link_of_one_direction() -> None:
    machine = gpu_host("mi210", 4, hives=(4,))
    machine.unlink(3, 1)
    (finding,) = found(machine)
    assert ids([finding]) == [("gpu.topology/one-way", "0000:12:00.0-0000:32:00.0", "fail")]
    assert [(e.source, e.value) for e in finding.evidence] == [
        (f"{TOPOLOGY}/nodes/1/io_links", "xGMI to node 3"),
        (f"{TOPOLOGY}/nodes/3/io_links", "no link to node 1"),
    ]


def test_a_link_that_is_xgmi_one_way_and_pcie_the_other() -> None:
    machine = gpu_host("mi210", 2, hives=(2,))
    path = f"{TOPOLOGY}/nodes/2/io_links/1/properties"
    machine.files[path] = str(machine.files[path]).replace("type 11", "type 2")
    (finding,) = found(machine)
    assert ids([finding]) == [("gpu.topology/one-way", "0000:12:00.0-0000:22:00.0", "fail")]
    assert finding.actual == "PCIe"


def test_a_hive_that_misses_one_link_both_ways() -> None:
    machine = gpu_host("mi300x", 8, hives=(8,))
    machine.unlink(2, 5)
    machine.unlink(5, 2)
    (finding,) = found(machine)
    assert ids([finding]) == [("gpu.topology/hive-incomplete", "0000:22:00.0-0000:52:00.0", "fail")]
    assert finding.actual == "0 of 1 links"


def test_an_mi300x_that_left_its_hive_fails_on_bare_metal_and_warns_in_a_guest() -> None:
    for guest, status in ((False, "fail"), (True, "warn")):
        machine = gpu_host("mi300x", 8, hives=(8,), guest=guest)
        rewrite(machine, 3, f"hive_id {0xF00D0000}", "hive_id 0")
        for other in (1, 2, 4, 5, 6, 7, 8):
            machine.unlink(3, other)
            machine.unlink(other, 3)
        (finding,) = found(machine)
        assert ids([finding]) == [("gpu.topology/not-one-hive", "host", status)]
        assert "0000:32:00.0 hive none" in str(finding.evidence[0].value)


def test_seven_mi210_in_hives_of_four_and_three_are_uneven() -> None:
    machine = gpu_host("mi210", 8, hives=(4, 4))
    machine.take_off_bus(machine.bdfs[7])
    (finding,) = found(machine)
    assert ids([finding]) == [("gpu.topology/uneven-hives", "host", "warn")]
    assert finding.actual == "3 and 4"


def test_a_direct_link_that_is_down_shows_as_a_second_hop() -> None:
    machine = gpu_host("mi300x", 8, hives=(8,))
    for start, index, end in ((1, 2, 2), (2, 1, 1)):
        path = f"{TOPOLOGY}/nodes/{start}/io_links/{index}/properties"
        assert f"node_to {end}\n" in str(machine.files[path])
        machine.files[path] = str(machine.files[path]).replace("weight 15", "weight 30")
    (finding,) = found(machine)
    assert ids([finding]) == [("gpu.topology/indirect", "0000:12:00.0-0000:22:00.0", "warn")]


def test_mi250x_gcds_two_hops_apart_are_wired_so() -> None:
    machine = gpu_host("mi250x", 8, hives=(8,))
    path = f"{TOPOLOGY}/nodes/1/io_links/2/properties"
    machine.files[path] = str(machine.files[path]).replace("weight 15", "weight 30")
    assert ids(found(machine)) == [("gpu.topology/ok", "host", "pass")]


def test_a_gpu_that_the_compute_driver_left_out_names_the_logs_reason() -> None:
    machine = gpu_host("mi100", 2)
    machine.forget_node(2)
    machine.files["/dev/kmsg"] = kmsg("kfd kfd: amdgpu: skipped device 1002:738c, PCI rejects atomics 730<0")
    (finding,) = found(machine)
    assert ids([finding]) == [("gpu.topology/no-node", "0000:22:00.0", "fail")]
    assert "PCI rejects atomics" in str(finding.evidence[1].value)


def test_a_node_whose_gpu_left_the_bus_warns() -> None:
    machine = gpu_host("mi100", 2)
    nodes = {path: text for path, text in machine.files.items() if path.startswith(TOPOLOGY)}
    machine.take_off_bus("0000:22:00.0")
    machine.files.update(nodes)
    assert ids(found(machine)) == [("gpu.topology/off-bus", "0000:22:00.0", "warn")]


def test_a_board_of_a_product_that_is_not_in_the_table_is_judged_by_structure_alone() -> None:
    machine = gpu_host("mi355x", 8, hives=(8,), device_id="0x75ff")
    assert ids(found(machine)) == [("gpu.topology/ok", "host", "pass")]
    machine.unlink(1, 2)
    assert ids(found(machine)) == [("gpu.topology/one-way", "0000:22:00.0-0000:12:00.0", "fail")]


def test_gpus_that_a_container_was_not_given_are_no_fault() -> None:
    machine = gpu_host("mi300x", 8, hives=(8,))
    machine.files |= IN_DOCKER
    for node in range(3, 9):
        hide(machine, node)
    (finding,) = found(machine)
    assert ids([finding]) == [("gpu.topology/ok", "host", "pass")]
    assert finding.message == "2 GPUs, 1 of 1 pairs linked by xGMI, in one hive of 2."


def test_a_container_without_any_gpu_is_skipped() -> None:
    machine = gpu_host("mi210", 2)
    for node in (1, 2):
        hide(machine, node)
    assert ids(found(machine)) == [("gpu.topology/not-applicable", "host", "skip")]


def test_links_that_cannot_be_read_are_unknown_not_missing() -> None:
    machine = gpu_host("mi210", 2, hives=(2,))
    machine.files[f"{TOPOLOGY}/nodes/1/io_links/2/properties"] = "garbage"
    (finding,) = found(machine)
    assert ids([finding]) == [("gpu.topology/failed", "0000:12:00.0", "unknown")]
    assert finding.evidence[-1].source == f"{TOPOLOGY}/nodes/1/io_links/2/properties"


def test_a_node_that_cannot_be_read_is_no_missing_gpu() -> None:
    """The GPU behind it has no node that is known, and nothing says that it has none."""
    machine = gpu_host("mi210", 8, hives=(4, 4))
    machine.unread(f"{TOPOLOGY}/nodes/3/properties", "timeout")
    (finding,) = found(machine)
    assert ids([finding]) == [("gpu.topology/timeout", "host", "unknown")]
    assert finding.evidence[-1].source == f"{TOPOLOGY}/nodes/3/properties"


def test_a_partition_whose_node_cannot_be_read_is_not_missing() -> None:
    machine = gpu_host("mi300x", 8, hives=(8,), partitions=8)
    machine.unread(f"{TOPOLOGY}/nodes/20/properties", "failed")
    assert ids(found(machine)) == [("gpu.topology/failed", "host", "unknown")]


def test_links_of_one_gpu_that_cannot_be_listed_break_no_hive() -> None:
    """Seven pairs of the hive have an end that does not say; the other 21 are judged as ever."""
    machine = gpu_host("mi300x", 8, hives=(8,))
    machine.unread(f"{TOPOLOGY}/nodes/4/io_links", "timeout")
    assert ids(found(machine)) == [("gpu.topology/timeout", "0000:42:00.0", "unknown")]
    machine.unlink(1, 2)
    machine.unlink(2, 1)
    assert ids(found(machine)) == [
        ("gpu.topology/hive-incomplete", "0000:12:00.0-0000:22:00.0", "fail"),
        ("gpu.topology/timeout", "0000:42:00.0", "unknown"),
    ]


@pytest.mark.parametrize("attribute", ["vendor", "device"])
def test_a_listed_gpu_whose_ids_cannot_be_read_is_not_off_the_bus(attribute: str) -> None:
    machine = gpu_host("mi210", 8, hives=(4, 4))
    bdf = machine.bdfs[2]
    machine.unread(f"{machine.pci(bdf)}/{attribute}", "timeout")
    del machine.links[f"{machine.pci(bdf)}/driver"]
    assert ids(found(machine)) == [("gpu.topology/unreadable", "host", "unknown")]


def test_without_a_topology_it_is_unknown() -> None:
    machine = gpu_host("mi210", 2)
    machine.files = {path: text for path, text in machine.files.items() if not path.startswith(TOPOLOGY)}
    assert ids(found(machine)) == [("gpu.topology/absent", "host", "unknown")]


def test_without_a_driver_and_without_a_gpu_it_is_skipped() -> None:
    machine = gpu_host("mi210", 2)
    machine.files = {path: text for path, text in machine.files.items() if not path.startswith(TOPOLOGY)}
    for bdf in machine.bdfs:
        machine.links.pop(f"{machine.pci(bdf)}/driver")
    assert ids(found(machine)) == [("gpu.topology/not-applicable", "host", "skip")]
    assert ids(found(cpu_host())) == [("gpu.topology/not-applicable", "host", "skip")]


def recorded(name: str) -> list[Finding]:
    return judge("gpu.topology", open_host(CORPUS / "kfd" / f"{name}.tar.xz"), Expectations(level="quick"))


@needs_corpus
def test_recorded_mi210_in_two_hives_of_four_is_right() -> None:
    (finding,) = recorded("mi210-8gpu-2hive-epyc64x2")
    assert ids([finding]) == [("gpu.topology/ok", "host", "pass")]
    assert finding.message == "8 GPUs, 12 of 28 pairs linked by xGMI, in hives of 4 and 4."


@needs_corpus
def test_recorded_mi300x_misses_one_of_64_partitions() -> None:
    (finding,) = recorded("mi300x-8gpu-cpx-63of64-epyc96x2")
    assert ids([finding]) == [("gpu.topology/partition-missing", "0000:e5:00.0", "fail")]


@needs_corpus
def test_recorded_vega10_with_a_copied_node_contradicts_itself() -> None:
    (finding,) = recorded("vega10-1gpu-copied-as-2")
    assert ids([finding]) == [("gpu.topology/inconsistent", "node2", "fail")]
    assert [e.value for e in finding.evidence] == [
        "node 2 repeats gpu_id 13261 of node 1",
        "io_links/0 of node 2 says that it starts at node 1",
    ]
