"""The PCI tree: devices with their links, BARs and IOMMU group, and the bridges above them."""

from __future__ import annotations

from msgspec import Struct

from amdcheck.facts.registry import fact
from amdcheck.host.protocol import Host
from amdcheck.model.value import Value


class PciDevice(Struct, frozen=True, kw_only=True):
    """One function on the bus. Ids are text as the kernel prints them: 0x1002, 0x740f, class 0x038000."""

    bdf: str
    vendor: Value[str]
    device: Value[str]
    subsystem_vendor: Value[str]
    subsystem_device: Value[str]
    class_code: Value[str]
    revision: Value[str]
    driver: Value[str]  # bound driver, `absent` when none is
    parents: tuple[
        str, ...
    ]  # BDFs from the nearest bridge up to the root port; empty in many VMs
    current_link_width: Value[int]  # lanes
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
        return f"/sys/bus/pci/devices/{self.bdf}"


@fact
class PciTree(Struct, frozen=True, kw_only=True):
    """Every device on the listing is named; only GPUs (display and accelerator classes) and the bridges above
    them are read in full and kept in `devices`."""

    listing: Value[tuple[str, ...]]  # all BDFs on /sys/bus/pci/devices
    devices: dict[str, PciDevice]

    @classmethod
    def read(cls, host: Host) -> PciTree:
        raise NotImplementedError
