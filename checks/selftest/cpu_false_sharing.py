"""selftest.cpu.false-sharing: what it costs when two cores write to one cache line."""

from __future__ import annotations

from collections.abc import Iterator

from amdcheck.api import (
    HOST,
    Evidence,
    Finding,
    Metric,
    Unknown,
    check,
    failed,
    passed,
    shown,
    skipped,
    undetermined,
    warned,
)
from amdcheck.facts.cpu_memory import MemorySelfTest, Sharing
from amdcheck.facts.selftests import on_x86
from amdcheck.knowledge.remedies import remedy
from amdcheck.knowledge.selftests import limit

from . import not_measured

ID = "selftest.cpu.false-sharing"


@check(ID, title="Two cores on one cache line", level="standard", applies=on_x86)
def false_sharing(test: MemorySelfTest) -> Iterator[Finding]:
    """Lets two cores count up words of their own by atomic additions, 8, 64 and 128 bytes apart, and checks the counts.

    Looks at: two idle CPUs of different cores, of one L3 slice where there are such. Every count must be exact, and
    additions that are left out on purpose must be noticed. The factor between 8 and 128 bytes is what one shared line
    costs.

    Why: atomic additions that get lost are a broken cache coherence, and corrupt every counter, lock and queue of a
    server. The factor shows what to avoid in one's own code: counters of threads, heads and tails of queues and
    per-thread sums belong on lines of their own (alignas(64), or 128 where the prefetcher takes lines in pairs).
    Between slices and sockets it is several times larger still.

    not-shown: one line costs no more than two, though two different cores were asked for. Then both CPUs are threads of
    one core, or the hypervisor runs them in turn on one: plan with half of the CPUs. A wrong count takes the machine
    out of service. With one CPU, or threads of one core alone, there is nothing to measure.

    Source: AMD64 Architecture Programmer's Manual volume 2, chapter 7 (cache coherency); measured by this self-test.
    """
    nothing = not_measured(ID, test)
    if nothing is not None:
        yield nothing
    elif "sharing" in test.not_run:
        outcome = "busy" if test.no_pair_idle else "not-applicable"
        yield skipped(ID, HOST, test.not_run["sharing"], outcome=outcome)
    elif isinstance(test.sharing, Unknown):
        yield undetermined(ID, HOST, "two cores on one line were not measured", because=test.sharing)
    else:
        yield _judged(test, test.sharing.value)


def _judged(test: MemorySelfTest, sharing: Sharing) -> Finding:
    right = f"{sharing.compared - sharing.wrong} of {sharing.compared} counts right"
    counts = shown(test.source, right, note=f"of {sharing.increments} additions each", volatile=True)
    planted = shown(
        test.source, f"{sharing.noticed} of {sharing.planted} wrong counts noticed", note="negative control"
    )
    where = shown(test.source, f"CPU {sharing.cpus[0]} and {sharing.cpus[1]}", volatile=True)
    if sharing.wrong:
        return failed(
            f"{ID}/wrong-result",
            HOST,
            f"atomic additions of CPU {sharing.cpus[0]} and {sharing.cpus[1]} were lost or made twice",
            counts,
            where,
            expected="every count exact",
            actual=f"{sharing.wrong} of {sharing.compared} counts wrong",
            remedy=remedy(f"{ID}/wrong-result"),
        )
    if not sharing.notices:
        return failed(
            f"{ID}/not-noticed",
            HOST,
            "additions that were left out on purpose went unnoticed, so that right counts prove nothing",
            counts,
            planted,
            where,
            expected="every wrong count noticed",
            actual=f"{sharing.noticed} of {sharing.planted}",
            remedy=remedy(f"{ID}/not-noticed"),
        )
    seen = (counts, planted, where, *_times(test, sharing))
    metrics = _metrics(sharing)
    if not sharing.disturbed and sharing.factor < limit("sharing-factor").value:
        return warned(
            f"{ID}/not-shown",
            HOST,
            "one line costs two CPUs no more than two lines: they do not behave like two cores",
            *seen,
            expected=f"at least {limit('sharing-factor').value:g} times as slow on one line",
            actual=f"{sharing.factor:.1f} times",
            metrics=metrics,
            remedy=remedy(f"{ID}/not-shown"),
        )
    return passed(ID, HOST, "two cores count exactly, on one line and on two", *seen, metrics=metrics)


def _times(test: MemorySelfTest, sharing: Sharing) -> tuple[Evidence, ...]:
    if sharing.disturbed:
        shares = min(d.reading.cpu_share for d in sharing.distances)
        told = f"disturbed, not judged: the two had {100 * shares:.0f} % of their CPUs"
        return (shown(test.source, told, note="cost of one line", volatile=True),)
    return tuple(
        shown(test.source, f"{_ns(sharing, at):.1f} ns an addition", note=f"{d.bytes} bytes apart", volatile=True)
        for at, d in enumerate(sharing.distances)
    )


def _ns(sharing: Sharing, at: int) -> float:
    return 1e9 * sharing.distances[at].reading.median_s / sharing.increments


def _metrics(sharing: Sharing) -> tuple[Metric, ...]:
    """Nothing of two CPUs that did not run at the same time."""
    if sharing.disturbed:
        return ()
    times = (
        Metric(name=f"addition-{d.bytes}-bytes-apart", value=round(_ns(sharing, at), 2), unit="ns", volatile=True)
        for at, d in enumerate(sharing.distances)
    )
    return (*times, Metric(name="cost-of-sharing", value=round(sharing.factor, 2), unit="x", volatile=True))
