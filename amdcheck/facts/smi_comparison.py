"""What a vendor tool and the kernel's files both say, side by side."""

from __future__ import annotations

from collections import Counter

from msgspec import Struct

from amdcheck.facts.driver import Driver
from amdcheck.facts.gpus import Gpus
from amdcheck.facts.kfd import LINK_XGMI, TOPOLOGY, Kfd
from amdcheck.facts.platform import Platform
from amdcheck.facts.smi import SmiTool
from amdcheck.facts.smi_output import SmiGpu
from amdcheck.knowledge.versions import numbers
from amdcheck.model.finding import Evidence, evidence, shown
from amdcheck.model.text import counted
from amdcheck.model.value import Known, Unknown


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
    """How many GPUs, and which, where the tool gives their addresses."""
    if isinstance(tool.gpus, Unknown):
        return None
    said = tool.gpus.value
    missing, surplus, words = _by_address(said, gpus) if all(gpu.bdf for gpu in said) else _by_number(said, gpus)
    return Compared(
        outcome="gpus-missing" if missing else "gpus-unknown",
        agrees=not missing and not surplus,
        difference=f"{tool.name} {words}.",
        read=(
            shown(tool.gpus.source, counted(len(said), "GPU")),
            shown(gpus.listing.source, counted(len(gpus.devices), "device")),
        ),
    )


def _by_address(said: tuple[SmiGpu, ...], gpus: Gpus) -> tuple[bool, bool, str]:
    """What the tool misses and has too many, and a clause for it. Hidden and not judged GPUs may be listed or not."""
    theirs = {_device(gpu, gpus) for gpu in said}
    missing = sorted({gpu.bdf for gpu in gpus.devices if not gpu.hidden} - theirs)
    surplus = sorted(theirs - {gpu.bdf for gpu in gpus.devices} - {gpu.bdf for gpu in gpus.not_judged})
    if missing:
        return True, bool(surplus), f"does not list {', '.join(missing[:4])}"
    return False, bool(surplus), f"lists {', '.join(surplus[:4])}, which sysfs does not"


def _by_number(said: tuple[SmiGpu, ...], gpus: Gpus) -> tuple[bool, bool, str]:
    """The same by number alone: tools count devices or partitions, and with them such as are not judged."""
    others, hidden = len(gpus.not_judged), sum(gpu.hidden for gpu in gpus.devices)
    devices = len(gpus.devices)
    partitions = len(_partitions(gpus))
    fits = any(count - hidden <= len(said) <= count + others for count in (devices, partitions))
    missing = not fits and len(said) < (partitions if len(said) > devices + others else devices)
    there = f"{counted(devices, 'device')} with {counted(partitions, 'partition')}"
    words = f"lists {counted(len(said), 'GPU')}, sysfs {there}"
    return missing, not fits and not missing, words


def _partitions(gpus: Gpus) -> list[str]:
    """The device of every partition; an unpartitioned one counts once."""
    return [gpu.bdf for gpu in gpus.devices for _ in range(max(1, len(gpu.partitions)))]


def _device(gpu: SmiGpu, gpus: Gpus) -> str:
    """The physical device: the address itself where sysfs lists it, else function 0, which a partition belongs to."""
    address = gpu.bdf or ""
    listed = {device.bdf for device in gpus.devices} | {other.bdf for other in gpus.not_judged}
    return address if address in listed else f"{address.rpartition('.')[0]}.0"


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
    pairs = _numa_pairs(tool.gpus.value, known, gpus)
    if not pairs:
        return None
    theirs, ours = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    return Compared(
        outcome="numa-nodes",
        agrees=theirs == ours,
        difference=f"{tool.name} puts the GPUs on NUMA nodes {_listed(theirs)}, sysfs on {_listed(ours)}.",
        read=(
            shown(tool.gpus.source, f"NUMA nodes {_listed(theirs)}"),
            shown("/sys/bus/pci/devices/*/numa_node", _listed(ours)),
        ),
    )


def _numa_pairs(said: tuple[SmiGpu, ...], known: dict[str, int], gpus: Gpus) -> list[tuple[int, int]]:
    """Theirs and ours: by address, else both in ascending order where the tool lists every device or partition."""
    nodes = [(gpu, gpu.numa_affinity) for gpu in said if gpu.numa_affinity is not None]
    if nodes and all(gpu.bdf for gpu, _ in nodes):
        places = [(node, _device(gpu, gpus)) for gpu, node in nodes]
        return [(node, known[bdf]) for node, bdf in places if bdf in known]
    for bdfs in ([gpu.bdf for gpu in gpus.devices], _partitions(gpus)):
        if len(nodes) == len(said) == len(bdfs):
            return list(zip(sorted(node for _, node in nodes), sorted(known[bdf] for bdf in bdfs), strict=True))
    return []


def _listed(nodes: list[int]) -> str:
    """0 0 1 1, or for many "32 on 0, 32 on 1"."""
    if len(nodes) <= 16:
        return " ".join(map(str, nodes))
    return ", ".join(f"{count} on {node}" for node, count in sorted(Counter(nodes).items()))


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
