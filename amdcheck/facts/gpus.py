"""The AMD GPUs of the machine: the bus listing, the driver's attributes and the KFD nodes put together by address."""

from __future__ import annotations

from msgspec import Struct

from amdcheck.facts.kfd import Kfd
from amdcheck.facts.pci import PciTree
from amdcheck.facts.registry import fact
from amdcheck.host.protocol import Host
from amdcheck.model.finding import Subject
from amdcheck.model.value import Value


class Partition(Struct, frozen=True, kw_only=True):
    """One KFD node of a device; an unpartitioned device has one."""

    kfd_node: int
    render_minor: int | None
    gfx: str | None
    compute_units: int | None
    memory_bytes: Value[int]


class Gpu(Struct, frozen=True, kw_only=True):
    """One physical device. Attributes are amdgpu's sysfs files; `absent` is normal for many of them."""

    bdf: str
    on_bus: bool  # seen on the PCI listing (else known from KFD alone)
    device_id: Value[str]  # 0x740f
    class_code: Value[str]
    driver: Value[str]
    product: str | None  # row of the GPU table, None: not in the table
    product_name: str | None  # as the field says it: Instinct MI210
    is_virtual_function: bool
    gfx: Value[str]
    numa_node: Value[int]
    vram_bytes: Value[int]
    vbios: Value[str]
    unique_id: Value[str]  # 16 hex digits
    serial: Value[str]
    slot: Value[str]
    compute_partition: Value[str]
    memory_partition: Value[str]
    hive_id: Value[str]
    firmware: dict[str, str]
    render_nodes: tuple[
        str, ...
    ]  # /dev/dri/renderD128 ... from the device's drm folder
    partitions: tuple[Partition, ...]

    @property
    def subject(self) -> Subject:
        return Subject(kind="gpu", id=self.bdf)


class NotJudged(Struct, frozen=True, kw_only=True):
    """An AMD display device that no compute check applies to: integrated, pre-gfx9, or bound to no amdgpu."""

    bdf: str
    device_id: str
    reason: str


@fact
class Gpus(Struct, frozen=True, kw_only=True):
    """`devices` counts physical devices, never partitions."""

    listing: Value[tuple[str, ...]]
    devices: tuple[Gpu, ...]
    not_judged: tuple[NotJudged, ...]

    @classmethod
    def read(cls, host: Host, pci: PciTree, kfd: Kfd) -> Gpus:
        raise NotImplementedError


def has_amd_gpu(gpus: Gpus) -> str | None:
    """Predicate: None when there is an AMD GPU to judge, else the reason to skip."""
    raise NotImplementedError
