"""What the children of all self-tests have in common: how a step ended, a reading, and why nothing was measured."""

from __future__ import annotations

from typing import Any

from tests.compose.plan import Plan

NO_KERNELS = "the native kernels are not in this installation"


def returned(result: object) -> dict[str, Any]:
    return {"ended": "returned", "detail": None, "result": result}


def ended(how: str, detail: str | None = None) -> dict[str, Any]:
    """A step that gave no result."""
    return {"ended": how, "detail": detail, "result": None}


def nothing(plan: Plan) -> dict[str, Any] | None:
    """`lacks` and `busy` of a group that measures nothing on this machine; None where it measures."""
    faults = plan.machine.selftest
    if faults.no_library:
        return {"lacks": NO_KERNELS, "busy": None}
    return {"lacks": None, "busy": "every CPU is in use"} if faults.all_busy else None


def clock_hz(plan: Plan) -> float:
    """Of every core at work, unless a fault holds them down."""
    return (plan.machine.selftest.clock_mhz or plan.cpu.base_mhz + 400) * 1e6


def reading(plan: Plan, seconds: float) -> dict[str, Any]:
    """Undisturbed, unless something else runs on every CPU."""
    disturbed = plan.machine.selftest.disturbed
    return {
        "best_s": seconds,
        "median_s": seconds * 1.02,
        "slices": 40,
        "attempts": 3 if disturbed else 1,
        "cpu_share": 0.5 if disturbed else 1.0,
        "involuntary": 4 if disturbed else 0,
        "stolen_s": 0.0,
        "cycle_s": 1 / clock_hz(plan),
        "issued": 5.9,
    }
