"""The PCI tree: GPUs with their links, BARs and IOMMU group, and the bridges above them.

Read are attributes of the PCI core alone. The kernel answers them from what it knows (or from config space without
resuming the device), so reading them does not wake a sleeping GPU.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct

from amdcheck.facts.registry import fact
from amdcheck.host.protocol import Host
from amdcheck.knowledge.gpus import AMD_VENDOR
from amdcheck.model.value import Known, Unknown, Value

T = TypeVar("T")

DEVICES = "/sys/bus/pci/devices"
# Class codes that a GPU may have: 0300 Radeon, 0302/0380 MI50 to MI250, 1200 MI300 and later.
GPU_CLASSES = ("0x03", "0x12")

_BDF = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]")
_SPEED = re.compile(r"(\d{1,3}(?:\.\d)?) GT/s( PCIe)?")
_BAR_LINES = 6


class PciDevice(Struct, frozen=True, kw_only=True):
    """One function on the bus. Ids are text as the kernel prints them: 0x1002, 0x740f, class 0x038000."""

    bdf: str
    location: Value[str]  # the device's real place in sysfs, below its bridges
    vendor: Value[str]
    device: Value[str]
    subsystem_vendor: Value[str]
    subsystem_device: Value[str]
    class_code: Value[str]
    revision: Value[str]
    driver: Value[str]  # bound driver, `absent` when none is
    parents: tuple[str, ...]  # BDFs from the nearest bridge up to the root port; empty in many VMs
    current_link_width: Value[int]  # lanes; a link that is down is unknown, never 0
    max_link_width: Value[int]
    current_link_speed: Value[float]  # GT/s
    max_link_speed: Value[float]
    bars: Value[tuple[int, ...]]  # sizes in bytes by BAR number, 0 where there is none
    iommu_group_type: Value[str]  # identity, DMA, DMA-FQ, unmanaged, blocked
    numa_node: Value[int]  # -1: the firmware names none
    is_virtual_function: bool  # physfn link there
    runtime_status: Value[str]  # active, suspended

    @property
    def path(self) -> str:
        return f"{DEVICES}/{self.bdf}"


@fact
class PciTree(Struct, frozen=True, kw_only=True):
    """Every device on the listing is named; only AMD's GPUs (display and accelerator classes) and the bridges above
    them are read in full and kept in `devices`."""

    listing: Value[tuple[str, ...]]  # all BDFs on /sys/bus/pci/devices
    devices: dict[str, PciDevice]
    unreadable: dict[str, Unknown]  # listed, but what it is could not be read: may be a GPU

    @classmethod
    def read(cls, host: Host) -> PciTree:
        listing = host.entries(DEVICES).parse(_addresses)
        devices: dict[str, PciDevice] = {}
        unreadable: dict[str, Unknown] = {}
        for bdf in listing.or_none() or ():
            class_code = _text(host, bdf, "class")
            if isinstance(class_code, Known) and not class_code.value.startswith(GPU_CLASSES):
                continue
            vendor = _text(host, bdf, "vendor")
            if vendor.or_none() == AMD_VENDOR:
                devices[bdf] = _device(host, bdf, class_code, vendor)
            elif isinstance(vendor, Unknown):
                unreadable[bdf] = vendor
        for bridge in [parent for device in devices.values() for parent in device.parents]:
            if bridge not in devices:
                devices[bridge] = _device(host, bridge, _text(host, bridge, "class"), _text(host, bridge, "vendor"))
        return cls(listing=listing, devices=devices, unreadable=unreadable)

    def gpus(self) -> tuple[PciDevice, ...]:
        """Those of `devices` that are no bridges: AMD's display controllers and accelerators."""
        bridges = {parent for device in self.devices.values() for parent in device.parents}
        return tuple(device for device in self.devices.values() if device.bdf not in bridges)


def _addresses(names: tuple[str, ...]) -> tuple[str, ...]:
    """The BDFs of the listing, every one of them: a cut list would look like GPUs that are gone. Anything else in the
    folder is no device."""
    return tuple(name for name in names if _BDF.fullmatch(name))


