"""Does the kernel offer every instruction set that this processor has."""

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
    failed,
    has_amd_cpu,
    passed,
    shown,
    undetermined,
    warned,
)
from amdcheck.facts.cpu import Cpu
from amdcheck.facts.platform import Platform
from amdcheck.knowledge.epyc import FIRST_ZEN, every_zen_isa
from amdcheck.knowledge.isa import isa_table
from amdcheck.knowledge.remedies import remedy


@check("cpu.isa", title="Instruction sets", level="quick", applies=has_amd_cpu)
def isa(cpu: Cpu, platform: Platform) -> Iterator[Finding]:
    """Whether the kernel offers all that this processor's generation has, on every CPU alike.

    Looks at the flags of every CPU in /proc/cpuinfo against the Zen generation: AVX2 and FMA on all; AVX-512, VNNI and
    BF16 from Zen 4 on. Zen 3 has no AVX-512, whatever is said of it. Inference runtimes choose their kernels by these
    flags, so one that a hypervisor masks costs speed without any error. Without VNNI the INT8 path is vpmaddubsw, whose
    16-bit sums saturate: it is slower and can be wrong.

    - A guest that lacks some: have the hypervisor pass the host's CPU model through.
    - Bare metal that lacks some: look for clearcpuid or noxsave on the kernel's command line, then in the BIOS. A
      kernel older than a flag does not print it; programs find the instructions all the same, so that is no finding.
    - CPUs that differ: a program that looked at one CPU ends with SIGILL on another. This fails.
    - A family newer than the tables is held to what every Zen has, and said to be new.
    - A processor before Zen is said to be old: today's runtimes are built for AVX2.

    Source: CPUID dumps of EPYC 7001 to 9005; Linux 6.12 arch/x86/kernel/cpu/amd.c for the generations' models.
    """
    if isinstance(cpu.flags, Unknown):
        yield undetermined("cpu.isa", HOST, "The instruction sets could not be read.", because=cpu.flags)
        return
    for value in (cpu.family, cpu.model):
        if isinstance(value, Unknown):
            yield undetermined("cpu.isa", HOST, "The processor's family could not be read.", because=value)
            return
    expected = _expected(cpu, platform)
    findings = [*_uneven(cpu), *_outside_the_table(cpu, platform), *_withheld(cpu, platform, expected)]
    yield from findings or [_complete(cpu, platform, expected)]


def _expected(cpu: Cpu, platform: Platform) -> tuple[str, ...]:
    """What the generation has; what every Zen has for a newer one, and for a guest that is shown an older family."""
    if cpu.generation is not None:
        return cpu.generation.isa
    return every_zen_isa() if platform.virtualization or not _is_before_zen(cpu) else ()


def _is_before_zen(cpu: Cpu) -> bool:
    return (cpu.family.or_none() or FIRST_ZEN) < FIRST_ZEN


def _complete(cpu: Cpu, platform: Platform, expected: tuple[str, ...]) -> Finding:
    where = f", as {platform.virtualization} shows them" if platform.virtualization else ""
    return passed(
        "cpu.isa",
        HOST,
        f"Every CPU offers what its generation has{where}.",
        *_offered(cpu),
        expected=" ".join(expected) or None,
        actual=" ".join(cpu.isa),
    )


def _flags_that_matter() -> tuple[str, ...]:
    return tuple(dict.fromkeys(flag for row in isa_table().isa.values() for flag in row.asked))


def _offered(cpu: Cpu) -> Iterator[Evidence]:
    """The flags that matter, not the hundred others."""
    flags = cpu.flags.or_none() or ()
    wanted = [flag for flag in _flags_that_matter() if flag in flags]
    yield shown(cpu.flags.source, " ".join(wanted) or "none of AVX2, FMA, AVX-512", note="flags")
    if isinstance(cpu.model_name, Known):
        yield evidence(cpu.model_name, note="model name")


def _uneven(cpu: Cpu) -> Iterator[Finding]:
    """Instruction sets that only some CPUs offer. Other flags may differ (lwp does on some Opterons)."""
    matter = _flags_that_matter()
    uneven = [flag for flag in cpu.uneven_flags if flag in matter]
    if uneven:
        yield failed(
            "cpu.isa/uneven",
            HOST,
            f"Only some CPUs offer {' '.join(uneven)}: programs that look at one CPU end with SIGILL on another.",
            shown(cpu.flags.source, " ".join(uneven), note="flags that some CPUs lack"),
            *_offered(cpu),
            expected="the same on every CPU",
            actual=f"some CPUs lack {' '.join(uneven)}",
            remedy=remedy("cpu.isa/uneven"),
        )


def _outside_the_table(cpu: Cpu, platform: Platform) -> Iterator[Finding]:
    name = cpu.model_name.or_none() or ""
    zen = cpu.generation
    who = f"{name} (family {cpu.family.or_none()} model {cpu.model.or_none()})".strip()
    if _is_before_zen(cpu) and platform.virtualization is None:
        yield warned(
            "cpu.isa/before-zen",
            HOST,
            f"{who} is older than Zen: today's inference runtimes are built for AVX2 and FMA.",
            *_offered(cpu),
            expected="avx2 fma",
            actual=" ".join(cpu.isa) or "neither",
            remedy=remedy("cpu.isa/before-zen"),
        )
    elif not _is_before_zen(cpu) and (zen is None or ("EPYC" in name and cpu.series is None)):
        held_to = f"its generation, Zen {zen.generation}" if zen else "what every Zen has"
        yield warned(
            "cpu.isa/not-in-table",
            HOST,
            f"{who} is newer than the tables; it is held to {held_to}.",
            *_offered(cpu),
            remedy=remedy("cpu.isa/not-in-table"),
        )


def _withheld(cpu: Cpu, platform: Platform, expected: tuple[str, ...]) -> Iterator[Finding]:
    """Expected instruction sets that no CPU offers: withheld by a hypervisor, the command line or nothing visible."""
    missing = [name for name in expected if name not in cpu.isa and not _explained(name, cpu, platform)]
    if not missing:
        return
    words = isa_table().masking_words(platform.command_line.or_none() or "")
    causes = [*([platform.virtualization] if platform.virtualization else []), *words]
    id = "cpu.isa/masked" if causes else "cpu.isa/missing"
    losses = "; ".join(isa_table().isa[name].loss for name in missing)
    yield warned(
        id,
        HOST,
        f"{_cause(causes)}: {' '.join(missing)}. Without: {losses}.",
        *_offered(cpu),
        *([shown(platform.command_line.source, " ".join(words))] if words else []),
        *([evidence(platform.virtualization_evidence, note="hypervisor")] if platform.virtualization else []),
        expected=" ".join(expected),
        actual=" ".join(cpu.isa) or "none of them",
        remedy=remedy(id),
    )


def _cause(causes: list[str]) -> str:
    return f"Withheld by {' and '.join(causes)}" if causes else "Not offered"


def _explained(name: str, cpu: Cpu, platform: Platform) -> bool:
    """Is a flag that is not there one that some CPUs have, or one that a kernel as old as this does not print?"""
    lacking = set(isa_table().isa[name].asked).difference(cpu.flags.or_none() or ())
    running = platform.release.or_none()
    silent = any(row.is_unnamed_by(running) for flag in lacking if (row := isa_table().isa.get(flag)) is not None)
    return silent or not lacking.isdisjoint(cpu.uneven_flags)
