"""pci.link-width: every hop against the narrower of its two ends, and what may not be judged."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from amdcheck.model.expectations import Expectations
from amdcheck.model.finding import Finding
from tests.corpus import CORPUS, needs_corpus
from tests.gpu_hosts import Machine, add_device, cpu_host, gpu_host, link
from tests.judge import judge

GPU, DOWN, UP, ROOT = "0000:12:00.0", "0000:11:00.0", "0000:10:00.0", "0000:0f:01.1"


def found(machine: Machine) -> list[Finding]:
    return judge("pci.link-width", machine.host(), Expectations(level="quick"))


def ids(findings: list[Finding]) -> list[tuple[str, str, str]]:
    return [(f.id, f.subject.id, f.status) for f in findings]


def narrow(machine: Machine, bdf: str, width: int, speed: str | None = None) -> None:
    machine.set(bdf, current_link_width=str(width))
    if speed:
        machine.set(bdf, current_link_speed=speed)


@pytest.mark.parametrize("product", ["mi50", "mi100", "mi210", "mi250x", "mi300x", "mi350p", "w7900"])
def test_a_full_link_passes_and_every_hop_is_in_the_evidence(product: str) -> None:
    (finding,) = found(gpu_host(product, 1))
    assert ids([finding]) == [("pci.link-width/ok", GPU, "pass")]
    assert finding.evidence[-1].value == "x16"
    assert ROOT in str(finding.evidence[-1].note)


def test_a_slot_link_hidden_behind_the_cards_bridge_fails_and_names_the_hop() -> None:
    machine = gpu_host("mi100", 2)
    narrow(machine, UP, 4)
    narrow(machine, ROOT, 4)
    findings = found(machine)
    assert ids(findings) == [("pci.link-width/degraded", GPU, "fail"), ("pci.link-width/ok", "0000:22:00.0", "pass")]
    assert (findings[0].expected, findings[0].actual) == ("x16", "x4")
    (hop,) = findings[0].evidence
    assert (hop.source, hop.value) == (f"/sys/bus/pci/devices/{UP}/current_link_width", "x4")
    assert hop.note == f"link {UP} - {ROOT}, ends can do x16 and x16"
    assert findings[0].remedy is not None
    assert findings[0].remedy.steps[0].argv == ("lspci", "-vv", "-s", ROOT)


def test_one_end_that_sees_the_lost_lanes_is_enough() -> None:
    machine = gpu_host("mi300x", 1)
    narrow(machine, ROOT, 8)
    assert ids(found(machine)) == [("pci.link-width/degraded", GPU, "fail")]


def test_an_eight_lane_slot_is_full_with_eight() -> None:
    machine = gpu_host("mi250x", 1)
    machine.set(ROOT, current_link_width="8", max_link_width="8")
    machine.set(UP, current_link_width="8", max_link_width="16")
    (finding,) = found(machine)
    assert ids([finding]) == [("pci.link-width/ok", GPU, "pass")]
    assert finding.expected == "x8"


def test_what_the_card_says_of_its_inner_link_is_not_judged() -> None:
    machine = gpu_host("mi100", 1)
    narrow(machine, GPU, 1)
    (finding,) = found(machine)
    assert ids([finding]) == [("pci.link-width/ok", GPU, "pass")]
    assert "not judged" in str(finding.evidence[0].note)


def test_a_link_between_host_switch_and_root_port_is_judged_too() -> None:
    machine = cpu_host()
    machine.files["/sys/module/amdgpu/initstate"] = "live\n"
    chain = ["0000:40:01.1", "0000:41:00.0", "0000:42:00.0"]
    for index, bdf in enumerate(chain):
        add_device(machine, bdf, chain[:index], vendor="0x1000", device="0xc010", class_code="0x060400", **link())
    add_device(machine, "0000:43:00.0", chain, vendor="0x1002", device="0x75a8", class_code="0x120000", **link())
    narrow(machine, "0000:41:00.0", 8)
    narrow(machine, "0000:40:01.1", 8)
    (finding,) = found(machine)
    assert ids([finding]) == [("pci.link-width/degraded", "0000:43:00.0", "fail")]
    assert "0000:41:00.0 - 0000:40:01.1" in finding.message


def test_a_sleeping_gpus_narrow_link_warns() -> None:
    machine = gpu_host("mi210", 1)
    narrow(machine, UP, 8)
    machine.files[f"{machine.pci(GPU)}/power/runtime_status"] = "suspended\n"
    (finding,) = found(machine)
    assert ids([finding]) == [("pci.link-width/suspended", GPU, "warn")]


@pytest.mark.parametrize(
    ("product", "speed", "outcome", "status"),
    [
        ("w7900", "2.5 GT/s PCIe", "trained-down", "warn"),
        ("mi50", "2.5 GT/s PCIe", "trained-down", "warn"),
        ("w7900", None, "degraded", "fail"),  # full speed: no power saving, lanes are lost
        ("mi300x", "2.5 GT/s PCIe", "degraded", "fail"),  # Instinct holds its link
    ],
)
def test_idle_links_of_products_that_save_power_warn(
    product: str, speed: str | None, outcome: str, status: str
) -> None:
    machine = gpu_host(product, 1)
    narrow(machine, UP, 4, speed)
    narrow(machine, ROOT, 4, speed)
    assert ids(found(machine)) == [(f"pci.link-width/{outcome}", GPU, status)]


@pytest.mark.parametrize("width", ["0", "63", "255", "", "garbage"])
def test_a_width_that_says_nothing_is_unknown(width: str) -> None:
    machine = gpu_host("mi300x", 1)
    for port in (UP, ROOT):
        machine.set(port, current_link_width=width)
    (finding,) = found(machine)
    assert ids([finding]) == [("pci.link-width/failed", GPU, "unknown")]


def test_an_end_that_does_not_say_its_width_may_be_the_narrower_one() -> None:
    """x8 between a card of x16 and a port that does not say: by design, or a fault."""
    machine = gpu_host("mi300x", 1)
    machine.set(ROOT, current_link_width="8", max_link_width="255")
    (finding,) = found(machine)
    assert ids([finding]) == [("pci.link-width/failed", GPU, "unknown")]


def test_an_end_that_uses_all_its_lanes_speaks_for_what_the_other_can_do() -> None:
    machine = gpu_host("mi300x", 1)
    machine.set(ROOT, max_link_width="255")
    assert ids(found(machine)) == [("pci.link-width/ok", GPU, "pass")]


@pytest.mark.parametrize("port", [GPU, UP, ROOT])
def test_an_end_that_does_not_say_its_width_now_leaves_the_link_unknown(port: str) -> None:
    """The GPU's own end too, which inside the card is not judged: one that does not answer may be gone."""
    machine = gpu_host("mi300x", 1)
    machine.set(port, current_link_width="255")
    (finding,) = found(machine)
    assert ids([finding]) == [("pci.link-width/failed", GPU, "unknown")]
    assert finding.evidence[-1].source == f"/sys/bus/pci/devices/{port}/current_link_width"