def _device(host: Host, bdf: str, class_code: Value[str], vendor: Value[str]) -> PciDevice:
    location = host.resolve(f"{DEVICES}/{bdf}")
    return PciDevice(
        bdf=bdf,
        location=location,
        vendor=vendor,
        device=_text(host, bdf, "device"),
        subsystem_vendor=_text(host, bdf, "subsystem_vendor"),
        subsystem_device=_text(host, bdf, "subsystem_device"),
        class_code=class_code,
        revision=_text(host, bdf, "revision"),
        driver=host.link(f"{DEVICES}/{bdf}/driver").parse(_last_name),
        parents=_bridges_above(location, bdf),
        current_link_width=_attribute(host, bdf, "current_link_width", parse_link_width),
        max_link_width=_attribute(host, bdf, "max_link_width", parse_link_width),
        current_link_speed=_attribute(host, bdf, "current_link_speed", parse_link_speed),
        max_link_speed=_attribute(host, bdf, "max_link_speed", parse_link_speed),
        bars=_attribute(host, bdf, "resource", parse_bars),
        iommu_group_type=_text(host, bdf, "iommu_group/type"),
        numa_node=_attribute(host, bdf, "numa_node", _signed),
        is_virtual_function=isinstance(host.link(f"{DEVICES}/{bdf}/physfn"), Known),
        runtime_status=_text(host, bdf, "power/runtime_status"),
    )


def _attribute(host: Host, bdf: str, name: str, convert: Callable[[str], T]) -> Value[T]:
    return host.read(f"{DEVICES}/{bdf}/{name}", limit=4096).parse(convert)


def _text(host: Host, bdf: str, name: str) -> Value[str]:
    return host.read(f"{DEVICES}/{bdf}/{name}", limit=4096).parse(_word)


def _word(text: str) -> str:
    text = text.strip()
    if not text:
        raise ValueError("empty")
    return text


def _signed(text: str) -> int:
    text = text.strip()
    if re.fullmatch(r"-?\d{1,9}", text) is None:
        raise ValueError(f"not a number: {text[:40]!r}")
    return int(text)


def _last_name(target: str) -> str:
    return target.rpartition("/")[2]


def _bridges_above(location: Value[str], bdf: str) -> tuple[str, ...]:
    """The BDFs in the device's real path, nearest first, of /sys/devices/pci0000:00/0000:00:01.1/0000:01:00.0."""
    if isinstance(location, Unknown):
        return ()
    return tuple(name for name in reversed(location.value.split("/")) if name != bdf and _BDF.fullmatch(name))


def parse_link_width(text: str) -> int:
    """Lanes of a link. 0 and 63 mean that there is no link, 255 that the device could not be read (D3cold)."""
    lanes = _signed(text)
    if lanes in (0, 63, 255):
        raise ValueError(f"{lanes}: the link is down or the device does not answer")
    if not 1 <= lanes <= 32:
        raise ValueError(f"{lanes} is no link width")
    return lanes


def parse_link_speed(text: str) -> float:
    """GT/s of a link, from the text of any kernel: "16 GT/s", "16.0 GT/s PCIe". "Unknown" is a failed reading."""
    match = _SPEED.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"no link speed: {text.strip()[:40]!r}")
    return float(match[1])


def parse_bars(text: str) -> tuple[int, ...]:
    """Sizes in bytes of the six BARs, from the first six "start end flags" lines of `resource`."""
    sizes = []
    for line in text.splitlines()[:_BAR_LINES]:
        words = line.split()
        if len(words) != 3 or any(re.fullmatch(r"0x[0-9a-f]{1,16}", word) is None for word in words):
            raise ValueError(f"not a resource line: {line[:60]!r}")
        start, end, flags = (int(word, 16) for word in words)
        sizes.append(end - start + 1 if flags and end >= start else 0)
    if not sizes:
        raise ValueError("empty")
    return tuple(sizes)
