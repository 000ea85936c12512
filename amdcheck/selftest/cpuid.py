"""What the processor says of itself: the raw CPUID instruction and XGETBV, through py-cpuinfo's CPUID class.

py-cpuinfo maps a page that is writable and executable and runs a few bytes of machine code in it. A hardened service or
SELinux may refuse that page; then there is no answer, which is no fault of the machine. Its `get_cpu_info()` is not
used: it takes over a second and takes one cache for another.
"""

from __future__ import annotations

import os

from amdcheck.selftest.isolate import Record

# (leaf, subleaf) in the order of reading, and the leaf whose EAX says how far its range goes.
LEAVES: tuple[tuple[int, int], ...] = ((0x1, 0), (0x7, 0), (0x7, 1), (0x80000001, 0), (0x8000001A, 0))
_OSXSAVE = 1 << 27  # CPUID 1 ECX: the operating system has enabled XGETBV

_PUSH_RBX = b"\x53"  # RBX belongs to the caller, and CPUID overwrites it
_POP_RBX_RET = b"\x5b\xc3"
_CPUID = b"\x0f\xa2"
_TO_EAX = (b"", b"\x89\xd8", b"\x89\xc8", b"\x89\xd0")  # from EAX, EBX, ECX, EDX
_XGETBV_0 = b"\x31\xc9\x0f\x01\xd0\xc3"  # xor ecx, ecx; xgetbv; ret


def read() -> Record:
    """The leaves as {"0x7.1": [eax, ebx, ecx, edx]}, those that exist, and XCR0's lower half (None: not enabled).

    Raises PermissionError where executable pages are refused, OSError on processors without CPUID.
    """
    if os.uname().machine not in ("x86_64", "i686"):
        raise OSError(f"no CPUID instruction on {os.uname().machine}")
    from cpuinfo.cpuinfo import CPUID  # type: ignore[import-untyped]

    # Not by its constructor, which asks sestatus and takes every enforcing mode for a refusal, also the usual one that
    # allows executable pages. Where they are refused, mapping one says so.
    cpuid = CPUID.__new__(CPUID)

    def registers(leaf: int, subleaf: int) -> list[int]:
        load = b"\xb8" + leaf.to_bytes(4, "little") + b"\xb9" + subleaf.to_bytes(4, "little")
        return [int(cpuid._run_asm(_PUSH_RBX + load + _CPUID + move + _POP_RBX_RET)) for move in _TO_EAX]

    vendor = registers(0, 0)
    last_basic, last_extended = vendor[0], registers(0x80000000, 0)[0]
    leaves = {"0x0.0": vendor}
    for leaf, subleaf in LEAVES:
        if leaf > (last_extended if leaf >= 0x80000000 else last_basic):
            continue
        if subleaf > 0 and subleaf > leaves[f"{leaf:#x}.0"][0]:
            continue
        leaves[f"{leaf:#x}.{subleaf}"] = registers(leaf, subleaf)
    enabled = leaves["0x1.0"][2] & _OSXSAVE
    return {"leaves": leaves, "xcr0": int(cpuid._run_asm(_XGETBV_0)) if enabled else None}
