"""Composes whole machines that nobody here owns, from a description in the field's words and named faults.

host = compose("mi210-8gpu-2hive-epyc7763x2", "link-width-x8")
host.host            # to read facts from
host.capture()       # as amdcheck would have recorded it
host.write_tree(d)   # for lscpu, lstopo, lspci and rocm-smi
"""

from __future__ import annotations

from typing import Any

from tests.compose.amdgpu import write_displays, write_gpus, write_module
from tests.compose.composed import ComposedHost, ComposedMachine
from tests.compose.cpu import write_cpus
from tests.compose.description import DescriptionError, machine_names, parse_machine, raw_machine
from tests.compose.faults import ExpectedFinding, Fault, change_files, fault, faults, merge
from tests.compose.kfd import write_kfd
from tests.compose.numa import write_nodes
from tests.compose.pci import write_pci
from tests.compose.plan import Plan
from tests.compose.rocm import write_software
from tests.compose.system import write_system
from tests.compose.tree import Tree

__all__ = [
    "ComposedHost",
    "ComposedMachine",
    "DescriptionError",
    "ExpectedFinding",
    "Fault",
    "compose",
    "fault",
    "fault_names",
    "machine_names",
    "scaled",
]


def fault_names() -> tuple[str, ...]:
    """The faults that are named."""
    return tuple(faults())


def compose(machine: str, *names: str) -> ComposedHost:
    """The machine with these faults. DescriptionError for a name that is not there or a key that does not fit."""
    raw = raw_machine(machine)
    found = [fault(name) for name in names]
    for name, one in zip(names, found, strict=True):
        if machine not in one.machines:
            raise DescriptionError(f"{name} is a fault of {', '.join(one.machines)}, not of {machine}")
        merge(raw, one.machine)
        if one.machine:  # a mistake is then this fault's, not the machine's
            parse_machine(machine, raw, changed_by=name)
    host = _compose(machine, raw)
    for one in found:
        change_files(one, host.tree, host.plan)
    return host


def scaled(
    machine: str, *, cpus: int | None = None, gpus: int | None = None, partitions: int | None = None
) -> ComposedHost:
    """The machine grown to this many logical CPUs, GPUs and KFD GPU nodes: for cost against size.

    CPUs are spread over the sockets, further GPUs lie in PCI domains of their own. ValueError for numbers that do not
    divide evenly or that no partition mode gives.
    """
    raw = raw_machine(machine)
    if cpus is not None:
        plan = Plan(machine, parse_machine(machine, raw))
        cores, rest = divmod(cpus, plan.sockets * plan.threads_per_core)
        if rest:
            raise ValueError(f"{cpus} CPUs do not divide over {plan.sockets} sockets")
        raw["cpu"]["cores"] = cores
    if gpus is not None:
        raw["gpus"]["slot"] = _slots(raw["gpus"]["slot"], gpus)
    if partitions is not None:
        modes, rest = divmod(partitions, len(raw["gpus"]["slot"]))
        names = {1: "SPX", 2: "DPX", 4: "QPX", 8: "CPX"}
        if rest or modes not in names:
            raise ValueError(f"no partition mode gives {partitions} on {len(raw['gpus']['slot'])} GPUs")
        raw["gpus"]["compute_partition"] = names[modes]
    return _compose(machine, raw)


def _slots(known: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """The first slots, and copies of them in further domains."""
    return [
        {**known[place % len(known)], **_moved(known[place % len(known)], place // len(known))}
        for place in range(count)
    ]


def _moved(slot: dict[str, Any], domain: int) -> dict[str, Any]:
    """The slot's addresses in another PCI domain."""
    return {key: f"{domain:04x}{slot[key][4:]}" for key in ("at", "port")}


def _compose(name: str, raw: dict[str, Any]) -> ComposedHost:
    plan, tree = Plan(name, parse_machine(name, raw)), Tree()
    write_cpus(tree, plan)
    write_nodes(tree, plan)
    folders = write_pci(tree, plan)
    write_displays(tree, plan)
    write_system(tree, plan)
    write_software(tree, plan)
    if plan.driver_loaded:
        write_module(tree, plan)
        write_gpus(tree, plan, folders)
        write_kfd(tree, plan)
    return ComposedHost(name, plan, tree)
