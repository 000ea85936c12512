"""EPYC series and Zen generations: what a part of them offers. Table epyc.toml."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

from msgspec import Struct, field

from amdcheck.knowledge.tables import Confidence, Row, load

AMD = "AuthenticAMD"
HYGON = "HygonGenuine"
FIRST_ZEN = 0x17  # every AMD family before this one is older than Zen


class Generation(Row, frozen=True, kw_only=True):
    """One Zen generation in one family; `models` are ranges in hexadecimal, `isa` what every part offers (isa.toml)."""

    generation: str
    family: int
    models: tuple[str, ...]
    isa: tuple[str, ...]

    def covers(self, family: int, model: int) -> bool:
        return family == self.family and any(int(r[:2], 16) <= model <= int(r[-2:], 16) for r in self.models)


class Series(Row, frozen=True, kw_only=True):
    """One series of parts. Cores, cache and clocks are maxima over its parts; `*_cycle` are issue widths a core."""

    series: str
    family: int
    models: tuple[str, ...]  # hexadecimal
    zen: str
    cores_per_ccx: int
    l3_mib_per_ccx: int
    max_cores: int  # a socket
    channels: int  # memory channels a socket
    mem: str
    nps: tuple[int, ...]  # nodes per socket that the BIOS offers; 0: one node over two sockets
    name: str | None = None  # pattern that the model name contains, for series that share family and model
    fp32_flop_cycle: int | None = None
    fp64_flop_cycle: int | None = None
    int8_vnni_ops_cycle: int | None = None
    bf16_flop_cycle: int | None = None
    less_sure: dict[str, Confidence] = field(default_factory=dict)

    @property
    def memory_bytes_s(self) -> float | None:
        """The peak of a socket's memory: channels of 8 bytes at the fastest DIMMs; None where it has no DIMMs."""
        rate = re.search(r"DDR\d-(\d{4,5})", self.mem)
        return None if rate is None or not self.channels else 8e6 * int(rate[1]) * self.channels


class _Table(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    zen: tuple[Generation, ...]
    cpu: dict[str, Series]


@functools.cache
def _table() -> _Table:
    return load("epyc", _Table)


def all_series() -> Mapping[str, Series]:
    """Every series by its name here."""
    return _table().cpu


def generation(family: int, model: int) -> Generation | None:
    """The Zen generation, by the kernel's ranges; None for what is older than Zen or newer than the table."""
    return next((row for row in _table().zen if row.covers(family, model)), None)


def series(*, family: int, model: int, name: str) -> Series | None:
    """The series of a server part; None for desktop parts, which share family and model with servers.

    `name` is the model name. QEMU's named models carry the series' name and its family and model too.
    """
    if "EPYC" not in name and "MI300A" not in name:
        return None
    rows = [r for r in all_series().values() if r.family == family and any(int(m, 16) == model for m in r.models)]
    named = [row for row in rows if row.name is not None and re.search(row.name, name)]
    return next(iter(named or [row for row in rows if row.name is None]), None)


def every_zen_isa() -> tuple[str, ...]:
    """The instruction sets that every generation has: what one newer than the table is held to."""
    first, *others = _table().zen
    return tuple(name for name in first.isa if all(name in row.isa for row in others))
