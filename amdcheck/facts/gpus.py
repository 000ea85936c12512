"""The AMD GPUs of the machine: the bus listing, the driver's attributes and the KFD nodes put together by address.

A *device* is what has a PCI address of its own: that is what ROCm, Slurm, Kubernetes and --expect-gpus count. On MI250
and MI250X it is a GCD (a module of two shows as two devices); on MI300 and later it is the whole package, however it
is partitioned. Partitions are never devices.

Which PCI devices are judged: vendor 1002 and a row of the product table, or any display or accelerator class bound to
amdgpu, of the same id as one that is, or that the kernel log says amdgpu failed to start. Integrated GPUs, those before
gfx9, and virtual functions that this host hands to guests are not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from amdcheck.facts.kernel_log import KernelLog
from amdcheck.facts.kfd import TOPOLOGY, Kfd, KfdNode
from amdcheck.facts.pci import DEVICES, PciDevice, PciTree
from amdcheck.facts.registry import fact
from amdcheck.facts.text import stripped, unsigned
from amdcheck.host.protocol import Host
from amdcheck.knowledge.gpus import GpuProduct, is_vf_id, marketing_name, product_of, products, reason_not_judged
from amdcheck.model.finding import Subject
from amdcheck.model.value import Known, Unknown, Value

SLOTS = "/sys/bus/pci/slots"
TABLE = "amdcheck product table"

_RENDER = re.compile(r"renderD(\d{1,4})", re.ASCII)
_FIRMWARE = re.compile(r"([a-z0-9_]{1,32})_fw_version")
_HEX = re.compile(r"0x[0-9a-f]{1,16}")


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
    render_nodes: tuple[str, ...]  # /dev/dri/renderD128 ... from the device's drm folder and its KFD nodes
    partitions: tuple[Partition, ...]
    hidden: bool  # amdgpu drives it, it has no KFD node, and the device cgroup hides some: see Gpus.kept_away

    @property
    def subject(self) -> Subject:
        return Subject(kind="gpu", id=self.bdf)

    @property
    def row(self) -> GpuProduct | None:
        """What the table knows of the product."""
        return products()[self.product] if self.product is not None else None

    @property
    def label(self) -> str:
        """The product's name, or what is known instead."""
        return self.product_name or f"GPU {self.device_id.or_none() or 'of unknown id'}"

    @property
    def is_undriven(self) -> bool:
        """It is on the bus, and amdgpu is certainly not bound to it."""
        other = isinstance(self.driver, Known) and self.driver.value != "amdgpu"
        none = isinstance(self.driver, Unknown) and self.driver.reason == "absent"
        return self.on_bus and (other or none)


class NotJudged(Struct, frozen=True, kw_only=True):
    """An AMD display device that no compute check applies to: integrated, pre-gfx9, or bound to no amdgpu."""

    bdf: str
    device_id: str
    driver: str | None
    reason: str


