"""Signs of virtual machines and containers. Table environments.toml."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable

from msgspec import Struct

from amdcheck.knowledge.tables import Row, load


class Hypervisor(Row, frozen=True, kw_only=True):
    """A hypervisor by the beginnings of its DMI vendor and product, and its PCI devices (vendor and device)."""

    vendor: tuple[str, ...] = ()
    product: tuple[str, ...] = ()
    pci: tuple[str, ...] = ()
    metal: bool = False


class Container(Row, frozen=True, kw_only=True):
    """A kind of container by a file or folder inside it, or by a pattern in /proc/self/cgroup.

    `mounted`: the file or folder is part of the image, which may have been booted as a machine of its own; it counts
    where one of these files is a mount point as well.
    """

    name: str
    file: str | None = None
    folder: str | None = None
    mounted: tuple[str, ...] = ()
    cgroup: str | None = None


class _Table(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    hypervisor: dict[str, Hypervisor]
    container: tuple[Container, ...]


@functools.cache
def _table() -> _Table:
    return load("environments", _Table)


def hypervisor_of(vendor: str, product: str, *, flagged: bool | None) -> str | None:
    """The hypervisor that these DMI strings name. `flagged`: what the CPU's hypervisor flag says, None without one."""
    for name, row in _table().hypervisor.items():
        if vendor.startswith(row.vendor) or product.startswith(row.product):
            if row.metal and (flagged is False or (flagged is None and "metal" in product)):
                return None
            return name
    return None


def hypervisor_on_bus(devices: Iterable[str]) -> str | None:
    """The hypervisor that one of these PCI devices (vendor and device, eight hexadecimal digits) belongs to."""
    there = set(devices)
    return next((name for name, row in _table().hypervisor.items() if there.intersection(row.pci)), None)


def containers() -> tuple[Container, ...]:
    """Every kind of container, in the order in which to look."""
    return _table().container


def container_in_cgroup(text: str) -> str | None:
    """The kind of container that a cgroup file (/proc/self/cgroup) places its process in."""
    return next((row.name for row in containers() if row.cgroup and re.search(row.cgroup, text)), None)
