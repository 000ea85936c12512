"""What the processor says of itself: the raw CPUID instruction and XGETBV, through py-cpuinfo's CPUID class.

py-cpuinfo maps a page that is writable and executable and runs a few bytes of machine code in it. A hardened service or
SELinux may refuse that page: then our own library is asked, which was compiled. py-cpuinfo's `get_cpu_info()` is not
used: it takes over a second and takes one cache for another.
"""

from __future__ import annotations

import os
from typing import Protocol

from amdcheck.selftest.isolate import Record
from amdcheck.selftest.library import Library

# (leaf, subleaf) in the order of reading, and the leaf whose EAX says how far its range goes.
LEAVES: tuple[tuple[int, int], ...] = ((0x1, 0), (0x7, 0), (0x7, 1), (0x80000001, 0), (0x8000001A, 0))
_OSXSAVE = 1 << 27  # CPUID 1 ECX: the operating system has enabled XGETBV

_PUSH_RBX = b"\x53"  # RBX belongs to the caller, and CPUID overwrites it
_POP_RBX_RET = b"\x5b\xc3"
_CPUID = b"\x0f\xa2"
_TO_EAX = (b"", b"\x89\xd8", b"\x89\xc8", b"\x89\xd0")  # from EAX, EBX, ECX, EDX
_XGETBV_0 = b"\x31\xc9\x0f\x01\xd0\xc3"  # xor ecx, ecx; xgetbv; ret


class _Processor(Protocol):
    def cpuid(self, leaf: int, subleaf: int) -> list[int]: ...

    def xgetbv(self) -> int: ...


class _ByPyCpuinfo:
    """Raises PermissionError where executable pages are refused."""

    def __init__(self) -> None:
        from cpuinfo.cpuinfo import CPUID  # type: ignore[import-untyped]

        # Not by its constructor, which asks sestatus and takes every enforcing mode for a refusal, also the usual one
        # that allows executable pages. Where they are refused, mapping one says so.
        self._run = CPUID.__new__(CPUID)._run_asm

    def cpuid(self, leaf: int, subleaf: int) -> list[int]:
        load = b"\xb8" + leaf.to_bytes(4, "little") + b"\xb9" + subleaf.to_bytes(4, "little")
        return [int(self._run(_PUSH_RBX + load + _CPUID + move + _POP_RBX_RET)) for move in _TO_EAX]

    def xgetbv(self) -> int:
        return int(self._run(_XGETBV_0))


def read(library: Library | None) -> Record:
    """The leaves as {"0x7.1": [eax, ebx, ecx, edx]}, those that exist, and XCR0's lower half (None: not enabled).

    Raises PermissionError where executable pages are refused and there is no library, OSError on processors without
    CPUID.
    """
    if os.uname().machine not in ("x86_64", "i686"):
        raise OSError(f"no CPUID instruction on {os.uname().machine}")
    try:
        return _leaves(_ByPyCpuinfo())
    except PermissionError:
        if library is None:
            raise
        return _leaves(library)


def _leaves(processor: _Processor) -> Record:
    vendor = processor.cpuid(0, 0)
    last_basic, last_extended = vendor[0], processor.cpuid(0x80000000, 0)[0]
    leaves = {"0x0.0": vendor}
    for leaf, subleaf in LEAVES:
        if leaf > (last_extended if leaf >= 0x80000000 else last_basic):
            continue
        if subleaf > 0 and subleaf > leaves[f"{leaf:#x}.0"][0]:
            continue
        leaves[f"{leaf:#x}.{subleaf}"] = processor.cpuid(leaf, subleaf)
    enabled = leaves["0x1.0"][2] & _OSXSAVE
    return {"leaves": leaves, "xcr0": processor.xgetbv() if enabled else None}
