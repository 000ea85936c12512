"""selftest.cpu.neighbour: does somebody else use the core, or is it held down?"""

from __future__ import annotations

from collections.abc import Iterator

from amdcheck.api import (
    HOST,
    Finding,
    Known,
    Metric,
    Subject,
    check,
    evidence,
    passed,
    shown,
    skipped,
    undetermined,
    warned,
)
from amdcheck.facts.cpu_cores import CoreResult, CoreRun, CoresSelfTest, results
from amdcheck.facts.selftests import on_x86
from amdcheck.knowledge.remedies import remedy
from amdcheck.knowledge.selftests import limit

from . import not_measured

ID = "selftest.cpu.neighbour"


@check(ID, title="Cores shared or held down", level="standard", required=False, applies=on_x86)
def neighbour(test: CoresSelfTest) -> Iterator[Finding]:
    """Tells a core that somebody shares from one whose clock is held down, on a few idle CPUs one after the other.

    Looks at three rates on the same CPU in the same milliseconds: chains of instructions of which each waits for the
    one before (the clock), multiply-adds on registers alone (what the ports take), and small matrix products (what
    the whole core does). Somebody on the other thread of the core leaves the chain as fast as it is and slows the
    products. A core that is throttled slows all three alike. The clock is held against the firmware's nominal clock
    (CPPC), and where there is none, as in virtual machines, against the fastest of the CPUs that were measured.

    Why: a virtual CPU is a thread of a core whose other thread may be another guest's. It shows in no counter of the
    guest: no steal, full utilization, the right clock, and half the throughput.

    shared-core: on bare metal look for what runs on the sibling thread; in a virtual machine ask for dedicated cores.
    throttled: governor, power cap, temperature. disturbed: something else ran on the CPU itself. A rate that is low
    then is not judged; one that is high all the same passes, and the evidence says what the CPU gave to others.
    no-reference: amdcheck may run on one CPU alone, and no firmware tells its clock. busy: other
    cores are in use, or beyond a quota.

    A neighbour is told when it is there at each of several looks within seconds; a minute later it may be gone.

    Source: measured by this self-test; instruction latencies of AMD's software optimization guides.
    """
    nothing = not_measured(ID, test)
    if nothing is not None:
        yield nothing
        return
    if not test.products:
        yield skipped(ID, HOST, "the kernel does not offer AVX2, by which the cores are compared")
        return
    for run in test.alone:
        yield _one(test, run)


def _one(test: CoresSelfTest, run: CoreRun) -> Finding:
    subject = Subject(kind="cpu", id=str(run.cpu))
    if run.result is None:
        told = shown(test.source, run.why)
        message = f"the process ended without an answer: {run.why}"
        return undetermined(ID, subject, message, told, outcome="died", remedy=remedy(f"{ID}/died"))
    result = run.result
    if result.wrong or not result.notices:
        reason = "this CPU computes wrong, or it is not known; see selftest.cpu.scaling. How fast does not matter"
        return skipped(ID, subject, reason, shown(test.source, f"{result.wrong} words wrong", volatile=True))
    ceiling = test.ceiling or test.ports_per_cycle(result)
    share = test.best_per_cycle(result) / ceiling
    clock, (usual, whose) = test.clock(result), _usual_clock(test, run)
    seen = (
        shown(test.source, f"{100 * share:.0f} % of the ports' rate", note="matrix product", volatile=True),
        shown(test.source, _ghz(clock), note="clock", volatile=True),
        *(() if usual is None else (shown(whose, _ghz(usual), note="clock to compare", volatile=True),)),
        *((shown(test.source, result.disturbance, volatile=True),) if result.disturbed else ()),
        evidence(test.nominal_hz[run.cpu].parse(_ghz), note="nominal clock"),
    )
    metrics = (
        ()
        if result.disturbed
        else (
            Metric(name="clock", value=round(clock / 1e9, 3), unit="GHz", volatile=True),
            Metric(name="product-of-ports", value=round(100 * share, 1), unit="%", volatile=True),
        )
    )
    outcome = _outcome(result, share=share, clock=clock, usual=usual, is_nominal=_is_nominal(test, run))
    alone = "nobody shared the core"
    if result.disturbed:
        alone = "no sign of somebody on the core's other thread, though others ran on the CPU itself"
    if outcome is None:
        clocked = "nominal or above" if _is_nominal(test, run) else "like that of the others that were measured"
        message = f"{alone}, and its clock was {clocked}"
        return passed(ID, subject, message, *seen, metrics=metrics)
    if outcome == "no-reference" and len(test.allowed) > 1:
        reason = f"{alone}; whether its clock is low cannot be said, no other core could be measured"
        return skipped(ID, subject, reason, *seen, outcome="busy")
    if outcome in ("disturbed", "no-reference"):
        message = {
            "disturbed": "something else ran on the CPU in every attempt, so that its rates say nothing of the core",
            "no-reference": f"{alone}; whether its clock is low cannot be said, there is none to compare",
        }[outcome]
        return undetermined(ID, subject, message, *seen, outcome=outcome, remedy=remedy(f"{ID}/{outcome}"))
    message = {
        "shared-core": "the clock is right and the core does far less than its ports take: somebody shares it",
        "throttled": "the clock is far below what it should be",
    }[outcome]
    return warned(f"{ID}/{outcome}", subject, message, *seen, metrics=metrics, remedy=remedy(f"{ID}/{outcome}"))


def _outcome(result: CoreResult, *, share: float, clock: float, usual: float | None, is_nominal: bool) -> str | None:
    """None when all is well. What was disturbed and is fast all the same is well."""
    least = limit("clock-of-nominal" if is_nominal else "slow-of-siblings").value
    is_throttled = usual is not None and clock < least * usual
    is_shared = share < limit("shared-core").value
    if (is_throttled or is_shared) and result.disturbed:
        return "disturbed"
    if is_throttled:
        return "throttled"
    if is_shared:
        return "shared-core"
    return "no-reference" if usual is None else None


def _is_nominal(test: CoresSelfTest, run: CoreRun) -> bool:
    return isinstance(test.nominal_hz[run.cpu], Known)


def _usual_clock(test: CoresSelfTest, run: CoreRun) -> tuple[float | None, str]:
    """The clock to compare with and where it was read: nominal, or the fastest of some CPUs'; None: neither."""
    nominal = test.nominal_hz[run.cpu]
    if isinstance(nominal, Known):
        return nominal.value, nominal.source
    others = [test.clock(result) for result in results(test.alone)]
    return (max(others), test.source) if len(others) > 1 else (None, test.source)


def _ghz(hz: float) -> str:
    return f"{hz / 1e9:.2f} GHz"
