"""Is the processor one that AMD makes and that the tables know how to judge."""

from __future__ import annotations

from collections.abc import Iterator

from amdcheck.api import (
    HOST,
    Evidence,
    Finding,
    Known,
    Unknown,
    check,
    evidence,
    has_amd_cpu,
    passed,
    shown,
    skipped,
    undetermined,
)
from amdcheck.facts.cpu import Cpu
from amdcheck.facts.platform import Platform
from amdcheck.knowledge.epyc import HYGON


@check("cpu.vendor", title="Processor vendor", level="quick")
def vendor(cpu: Cpu, platform: Platform) -> Iterator[Finding]:
    """Whose processor this is, and which series and Zen generation.

    Looks at vendor, family, model and model name in /proc/cpuinfo. The other checks of this group rest on it: what a
    core can do in a cycle, how many cores share a slice of L3 and how many NUMA nodes a socket has all follow from the
    series. A processor by somebody else is no fault: AMD GPUs serve in Intel and ARM hosts too. The checks of AMD
    processors are then skipped, those of the GPUs are not. Hygon's processors derive from AMD's first Zen but are not
    AMD's, and no table here covers them.

    In a virtual machine these lines are what the hypervisor shows; a named model of QEMU (EPYC-Rome) hides the
    processor beneath.

    Source: Linux arch/x86/kernel/cpu/amd.c for families and models; CPUID dumps of EPYC 7001 to 9005.
    """
    reason = has_amd_cpu(cpu)
    if reason is not None:
        yield skipped("cpu.vendor", HOST, _explained(reason, cpu), *_identity(cpu))
    elif isinstance(cpu.vendor, Unknown):
        yield undetermined("cpu.vendor", HOST, "The processor's vendor could not be read.", because=cpu.vendor)
    else:
        shown_by = f", as {platform.virtualization} shows it" if platform.virtualization else ""
        yield passed("cpu.vendor", HOST, f"The processor is AMD's: {_name(cpu)}{shown_by}.", *_identity(cpu))


def _explained(reason: str, cpu: Cpu) -> str:
    if cpu.vendor.or_none() == HYGON:
        return f"{reason}; Hygon derives its processors from AMD's first Zen, but AMD's tables do not cover them"
    return f"{reason}; AMD GPUs beside it are judged all the same"


def _name(cpu: Cpu) -> str:
    name = cpu.model_name.or_none() or "without a name"
    row, zen = cpu.series, cpu.generation
    known = row.series if row else f"Zen {zen.generation}" if zen else None
    return f"{name} ({known})" if known else name


def _identity(cpu: Cpu) -> Iterator[Evidence]:
    for value, note in ((cpu.vendor, "vendor"), (cpu.model_name, "model name")):
        if isinstance(value, Known):
            yield evidence(value, note=note)
    if isinstance(cpu.family, Known) and isinstance(cpu.model, Known):
        yield shown(cpu.family.source, f"family {cpu.family.value} model {cpu.model.value}")
    if isinstance(cpu.vendor, Unknown) and isinstance(cpu.architecture, Known):
        yield evidence(cpu.architecture, note="architecture")
