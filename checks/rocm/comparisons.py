"""What a vendor tool and the kernel's files both say, side by side."""

from __future__ import annotations

from msgspec import Struct

from amdcheck.api import Evidence, Known, Unknown, evidence, shown
from amdcheck.facts.driver import Driver
from amdcheck.facts.gpus import Gpus
from amdcheck.facts.kfd import LINK_XGMI, TOPOLOGY, Kfd
from amdcheck.facts.platform import Platform
from amdcheck.facts.smi import SmiTool
from amdcheck.facts.smi_output import SmiGpu
from amdcheck.knowledge.miopen import numbers


class Compared(Struct, frozen=True, kw_only=True):
    """One thing that both sides say: the outcome a difference has, a sentence for it, and what was read."""

    outcome: str
    agrees: bool
    difference: str
    read: tuple[Evidence, ...]


def comparisons(tool: SmiTool, driver: Driver, platform: Platform, gpus: Gpus, kfd: Kfd) -> list[Compared]:
    """Everything that both sides say; what one of them does not say is not in it."""
    found = (
        _driver(tool, driver, platform),
        _count(tool, gpus),
        _links(tool, kfd),
        _numa(tool, gpus),
        _release(tool),
    )
    return [item for item in found if item is not None]


def _driver(tool: SmiTool, driver: Driver, platform: Platform) -> Compared | None:
    kernel = platform.kernel if driver.kind.or_none() == "in-tree" else driver.module_version
    if isinstance(tool.driver, Unknown) or isinstance(kernel, Unknown):
        return None
    said = tool.driver.value
    in_tree = driver.kind.or_none() == "in-tree"
    agrees = said.version == kernel.value or (said.version is None and said.in_tree and in_tree)
    words = f"in-tree, kernel {said.version or 'cut off'}" if said.in_tree else str(said.version)
    return Compared(
        outcome="driver-version",
        agrees=agrees,
        difference=f"{tool.name} names driver {words}, the kernel {kernel.value}.",
        read=(shown(tool.driver.source, f"driver {words}"), evidence(kernel)),
    )


def _count(tool: SmiTool, gpus: Gpus) -> Compared | None:
    """By address where the tool gives addresses, else by number; it may count devices or partitions, and lists
    integrated GPUs that are not judged too."""
    if isinstance(tool.gpus, Unknown):
        return None
    said = tool.gpus.value
    visible = [gpu for gpu in gpus.devices if not gpu.hidden]
    if all(gpu.bdf for gpu in said):
        missing = sorted({gpu.bdf for gpu in visible} - {_device(gpu) for gpu in said})
        unknown = sorted({_device(g) for g in said} - {g.bdf for g in gpus.devices} - {g.bdf for g in gpus.not_judged})
        agrees, fewer = not missing and not unknown, bool(missing)
        names = ", ".join((missing or unknown)[:4])
        difference = (
            f"{tool.name} does not list {names}." if fewer else f"{tool.name} lists {names}, which sysfs does not."
        )
    else:
        others = len(gpus.not_judged)
        partitions = sum(max(1, len(gpu.partitions)) for gpu in gpus.devices)
        hidden = len(gpus.devices) - len(visible)
        ranges = ((len(visible), len(gpus.devices) + others), (partitions - hidden, partitions + others))
        agrees = any(low <= len(said) <= high for low, high in ranges)
        fewer = len(said) < len(visible)
        difference = f"{tool.name} lists {len(said)} GPUs, sysfs {len(gpus.devices)} ({partitions} partitions)."
    return Compared(
        outcome="gpus-missing" if fewer else "gpus-unknown",
        agrees=agrees,
        difference=difference,
        read=(
            shown(tool.gpus.source, f"{len(said)} GPUs"),
            shown(gpus.listing.source, f"{len(gpus.devices)} devices"),
        ),
    )


def _device(gpu: SmiGpu) -> str:
    """The physical device of a partition: function 0 of its address."""
    return f"{(gpu.bdf or '').rpartition('.')[0]}.0"


def _links(tool: SmiTool, kfd: Kfd) -> Compared | None:
    """How many pairs are joined by XGMI. Tools order GPUs in their own way, so pairs are counted, not matched."""
    nodes = {node.id for node in kfd.gpu_nodes}
    complete = all(isinstance(node.links_read, Known) for node in kfd.gpu_nodes)
    if isinstance(tool.links, Unknown) or isinstance(tool.gpus, Unknown) or not complete:
        return None
    if len(tool.gpus.value) != len(nodes) or any(link.type is None for link in tool.links.value):
        return None
    said = sum(link.type == "XGMI" for link in tool.links.value)
    found = {
        frozenset((link.node_from, link.node_to))
        for node in kfd.gpu_nodes
        for link in node.links
        if link.type == LINK_XGMI and link.node_to in nodes and link.node_from in nodes
    }
    return Compared(
        outcome="link-types",
        agrees=said == len(found),
        difference=f"{tool.name} sees {said} pairs of GPUs joined by XGMI, the KFD topology {len(found)}.",
        read=(shown(tool.links.source, f"{said} XGMI pairs"), shown(TOPOLOGY, f"{len(found)} XGMI pairs")),
    )


def _numa(tool: SmiTool, gpus: Gpus) -> Compared | None:
    """The NUMA node of each GPU's PCI device, which the tools call affinity."""
    known = {gpu.bdf: gpu.numa_node.value for gpu in gpus.devices if isinstance(gpu.numa_node, Known)}
    if isinstance(tool.gpus, Unknown) or len(known) != len(gpus.devices):
        return None
    said = [gpu for gpu in tool.gpus.value if gpu.numa_affinity is not None]
    if said and all(gpu.bdf for gpu in said):
        pairs = [(gpu.numa_affinity or 0, known[_device(gpu)]) for gpu in said if _device(gpu) in known]
    elif len(said) == len(gpus.devices) == len(tool.gpus.value):
        pairs = list(zip(sorted(gpu.numa_affinity or 0 for gpu in said), sorted(known.values()), strict=True))
    else:
        return None
    theirs, ours = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    if not pairs:
        return None
    return Compared(
        outcome="numa-nodes",
        agrees=theirs == ours,
        difference=f"{tool.name} puts the GPUs on NUMA nodes {_listed(theirs)}, sysfs on {_listed(ours)}.",
        read=(
            shown(tool.gpus.source, f"NUMA nodes {_listed(theirs)}"),
            shown("/sys/bus/pci/devices/*/numa_node", _listed(ours)),
        ),
    )


def _listed(nodes: list[int]) -> str:
    return " ".join(str(node) for node in nodes[:64])


def _release(tool: SmiTool) -> Compared | None:
    """The ROCm release that the tool names, against the installation it was taken from."""
    if tool.root is None or isinstance(tool.rocm_version, Unknown) or isinstance(tool.root.version, Unknown):
        return None
    said, found = tool.rocm_version.value, tool.root.version.value
    return Compared(
        outcome="rocm-version",
        agrees=numbers(said)[:3] == numbers(found)[:3],
        difference=f"{tool.name} names ROCm {said}, its installation is {found}.",
        read=(shown(tool.rocm_version.source, f"ROCm {said}"), evidence(tool.root.version)),
    )
