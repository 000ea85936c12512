"""selftest.cpu.scaling: do all cores do together what each does alone?"""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from amdcheck.api import (
    HOST,
    Evidence,
    Finding,
    Metric,
    Subject,
    Unknown,
    check,
    evidence,
    failed,
    passed,
    shown,
    skipped,
    undetermined,
    warned,
)
from amdcheck.facts.cpu import Cpu
from amdcheck.facts.cpu_cores import CoreResult, CoreRun, CoresSelfTest, slow_groups
from amdcheck.facts.cpulist import format_cpulist
from amdcheck.facts.selftests import on_x86
from amdcheck.knowledge.remedies import remedy
from amdcheck.knowledge.selftests import limit
from amdcheck.model.text import counted

from . import not_measured

ID = "selftest.cpu.scaling"


@check(ID, title="Cores together against cores alone", level="standard", required=False, applies=on_x86)
def scaling(test: CoresSelfTest, cpu: Cpu) -> Iterator[Finding]:
    """Runs pinned processes on 1, 2, 4 ... all idle CPUs at once and holds the sums against what one core does alone.

    Looks at: small matrix products, every word of which is compared, between two moments that are the same for all
    processes and without a barrier in between. Every core gets one process before a core gets two. What they do a
    cycle is compared, so that a lower clock under full load is not mistaken for a missing core. Threads of one core
    are expected to share it; the clock itself is held against the nominal one of the firmware. Beside it: what the
    hypervisor took (steal), CPU quotas of the control groups above us, and how each core and L3 slice (CCX)
    compares with the others. Hosts have bad seconds: steal is a finding when it is there at each of several looks
    and in what was taken since boot too, or at one look and as much of it since boot.

    Why: inference is spread over all cores and waits for the slowest. Virtual CPUs that are threads of one core halve
    it. A quota in a container (docker --cpus, a Kubernetes CPU limit) stops all threads for the rest of every 100 ms
    as soon as they have used it up, which shows as long tails of latency. A process that was bound to one CPU runs all
    its threads there. One core that is held down holds up all others.

    What to do: low: give the machine whole cores, or start as many threads as there are cores. throttled-by-quota:
    start as many threads as the quota has CPUs, or raise it. low-clock: power or heat hold all cores down when all
    work, which a core alone may not show: look at the governor, the power limit (cTDP, PPT) and the cooling.
    stolen: a host that is not oversold. pinned: find who set the affinity. slow-core, slow-ccx: look for machine
    checks, temperatures and frequency limits of that core. A core that computes wrong takes the machine out of
    service. disturbed: somebody else was at work; nothing is said.

    With fewer than four cores none is called slow: which of them would be right?

    Source: Linux Documentation/scheduler/sched-bwc.rst and admin-guide/cgroup-v2.rst; measured by this self-test.
    """
    nothing = not_measured(ID, test)
    if nothing is not None:
        yield (_limited(test, cpu) if test.busy is not None else None) or nothing
        return
    if not test.products:
        yield skipped(ID, HOST, "the kernel does not offer AVX2, by which the cores are compared")
        return
    # The last run of each CPU that went wrong: one finding for each.
    wrong = {run.cpu: run for run in (*test.alone, *test.together) if run.result and _fault(run.result)}
    yield from (_wrong(test, run) for run in wrong.values())
    yield from _whole(test, cpu)
    yield from _slow(test, cpu)


def _fault(result: CoreResult) -> str | None:
    if result.wrong:
        return "wrong-result"
    return None if result.notices else "not-noticed"


def _wrong(test: CoresSelfTest, run: CoreRun) -> Finding:
    assert run.result is not None
    result, outcome = run.result, _fault(run.result)
    message = {
        "wrong-result": f"CPU {run.cpu} computes wrong",
        "not-noticed": f"errors planted on CPU {run.cpu} went unnoticed, so that its right answers prove nothing",
    }
    return failed(
        f"{ID}/{outcome}",
        Subject(kind="cpu", id=str(run.cpu)),
        message[outcome or ""],
        shown(test.source, f"{result.wrong} of {result.compared} words wrong", volatile=True),
        shown(test.source, f"{result.noticed} of {result.planted} planted errors noticed", note="negative control"),
        expected="every word right, every planted error noticed",
        remedy=remedy(f"{ID}/{outcome}"),
    )


def _limited(test: CoresSelfTest, cpu: Cpu) -> Finding | None:
    """What keeps programs from the CPUs, however idle those are: a quota, or an affinity to one."""
    quota, allowed = test.quota, _allowed(test)
    if quota is not None and (quota.throttled or quota.cpus < len(test.allowed)):
        return warned(
            f"{ID}/throttled-by-quota",
            HOST,
            f"a quota of {quota.cpus:g} CPUs holds back what runs on {len(test.allowed)}",
            *_quota(test),
            allowed,
            remedy=remedy(f"{ID}/throttled-by-quota"),
        )
    online = cpu.online.or_none() or test.allowed
    if len(test.allowed) == 1 and len(online) > 1:
        return warned(
            f"{ID}/pinned",
            HOST,
            f"amdcheck may run on CPU {test.allowed[0]} alone, of {len(online)}; so may what is started like it",
            allowed,
            evidence(cpu.online.parse(format_cpulist), note="online"),
            remedy=remedy(f"{ID}/pinned"),
        )
    return None


