"""What the child of the compute self-tests prints on the machine: right and quick, but for the faults it has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.compose.plan import Plan

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
    if faults.no_library or faults.all_busy:
        why = "the native kernels are not in this installation" if faults.no_library else "every CPU is in use"
        nothing = {"ended": "failed", "detail": why, "result": None}
        given = (why, None) if faults.no_library else (None, why)
        return {"lacks": given[0], "busy": given[1], "cpu": None, "clock": nothing, "products": []}
    hz = (faults.clock_mhz or plan.cpu.base_mhz + 400) * 1e6
    add_hz = hz * (1.5 if faults.chains_differ else 1.0)
    chains = {
        "cycles": 15000,
        "imul": _reading(plan, 15000 / hz),
        "add": _reading(plan, 15000 / add_hz),
        "twice": _reading(plan, (15000 if faults.clock_control_unnoticed else 30000) / hz),
    }
    return {
        "lacks": None,
        "busy": None,
        "cpu": plan.online[0].id,
        "clock": {"ended": "returned", "detail": None, "result": chains},
        "products": [{"name": name, **_product(plan, name, hz)} for name in params if name in _KIND],
    }


def _product(plan: Plan, name: str, hz: float) -> dict[str, Any]:
    faults = plan.machine.selftest
    if name in faults.product_ends:
        return {"ended": faults.product_ends[name], "detail": None, "result": None}
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
        "reading": _reading(plan, operations / rate),
        "ceiling_operations": 1_000_000,
        "ceiling": _reading(plan, 1_000_000 / ceiling),
        "compared": _WORDS,
        "wrong": wrong,
        "first_wrong": [element] if wrong else [],
        "planted": 25,
        "noticed": 24 if name in faults.product_unnoticed else 25,
    }
    return {"ended": "returned", "detail": None, "result": result}


def _reading(plan: Plan, seconds: float) -> dict[str, Any]:
    """Undisturbed, unless something else runs on every CPU."""
    return {
        "best_s": seconds,
        "median_s": seconds * 1.02,
        "slices": 40,
        "attempts": 3 if plan.machine.selftest.disturbed else 1,
        "cpu_share": 0.5 if plan.machine.selftest.disturbed else 1.0,
        "involuntary": 4 if plan.machine.selftest.disturbed else 0,
        "stolen_s": 0.0,
    }
