"""selftest.cpu.clock: the clock that a core really runs at, against what the firmware calls nominal."""

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
    undetermined,
    warned,
)
from amdcheck.facts.cpu_compute import Clock, ComputeSelfTest
from amdcheck.facts.selftests import on_x86
from amdcheck.knowledge.remedies import remedy
from amdcheck.knowledge.selftests import limit

from . import not_measured

ID = "selftest.cpu.clock"


@check(ID, title="Clock under load", level="standard", required=False, applies=on_x86)
def clock(test: ComputeSelfTest) -> Iterator[Finding]:
    """Measures the clock of one core by counting cycles of instructions that wait for each other.

    Looks at: a chain of multiplications, three cycles each, and a chain of register additions, one cycle each. Both
    must give the same clock, or one of the two facts does not hold on this processor and nothing is said. A chain of
    twice as many cycles must show as half the clock, or nothing is said either. The nominal
    clock is what the firmware tells the kernel through CPPC (acpi_cppc/nominal_freq); virtual machines have none.

    Why: frequency governors, power caps, a hot machine and BIOS profiles all show up as one thing, a clock that is too
    low, and /proc/cpuinfo's "cpu MHz" is a guess of the kernel. A core held at its lowest frequency serves at half
    speed with every setting looking right.

    Where no nominal clock is known, as in virtual machines, the check passes on chains that agree, and says so.

    throttled: the clock under load is plainly below nominal, while nothing else ran on the CPU. Look at the governor,
    the power cap (RAPL, the BMC's), temperatures, and the BIOS determinism and cTDP settings, in that order.

    Source: instruction latencies of AMD's software optimization guides for family 17h to 1Ah; Linux
    Documentation/admin-guide/acpi/cppc_sysfs.rst.
    """
    nothing = not_measured(ID, test)
    if nothing is not None:
        yield nothing
    elif isinstance(test.clock, Unknown):
        yield undetermined(ID, HOST, "the clock was not measured", because=test.clock)
    else:
        yield _judged(test, test.clock.value)


def _judged(test: ComputeSelfTest, clock: Clock) -> Finding:
    seen = (
        _told(test, clock.hz, "by dependent multiplications"),
        _told(test, clock.hz_by_add, "by dependent additions"),
        shown(test.source, f"CPU {test.cpu}", volatile=True),
        evidence(test.nominal_hz.parse(_ghz), note="nominal, by the firmware"),
    )
    for reading in (clock.imul, clock.add):
        if reading.disturbed:
            return undetermined(
                ID,
                HOST,
                "something else ran on the CPU in every attempt, so that its clock is not known",
                shown(test.source, reading.disturbance, volatile=True),
                outcome="disturbed",
                remedy=remedy(f"{ID}/disturbed"),
            )
    if not clock.notices:
        return undetermined(
            ID,
            HOST,
            "a chain of twice as many cycles does not show as half the clock, so that the clock is not known",
            *seen,
            outcome="not-noticed",
            remedy=remedy(f"{ID}/not-noticed"),
        )
    if abs(clock.hz / clock.hz_by_add - 1) > limit("clock-chains").value:
        return undetermined(
            ID,
            HOST,
            "the two chains give different clocks",
            *seen,
            outcome="chains-differ",
            remedy=remedy(f"{ID}/chains-differ"),
        )
    metrics = (Metric(name="clock", value=round(clock.hz / 1e9, 3), unit="GHz", volatile=True),)
    nominal = test.nominal_hz.or_none()
    if nominal is not None and clock.hz < limit("clock-of-nominal").value * nominal:
        return warned(
            f"{ID}/throttled",
            HOST,
            "the clock under load is plainly below nominal",
            *seen,
            metrics=metrics,
            remedy=remedy(f"{ID}/throttled"),
        )
    against = "no nominal clock is known to hold it against" if nominal is None else "it is not below nominal"
    return passed(ID, HOST, f"both chains agree on the clock under load; {against}", *seen, metrics=metrics)


def _told(test: ComputeSelfTest, hz: float, note: str) -> Evidence:
    return shown(test.source, _ghz(hz), note=note, volatile=True)


def _ghz(hz: float) -> str:
    return f"{hz / 1e9:.2f} GHz"