def _allowed(test: CoresSelfTest) -> Evidence:
    return shown("sched_getaffinity", format_cpulist(test.allowed), note="CPUs that amdcheck may run on")


def _whole(test: CoresSelfTest, cpu: Cpu) -> Iterator[Finding]:
    """The findings of the machine: what limits us, and who gave no answer; else what the cores do."""
    limited, died = _limited(test, cpu), _died(test)
    if limited is None and died is None:
        yield _measured(test, cpu)
    yield from (finding for finding in (limited, died) if finding is not None)


def _died(test: CoresSelfTest) -> Finding | None:
    died = [run for run in test.together if run.result is None]
    if not died:
        return None
    seen = (shown(test.source, f"CPU {run.cpu}: {run.why}", volatile=True) for run in died[:8])
    message = f"{len(died)} of {len(test.together)} processes ended without an answer"
    return undetermined(ID, HOST, message, *seen, outcome="died", remedy=remedy(f"{ID}/died"))


def _measured(test: CoresSelfTest, cpu: Cpu) -> Finding:
    allowed = _allowed(test)
    if isinstance(cpu.online, Unknown):
        return undetermined(ID, HOST, "which CPUs there are could not be read", because=cpu.online)
    if len(cpu.online.value) == 1:
        return skipped(ID, HOST, "this machine has one CPU", allowed)
    if not test.together:
        reason = "only one of the CPUs is idle; --allow-busy measures on all"
        if test.quota is not None:
            reason = "only one of the CPUs is idle, or within what others leave of the quota"
        return skipped(ID, HOST, reason, allowed, *_quota(test), outcome="busy")
    return _judged(test, cpu, allowed)


def _judged(test: CoresSelfTest, cpu: Cpu, allowed: Evidence) -> Finding:
    cpus = [run.cpu for run in test.together]
    cores = cpu.cores_among(cpus) or len(cpus)
    efficiency = test.efficiency(cores)
    if efficiency is None:
        died = (shown(test.source, f"CPU {run.cpu}: {run.why}", volatile=True) for run in test.alone)
        message = "no CPU was measured alone, so that there is nothing to compare with"
        return undetermined(ID, HOST, message, *died, outcome="died", remedy=remedy(f"{ID}/died"))
    stolen = test.stolen
    seen = (
        shown(test.source, f"{100 * efficiency:.0f} % of as many cores alone, per cycle", volatile=True),
        shown(test.source, f"{len(cpus)} CPUs on {cores} cores at once", volatile=True),
        *_curve(test, len(cpus), efficiency),
        *_clock(test),
        allowed,
        *_quota(test),
    )
    metrics = (
        Metric(name="efficiency", value=round(100 * efficiency, 1), unit="%", volatile=True),
        *(_efficiency_on(number, share) for number, share in test.curve.items()),
        Metric(name="clock-together", value=round(test.clock_together / 1e9, 3), unit="GHz", volatile=True),
        *(() if stolen is None else (Metric(name="stolen", value=round(100 * stolen, 1), unit="%", volatile=True),)),
    )
    taken = _taken(test)
    if test.oversold:
        message = "the hypervisor takes the CPUs away while they have work"
        metrics = metrics[-1:]
        return warned(f"{ID}/stolen", HOST, message, *taken, *seen, metrics=metrics, remedy=remedy(f"{ID}/stolen"))
    disturbed = _disturbed(test)
    if disturbed:
        message = "something else ran on the CPUs meanwhile, so that nothing is said of how they scale"
        fix = remedy(f"{ID}/disturbed")
        return undetermined(ID, HOST, message, *disturbed, *taken, outcome="disturbed", remedy=fix)
    if efficiency < limit("cores-together").value:
        below = [number for number, share in test.curve.items() if share < limit("cores-together").value]
        one_each = below or cores == len(cpus)  # in a wave no core has two processes
        shared = "threads of fewer cores than they look like" if one_each else "sharing more than a core"
        return warned(
            f"{ID}/low",
            HOST,
            f"{min(below, default=len(cpus))} CPUs at once do far less than alone, cycle for cycle, as if they were "
            f"{shared}",
            *seen,
            metrics=metrics,
            remedy=remedy(f"{ID}/low"),
        )
    usual = test.usual_clock
    if usual is not None and test.clock_together < limit("clock-of-nominal").value * usual.value:
        return warned(
            f"{ID}/low-clock",
            HOST,
            "the clock of all cores at work together is far below nominal; cycle for cycle they do what they do alone",
            *seen,
            expected=f"at least {100 * limit('clock-of-nominal').value:.0f} % of {usual.value / 1e9:.2f} GHz",
            actual=f"{test.clock_together / 1e9:.2f} GHz",
            metrics=metrics,
            remedy=remedy(f"{ID}/low-clock"),
        )
    return passed(ID, HOST, "the cores do together about what they do alone", *seen, metrics=metrics)


