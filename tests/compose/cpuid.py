"""CPUID of the processor itself, from the flags that its generation has (AMD APM volume 3, appendix E)."""

from __future__ import annotations

from tests.compose.plan import Plan

_OSXSAVE = 1 << 27
# leaf -> flag -> (register, bit). Those that inference looks at, and what they rest on.
_BITS: dict[str, dict[str, tuple[int, int]]] = {
    "0x1.0": {
        "pni": (2, 0),
        "ssse3": (2, 9),
        "fma": (2, 12),
        "cx16": (2, 13),
        "sse4_1": (2, 19),
        "sse4_2": (2, 20),
        "movbe": (2, 22),
        "popcnt": (2, 23),
        "aes": (2, 25),
        "xsave": (2, 26),
        "avx": (2, 28),
        "f16c": (2, 29),
        "rdrand": (2, 30),
        "fpu": (3, 0),
        "tsc": (3, 4),
        "cx8": (3, 8),
        "apic": (3, 9),
        "cmov": (3, 15),
        "mmx": (3, 23),
        "fxsr": (3, 24),
        "sse": (3, 25),
        "sse2": (3, 26),
        "ht": (3, 28),
    },
    "0x7.0": {
        "fsgsbase": (1, 0),
        "bmi1": (1, 3),
        "avx2": (1, 5),
        "smep": (1, 7),
        "bmi2": (1, 8),
        "erms": (1, 9),
        "avx512f": (1, 16),
        "avx512dq": (1, 17),
        "avx512ifma": (1, 21),
        "avx512cd": (1, 28),
        "sha_ni": (1, 29),
        "avx512bw": (1, 30),
        "avx512vl": (1, 31),
        "avx512vbmi": (2, 1),
        "avx512_vbmi2": (2, 6),
        "gfni": (2, 8),
        "vaes": (2, 9),
        "vpclmulqdq": (2, 10),
        "avx512_vnni": (2, 11),
        "avx512_bitalg": (2, 12),
        "avx512_vpopcntdq": (2, 14),
        "fsrm": (3, 4),
    },
    "0x7.1": {"avx_vnni": (0, 4), "avx512_bf16": (0, 5)},
}
_PATH = {
    "piledriver": 0x5,
    "zen2": 0x6,
    "zen3": 0x6,
    "zen4": 0x6,
    "zen5": 0xA,
    "zen7": 0xA,
}  # Fn8000_001A EAX: 256 or 512 bit wide


def leaves(plan: Plan) -> tuple[dict[str, list[int]], int]:
    """The leaves as {"0x7.0": [eax, ebx, ecx, edx]} and XCR0, of the processor: whatever the kernel may mask."""
    flags = set(plan.generation.flags.split()) - set(plan.machine.selftest.cpuid_lacks)
    found = {"0x0.0": [0x10, *_words(b"AuthenticAMD", (0, 2, 1))]}
    for leaf, bits in _BITS.items():
        registers = [0, 0, 0, 0]
        for flag, (register, bit) in bits.items():
            if flag in flags:
                registers[register] |= 1 << bit
        found[leaf] = registers
    found["0x1.0"][0] = _signature(plan)
    found["0x1.0"][2] |= _OSXSAVE | (1 << 31 if plan.guest else 0)
    found["0x7.0"][0] = 1  # the highest subleaf
    found["0x80000001.0"] = [_signature(plan), 0x40000000, 0x75C237FF, 0x2FD3FBFF]
    found["0x8000001a.0"] = [_PATH[plan.cpu.generation], 0, 0, 0]
    return found, 0xE7 if "avx512f" in flags else 0x7


def _words(text: bytes, order: tuple[int, ...]) -> list[int]:
    """The vendor's name as EBX, ECX, EDX hold it."""
    return [int.from_bytes(text[4 * place : 4 * place + 4], "little") for place in order]


def _signature(plan: Plan) -> int:
    family, model = plan.generation.family, plan.cpu.model if plan.cpu.model is not None else plan.generation.model
    stepping = plan.cpu.stepping if plan.cpu.stepping is not None else plan.generation.stepping
    return (family - 15) << 20 | (model >> 4) << 16 | 15 << 8 | (model & 15) << 4 | stepping