@fact
class Gpus(Struct, frozen=True, kw_only=True):
    """`devices` counts physical devices, never partitions.

    Where the bus listing was read, it alone says what is there: a KFD node whose device is not on it is in `off_bus`.
    Without a listing the KFD nodes are the devices. `unidentified` are on the listing and may be GPUs to judge: what
    tells it could not be read. `kept_away` is how many of the hidden devices the device cgroup accounts for: it hides
    no more of them than nodes, and which node is whose it does not say.
    """

    listing: Value[tuple[str, ...]]
    devices: tuple[Gpu, ...]
    not_judged: tuple[NotJudged, ...]
    unidentified: dict[str, Unknown]  # by BDF
    off_bus: tuple[str, ...]
    kept_away: int

    @classmethod
    def read(cls, host: Host, pci: PciTree, kfd: Kfd, log: KernelLog) -> Gpus:
        listing = pci.listing
        driven = _ids_of_driven(pci, log)
        on_bus: dict[str, PciDevice] = {}
        not_judged = []
        unidentified = dict(pci.unreadable)
        for device in pci.gpus():
            unread, reason = _what_tells(device, driven), _why_not(device, driven)
            if unread is not None:
                unidentified[device.bdf] = unread
            elif reason is None:
                on_bus[device.bdf] = device
            else:
                not_judged.append(
                    NotJudged(
                        bdf=device.bdf,
                        device_id=device.device.or_none() or "unknown",
                        driver=device.driver.or_none(),
                        reason=reason,
                    )
                )
        nodes: dict[str, list[KfdNode]] = {}
        listed = [*on_bus, *unidentified, *(n.bdf for n in not_judged)]
        for node in kfd.gpu_nodes:
            nodes.setdefault(_address_of(node, listed, nodes), []).append(node)
        for passed_over in not_judged:
            nodes.pop(passed_over.bdf, None)
        strangers = [bdf for bdf in nodes if bdf not in on_bus]
        only_kfd = strangers if isinstance(listing, Unknown) else []
        slots = _slots(host) if on_bus else {}
        devices = [
            *(_on_bus(host, device, nodes.get(bdf, []), kfd, slots) for bdf, device in on_bus.items()),
            *(_from_kfd(bdf, nodes[bdf], pci) for bdf in only_kfd),
        ]
        return cls(
            listing=listing,
            devices=tuple(sorted(devices, key=lambda gpu: gpu.bdf)),
            not_judged=tuple(not_judged),
            unidentified=unidentified,
            off_bus=tuple(sorted(bdf for bdf in strangers if isinstance(listing, Known) and bdf not in listing.value)),
            kept_away=min(kfd.hidden, sum(gpu.hidden for gpu in devices)),
        )


def has_amd_gpu(gpus: Gpus) -> str | None:
    """Predicate: None when there is an AMD GPU to judge, else the reason to skip."""
    if gpus.devices:
        return None
    if isinstance(gpus.listing, Unknown):
        return "no AMD GPU found; the PCI listing could not be read, see gpu.present"
    if gpus.unidentified:
        return f"no AMD GPU found; {len(gpus.unidentified)} PCI devices do not say what they are, see gpu.present"
    if gpus.not_judged:
        return "no AMD GPU to judge: " + "; ".join(
            f"{n.bdf} ({n.device_id}) is {n.reason}" for n in gpus.not_judged[:3]
        )
    return "no AMD GPU on the PCI bus"


def _ids_of_driven(pci: PciTree, log: KernelLog) -> frozenset[str]:
    """Device ids that amdgpu drives here or tried to: a product that no table knows yet is a GPU to judge for that."""
    ours = (gpu for gpu in pci.gpus() if gpu.driver.or_none() == "amdgpu" or gpu.bdf in log.gone)
    return frozenset(gpu.device.value for gpu in ours if isinstance(gpu.device, Known))


def _what_tells(device: PciDevice, driven: frozenset[str]) -> Unknown | None:
    """What could not be read and would tell whether this device of AMD's is to be judged; None when that is known."""
    if device.is_virtual_function or device.driver.or_none() == "amdgpu":
        return None
    if isinstance(device.device, Unknown):
        return device.device
    number = device.device.value
    if number in driven or product_of(number) is not None or reason_not_judged(number) is not None:
        return None
    driver = device.driver
    return driver if isinstance(driver, Unknown) and driver.reason != "absent" else None


def _why_not(device: PciDevice, driven: frozenset[str]) -> str | None:
    """Why this device of AMD's is not judged; None when it is."""
    if device.is_virtual_function:
        return "a virtual function of this host: judged in the guest that gets it"
    if isinstance(device.device, Unknown) or product_of(device.device.value) is not None:
        return None
    return reason_not_judged(device.device.value) or (
        None if device.device.value in driven else "neither in the table of compute GPUs nor bound to amdgpu"
    )


def _address_of(node: KfdNode, listed: Iterable[str], taken: Mapping[str, list[KfdNode]]) -> str:
    """The BDF of a KFD node's device, as the bus lists it where it does.

    The function is the node's own where such a device is listed, else 0: partitions count in the function's bits.
    Kernels without `domain` say bus and device alone, and have one node a device: of devices that differ by domain
    alone each gets one.
    """
    domain, bus, device, function = node.location or (0, 0, 0, 0)
    exact = f"{domain:04x}:{bus:02x}:{device:02x}.{function}"
    if exact in listed:
        return exact
    first = f"{domain:04x}:{bus:02x}:{device:02x}.0"
    if first not in listed and "domain" not in (node.properties.or_none() or {}):
        elsewhere = [bdf for bdf in listed if bdf.endswith(f":{bus:02x}:{device:02x}.0")]
        if elsewhere:
            return min(elsewhere, key=lambda bdf: len(taken.get(bdf, ())))
    return first