def _clock(test: CoresSelfTest) -> Iterator[Evidence]:
    """The median of all at once, and what it is held against, where the firmware says."""
    yield shown(test.source, f"{test.clock_together / 1e9:.2f} GHz", note="clock of all at once", volatile=True)
    if (usual := test.usual_clock) is not None:
        yield shown(usual.source, f"{usual.value / 1e9:.2f} GHz", note="nominal clock", volatile=True)


def _taken(test: CoresSelfTest) -> tuple[Evidence, ...]:
    """What the hypervisor took, when it took anything."""
    if not test.stolen:
        return ()
    now = f"{100 * test.stolen:.0f} % taken by the hypervisor in {counted(len(test.stolen_looks), 'look')}"
    told = (shown("/proc/stat", now, note="steal", volatile=True),)
    if test.stolen_since_boot is None:
        return told
    ever = f"{100 * test.stolen_since_boot:.1f} % of the time with work"
    return (*told, shown("/proc/stat", ever, note="steal since boot", volatile=True))


def _curve(test: CoresSelfTest, cpus: int, efficiency: float) -> tuple[Evidence, ...]:
    points = [f"{number}: {100 * share:.0f} %" for number, share in {**test.curve, cpus: efficiency}.items()]
    return (shown(test.source, ", ".join(points), note="by CPUs at once", volatile=True),) if test.curve else ()


def _efficiency_on(cpus: int, share: float) -> Metric:
    return Metric(name=f"efficiency-on-{cpus}", value=round(100 * share, 1), unit="%", volatile=True)


def _quota(test: CoresSelfTest) -> tuple[Evidence, ...]:
    quota = test.quota
    if quota is None:
        return ()
    held = f"{quota.throttled} times for {quota.throttled_s:.3f} s during the self-test"
    return (
        shown(quota.path, f"{quota.cpus:g} CPUs", note="quota"),
        shown(f"{quota.path}/cpu.stat", held, note="held back", volatile=True),
    )


def _disturbed(test: CoresSelfTest) -> tuple[Evidence, ...]:
    """The processes that got too little of their CPU, when it is one by much or all on average."""
    runs = [(run.cpu, run.result) for run in test.together if run.result is not None]
    by_much = [(cpu, result) for cpu, result in runs if result.cpu_share < limit("hogged").value]
    if not by_much and statistics.fmean(result.cpu_share for _, result in runs) >= limit("cpu-share").value:
        return ()
    worst = sorted(runs, key=lambda pair: pair[1].cpu_share)[:4]
    return tuple(shown(test.source, f"CPU {cpu}: {result.disturbance}", volatile=True) for cpu, result in worst)


def _slow(test: CoresSelfTest, cpu: Cpu) -> Iterator[Finding]:
    """L3 slices, then single cores of the others, that are far behind their like."""
    rate = {
        run.cpu: test.operations / run.result.product_median_s
        for run in test.together
        if run.result is not None and not run.result.disturbed and not run.result.stolen_s
    }
    cores = {core: sum(rate[n] for n in core) for core in cpu.core_threads if all(n in rate for n in core)}
    slices = {
        cache.cpus: statistics.median(inside)
        for cache in cpu.l3
        if len(inside := [r for core, r in cores.items() if set(core) <= set(cache.cpus)]) > 1
    }
    slow = slow_groups(slices)
    yield from (_behind(test, "slow-ccx", group, share) for group, share in slow.items())
    others = {core: rate for core, rate in cores.items() if not any(set(core) <= set(cpus) for cpus in slow)}
    yield from (_behind(test, "slow-core", group, share) for group, share in slow_groups(others).items())


def _behind(test: CoresSelfTest, outcome: str, group: tuple[int, ...], share: float) -> Finding:
    clocks = {run.cpu: test.clock(run.result) for run in test.together if run.result is not None}
    clock, usual = statistics.median(clocks[n] for n in group), statistics.median(clocks.values())
    is_low = clock < limit("slow-of-siblings").value * usual
    name = "the L3 slice of CPU" if outcome == "slow-ccx" else "the core of CPU"
    why = "its clock is low" if is_low else "its clock is as theirs, so that somebody shares it or it waits"
    return warned(
        f"{ID}/{outcome}",
        Subject(kind="cpu", id=format_cpulist(group)),
        f"{name} {format_cpulist(group)} is far slower than the others: {why}",
        shown(test.source, f"{100 * share:.0f} % of the median of the others", volatile=True),
        shown(test.source, f"{clock / 1e9:.2f} GHz, the others {usual / 1e9:.2f} GHz", note="clock", volatile=True),
        remedy=remedy(f"{ID}/{outcome}"),
    )
