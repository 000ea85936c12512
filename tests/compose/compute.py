"""What the child of the compute self-tests prints on the machine: right and quick, but for the faults it has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.compose.plan import Plan
from tests.compose.steps import clock_hz, ended, nothing, reading, returned

_SHAPE = (256, 256, 256)
_WORDS = 1_400_000
_WIDTH = {"zen5": 512, "zen7": 512}  # bits that a multiply-add pipe of the generation works on at once; else 256
# Bits of the instruction, and operations that 32 bits hold; three instructions do the work of one without VNNI.
_KIND = {
    "fma": (256, 2.0),
    "avx2": (256, 8 / 3),
    "avx2-full-range": (256, 8 / 3),
    "avx_vnni": (256, 8.0),
    "avx512f": (512, 2.0),
    "avx512_vnni": (512, 8.0),
    "avx512_bf16": (512, 4.0),
}


def document(plan: Plan, params: Sequence[str]) -> dict[str, Any]:
    """Of selftest cpu.compute, without its name."""
    faults = plan.machine.selftest
    if (without := nothing(plan)) is not None:
        return {**without, "cpu": None, "clock": ended("failed"), "products": []}
    hz = clock_hz(plan)
    add_hz = hz * (1.5 if faults.chains_differ else 1.0)
    chains = {
        "cycles": 15000,
        "imul": reading(plan, 15000 / hz),
        "add": reading(plan, 15000 / add_hz),
        "twice": reading(plan, (15000 if faults.clock_control_unnoticed else 30000) / hz),
    }
    return {
        "lacks": None,
        "busy": None,
        "cpu": plan.online[0].id,
        "clock": returned(chains),
        "products": [{"name": name, **_product(plan, name, hz)} for name in params if name in _KIND],
    }


def _product(plan: Plan, name: str, hz: float) -> dict[str, Any]:
    faults = plan.machine.selftest
    if name in faults.product_ends:
        return ended(faults.product_ends[name])
    bits, per_word = _KIND[name]
    pipes = 1 if name in faults.half_the_ports else 2
    ceiling = hz * pipes * min(bits, _WIDTH.get(plan.cpu.generation, 256)) / 32 * per_word
    wrong = _WORDS // 2 if name == "avx2-full-range" else 3 if name in faults.product_wrong else 0
    element = {"shape": (37, 53, 129), "row": 3, "column": 5, "got": "0x42280000", "want": "0x42280001"}
    operations = 2 * _SHAPE[0] * _SHAPE[1] * _SHAPE[2]
    rate = ceiling * (0.2 if name in faults.product_slow else 0.9)
    result = {
        "shape": _SHAPE,
        "operations": operations,
        "reading": {**reading(plan, operations / rate), **({"issued": 2.9} if name in faults.product_shared else {})},
        "ceiling_operations": 1_000_000,
        "ceiling": reading(plan, 1_000_000 / ceiling),
        "compared": _WORDS,
        "wrong": wrong,
        "first_wrong": [element] if wrong else [],
        "planted": 25,
        "noticed": 24 if name in faults.product_unnoticed else 25,
    }
    return returned(result)
