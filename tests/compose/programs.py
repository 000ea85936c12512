"""What programs of the machine print: rocm-smi and amd-smi in the form of their release, and dpkg-query."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from amdcheck.host.protocol import CommandResult
from amdcheck.model.value import Reason
from tests.compose.plan import Gpu, Partition, Plan
from tests.compose.products import os_release, rocm_release
from tests.compose.rocm import packages, root_of

_DEADLINE_S = 10.0  # when a caller ends a tool that hangs


@dataclass(frozen=True)
class _Printed:
    """The end of a program."""

    stdout: str
    stderr: str = ""
    rc: int = 0
    seconds: float = 0.02


def answer(plan: Plan, argv: Sequence[str]) -> CommandResult | Reason:
    """How the command ends on this machine; `absent` when there is no such program.

    Raises KeyError for a question to a known program that this module cannot answer.
    """
    program = _program(plan, argv[0])
    if program is None:
        return "absent"
    if program == "dpkg-query":
        printed = _dpkg_query(plan, argv[1:])
    else:
        printed = _vendor_tool(plan, program, argv[1:])
        if plan.machine.smi.hangs:
            return _result(argv, _Printed("", rc=-9, seconds=_DEADLINE_S), timed_out=True)
    return _result(argv, printed, timed_out=False)


def _result(argv: Sequence[str], printed: _Printed, *, timed_out: bool) -> CommandResult:
    return CommandResult(
        argv=tuple(argv),
        rc=None if timed_out else printed.rc,
        stdout=printed.stdout,
        stderr=printed.stderr,
        duration_s=printed.seconds,
        timed_out=timed_out,
        truncated=False,
        stuck=(),
    )


def _program(plan: Plan, name: str) -> str | None:
    """The program behind argv[0]: a name found on PATH, or a path into an installation."""
    base = name.rpartition("/")[2]
    if base == "dpkg-query":
        return base if os_release(plan.machine.os.release).id in ("debian", "ubuntu") else None
    if base not in ("rocm-smi", "amd-smi") or not plan.machine.smi.installed or not plan.machine.rocm:
        return None
    places = {f"{root_of(rocm)}/bin/{base}" for rocm in plan.machine.rocm} | {f"/opt/rocm/bin/{base}", base}
    return base if name in places else None


# -- packages ----------------------------------------------------------------------------------------------------------


def _dpkg_query(plan: Plan, arguments: Sequence[str]) -> _Printed:
    """dpkg-query -W -f=FORMAT NAME...: a line for each installed package, a complaint for each other."""
    form = next(a.partition("=")[2] for a in arguments if a.startswith(("-f=", "--showformat=")))
    installed = packages(plan)
    names = [a for a in arguments if not a.startswith("-")]
    out = "".join(_formatted(form, name, installed[name]) for name in names if name in installed)
    complaints = "".join(f"dpkg-query: no packages found matching {n}\n" for n in names if n not in installed)
    return _Printed(out, complaints, 1 if complaints else 0)


def _formatted(form: str, name: str, version: str) -> str:
    fields = {"Package": name, "Version": version, "db:Status-Status": "installed", "Architecture": "amd64"}
    line = re.sub(r"\$\{([\w:-]+)\}", lambda match: fields[match[1]], form)
    return line.replace("\\t", "\t").replace("\\n", "\n")


# -- vendor tools ------------------------------------------------------------------------------------------------------


def _devices(plan: Plan) -> list[tuple[Gpu, Partition]]:
    """What the tools number: every partition, in the order of the card numbers and not of the addresses."""
    forgotten = plan.machine.smi.forgets_gpus
    found = [(gpu, part) for gpu in plan.driven for part in gpu.present if gpu.index not in forgotten]
    return found * plan.machine.smi.repeats_gpus


def _vendor_tool(plan: Plan, program: str, arguments: Sequence[str]) -> _Printed:
    smi = plan.machine.smi
    if not plan.driver_loaded:
        if program == "rocm-smi":
            return _Printed("", "ERROR:root:Driver not initialized (amdgpu not found in modules)\n", 0, smi.seconds)
        return _Printed("", "ERROR:root:Unable to detect any GPU devices, check amdgpu version\n", 255, smi.seconds)
    if smi.prints is not None:
        return _Printed(smi.prints, smi.complains, seconds=smi.seconds)
    tools = {
        ("rocm-smi", "--showdriverversion"): _rocm_smi_driver,
        ("rocm-smi", "--showtopo"): _rocm_smi_topology,
        ("amd-smi", "static"): _amd_smi_static,
        ("amd-smi", "version"): _amd_smi_version,
    }
    document = tools[program, arguments[0]](plan)
    return _Printed(json.dumps(document, indent=4 if program == "amd-smi" else None) + "\n", seconds=smi.seconds)


def _node(plan: Plan, gpu: Gpu) -> int:
    """The NUMA node that the tools name."""
    said = plan.machine.smi.numa_node
    return gpu.node if said is None else said


def _driver(plan: Plan, *, in_tree: str) -> str:
    return plan.machine.smi.driver_version or (plan.dkms.module if plan.dkms else in_tree)


def _rocm_smi_driver(plan: Plan) -> object:
    """The module's version; of an in-tree module the kernel's release."""
    return {"system": {"Driver version": _driver(plan, in_tree=plan.machine.os.kernel)}}


def _rocm_smi_topology(plan: Plan) -> object:
    """NUMA node of each card; of each pair weight, hops and link type. With one card there is no pair."""
    devices = _devices(plan)
    cards = {
        f"card{index}": {
            "(Topology) Numa Node": str(max(_node(plan, gpu), 0)),
            "(Topology) Numa Affinity": str(_node(plan, gpu)),
        }
        for index, (gpu, _) in enumerate(devices)
    }
    pairs = [(a, b) for a in range(len(devices)) for b in range(a + 1, len(devices))]
    ways = {(a, b): _way(plan, devices[a][0], devices[b][0]) for a, b in pairs}
    system: dict[str, str] = {}
    for place, word in enumerate(("Weight", "Hops", "Link type")):
        for (a, b), way in ways.items():
            system[f"(Topology) {word} between DRM devices {a} and {b}"] = str(way[place])
    return cards | ({"system": system} if system else {})


def _way(plan: Plan, a: Gpu, b: Gpu) -> tuple[int, int, str]:
    """Weight, hops and type as rocm-smi computes them: any XGMI pair is one hop."""
    if a is b:
        return 13, 1, "XGMI"
    way = None if plan.machine.smi.forgets_xgmi else plan.xgmi(a, b)
    if way is not None:
        return (15 * way[1] if len(a.partitions) == 1 else 41), 1, "XGMI"
    return (40, 2, "PCIE") if a.node == b.node else (72, 3, "PCIE")


def _run_together(plan: Plan) -> str:
    """How amd-smi names an in-tree driver: /proc/version without its blanks."""
    return f"Linuxversion{plan.machine.os.kernel}({os_release(plan.machine.os.release).builder})(gcc)"


def _amd_smi_static(plan: Plan) -> object:
    product = plan.gpu_product
    assert product is not None
    assert plan.machine.gpus is not None
    entries = [
        {
            "gpu": index,
            "asic": {
                "market_name": f"AMD {plan.machine.gpus.product}",
                "vendor_id": "0x1002",
                "device_id": f"0x{product.device}",
                "rev_id": f"0x{product.revision}",
                "num_compute_units": part.cus,
                "target_graphics_version": product.gfx,
            },
            "bus": {
                "bdf": f"{gpu.bdf[:-1]}{part.index if len(gpu.partitions) > 1 else gpu.bdf[-1]}",
                "max_pcie_width": 16,
                "max_pcie_speed": {"value": product.slot_gts, "unit": "GT/s"},
                "slot_type": product.board,
            },
            "driver": {"name": "amdgpu", "version": _driver(plan, in_tree=_run_together(plan))},
            "numa": {"node": max(_node(plan, gpu), 0), "affinity": _node(plan, gpu)},
            "vram": {"type": "HBM", "size": {"value": part.memory_bytes >> 20, "unit": "MB"}},
        }
        for index, (gpu, part) in enumerate(_devices(plan))
    ]
    newest = rocm_release(plan.machine.rocm[-1].version)
    return {"gpu_data": entries} if int(newest.hip.partition(".")[0]) >= 7 else entries


def _amd_smi_version(plan: Plan) -> object:
    return [
        {
            "tool": "AMDSMI Tool",
            "version": "25.4.2+2e0d3ba",
            "amdsmi_library_version": "25.4.0",
            "rocm_version": plan.machine.smi.rocm_version or plan.machine.rocm[-1].version,
            "amdgpu_version": _driver(plan, in_tree=_run_together(plan)),
            "amd_hsmp_driver_version": "N/A",
        }
    ]
