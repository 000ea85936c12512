"""The PCI tree as facts: what a file of each era says, who hangs below whom, what is left unread."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amdcheck.facts.pci import PciTree, parse_bars, parse_link_speed, parse_link_width
from amdcheck.host.open import open_host
from amdcheck.model.value import Known, Unknown
from tests.corpus import CORPUS, needs_corpus
from tests.gpu_hosts import cpu_host, gpu_host
from tests.judge import read_fact
from tests.memory_host import memory_host


@pytest.mark.parametrize(
    ("text", "speed"),
    [
        ("16 GT/s\n", 16.0),
        ("16.0 GT/s PCIe\n", 16.0),
        ("2.5 GT/s PCIe", 2.5),
        ("8 GT/s", 8.0),
        ("64.0 GT/s PCIe", 64.0),
    ],
)
def test_link_speed_of_every_era(text: str, speed: float) -> None:
    assert parse_link_speed(text) == speed


@pytest.mark.parametrize("text", ["Unknown\n", "Unknown speed", "", "16 GB/s", "\x00", "1e9 GT/s"])
def test_a_speed_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no link speed"):
        parse_link_speed(text)


@pytest.mark.parametrize("text", ["0", "63\n", "255"])
def test_a_width_that_says_no_link_is_never_a_number(text: str) -> None:
    with pytest.raises(ValueError, match="the link is down or the device does not answer"):
        parse_link_width(text)


@pytest.mark.parametrize("text", ["-1", "33", "x16", "", "99999999999"])
def test_a_width_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"no link width|not a number"):
        parse_link_width(text)


@given(st.text(max_size=200))
def test_parsers_take_any_text(text: str) -> None:
    for parse in (parse_link_speed, parse_link_width, parse_bars):
        try:
            parse(text)
        except ValueError:
            continue


def test_bar_sizes_by_number() -> None:
    text = (
        "0x0000007c00000000 0x0000007dffffffff 0x000000000014220c\n"
        "0x0000000000000000 0x0000000000000000 0x0000000000000000\n"
        "0x0000007e00000000 0x0000007e0fffffff 0x000000000014220c\n"
    )
    assert parse_bars(text) == (8 << 30, 0, 256 << 20)


def test_a_gpu_below_its_cards_switch_names_every_bridge_up_to_the_root_port() -> None:
    tree = read_fact(PciTree, gpu_host("mi100", 1).host())
    gpu = tree.devices["0000:12:00.0"]
    assert gpu.parents == ("0000:11:00.0", "0000:10:00.0", "0000:0f:01.1")
    assert gpu.driver == Known("amdgpu", "/sys/bus/pci/devices/0000:12:00.0/driver")
    assert gpu.current_link_width == Known(16, "/sys/bus/pci/devices/0000:12:00.0/current_link_width")
    assert [device.bdf for device in tree.gpus()] == ["0000:12:00.0"]


def test_a_cpu_host_reads_no_device_in_full() -> None:
    tree = read_fact(PciTree, cpu_host().host())
    assert tree.listing.or_none() == ("0000:00:01.0", "0000:01:00.0", "0000:02:00.0")
    assert tree.devices == {}
    assert tree.unreadable == {}


def test_a_dead_link_and_no_driver_are_unknown_with_their_reason() -> None:
    machine = gpu_host("mi210", 1)
    machine.set("0000:12:00.0", current_link_width="63", current_link_speed="Unknown")
    machine.links.pop(machine.pci("0000:12:00.0") + "/driver")
    gpu = read_fact(PciTree, machine.host()).devices["0000:12:00.0"]
    assert isinstance(gpu.current_link_width, Unknown)
    assert gpu.current_link_width.reason == "failed"
    assert "63" in str(gpu.current_link_width.detail)
    assert isinstance(gpu.driver, Unknown)
    assert gpu.driver.reason == "absent"


def test_a_device_that_says_nothing_is_named_as_unreadable() -> None:
    host = memory_host({"/sys/bus/pci/devices/0000:03:00.0/irq": "5\n"})
    tree = read_fact(PciTree, host)
    assert list(tree.unreadable) == ["0000:03:00.0"]


def test_no_listing_is_unknown() -> None:
    assert isinstance(read_fact(PciTree, memory_host({"/proc/cpuinfo": ""})).listing, Unknown)


def test_a_guest_in_its_own_pci_domain_has_no_bridges() -> None:
    machine = gpu_host("mi300x", 1, guest=True, device_id="0x74b5")
    gpu = read_fact(PciTree, machine.host()).devices["0000:12:00.0"]
    assert gpu.parents == ()


@needs_corpus
def test_recorded_vega10_attributes() -> None:
    recorded = open_host(CORPUS / "drm" / "drm-vega10-card0.tar.xz")
    folder = "/sys/class/drm/card0/device"
    names = (recorded.entries(folder).or_none() or ())[:100]
    files = {
        f"/sys/bus/pci/devices/0000:09:00.0/{n}": t for n in names if (t := recorded.read(f"{folder}/{n}").or_none())
    }
    tree = read_fact(PciTree, memory_host(files))
    gpu = tree.devices["0000:09:00.0"]
    assert (gpu.device.or_none(), gpu.revision.or_none()) == ("0x687f", "0xc1")
    assert (gpu.current_link_speed.or_none(), gpu.max_link_speed.or_none()) == (8.0, 8.0)
    assert (gpu.current_link_width.or_none(), gpu.max_link_width.or_none()) == (16, 16)
    assert gpu.numa_node.or_none() == -1
    assert gpu.bars.or_none() == (8 << 30, 0, 256 << 20, 0, 256, 512 << 10)


@needs_corpus
def test_recorded_ryzen_hangs_its_radeon_below_one_root_port() -> None:
    tree = read_fact(PciTree, open_host(CORPUS / "fsroot" / "ryzen1600-radeon-ghw.tar.xz"))
    (gpu,) = tree.gpus()
    assert (gpu.bdf, gpu.device.or_none(), gpu.parents) == ("0000:0a:00.0", "0x6758", ("0000:00:03.1",))
