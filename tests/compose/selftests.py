"""What the children of self-tests print on the machine: it computes right, but for the faults it has."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from amdcheck.host.protocol import CommandResult, SelfTestResult
from tests.compose import compute, cores, cpuid, memory
from tests.compose.plan import Plan
from tests.compose.products import rocm_release
from tests.compose.rocm import root_of
from tests.compose.steps import NO_KERNELS, ended, returned

# Size in bytes of the buffers that the alignment self-test holds, and how many at once.
_SIZES = ((64, 32), (1024, 32), (4096, 32), (65536, 32), (1 << 20, 16), (4 << 20, 8), (64 << 20, 4))
_LANES = {"sse2": 4, "avx2": 8, "fma": 8, "avx_vnni": 8}


def selftest(plan: Plan, name: str, params: Sequence[str], python: str | None) -> SelfTestResult:
    """The result of a self-test with these parameters. Raises KeyError for one that this module does not know."""
    documents = {
        "cpu.isa": _isa,
        "cpu.alignment": _alignment,
        "cpu.compute": compute.document,
        "cpu.cores": cores.document,
        "cpu.memory": memory.document,
        "cpu.pattern": memory.pattern,
        "numpy_alignment": _numpy,
        "miopen-version": _miopen,
    }
    document = {"test": name, **documents[name](plan, params)}
    result = CommandResult(
        argv=("amdcheck-selftest", name, *params),
        rc=0,
        stdout=json.dumps(document) + "\n",
        stderr="",
        duration_s=0.3,
        timed_out=False,
        truncated=False,
        stuck=(),
    )
    return SelfTestResult(name=name, params=tuple(params), python=python, result=result)


def _isa(plan: Plan, params: Sequence[str]) -> dict[str, Any]:
    leaves, xcr0 = cpuid.leaves(plan)
    read = returned({"leaves": leaves, "xcr0": xcr0})
    refused = ended("denied", "[Errno 13] Permission denied")
    lacks = plan.machine.selftest.no_library
    return {
        "lacks": NO_KERNELS if lacks else None,
        "kernels": [] if lacks else [{"name": name, **_kernel(plan, name)} for name in params],
        "cpuid": refused if plan.machine.selftest.cpuid_refused else read,
    }


def _kernel(plan: Plan, name: str) -> dict[str, Any]:
    """Every word right and every planted bit noticed, but for what the machine's faults say."""
    faults = plan.machine.selftest
    ends = {"SIGILL": faults.illegal_instruction, "SIGBUS": faults.killed, "timeout": faults.never_ends}
    for end, names in ends.items():
        if name in names:
            return ended(end)
    registers, lanes = 12, _LANES.get(name, 16)
    wrong = name in faults.wrong_result
    planted = registers * lanes
    return returned(
        {
            "registers": registers,
            "lanes": lanes,
            "compared": 1024 * planted,
            "wrong": 64 if wrong else 0,
            "wrong_lanes": [5] if wrong else [],
            "first_wrong": [{"register": 3, "lane": 5, "got": "0x42280000", "want": "0x42280001"}] if wrong else [],
            "planted": planted,
            "noticed": planted - (1 if name in faults.plant_unnoticed else 0),
            "cpus": [plan.online[0].id],
        }
    )


def _counts(*, aligned: bool, early: bool = False) -> list[dict[str, int]]:
    """Buffers that begin on a line: all of them, or of small sizes those that happen to."""
    return [
        {"bytes": size, "held": held, "aligned": held if aligned else (held // 4 if size < 4096 and early else 0)}
        for size, held in _SIZES
    ]


def _alignment(plan: Plan, params: Sequence[str]) -> dict[str, Any]:
    good = not plan.machine.selftest.allocator_ignores_alignment
    allocator = {
        "name": "glibc 2.39",
        "malloc": _counts(aligned=False, early=True),
        "posix_memalign": _counts(aligned=good),
        "aligned_alloc": _counts(aligned=good),
    }
    times = {0: 2.1e-10, 1: 4.0e-10, 8: 4.0e-10, 16: 4.0e-10, 32: 2.1e-10, 63: 4.0e-10}
    loads = {"width": int(params[0]), "by_offset": [{"offset": o, "seconds": s} for o, s in times.items()]}
    return {"allocator": returned(allocator), "loads": returned(loads)}


def _numpy(plan: Plan, params: Sequence[str]) -> dict[str, Any]:
    measured = {
        "empty": _counts(aligned=False, early=True),
        "sliced": _counts(aligned=not plan.machine.selftest.numpy_cannot_align),
        "allocated": _counts(aligned=not plan.machine.selftest.numpy_cannot_align),
        "contiguous_tried": len(_SIZES),
        "contiguous_same": len(_SIZES),
    }
    return {"python": "3.12.3", "lacks": None, "numpy": "2.2.6", "handler": "default_allocator", "measured": measured}


def _miopen(plan: Plan, params: Sequence[str]) -> dict[str, Any]:
    """The library of the installation that the path leads into says its release's version."""
    path = params[0]
    for rocm in plan.machine.rocm:
        if path.startswith((f"{root_of(rocm)}/", "/opt/rocm/lib")):
            version = rocm.miopen_says or rocm_release(rocm.miopen_of or rocm.version).miopen
            return returned({"version": version})
    return ended("failed", f"OSError: {path}: cannot open shared object file")