def _on_bus(host: Host, device: PciDevice, nodes: list[KfdNode], kfd: Kfd, slots: dict[str, str]) -> Gpu:
    partitions = tuple(_partitions(nodes))
    read_id = _device_id(device.device, nodes)
    device_id = read_id.or_none()
    product = _product(device_id, device.revision.or_none(), partitions)
    asleep = device.runtime_status.or_none() == "suspended"
    return Gpu(
        bdf=device.bdf,
        on_bus=True,
        device_id=read_id,
        class_code=device.class_code,
        driver=device.driver,
        product=product[0] if product else None,
        product_name=product[1] if product else None,
        is_virtual_function=device_id is not None and is_vf_id(device_id),
        gfx=_gfx(partitions, product, device.path),
        numa_node=device.numa_node,
        vram_bytes=_attribute(host, device, "mem_info_vram_total").parse(unsigned),
        vbios=_attribute(host, device, "vbios_version"),
        unique_id=_unique_id(_attribute(host, device, "unique_id"), nodes),
        serial=_attribute(host, device, "serial_number"),
        slot=_slot(device, slots),
        compute_partition=_attribute(host, device, "current_compute_partition", asleep=asleep),
        memory_partition=_attribute(host, device, "current_memory_partition", asleep=asleep),
        hive_id=_hive(_attribute(host, device, "xgmi_hive_info/xgmi_hive_id"), nodes),
        firmware=_firmware(host, device),
        render_nodes=_render_nodes(host, device, partitions),
        partitions=partitions,
        hidden=kfd.hidden > 0 and not partitions and device.driver.or_none() == "amdgpu",
    )


def _from_kfd(bdf: str, nodes: list[KfdNode], pci: PciTree) -> Gpu:
    """A device known from its KFD nodes alone, where no bus listing could be read."""
    partitions = tuple(_partitions(nodes))
    source = f"{TOPOLOGY}/nodes/{nodes[0].id}/properties"
    read_id = _device_id(Unknown("absent", source, "no device_id"), nodes)
    device_id = read_id.or_none()
    product = _product(device_id, None, partitions)
    unread = pci.listing if isinstance(pci.listing, Unknown) else Unknown("absent", f"{DEVICES}/{bdf}")
    memory = [partition.memory_bytes for partition in partitions]
    whole = sum(value.value for value in memory if isinstance(value, Known))
    return Gpu(
        bdf=bdf,
        on_bus=False,
        device_id=read_id,
        class_code=unread,
        driver=unread,
        product=product[0] if product else None,
        product_name=product[1] if product else None,
        is_virtual_function=device_id is not None and is_vf_id(device_id),
        gfx=_gfx(partitions, product, source),
        numa_node=unread,
        vram_bytes=Known(whole, source) if whole else next(iter(memory), unread),
        vbios=unread,
        unique_id=_unique_id(unread, nodes),
        serial=unread,
        slot=unread,
        compute_partition=unread,
        memory_partition=unread,
        hive_id=_hive(unread, nodes),
        firmware={},
        render_nodes=tuple(f"/dev/dri/renderD{p.render_minor}" for p in partitions if p.render_minor is not None),
        partitions=partitions,
        hidden=False,
    )


def _device_id(attribute: Value[str], nodes: list[KfdNode]) -> Value[str]:
    """The PCI device id. KFD has the same number in decimal, for all partitions of a device."""
    if isinstance(attribute, Known):
        return attribute
    for node in nodes:
        number = (node.properties.or_none() or {}).get("device_id")
        if number:
            return Known(f"0x{number:04x}", f"{TOPOLOGY}/nodes/{node.id}/properties")
    return attribute


def _partitions(nodes: list[KfdNode]) -> Iterator[Partition]:
    for node in nodes:
        minor = (node.properties.or_none() or {}).get("drm_render_minor")
        yield Partition(
            kfd_node=node.id,
            render_minor=minor if minor and minor > 0 else None,
            gfx=node.gfx,
            compute_units=node.compute_units,
            memory_bytes=node.memory_bytes,
        )