def test_lanes_that_one_end_misses_are_lost_though_the_other_is_silent() -> None:
    machine = gpu_host("mi300x", 1)
    machine.set(UP, current_link_width="255")
    narrow(machine, ROOT, 8)
    assert ids(found(machine)) == [("pci.link-width/degraded", GPU, "fail")]


def test_a_guest_without_bridges_is_skipped_where_the_slot_hides() -> None:
    assert ids(found(gpu_host("mi300x", 1, guest=True))) == [("pci.link-width/not-applicable", GPU, "skip")]


def test_a_guest_whose_gpu_has_no_switch_is_judged_by_its_own_end() -> None:
    machine = gpu_host("mi350p", 1, guest=True)
    (finding,) = found(machine)
    assert ids([finding]) == [("pci.link-width/ok", GPU, "pass")]
    assert "no bridge above" in finding.message
    narrow(machine, GPU, 8)
    assert ids(found(machine)) == [("pci.link-width/degraded", GPU, "fail")]


def test_a_virtual_function_and_an_apu_are_skipped() -> None:
    assert ids(found(gpu_host("mi300x", 1, guest=True, device_id="0x74b5"))) == [
        ("pci.link-width/not-applicable", GPU, "skip")
    ]
    assert ids(found(gpu_host("mi300a", 1))) == [("pci.link-width/not-applicable", GPU, "skip")]


def test_a_host_without_gpus_is_skipped() -> None:
    assert ids(found(cpu_host())) == [("pci.link-width/not-applicable", "host", "skip")]


def from_rccl(name: str, *, lanes_above: int) -> Machine:
    """A recorded RCCL topology as a bus: it holds the ports that face up and the GPUs, so the ports that face down and
    the root ports, which it leaves out, are put between them with `lanes_above` at the one above each package."""
    machine = cpu_host()
    machine.files["/sys/module/amdgpu/initstate"] = "live\n"
    tree = ElementTree.parse(CORPUS / "rccl-topo" / f"{name}.xml").getroot()
    for number, top in enumerate(pci for cpu in tree.iter("cpu") for pci in cpu.findall("pci")):
        root = f"00{number + 16:02x}:00:01.0"
        if top.find(".//gpu") is None:
            continue
        add_device(machine, root, [], vendor="0x1022", device="0x1483", class_code="0x060400",
                   **link(*_both(top, lanes_above)))  # fmt: skip
        _descend(machine, top, [root], lanes_above)
    return machine


