"""selftest.cpu.latency: how long a load takes from each cache and from memory, on huge pages and on small ones."""

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
    failed,
    passed,
    shown,
    undetermined,
    warned,
)
from amdcheck.facts.cpu_memory import Latency, MemorySelfTest, Point
from amdcheck.facts.memory import Memory
from amdcheck.facts.selftests import on_x86
from amdcheck.knowledge.remedies import remedy
from amdcheck.knowledge.selftests import limit

from . import not_measured

ID = "selftest.cpu.latency"


@check(ID, title="Latency of caches and memory", level="standard", required=False, applies=on_x86)
def latency(test: MemorySelfTest, memory: Memory) -> Iterator[Finding]:
    """Walks through a cycle of cache lines in an order that no prefetcher follows, each load waiting for the last.

    Looks at: the largest power of two within half of the first-level cache and within half of the second level; every
    power of two from twice the second level to the L3 slice; and 64 MiB for memory, more where the third level has
    more. All of them on transparent huge pages, the largest once more on pages of 4 KiB. At level deep every power of
    two from 4 KiB on. With little room the largest size is smaller, down to 16 MiB, and may lie in the third level:
    each figure names its size. Where a walk must end is computed apart from it, so that every slice is known to have
    taken its hops, and cycles that are linked wrong on purpose must be noticed.

    Why: looking up embeddings, key-value caches and graphs waits for one load after the other. On small pages each
    load beyond the second level's reach also waits for the page tables: the metric small-pages-cost says what that is
    here, and it is what an inference server pays whose memory is not on huge pages.

    no-huge-pages: none were given because they are switched off, for the machine or for this process. Set
    transparent_hugepage to madvise: then programs that ask for them get them, and others are left alone. Where they are
    on and memory is too fragmented, the evidence says how much was given.

    Latencies are shown and not judged: they depend on the DIMMs, the NPS setting and the clock.

    Source: Linux Documentation/admin-guide/mm/transhuge.rst; the order of the walk after Hull and Dobell 1962.
    """
    nothing = not_measured(ID, test)
    if nothing is not None:
        yield nothing
    elif isinstance(test.latency, Unknown):
        yield undetermined(ID, HOST, "the latency of memory was not measured", because=test.latency)
    else:
        yield _judged(test, test.latency.value, memory)


def _judged(test: MemorySelfTest, walked: Latency, memory: Memory) -> Finding:
    where = shown(test.source, f"CPU {walked.cpu}", volatile=True)
    planted = shown(test.source, f"{walked.noticed} of {walked.planted} wrong cycles noticed", note="negative control")
    if walked.lost:
        return failed(
            f"{ID}/wrong-result",
            HOST,
            "a walk along links in memory did not end where it must",
            where,
            *(shown(test.source, f"{p.lost} walks through {_size(p)}", volatile=True) for p in walked.points if p.lost),
            expected="every walk ends at its line",
            actual=f"{walked.lost} walks ended elsewhere",
            remedy=remedy(f"{ID}/wrong-result"),
        )
    if not walked.planted or walked.noticed < walked.planted:
        return failed(
            f"{ID}/not-noticed",
            HOST,
            "cycles that were linked wrong on purpose went unnoticed, so that the latencies prove nothing",
            planted,
            where,
            expected="every wrong cycle noticed",
            actual=f"{walked.noticed} of {walked.planted}",
            remedy=remedy(f"{ID}/not-noticed"),
        )
    seen = (planted, where, *(_told(test, point) for point in walked.points), _huge(walked))
    off = _switched_off(walked, memory)
    if off is not None:
        return warned(
            f"{ID}/no-huge-pages",
            HOST,
            "no huge pages are given to programs that ask for them",
            *seen,
            off,
            metrics=_metrics(walked),
            remedy=remedy(f"{ID}/no-huge-pages"),
        )
    return passed(ID, HOST, "every walk took its hops and ended at its line", *seen, metrics=_metrics(walked))


def _switched_off(walked: Latency, memory: Memory) -> Evidence | None:
    """What switches huge pages off, when hardly any were given and that is why."""
    if walked.huge_kib is None or walked.huge_kib > limit("huge-given").value * walked.memory_kib:
        return None
    if memory.thp_enabled.or_none() == "never":
        return evidence(memory.thp_enabled, note="transparent_hugepage")
    if walked.allowed_huge is False:
        return shown("/proc/self/status", "THP_enabled: 0", note="forbidden to this process by what started it")
    return None


def _huge(walked: Latency) -> Evidence:
    if walked.huge_kib is None:
        return Evidence(source="/proc/self/smaps", value=None, volatile=True, note="AnonHugePages could not be read")
    given = f"{walked.huge_kib >> 10} of {walked.memory_kib >> 10} MiB"
    return shown("/proc/self/smaps", given, note="on huge pages, where they were asked for", volatile=True)


def _size(point: Point) -> str:
    kib = point.bytes >> 10
    return f"{kib >> 10} MiB" if kib >= 1024 else f"{kib} KiB"


def _told(test: MemorySelfTest, point: Point) -> Evidence:
    """Nanoseconds, and what disturbed them."""
    told = f"{1e9 * point.seconds:.1f} ns"
    if point.reading.disturbed:
        told += f", disturbed: {point.reading.disturbance}"
    return shown(test.source, told, note=f"{_size(point)} on {point.pages} pages", volatile=True)


def _metrics(walked: Latency) -> tuple[Metric, ...]:
    """Cycles where the smallest size lies in the first level. Nothing of walks that were disturbed."""

    def metric(name: str, value: float, unit: str) -> Metric:
        return Metric(name=name, value=round(value, 2), unit=unit, volatile=True)

    def name(point: Point) -> str:
        return f"latency-{_size(point).lower().replace(' ', '-')}"

    quiet = [point for point in walked.points if not point.reading.disturbed]
    found = [metric(f"{name(p)}-{p.pages}-pages", 1e9 * p.seconds, "ns") for p in quiet]
    nearest, small = walked.points[0], walked.on("small")[-1]
    cycles = nearest.reading.per_cycle(nearest.hops)
    if nearest in quiet and nearest.bytes <= 1024 * limit("first-level").value and cycles is not None:
        found.append(metric("first-level-cycles", 1 / cycles, "cycles"))
    if walked.memory in quiet and small in quiet:
        found.append(metric("small-pages-cost", small.seconds / walked.memory.seconds, "x"))
    return tuple(found)
