"""selftest.cpu.cache-cliff: how much of the last-level cache is really there, against what the kernel names."""

from __future__ import annotations

from collections.abc import Iterator

from amdcheck.api import (
    HOST,
    Evidence,
    Finding,
    Metric,
    Unknown,
    check,
    evidence,
    passed,
    shown,
    skipped,
    undetermined,
    warned,
)
from amdcheck.facts.cpu import Cache, Cpu
from amdcheck.facts.cpu_memory import Latency, MemorySelfTest, Point
from amdcheck.facts.cpulist import format_cpulist
from amdcheck.facts.platform import Platform
from amdcheck.facts.selftests import on_x86
from amdcheck.knowledge.remedies import remedy
from amdcheck.knowledge.selftests import limit

from . import not_measured

ID = "selftest.cpu.cache-cliff"


@check(ID, title="Measured share of the last-level cache", level="standard", required=False, applies=on_x86)
def cache_cliff(test: MemorySelfTest, cpu: Cpu, platform: Platform) -> Iterator[Finding]:
    """Finds the size at which a walk through memory falls out of the last-level cache, and holds it against the claim.

    Looks at: the latency of one core by size, a few sizes about its L3 slice (one CCX on EPYC), every power of two at
    level deep, against the size that the kernel names for the slice. A size counts as cached when a load takes less
    than half of the way from the second level to memory.

    Why: a rule of thumb for inference on the CPU is that the parameters a core works on, and its share of the batch,
    fit into its share of the cache. In a virtual machine the named cache is the host's, and the machine's share of
    it may be a tenth: 4 to 16 of 105 MiB were measured in one, within a day, as its neighbours came and went.
    Whoever plans with the claim, plans for memory speed unawares. On bare metal a slice that is smaller than named
    is shared with somebody, or parts of it are locked away.

    smaller: plan with the metric last-level-share, the largest size walked that the cache held; the next one, mostly
    twice as large, it did not hold, and the share lies between them. In a virtual machine measure some times, and
    plan with the least. On bare metal look at resctrl (cache allocation, also by container runtimes and Kubernetes'
    resource managers) and at what else runs on the same CCX. disturbed: cores that share the slice were at work
    meanwhile, so that nothing is said.

    Source: AMD64 Architecture Programmer's Manual volume 3, Fn8000_001D; Linux Documentation/arch/x86/resctrl.rst.
    """
    nothing = not_measured(ID, test)
    if nothing is not None:
        yield nothing
        return
    if isinstance(test.latency, Unknown):
        yield undetermined(ID, HOST, "the latencies were not measured", because=test.latency)
        return
    walked = test.latency.value
    claimed = next((part for part in cpu.l3 if walked.cpu in part.cpus), None)
    if claimed is None and cpu.cache_gaps:
        yield undetermined(ID, HOST, "the caches could not be read", because=cpu.cache_gaps[0])
    elif claimed is None:
        yield skipped(ID, HOST, "the kernel names no third-level cache")
    elif isinstance(claimed.size_kib, Unknown):
        yield undetermined(ID, HOST, "the size of the third-level cache could not be read", because=claimed.size_kib)
    else:
        yield _judged(test, cpu, platform, claimed, claimed.size_kib.value)


def _judged(test: MemorySelfTest, cpu: Cpu, platform: Platform, slice_: Cache, claimed_kib: int) -> Finding:
    assert not isinstance(test.latency, Unknown)
    walked = test.latency.value
    second = max((c.size_kib.or_none() or 0 for c in cpu.caches if c.level == 2), default=0)
    within = [point for point in walked.on("huge") if 512 * second >= point.bytes]
    beyond = [point for point in walked.on("huge")[:-1] if point.bytes > 1024 * second]
    if not second or not within or not beyond:
        reason = f"no size between the second level and the {claimed_kib >> 10} MiB of the third was walked"
        return skipped(ID, HOST, reason, shown(slice_.source, f"{claimed_kib} KiB", note="named by the kernel"))
    if walked.memory.bytes <= 1024 * claimed_kib:
        most = f"{walked.memory.bytes >> 20} MiB"
        named = shown(slice_.source, f"{claimed_kib} KiB", note="named by the kernel")
        reason = f"one slice of {claimed_kib >> 10} MiB is named, and no more than {most} was walked"
        if walked.wanted_kib is not None and walked.memory_kib < walked.wanted_kib:
            why = f"there was no memory for {walked.wanted_kib >> 10} MiB without harm to others"
            return undetermined(ID, HOST, reason, named, because=Unknown("failed", test.source, why))
        return skipped(ID, HOST, f"{reason}; level deep walks more", named)
    between = limit("cache-hit").value
    most_s = within[-1].seconds + between * (walked.memory.seconds - within[-1].seconds)
    share = 0
    for point in beyond:
        if point.seconds > most_s:
            break
        share = point.bytes
    seen = (
        shown(
            slice_.source,
            f"{claimed_kib >> 10} MiB for CPUs {format_cpulist(slice_.cpus)}",
            note="named",
            volatile=True,
        ),
        *(_told(test, point) for point in (within[-1], *beyond, walked.memory)),
    )
    disturbance = _disturbance(test, walked)
    least = Metric(name="last-level-share", value=share / (1 << 20), unit="MiB", volatile=True)
    metrics = () if disturbance else (least,)
    if share >= limit("cache-share").value * 1024 * claimed_kib:
        return passed(ID, HOST, "what the kernel names as third-level cache is there", *seen, metrics=metrics)
    if disturbance:
        return undetermined(
            ID,
            HOST,
            "cores that share the cache were in use, so that its size is not known",
            *seen,
            *disturbance,
            outcome="disturbed",
            remedy=remedy(f"{ID}/disturbed"),
        )
    missed = next(point.bytes for point in (*beyond, walked.memory) if point.bytes > share)
    told = f"at least {_size(share)}, less than {_size(missed)}" if share else f"less than {_size(missed)}"
    where = "what shares this cache, or partitions it, has the rest"
    if platform.virtualization is not None:
        where = "a virtual machine is shown its host's cache"
    return warned(
        f"{ID}/smaller",
        HOST,
        f"{claimed_kib >> 10} MiB are named as third-level cache, and {told} are there; {where}",
        *seen,
        evidence(platform.virtualization_evidence, note="virtualization"),
        expected=f"at least {100 * limit('cache-share').value:.0f} % of the named size",
        actual=told,
        metrics=metrics,
        remedy=remedy(f"{ID}/smaller"),
    )


def _told(test: MemorySelfTest, point: Point) -> Evidence:
    return shown(test.source, f"{1e9 * point.seconds:.1f} ns", note=f"walking {_size(point.bytes)}", volatile=True)


def _size(bytes: int) -> str:
    kib = bytes >> 10
    return f"{kib >> 10} MiB" if kib >= 1024 else f"{kib} KiB"


def _disturbance(test: MemorySelfTest, walked: Latency) -> tuple[Evidence, ...]:
    """Who was at work on the same slice, and what took the core from the walk: both empty the cache."""
    busy = format_cpulist(test.sharers_busy)
    said = [f"in use on the same slice: CPU {busy}"] if busy else []
    said += [point.reading.disturbance for point in walked.on("huge") if point.reading.disturbed][:2]
    return tuple(shown(test.source, one, volatile=True) for one in said)