def _descend(machine: Machine, pci: ElementTree.Element, parents: list[str], lanes_above: int) -> None:
    bdf = pci.attrib["busid"]
    speed, width = pci.attrib["link_speed"], int(pci.attrib["link_width"])
    add_device(machine, bdf, parents, vendor=pci.attrib["vendor"], device=pci.attrib["device"],
               class_code=pci.attrib["class"], **link(width, 16, speed))  # fmt: skip
    below = [child for child in pci.findall("pci") if child.find(".//gpu") is not None]
    for index, child in enumerate(below):
        port = re.sub(r":..:..\..$", f":{int(bdf[5:7], 16) + 1:02x}:{index:02x}.0", bdf)
        add_device(machine, port, [*parents, bdf], vendor=pci.attrib["vendor"], device=pci.attrib["device"],
                   class_code="0x060400", **link(*_both(child, lanes_above)))  # fmt: skip
        _descend(machine, child, [*parents, bdf, port], lanes_above)


def _both(pci: ElementTree.Element, lanes_above: int) -> tuple[int, int]:
    """Width and maximum of the port above this one: the package's switch (1022:14c7) gets what its board wires."""
    width = int(pci.attrib["link_width"])
    return width, lanes_above if pci.attrib["device"] == "0x14c7" else 16


@needs_corpus
@pytest.mark.parametrize("name", ["topo_8p1h", "topo_8p1h_n1"])
def test_recorded_mi250_boards_of_eight_lanes_pass_by_design(name: str) -> None:
    findings = found(from_rccl(name, lanes_above=8))
    assert [(f.id, f.expected) for f in findings] == [("pci.link-width/ok", "x8, x16")] * 8


@needs_corpus
def test_the_same_board_with_sixteen_lanes_above_would_fail() -> None:
    findings = found(from_rccl("topo_8p1h_n1", lanes_above=16))
    assert [(f.id, f.actual) for f in findings] == [("pci.link-width/degraded", "x8")] * 8


@needs_corpus
@pytest.mark.parametrize(("name", "count"), [("topo_3p_pcie", 3), ("topo_8p_940", 8)])
def test_recorded_full_links_pass(name: str, count: int) -> None:
    findings = found(from_rccl(name, lanes_above=16))
    assert [f.id for f in findings] == ["pci.link-width/ok"] * count


def from_hwloc(name: str) -> Machine:
    """A recorded hwloc tree as a bus. It tells GB/s alone: what is not 16 lanes of 16 GT/s is taken as 4 of 2.5."""
    machine = cpu_host()
    machine.files["/sys/module/amdgpu/initstate"] = "live\n"
    _hwloc(machine, ElementTree.parse(CORPUS / "hwloc-xml" / f"{name}.xml").getroot(), [])
    return machine


def _hwloc(machine: Machine, element: ElementTree.Element, parents: list[str]) -> None:
    for child in element.findall("object"):
        bdf = child.get("pci_busid")
        inner = parents
        if bdf is not None:
            kind = re.match(r"(\w{4}) \[(\w{4}):(\w{4})\]", child.get("pci_type", ""))
            assert kind is not None
            full = float(child.get("pci_link_speed", "0")) > 31
            width, speed = (16, "16.0 GT/s PCIe") if full else (4, "2.5 GT/s PCIe")
            add_device(machine, bdf, parents, vendor=f"0x{kind[2]}", device=f"0x{kind[3]}",
                       class_code=f"0x{kind[1]}00", **link(width, 16, speed, "16.0 GT/s PCIe"))  # fmt: skip
            inner = [*parents, bdf]
        _hwloc(machine, child, inner)


@needs_corpus
def test_recorded_mi50_on_rome_run_full_links_all_the_way() -> None:
    findings = found(from_hwloc("mi50-8gpu-rome-2s-nps1-corona-p2"))
    assert [f.id for f in findings] == ["pci.link-width/ok"] * 8


@needs_corpus
def test_recorded_vega20_on_naples_hides_narrow_slots_behind_its_cards() -> None:
    findings = found(from_hwloc("vega20-4gpu-naples-2s-8node-corona"))
    assert [f.id for f in findings] == ["pci.link-width/trained-down"] * 4
    assert findings[0].evidence[0].source.startswith("/sys/bus/pci/devices/0000:11:00.0/")