def _product(
    device_id: str | None, revision: str | None, partitions: tuple[Partition, ...]
) -> tuple[str, str, str] | None:
    """Key, name and gfx target of the table's row."""
    if device_id is None:
        return None
    counts = [partition.compute_units for partition in partitions]
    cus = sum(c for c in counts if c) if counts and None not in counts else None
    found = product_of(device_id, revision, cus)
    if found is None:
        return None
    key, row = found
    return key, marketing_name(row, device_id=device_id, revision=revision), row.gfx


def _gfx(partitions: tuple[Partition, ...], product: tuple[str, str, str] | None, source: str) -> Value[str]:
    """What the driver says; on kernels that do not say, and for devices without a KFD node, what the product is."""
    for partition in partitions:
        if partition.gfx is not None:
            return Known(partition.gfx, f"{TOPOLOGY}/nodes/{partition.kfd_node}/properties")
    if product is not None:
        return Known(product[2], TABLE)
    return Unknown("absent", source, "the driver names no target and the product is not in the table")


def _attribute(host: Host, device: PciDevice, name: str, *, asleep: bool = False) -> Value[str]:
    """A text attribute of the driver. An empty file says that the device has no such thing."""
    path = f"{device.path}/{name}"
    if asleep:
        return Unknown("failed", path, "not read: it would wake the GPU")
    value = host.read(path, limit=4096).parse(stripped)
    return value if value.or_none() != "" else Unknown("absent", path, "the file is empty")


def _unique_id(attribute: Value[str], nodes: list[KfdNode]) -> Value[str]:
    """16 hex digits. KFD has the same number in decimal; all partitions of a device share it."""
    if isinstance(attribute, Known):
        return attribute
    for node in nodes:
        number = (node.properties.or_none() or {}).get("unique_id")
        if number:
            return Known(f"{number:016x}", f"{TOPOLOGY}/nodes/{node.id}/properties")
    return attribute


def _hive(attribute: Value[str], nodes: list[KfdNode]) -> Value[str]:
    for node in nodes:
        number = (node.properties.or_none() or {}).get("hive_id")
        if number:
            return Known(str(number), f"{TOPOLOGY}/nodes/{node.id}/properties")
    return attribute


def _firmware(host: Host, device: PciDevice) -> dict[str, str]:
    """Firmware versions by engine; those that read 0 are not loaded."""
    folder = f"{device.path}/fw_version"
    versions = {}
    for name in host.entries(folder).or_none() or ():
        match = _FIRMWARE.fullmatch(name)
        if match is None:
            continue
        value = host.read(f"{folder}/{name}", limit=64)
        number = value.value.strip() if isinstance(value, Known) else ""
        if _HEX.fullmatch(number) and int(number, 16):
            versions[match[1]] = number
    return versions


def _render_nodes(host: Host, device: PciDevice, partitions: tuple[Partition, ...]) -> tuple[str, ...]:
    names = host.entries(f"{device.path}/drm").or_none() or ()
    minors = {int(match[1]) for name in names if (match := _RENDER.fullmatch(name))}
    minors |= {partition.render_minor for partition in partitions if partition.render_minor is not None}
    return tuple(f"/dev/dri/renderD{minor}" for minor in sorted(minors))


def _slots(host: Host) -> dict[str, str]:
    """Slot names by the address (without function) of what is plugged in."""
    slots = {}
    for name in (host.entries(SLOTS).or_none() or ())[:1024]:
        address = host.read(f"{SLOTS}/{name}/address", limit=64).or_none()
        if address:
            slots[address.strip()] = name
    return slots


def _slot(device: PciDevice, slots: dict[str, str]) -> Value[str]:
    """The slot of the device, or of the nearest bridge above it: cards bring their own bridges."""
    for bdf in (device.bdf, *device.parents):
        name = slots.get(bdf.rpartition(".")[0])
        if name is not None:
            return Known(name, f"{SLOTS}/{name}/address")
    return Unknown("absent", SLOTS, "no slot has this address")
