"""Are the L3 slices what this processor has, alike and visible."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from amdcheck.api import (
    HOST,
    Evidence,
    Finding,
    Unknown,
    check,
    evidence,
    has_amd_cpu,
    passed,
    shown,
    skipped,
    undetermined,
    warned,
)
from amdcheck.facts.cpu import FOLDER, Cache, Cpu
from amdcheck.facts.cpulist import format_cpulist
from amdcheck.facts.platform import Platform
from amdcheck.knowledge.epyc import Series
from amdcheck.knowledge.remedies import remedy
from amdcheck.model.text import counted

Shape = tuple[int, int]  # KiB, cores


@check("cpu.cache", title="L3 slices", level="quick", applies=has_amd_cpu)
def cache(cpu: Cpu, platform: Platform) -> Iterator[Finding]:
    """Size and sharing of every slice of L3, which is what the cores of one CCX share.

    Looks at /sys/devices/system/cpu/cpu*/cache/index*. A core is served by its own slice alone: 16 MiB on Rome and
    Bergamo, 32 MiB on Milan, Genoa and Turin, 96 MiB on the X parts, whatever the sum over the socket is. Weights and
    activations that a group of threads reuses should fit the slice that the group runs on; runtimes and schedulers
    place work by what is shown here.

    - An EPYC on bare metal without any L3: the kernel did not understand its caches, which is undetermined.
    - Slices of one server differ in size or in cores: CPUs are offline or cores are disabled.
    - A guest without any L3, with one over more cores than a CCX has, or with one for every core: the hypervisor hides
      the slices that are there. Let it pass caches and topology through.

    A series' size and cores are the most that any of its parts has (an EPYC 9124 has 16 MiB over 4 cores), so a
    machine that has less is not at fault. Desktop parts may have slices of two kinds by design. CPUID leaf 8000_0006
    gives the sum over the socket, and `cache size` in /proc/cpuinfo is the L2: neither is used.

    Source: CPUID dumps of EPYC 7001 to 9005 and hwloc's recordings for slices and cores; QEMU's documentation for -smp.
    """
    unread = _unread(cpu)
    if unread is not None:
        yield undetermined("cpu.cache", HOST, "The caches could not be read.", *_slices(cpu), because=unread)
    elif not cpu.l3:
        yield _without_l3(cpu, platform)
    else:
        row = cpu.series
        virtual = platform.virtualization is not None
        findings = [*_merged(cpu, row), *(_split(cpu, row) if virtual else ()), *_uneven(cpu, row, virtual=virtual)]
        yield from findings or [_alike(cpu, row, platform)]


def _unread(cpu: Cpu) -> Unknown | None:
    """The first thing that was not read and without which the slices are not known."""
    if isinstance(cpu.online, Unknown):
        return cpu.online
    if cpu.cache_gaps:
        return cpu.cache_gaps[0]
    if isinstance(cpu.cores, Unknown):
        return cpu.cores
    for slice in cpu.l3:
        if isinstance(slice.size_kib, Unknown):
            return slice.size_kib
    without = set(cpu.online.value).difference(*(slice.cpus for slice in cpu.l3))
    if cpu.l3 and without:
        return Unknown("absent", f"{FOLDER}/cpu{min(without)}/cache", f"CPUs {format_cpulist(without)} show no L3")
    return None


def _shape(cpu: Cpu, slice: Cache) -> Shape:
    return slice.size_kib.or_none() or 0, cpu.cores_among(slice.cpus)


def _words(shape: Shape) -> str:
    kib, cores = shape
    size = f"{kib // 1024} MiB" if kib % 1024 == 0 else f"{kib} KiB"
    return f"{size} over {cores} core{'' if cores == 1 else 's'}"


def _slices(cpu: Cpu) -> Iterator[Evidence]:
    """Every kind of slice, how many there are, and where the first one was read."""
    shapes = Counter(_shape(cpu, slice) for slice in cpu.l3)
    if shapes:
        yield shown(cpu.l3[0].source, ", ".join(f"{count} x {_words(shape)}" for shape, count in shapes.items()))


def _without_l3(cpu: Cpu, platform: Platform) -> Finding:
    levels = ", ".join(f"L{level}" for level in sorted({cache.level for cache in cpu.caches}))
    seen = shown(f"{FOLDER}/cpu*/cache", levels or "no cache", note="levels")
    if platform.virtualization is None and (cpu.series is not None or not levels):
        who = f"every {cpu.series.series} has L3" if cpu.series is not None else "every processor has some"
        why = Unknown("absent", f"{FOLDER}/cpu*/cache/index*", f"shown: {levels or 'no cache'}; {who}")
        return undetermined("cpu.cache", HOST, "The kernel shows no L3 cache of this processor.", because=why)
    if platform.virtualization is None:
        return skipped("cpu.cache", HOST, "This processor shows caches, but no L3 among them.", seen)
    return warned(
        "cpu.cache/hidden",
        HOST,
        f"{platform.virtualization} shows no L3 cache: nothing in this guest can place work by the slices beneath.",
        seen,
        evidence(platform.virtualization_evidence, note="hypervisor"),
        expected="the slices of the host",
        actual="none",
        remedy=remedy("cpu.cache/hidden"),
    )


def _merged(cpu: Cpu, row: Series | None) -> Iterator[Finding]:
    most = max(cpu.cores_among(slice.cpus) for slice in cpu.l3)
    if row is not None and most > row.cores_per_ccx:
        yield warned(
            "cpu.cache/merged",
            HOST,
            f"One slice of L3 is said to serve {most} cores; a CCX of {row.series} has at most {row.cores_per_ccx}.",
            *_slices(cpu),
            expected=f"at most {row.cores_per_ccx} cores a slice",
            actual=f"{most} cores",
            remedy=remedy("cpu.cache/merged"),
        )


def _split(cpu: Cpu, row: Series | None) -> Iterator[Finding]:
    """In a guest: every core with an L3 of its own. (On bare metal that exists: 7F32, 9175F.)"""
    cores = cpu.cores.or_none() or 0
    if row is not None and row.cores_per_ccx > 1 and 1 < cores == len(cpu.l3):
        yield warned(
            "cpu.cache/split",
            HOST,
            f"Each of the {cores} cores is shown with an L3 of its own, as a socket each would have.",
            *_slices(cpu),
            expected=f"slices that up to {row.cores_per_ccx} cores share",
            actual=f"{len(cpu.l3)} slices of one core",
            remedy=remedy("cpu.cache/split"),
        )


def _uneven(cpu: Cpu, row: Series | None, *, virtual: bool) -> Iterator[Finding]:
    """Slices of a server that differ. In a guest the number of vCPUs need not divide evenly, so only sizes count."""
    if row is None:
        return
    kinds = Counter(_shape(cpu, slice) for slice in cpu.l3)
    if len({kib for kib, _ in kinds} if virtual else kinds) > 1:
        usual = kinds.most_common(1)[0][0]
        odd = [slice for slice in cpu.l3 if _shape(cpu, slice) != usual]
        named = "; ".join(f"CPUs {format_cpulist(s.cpus)}: {_words(_shape(cpu, s))}" for s in odd[:4])
        yield warned(
            "cpu.cache/uneven",
            HOST,
            f"{len(odd)} of {len(cpu.l3)} slices differ from the others ({_words(usual)}): {named}.",
            *_slices(cpu),
            shown(cpu.offline.source, format_cpulist(cpu.offline.or_none() or ()) or "none", note="offline CPUs"),
            expected=_words(usual),
            actual=named,
            remedy=remedy("cpu.cache/uneven"),
        )


def _alike(cpu: Cpu, row: Series | None, platform: Platform) -> Finding:
    where = f", as {platform.virtualization} shows them" if platform.virtualization else ""
    kinds = sorted({_words(_shape(cpu, slice)) for slice in cpu.l3})
    most = f"; {row.series} has up to {_words((row.l3_mib_per_ccx * 1024, row.cores_per_ccx))}" if row else ""
    return passed(
        "cpu.cache",
        HOST,
        f"{counted(len(cpu.l3), 'slice')} of L3, each {' or '.join(kinds)}{where}{most}.",
        *_slices(cpu),
        actual=" or ".join(kinds),
    )
