"""AMD GPUs by PCI id: what each product is, which GPUs are not judged, which bridges sit on the card."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Literal

from msgspec import Struct, field

from amdcheck.knowledge.tables import Confidence, Row, load

AMD_VENDOR = "0x1002"


# What `less_sure` may name besides fields: several fields at once.
GROUPS: Mapping[str, tuple[str, ...]] = {
    "memory": ("memory_gib", "memory_gbs"),
    "xgmi": ("xgmi_links", "xgmi_link_gbs"),
    "partitions": ("compute_partitions", "memory_partitions", "partition_pairs"),
}


class GpuProduct(Row, frozen=True, kw_only=True):
    """One product; figures are those of one device (what has a PCI address: on MI250 a GCD). None: not known.

    `revisions` names the variants that share an id; `rates` are dense operations per clock and CU.
    """

    name: str
    pci_ids: tuple[str, ...]
    vf_ids: tuple[str, ...] = ()
    revisions: dict[str, str] = field(default_factory=dict)
    gfx: str
    arch: str | None = None
    cus: int | None = None
    xcds: int | None = None
    gcds: int = 1  # devices a module
    clock_mhz: int | None = None
    wavefront: int | None = None
    lds_kib: int | None = None
    lds_banks: int = 32
    l2_mib: int | None = None
    mall_mib: int | None = None
    memory_gib: tuple[int, ...] = ()  # the sizes it is sold with
    memory_gbs: int | None = None
    integrated: bool = False  # shares the processor's memory and has no slot
    slot_behind_switch: bool = False  # a switch of its own sits between the GPU and its slot
    pcie_gts: int | None = None
    pcie_width: int | None = None
    idle_link: Literal["holds", "trains-down"] = "holds"
    hive: Literal["none", "bridge", "board"] = "none"
    baseboard: int | None = None
    xgmi_links: int | None = None  # of a module
    xgmi_link_gbs: float | None = None
    power_w: tuple[int, ...] = ()  # of a module
    compute_partitions: tuple[str, ...] = ()
    memory_partitions: tuple[str, ...] = ()
    partition_pairs: dict[str, tuple[str, ...]] = field(
        default_factory=dict
    )  # memory mode -> compute modes that go with it
    rates: dict[str, int] = field(default_factory=dict)
    less_sure: dict[str, Confidence] = field(default_factory=dict)

    def confidence_of(self, field: str) -> Confidence:
        """How sure one field is: the row's confidence unless the row says less of this field or of its group."""
        group = next((name for name, fields in GROUPS.items() if field in fields), field)
        return self.less_sure.get(field, self.less_sure.get(group, self.confidence))

    def may_fail(self, *fields: str) -> bool:
        """May a machine fail on what the row says in these fields: what is unverified may at most warn."""
        return all(self.confidence_of(field) != "unverified" for field in fields)


class NotJudgedRange(Row, frozen=True, kw_only=True):
    """GPUs that no compute check applies to; `ranges` are "lowest-highest" device ids."""

    reason: str
    ranges: tuple[str, ...]

    def holds(self, device: int) -> bool:
        return any(int(low, 16) <= device <= int(high, 16) for low, _, high in (r.partition("-") for r in self.ranges))


class CardBridge(Row, frozen=True, kw_only=True):
    """A bridge that is part of the card or package; no `devices` means every one of the vendor."""

    vendor: str
    devices: tuple[str, ...]
    what: str


class HandedOver(Row, frozen=True, kw_only=True):
    """Drivers that hold a GPU for a guest."""

    drivers: tuple[str, ...]


class GpuTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    gpu: dict[str, GpuProduct]
    not_judged: tuple[NotJudgedRange, ...]
    card_bridge: tuple[CardBridge, ...]
    handed_over: HandedOver


@functools.cache
def gpu_table() -> GpuTable:
    """The whole table."""
    return load("gpus", GpuTable)


def products() -> Mapping[str, GpuProduct]:
    """Every product by its key, in the table's order."""
    return gpu_table().gpu


def product_of(device_id: str, revision: str | None = None, cus: int | None = None) -> tuple[str, GpuProduct] | None:
    """Key and row of the product with this PCI device id (0x740f), virtual functions included; None: not in the table.

    Where products share an id, the revision (0xc8) decides, then the device's number of CUs, then the table's order.
    """
    wanted = _bare(device_id)
    found = [(key, row) for key, row in products().items() if wanted in row.pci_ids or wanted in row.vf_ids]
    if len(found) > 1 and revision is not None:
        found = [pair for pair in found if _bare(revision) in pair[1].revisions] or found
    if len(found) > 1 and cus is not None:
        found = [pair for pair in found if pair[1].cus == cus] or found
    return found[0] if found else None


def marketing_name(product: GpuProduct, *, device_id: str, revision: str | None = None) -> str:
    """The name as the field says it, the variant's where the revision tells it, marked for a virtual function."""
    name = product.revisions.get(_bare(revision), product.name) if revision is not None else product.name
    return f"{name} VF" if is_vf_id(device_id) else name


def is_vf_id(device_id: str) -> bool:
    """Is this the device id of an SR-IOV virtual function, as a guest sees it?"""
    wanted = _bare(device_id)
    return any(wanted in row.vf_ids for row in products().values())


def reason_not_judged(device_id: str) -> str | None:
    """Why no compute check applies to this GPU; None when the table does not say so."""
    device = _number(device_id)
    if device is None or product_of(device_id) is not None:
        return None
    return next((row.reason for row in gpu_table().not_judged if row.holds(device)), None)


def is_card_bridge(vendor: str, device_id: str) -> bool:
    """Is this bridge part of the card or package?"""
    return any(
        _bare(vendor) == row.vendor and (not row.devices or _bare(device_id) in row.devices)
        for row in gpu_table().card_bridge
    )


def _bare(pci_id: str) -> str:
    return pci_id.lower().removeprefix("0x")


def _number(pci_id: str) -> int | None:
    try:
        return int(_bare(pci_id), 16)
    except ValueError:
        return None
