"""Do the CPU self-tests tell truth from noise? Faults are provoked over and over, and an idle machine is judged.

    python -m benchmarks.truth [--share S] [--save]

Each fault must be named for what it is, and nothing else blamed, in 99 of 100 runs; of 1000 runs on the idle machine at
most one may raise an alarm. The faults take turns, so that a noisy moment hits all alike. --share 0.01 runs a hundredth
(in up to a tenth a fault that is missed, and an idle series with more than one alarm, get a second chance). A run on a
machine that is not idle does not count; what most runs say of the machine is no alarm, and is told.

--save writes benchmarks/results/DATE-truth.json.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress
from datetime import date
from pathlib import Path

from msgspec import Struct

from amdcheck.host.live import LiveHost
from amdcheck.host.protocol import Host
from amdcheck.knowledge.isa import isa_table
from amdcheck.model.finding import Finding
from amdcheck.selftest.idle import Busy, idle_cpus
from benchmarks.provoke import Masked, Substituted, Unavailable, cpu_quota, findings, hogs
from benchmarks.timing import machine, offered_flags, print_table, processor

RUNS, IDLE_RUNS = 100, 1000
MISSES, ALARMS = 1, 1  # at most, of so many
IDLE_PATIENCE_S = 3.0
SCALING, NEIGHBOUR, ISA = "selftest.cpu.scaling", "selftest.cpu.neighbour", "selftest.cpu.isa"
RESULTS = Path(__file__).parent / "results"
# Warnings that speak of what others do to this machine, not of the hardware; a run may give them beside any fault.
OF_OTHERS = {f"{SCALING}/{outcome}" for outcome in ("stolen", "pinned", "throttled-by-quota")}

Told = tuple[str, str]  # the id and the subject of a finding


class Fault(Struct, frozen=True, kw_only=True):
    """How a fault is provoked, what is asked meanwhile, and what must be said of it: one of these findings."""

    name: str
    around: Callable[[], AbstractContextManager[None]]
    host: Callable[[], Host]
    checks: tuple[str, ...]
    says: frozenset[Told]
    allow_busy: bool = False

    def run(self) -> str | None:
        """None when it is named and nothing else is blamed, else what was said. Raises Unavailable."""
        with self.around():
            found = findings(self.checks, self.host(), allow_busy=self.allow_busy)
        named = {(f.id, f.subject.id) for f in found} & self.says
        blamed = {f.id for f in found if f.status in ("warn", "fail")} - {id for id, _ in self.says} - OF_OTHERS
        if named and not blamed:
            return None
        return ", ".join(sorted({f"{f.id} {f.subject.id}" for f in found if f.status != "pass"})) or "nothing"


class Tally(Struct, kw_only=True):
    """Runs that count, those among them that went wrong with what was said, and how long all took."""

    runs: int = 0
    wrong: list[str] = []
    seconds: float = 0.0
    why_not: str | None = None  # it could not be provoked here


def faults() -> Iterator[Fault]:
    """What can be provoked on this machine."""
    cpus = sorted(os.sched_getaffinity(0))
    offered = [key for key, row in isa_table().isa.items() if set(row.flags) <= offered_flags() and key != "sse2"]
    yield Fault(
        name="20 % throttle by a control group",
        around=lambda: cpu_quota(0.8 * len(cpus)),
        host=LiveHost,
        checks=(SCALING,),
        says=frozenset({(f"{SCALING}/throttled-by-quota", "host")}),
        allow_busy=True,
    )
    yield Fault(
        name="a hog on every CPU",
        around=lambda: hogs(cpus),
        host=LiveHost,
        checks=(SCALING, NEIGHBOUR),
        says=frozenset({(f"{SCALING}/busy", "host")}),
    )
    if len(cpus) > 1:
        yield Fault(
            name="a hog on every CPU, busy ones allowed",
            around=lambda: hogs(cpus),
            host=LiveHost,
            checks=(SCALING, NEIGHBOUR),
            says=frozenset({(f"{SCALING}/disturbed", "host")}),
            allow_busy=True,
        )
    if offered:
        name = offered[-1]
        yield Fault(
            name=f"masked: {name}",
            around=nullcontext,
            host=lambda: Masked(isa_table().isa[name].flags[-1]),
            checks=(ISA,),
            says=frozenset({(f"{ISA}/masked", name)}),
        )
        yield Fault(
            name=f"wrong result planted: {offered[0]}",
            around=nullcontext,
            host=lambda: Substituted(offered[0], "hook-wrong"),
            checks=(ISA,),
            says=frozenset({(f"{ISA}/wrong-result", offered[0])}),
        )


def idle(*, patience_s: float) -> bool:
    """Whether every CPU is idle now, or within that time."""
    end = time.monotonic() + patience_s
    while True:
        with suppress(Busy):
            if len(idle_cpus(allow_busy=False)) == len(os.sched_getaffinity(0)):
                return True
        if time.monotonic() >= end:
            return False


def alarms(found: list[Finding]) -> list[Told]:
    """Whatever an operator would look after. That the machine was busy, or a measurement disturbed, is none."""
    loud = (f for f in found if f.status in ("warn", "fail", "unknown") and f.outcome != "disturbed")
    return [(f.id, f.subject.id) for f in loud]


class IdleRuns:
    """What was said of the idle machine, run by run."""

    def __init__(self) -> None:
        self.said: list[list[Told]] = []
        self.not_idle = 0
        self.seconds = 0.0
        self._patience_s = IDLE_PATIENCE_S

    def run(self) -> None:
        is_idle = idle(patience_s=self._patience_s)
        self._patience_s = IDLE_PATIENCE_S if is_idle else 0.0  # somebody works here: do not wait for each run
        if not is_idle:
            self.not_idle += 1
            return
        began = time.monotonic()
        self.said.append(alarms(findings(["selftest.cpu.*"])))
        self.seconds += time.monotonic() - began

    @property
    def always(self) -> list[str]:
        """What more than half of the runs say is what the machine is."""
        counts = Counter(told for run in self.said for told in set(run))
        return sorted(" ".join(told) for told, times in counts.items() if times > 1 and 2 * times > len(self.said))

    @property
    def false_alarms(self) -> list[str]:
        """One entry for each run that said something more."""
        always = self.always
        more = ([" ".join(told) for told in run if " ".join(told) not in always] for run in self.said)
        return [", ".join(sorted(one)) for one in more if one]

    def within(self, *, is_sample: bool) -> bool:
        """Whether the budget is kept. Ten runs cannot show one alarm in a thousand: a sample fails with the second."""
        counted, false = len(self.said), len(self.false_alarms)
        if is_sample:
            return false <= ALARMS
        return false * IDLE_RUNS <= ALARMS * counted and self.not_idle <= counted


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0, help="of the whole series, for a sample")
    parser.add_argument("--save", action="store_true", help="write benchmarks/results/DATE-truth.json")
    options = parser.parse_args()
    rounds, idle_rounds = (max(1, round(options.share * runs)) for runs in (RUNS, IDLE_RUNS))
    is_sample = 10 * rounds <= RUNS
    every = list(faults())
    tallies, quiet = [Tally() for _ in every], IdleRuns()
    for number in range(rounds):
        for fault, tally in zip(every, tallies, strict=True):
            _count(fault, tally, chances=2 if is_sample else 1)
        while len(quiet.said) + quiet.not_idle < idle_rounds * (number + 1) // rounds:
            quiet.run()
        print(f"{number + 1} of {rounds} rounds", file=sys.stderr)
    if is_sample and not quiet.within(is_sample=True):
        print("  the idle machine once more, as for a fault that is missed", file=sys.stderr)
        quiet = IdleRuns()
        for _ in range(idle_rounds):
            quiet.run()
    within = _show(every, tallies, quiet, is_sample=is_sample, save=options.save)
    return 0 if within else 1


def _count(fault: Fault, tally: Tally, *, chances: int) -> None:
    if tally.why_not is not None:
        return
    began = time.monotonic()
    try:
        said = fault.run()
        while said is not None and chances > 1:
            chances -= 1
            said = fault.run()
    except Unavailable as why:
        tally.why_not = str(why)
        return
    tally.runs += 1
    tally.seconds += time.monotonic() - began
    if said is not None:
        tally.wrong.append(said)


def _show(every: list[Fault], tallies: list[Tally], quiet: IdleRuns, *, is_sample: bool, save: bool) -> bool:
    """Print the table and the JSON line, and say whether the budget is kept."""
    rows = [("what", "runs", "named right", "s a run", "said instead")]
    figures: dict[str, object] = {}
    within = True
    for fault, tally in zip(every, tallies, strict=True):
        if tally.why_not is not None:
            rows.append((fault.name, "0", "-", "-", tally.why_not))
            figures[fault.name] = {"runs": 0, "why": tally.why_not}
            within = within and is_sample
            continue
        right, took = tally.runs - len(tally.wrong), tally.seconds / tally.runs
        instead = Counter(tally.wrong).most_common(3)
        rows.append(
            (fault.name, str(tally.runs), str(right), f"{took:.2f}", "; ".join(f"{n} x {s}" for s, n in instead))
        )
        figures[fault.name] = {"runs": tally.runs, "right": right, "instead": dict(instead)}
        within = within and len(tally.wrong) * RUNS <= MISSES * tally.runs
    false, counted = quiet.false_alarms, len(quiet.said)
    each = f"{quiet.seconds / counted:.2f}" if counted else "-"
    told = "; ".join(f"{n} x {s}" for s, n in Counter(false).most_common(3))
    rows.append(("idle machine", str(counted), str(counted - len(false)), each, told))
    figures["idle machine"] = {
        "runs": counted,
        "not_idle": quiet.not_idle,
        "false_alarms": len(false),
        "alarms": dict(Counter(false)),
        "always_said": quiet.always,
    }
    within = within and quiet.within(is_sample=is_sample)
    print_table("truth from noise", rows, {**figures, "within_budget": within})
    for always in quiet.always:
        print(f"  always said of this machine: {always}")
    if quiet.not_idle:
        print(f"  {quiet.not_idle} runs do not count: the machine was not idle")
    if save:
        _save({**figures, "within_budget": within})
    return within


def _save(figures: dict[str, object]) -> None:
    RESULTS.mkdir(exist_ok=True)
    today = date.today().isoformat()
    told = {"benchmark": "truth from noise", "date": today, "machine": machine(), "processor": processor(), **figures}
    (RESULTS / f"{today}-truth.json").write_text(json.dumps(told, indent=2) + "\n")


if __name__ == "__main__":
    sys.exit(main())
