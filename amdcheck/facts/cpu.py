"""The processor: identity, instruction sets as the kernel offers them, caches per slice, SMT, offline CPUs."""

from __future__ import annotations

from msgspec import Struct

from amdcheck.facts.registry import fact
from amdcheck.host.protocol import Host
from amdcheck.model.value import Value


class Cache(Struct, frozen=True, kw_only=True):
    """One cache instance (for L3: one slice, which is what one CCX shares)."""

    level: int
    type: str  # Data, Instruction, Unified
    size_kib: Value[int]
    cpus: tuple[int, ...]  # the CPUs that share it


@fact
class Cpu(Struct, frozen=True, kw_only=True):
    """All CPUs of the machine. Counts are of what is online; unknown where the topology is not readable."""

    vendor: Value[str]  # AuthenticAMD, GenuineIntel, HygonGenuine ...
    model_name: Value[str]
    family: Value[int]  # decimal, as in /proc/cpuinfo
    model: Value[int]
    stepping: Value[int]
    microcode: Value[str]
    flags: Value[tuple[str, ...]]  # sorted; those that every CPU offers
    uneven_flags: tuple[str, ...]  # offered by some CPUs only
    online: Value[tuple[int, ...]]
    offline: Value[tuple[int, ...]]
    present: Value[tuple[int, ...]]
    possible: Value[tuple[int, ...]]
    sockets: Value[int]
    cores: Value[int]
    threads: Value[int]
    threads_per_core: Value[int]
    smt_control: Value[str]  # on, off, forceoff, notsupported
    package_of: dict[int, int]  # cpu -> physical package id, where readable
    caches: tuple[Cache, ...]

    @classmethod
    def read(cls, host: Host) -> Cpu:
        raise NotImplementedError

    @property
    def l3(self) -> tuple[Cache, ...]:
        """The L3 slices, in order of their first CPU."""
        return tuple(c for c in self.caches if c.level == 3)


def has_amd_cpu(cpu: Cpu) -> str | None:
    """Predicate: None when the processor is AMD's, else the reason to skip."""
    raise NotImplementedError
