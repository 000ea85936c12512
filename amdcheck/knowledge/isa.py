"""Instruction sets: what the kernel calls them, where CPUID says them, what takes them away."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct

from amdcheck.knowledge.tables import Row, load

# EAX, EBX, ECX and EDX of each leaf that was read, by "leaf.subleaf".
Leaves = Mapping[str, tuple[int, int, int, int]]
_REGISTERS = ("eax", "ebx", "ecx", "edx")


class CpuidBit(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One bit of a CPUID leaf, named "leaf.subleaf" as in "0x7.1"."""

    leaf: str
    register: Literal["eax", "ebx", "ecx", "edx"]
    bit: int

    def is_set(self, leaves: Leaves) -> bool:
        """Whether the processor sets it. A leaf that the processor does not have sets nothing."""
        registers = leaves.get(self.leaf)
        return registers is not None and bool(registers[_REGISTERS.index(self.register)] >> self.bit & 1)


class InstructionSet(Row, frozen=True, kw_only=True):
    """One row, named by the flag that stands for it in /proc/cpuinfo; `flags` are what its self-test executes."""

    name: str  # as AMD and Intel write it
    flags: tuple[str, ...]
    cpuid: tuple[CpuidBit, ...]
    xcr0: int
    computes: str
    asked: tuple[str, ...] = ()  # the flags by which programs decide to use it; none: every x86-64 processor has it
    loss: str = ""  # what inference loses without it
    since: tuple[int, int] | None = None  # the Linux release that first names the flag

    def is_unnamed_by(self, release: tuple[int, int] | None) -> bool:
        """Is a Linux kernel of this release, as (6, 8), older than the flag's name? None: the release is unknown."""
        return self.since is not None and release is not None and release < self.since

    def in_processor(self, leaves: Leaves) -> bool:
        """Whether the processor says that it has all that the row needs."""
        return all(bit.is_set(leaves) for bit in self.cpuid)

    def enabled(self, xcr0: int | None) -> bool:
        """Whether the operating system has enabled the registers; `xcr0` None: it has not enabled XSAVE at all."""
        return self.xcr0 & ~(xcr0 or 0) == 0


class Datapath(Row, frozen=True, kw_only=True):
    """How wide a core's floating-point data path is, by Fn8000_001A."""

    bits: int
    cpuid: CpuidBit


class Masking(Row, frozen=True, kw_only=True):
    """A word of the kernel command line, with or without a value, that takes instruction sets away."""

    parameter: str


class IsaTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The table isa.toml."""

    isa: dict[str, InstructionSet]
    datapath: tuple[Datapath, ...]  # the widest first
    masking: tuple[Masking, ...]

    def names(self, flags: Iterable[str]) -> tuple[str, ...]:
        """The rows that not every processor has and that these flags of /proc/cpuinfo offer in full."""
        offered = frozenset(flags)
        return tuple(key for key, row in self.isa.items() if row.asked and offered.issuperset(row.asked))

    def datapath_bits(self, leaves: Leaves) -> int | None:
        """128, 256 or 512; None where the processor does not say (no Fn8000_001A: not by AMD)."""
        return next((row.bits for row in self.datapath if row.cpuid.is_set(leaves)), None)

    def masking_words(self, command_line: str) -> tuple[str, ...]:
        """The words of a kernel command line that take instruction sets away."""
        known = {row.parameter for row in self.masking}
        return tuple(word for word in command_line.split() if word in known or word.partition("=")[0] in known)


@functools.cache
def isa_table() -> IsaTable:
    """The table, decoded once."""
    return load("isa", IsaTable)
