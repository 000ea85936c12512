"""Does every PCIe link between GPU and processor run with all the lanes that its two ends have."""

from __future__ import annotations

from collections.abc import Iterator

from amdcheck.api import (
    Evidence,
    Finding,
    Unknown,
    check,
    evidence,
    failed,
    has_amd_gpu,
    passed,
    shown,
    skipped,
    undetermined,
    warned,
)
from amdcheck.facts.gpus import Gpu, Gpus
from amdcheck.facts.links import Link, links_above
from amdcheck.facts.pci import PciDevice, PciTree
from amdcheck.facts.platform import Platform
from amdcheck.knowledge.gpus import GpuProduct
from amdcheck.knowledge.remedies import remedy

ID = "pci.link-width"


@check(ID, title="PCIe link width", level="quick", applies=has_amd_gpu)
def link_width(gpus: Gpus, pci: PciTree, platform: Platform) -> Iterator[Finding]:
    """Whether every PCIe link on the way from a GPU up to its root port runs at full width.

    Walks from the GPU over the bridges above it to the root port. A link joins two ports; its width now
    (current_link_width) is compared with the narrower of what its two ends can do (max_link_width), so that boards
    which are wired with eight lanes by design (MI250 behind a switch) pass. The switch on the card or in the package
    (vendor 1002 on MI50 to MI100 and Radeon, 1022:14c7 in MI200, 1022:1500 in MI300X) always reports a full link to
    its GPU; the link of the slot is the one above it, which the GPU itself does not show. rocm-smi reads the GPU alone.

    A narrower link halves the rate of host transfers each time: loading of weights, offloaded KV caches, and all
    traffic between GPUs that no xGMI joins. The usual causes are a card or riser that does not sit, a damaged contact,
    or a slot that the BIOS splits.

    A sleeping GPU, and an idle one whose driver saves power in the link (Vega 20, Radeon), may run with fewer lanes
    until it works: a warning there. Where one end of a link does not say its width, the link is unknown. Virtual
    functions and integrated GPUs have no link of their own. A guest sees the bridges above its GPU seldom, and then
    only the GPU's own end is judged.

    Source: Linux pci-sysfs; amdgpu_device.c (which bridges are the card's own); recorded trees of MI50, MI210, MI250.
    """
    for gpu in gpus.devices:
        yield from _judge(gpu, pci, platform)


def _judge(gpu: Gpu, pci: PciTree, platform: Platform) -> Iterator[Finding]:
    row = gpu.row
    device = pci.devices.get(gpu.bdf)
    if isinstance(pci.listing, Unknown):
        yield undetermined(ID, gpu.subject, "The PCI tree could not be read.", because=pci.listing)
        return
    if device is None:
        yield skipped(ID, gpu.subject, "The GPU is known from the compute driver alone, not from the bus.")
        return
    if gpu.is_virtual_function:
        yield skipped(ID, gpu.subject, "A virtual function has no link of its own; its hypervisor sees the link.")
        return
    if row is not None and row.integrated:
        yield skipped(ID, gpu.subject, f"{row.name} is integrated with the processor; no slot lies between them.")
        return
    if isinstance(device.location, Unknown):
        yield undetermined(ID, gpu.subject, "Where the GPU hangs in the tree is unknown.", because=device.location)
        return
    links = links_above(device, pci)
    judged = [link for link in links if not link.on_card]
    hides_slot = row is None or row.slot_behind_switch
    if hides_slot and platform.virtualization and not any(link.on_card for link in links):
        reason = "This guest does not see the bridges above the GPU; its own end may be inside its card or package."
        yield skipped(ID, gpu.subject, reason, *map(_seen, links))
        return
    if hides_slot and not device.parents:
        why = Unknown("absent", device.location.source, f"{device.location.value} lies below no bridge")
        yield undetermined(ID, gpu.subject, "The bridges above the GPU are not in the tree.", because=why)
        return
    yield from _verdict(gpu, device, row, judged, links)


def _verdict(
    gpu: Gpu, device: PciDevice, row: GpuProduct | None, judged: list[Link], links: list[Link]
) -> Iterator[Finding]:
    narrow = [link for link in judged if (width := link.width.or_none()) and (full := link.full) and width < full]
    # Inside the card the width says nothing, but an end that does not answer may be a GPU that is gone.
    unread = [link for link in links if link.silent is not None or (link.full is None and not link.on_card)]
    if narrow:
        yield _narrow(gpu, device, row, narrow)
    elif unread:
        asleep = " while the GPU sleeps" if _sleeps(device) else ""
        message = f"The width of the link {unread[0].name} could not be read{asleep}."
        yield undetermined(ID, gpu.subject, message, *map(_seen, links), because=unread[0].why_unread)
    else:
        widths = ", ".join(dict.fromkeys(f"x{link.full}" for link in judged))
        message = f"Every link from {gpu.label} to the root port runs at full width ({widths})."
        if not device.parents:
            message = f"The link of {gpu.label} runs at full width ({widths}); this machine shows no bridge above it."
        yield passed(ID, gpu.subject, message, *map(_seen, links), expected=widths)


def _narrow(gpu: Gpu, device: PciDevice, row: GpuProduct | None, narrow: list[Link]) -> Finding:
    worst = min(narrow, key=lambda link: (link.width.or_none() or 0) / (link.full or 1))
    text = f"The link {worst.name} runs with {worst.width.or_none()} of {worst.full} lanes"
    seen = [_seen(link) for link in narrow]
    expected, actual = f"x{worst.full}", f"x{worst.width.or_none()}"
    if _sleeps(device):
        return warned(
            f"{ID}/suspended",
            gpu.subject,
            f"{text}; the GPU sleeps, and may widen it when it works.",
            *seen,
            evidence(device.runtime_status, note="power state", volatile=True),
            expected=expected,
            actual=actual,
            remedy=remedy(f"{ID}/suspended", bdf=gpu.bdf),
        )
    if worst.is_slow and (row is None or row.idle_link == "trains-down"):
        return warned(
            f"{ID}/trained-down",
            gpu.subject,
            f"{text}, and slower than it can; {gpu.label} may save power in it.",
            *seen,
            expected=expected,
            actual=actual,
            remedy=remedy(f"{ID}/trained-down", bdf=gpu.bdf),
        )
    return failed(
        f"{ID}/degraded",
        gpu.subject,
        f"{text}.",
        *seen,
        expected=expected,
        actual=actual,
        remedy=remedy(f"{ID}/degraded", port=worst.upper or "", device=worst.lower),
    )


def _sleeps(device: PciDevice) -> bool:
    return device.runtime_status.or_none() == "suspended"


def _seen(link: Link) -> Evidence:
    """The hop, its width now, and what its ends can do."""
    note = f"link {link.name}, {link.limits}"
    if link.on_card:
        note += "; inside the card or package, not judged"
    width = link.width
    if isinstance(width, Unknown):
        return evidence(width, note=note)
    return shown(width.source, f"x{width.value}", note=note)
