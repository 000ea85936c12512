"""MIOpen: the release a ROCm release carries, the names of its databases, and what an inexact name means."""

from __future__ import annotations

import functools
import re

from msgspec import Struct

from amdcheck.knowledge.tables import Row, load
from amdcheck.knowledge.versions import numbers


class Carried(Row, frozen=True, kw_only=True):
    """The MIOpen of a ROCm release; with `at_least`, this version or a later one."""

    rocm: str
    miopen: str
    at_least: bool = False

    def matches(self, version: str) -> bool:
        """Is a library version such as 3.3.0 what this release carries? Fields that the row leaves out match any."""
        wanted, found = numbers(self.miopen), numbers(version)
        return found >= wanted if self.at_least else found[: len(wanted)] == wanted


class NameRule(Row, frozen=True, kw_only=True):
    decimal_up_to: int
    workgroup_processors_from: int


class HardwareUnits(Row, frozen=True, kw_only=True):
    targets: tuple[str, ...]


class Nearest(Row, frozen=True, kw_only=True):
    last_broken: str


class Redirect(Row, frozen=True, kw_only=True):
    target: str
    units_up_to: int
    to: int


class Shipped(Row, frozen=True, kw_only=True):
    since: str
    find: tuple[str, ...]
    perf: tuple[str, ...]


class KernelDb(Row, frozen=True, kw_only=True):
    targets: tuple[str, ...]
    smallest_bytes: int


class Package(Row, frozen=True, kw_only=True):
    name: str


class SystemDb(Row, frozen=True, kw_only=True):
    folders: tuple[str, ...]


class FileSystem(Row, frozen=True, kw_only=True):
    """A file system by its statfs magic; `diverted`: MIOpen moves the user's databases off it by itself."""

    magic: int
    name: str
    diverted: bool


class MiopenTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    release: tuple[Carried, ...]
    names: NameRule
    hardware_units: HardwareUnits
    nearest: Nearest
    redirect: Redirect
    shipped: tuple[Shipped, ...]
    kernel_db: KernelDb
    system_db: SystemDb
    package: Package
    filesystem: tuple[FileSystem, ...]


@functools.cache
def table() -> MiopenTable:
    return load("miopen", MiopenTable)


def carried_by(rocm: str) -> Carried | None:
    """What a ROCm release line (6.3) carries; None for a release that is not in the table."""
    return next((row for row in table().release if row.rocm == rocm), None)


def file_system(magic: int) -> FileSystem | None:
    """The row of a file system that several hosts may share; None for a local one."""
    return next((row for row in table().filesystem if row.magic == magic & 0xFFFFFFFF), None)


def is_at_least(version: str, wanted: str) -> bool:
    return numbers(version) >= numbers(wanted)


def searches_nearest(version: str) -> bool:
    """Does this library find the database of the nearest count when the exact name is missing?

    The number of the last broken library is also carried by builds that have the correction: then the answer is no.
    """
    return numbers(version) > numbers(table().nearest.last_broken)


def database_id(gfx: str, *, xnack: bool = False) -> str:
    """The first part of a database name: gfx90a, gfx90a_xnack."""
    return f"{gfx}_xnack" if xnack else gfx


def hip_units(gfx: str, compute_units: int) -> int:
    """What HIP reports as multiprocessors: compute units, or work group processors from RDNA on."""
    major = gfx_major(gfx)
    if major is not None and major >= table().names.workgroup_processors_from:
        return compute_units // 2
    return compute_units


def gfx_major(gfx: str) -> int | None:
    """9 of gfx90a, 11 of gfx1100: all but the last two digits, which are minor (hex) and stepping (hex)."""
    match = re.fullmatch(r"gfx(\d{1,2})[0-9a-f]{2}", gfx)
    return int(match[1]) if match else None


def base_names(gfx: str, compute_units: int, *, xnack: bool = False) -> tuple[str, ...]:
    """The names under which a device's system databases may lie, the one of every library first.

    `compute_units` are the hardware's, of the partition that a process sees: 304 for an MI300X (gfx942130), 38 for
    one XCD of it (gfx942_38). Some RDNA targets have a second name in newer libraries: 96 is gfx1100_48 and gfx110060.
    """
    dbid = database_id(gfx, xnack=xnack)
    names = [_name(dbid, hip_units(gfx, compute_units))]
    if dbid in table().hardware_units.targets:
        names.append(f"{dbid}{compute_units:x}")
    return tuple(names)


def _name(dbid: str, units: int) -> str:
    return f"{dbid}_{units}" if units <= table().names.decimal_up_to else f"{dbid}{units:x}"


def redirected_name(gfx: str, compute_units: int) -> str | None:
    """The full device's name that newer libraries read for a smaller device or partition of the same target."""
    rule = table().redirect
    return _name(gfx, rule.to) if gfx == rule.target and compute_units <= rule.units_up_to else None


def shipped_names(version: str) -> tuple[frozenset[str], frozenset[str]]:
    """The find-db and perf-db names that a library is known to ship: those whose absence is a fault."""
    rows = [row for row in _shipped_by(version) if row.confidence != "unverified"]
    return frozenset(name for row in rows for name in row.find), frozenset(name for row in rows for name in row.perf)


def ships_for(gfx: str, version: str) -> bool:
    """Does a library ship any system database for this target, as far as is known?"""
    return any(_is_of(name, gfx) for row in _shipped_by(version) for name in row.find)


def _shipped_by(version: str) -> list[Shipped]:
    return [row for row in table().shipped if is_at_least(version, row.since)]


def _is_of(name: str, gfx: str) -> bool:
    """gfx90a68 and gfx942_38 are of gfx90a and gfx942; gfx1100_48 is not of gfx110."""
    return re.fullmatch(rf"{re.escape(gfx)}(_\d+|[0-9a-f]{{2,3}})", name) is not None


def nearest_name(gfx: str, units: int, names: frozenset[str]) -> str | None:
    """Of the names of one target, the one whose count is nearest."""
    counts = {name: count for name in names if (count := count_of(name, gfx)) is not None}
    return min(sorted(counts), key=lambda name: abs(counts[name] - units), default=None)


def count_of(name: str, gfx: str) -> int | None:
    """The number of units in a database's name; None for a name of another target."""
    match = re.fullmatch(rf"{re.escape(gfx)}(?:_(\d{{1,4}})|([0-9a-f]{{2,3}}))", name)
    if match is None:
        return None
    return int(match[1]) if match[1] else int(match[2], 16)
