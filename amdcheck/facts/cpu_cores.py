"""The cores beside each other: what each does alone, and what all do at once."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from amdcheck.facts.cpu import Cpu, nominal_hz
from amdcheck.facts.readings import PER_CPU, SHOWN, Amount, Number, Seconds, Share, Time
from amdcheck.facts.registry import fact
from amdcheck.facts.selftests import (
    TIMEOUT_S,
    Compared,
    Group,
    GroupDocument,
    Step,
    allowing_busy,
    document_of,
    least_clock,
    offered_sets,
)
from amdcheck.host.protocol import Host, SelfTest
from amdcheck.knowledge.selftests import limit
from amdcheck.model.expectations import Expectations
from amdcheck.model.value import Known, Unknown, Value

# Matrix products by rows of isa.toml. All cores run the first that the kernel offers.
_PRODUCTS = ("fma", "avx2")


class CoreResult(Compared, frozen=True, kw_only=True):
    """What a process pinned to one CPU measured in `took_s` seconds, in seconds of a slice.

    The shortest slice is what the core can do whoever else runs; the median one is what it does beside the others.
    `cpu_share` is CPU time over that time, `stolen_s` what the hypervisor took, None where /proc/stat does not say.
    """

    cpus: tuple[Number, ...]
    slices: Amount
    product_best_s: Seconds
    product_median_s: Seconds
    chain_best_s: Seconds
    ports_best_s: Seconds
    took_s: Seconds
    cpu_share: Share
    involuntary: Number
    stolen_s: Time | None

    @property
    def disturbed(self) -> bool:
        """Whether it got too little of its CPU."""
        return self.cpu_share < limit("cpu-share").value

    @property
    def disturbance(self) -> str:
        """What kept it from its CPU, in words."""
        stolen = "" if not self.stolen_s else f", {self.stolen_s:.2f} s taken by the hypervisor"
        return f"{100 * self.cpu_share:.0f} % of its CPU, taken off it {self.involuntary} times{stolen}"


class CoreRun(Step, frozen=True, kw_only=True):
    """How the process on one CPU ended."""

    cpu: Number
    result: CoreResult | None


class Wave(Struct, frozen=True, kw_only=True):
    """What some CPUs did at once: how many on how many cores, operations a cycle of all, the least share of a CPU."""

    cpus: Amount
    cores: Amount
    per_cycle: Annotated[float, Meta(gt=0, lt=1e9)]
    cpu_share: Share


class Quota(Struct, frozen=True, kw_only=True):
    """The smallest CPU quota of the control groups above us, in CPUs; how often and how long it held somebody back."""

    path: str
    cpus: Annotated[float, Meta(gt=0, lt=1e6)]
    throttled: Number
    throttled_s: Time


class _Document(GroupDocument, frozen=True, kw_only=True):
    allowed: tuple[Number, ...]
    quota: Quota | None
    alone: Annotated[tuple[CoreRun, ...], PER_CPU]
    waves: Annotated[tuple[Wave, ...], PER_CPU]
    together: Annotated[tuple[CoreRun, ...], PER_CPU]
    stolen_looks: Annotated[tuple[Share, ...], SHOWN] = ()
    stolen_since_boot: Share | None = None
    operations: Number = 0
    cycles: Number = 0
    ports_operations: Number = 0

    def __post_init__(self) -> None:
        if self.alone and min(self.operations, self.cycles, self.ports_operations) == 0:
            raise ValueError("a slice holds nothing")
        for runs in (self.alone, self.together):
            cpus = [run.cpu for run in runs]
            if len(set(cpus)) < len(cpus) or not set(cpus) <= set(self.allowed):
                raise ValueError("a CPU was measured twice at once, or is none that we may run on")


@fact
class CoresSelfTest(Group, frozen=True, kw_only=True):
    """selftest cpu.cores: the CPUs that were idle, a few of them alone, then more and more at once, up to all."""

    products: tuple[str, ...]  # that the kernel offers, the best first; without one nothing is measured
    allowed: tuple[Number, ...]  # the CPUs that we may run on, idle or not
    quota: Quota | None
    alone: tuple[CoreRun, ...]
    waves: tuple[Wave, ...]  # two cores, four, eight, up to one thread of every core
    stolen_looks: tuple[float, ...]  # by the hypervisor, of the time of all, at each look; the best look is `together`
    stolen_since_boot: float | None  # of the time in which there was work; None where the kernel does not say
    together: tuple[CoreRun, ...]  # all; fewer when a process of a wave went wrong; empty when only one CPU was idle
    operations: Number  # of one product
    cycles: Number  # of one chain
    ports_operations: Number
    nominal_hz: dict[int, Value[float]]  # of the CPUs that were measured alone, by the firmware

    @classmethod
    def read(cls, host: Host, cpu: Cpu, expect: Expectations) -> CoresSelfTest:
        products = cpu.flags.parse(_offered)
        offered = products.or_none() or ()
        params = (*offered, *allowing_busy(expect), *least_clock(host))
        test = SelfTest(name="cpu.cores", params=params, timeout_s=TIMEOUT_S)
        document = products if isinstance(products, Unknown) else document_of(host, test, expect, _Document)
        known = document.value if isinstance(document, Known) else None
        alone = known.alone if known else ()
        return cls(
            source=f"selftest {test.name}",
            unread=document if isinstance(document, Unknown) else None,
            lacks=known.lacks if known else None,
            busy=known.busy if known else None,
            products=offered,
            allowed=known.allowed if known else (),
            quota=known.quota if known else None,
            alone=alone,
            waves=known.waves if known else (),
            together=known.together if known else (),
            stolen_looks=(known.stolen_looks or _stolen(known.together)) if known else (),
            stolen_since_boot=known.stolen_since_boot if known else None,
            operations=known.operations if known else 0,
            cycles=known.cycles if known else 0,
            ports_operations=known.ports_operations if known else 0,
            nominal_hz={run.cpu: nominal_hz(host, run.cpu) for run in alone},
        )

    def clock(self, result: CoreResult) -> float:
        """Cycles a second."""
        return self.cycles / result.chain_best_s

    def best_per_cycle(self, result: CoreResult) -> float:
        """Operations a cycle of the shortest product."""
        return self.operations / result.product_best_s / self.clock(result)

    def per_cycle(self, result: CoreResult) -> float:
        """Operations a cycle of the median product."""
        return self.operations / result.product_median_s / self.clock(result)

    def ports_per_cycle(self, result: CoreResult) -> float:
        """Operations a cycle that the ports took, on registers alone."""
        return self.ports_operations / result.ports_best_s / self.clock(result)

    @property
    def clock_together(self) -> float:
        """The median clock of all CPUs at once, in cycles a second. There must be a result of one."""
        return statistics.median(self.clock(result) for result in results(self.together))

    @property
    def usual_clock(self) -> Known[float] | None:
        """The nominal clock of the CPUs that were measured alone; their median, where they are not alike."""
        told = sorted((n.value, n.source) for n in self.nominal_hz.values() if isinstance(n, Known))
        return Known(*told[len(told) // 2]) if told else None

    @property
    def ceiling(self) -> float | None:
        """Operations a cycle that the ports of the best core take: cores of one machine are built alike."""
        found = [self.ports_per_cycle(r) for r in results((*self.alone, *self.together))]
        return max(found, default=None)

    @property
    def best_alone(self) -> float | None:
        """Operations a cycle of the median product on the best CPU that was alone."""
        return max((self.per_cycle(r) for r in results(self.alone)), default=None)

    def efficiency(self, cores: int) -> float | None:
        """What all CPUs did at once, per cycle, as a share of what `cores` cores would do that each are alone.

        Clocks are taken out: a package that boosts one core higher than all of them is as it should be.
        """
        alone = self.best_alone
        if alone is None or cores == 0:
            return None
        return sum(self.per_cycle(r) for r in results(self.together)) / (alone * cores)

    @property
    def curve(self) -> dict[int, float]:
        """The same of each wave that had its CPUs to itself, by the number of CPUs."""
        alone = self.best_alone
        quiet = [wave for wave in self.waves if wave.cpu_share >= limit("cpu-share").value]
        return {} if alone is None else {wave.cpus: wave.per_cycle / (alone * wave.cores) for wave in quiet}

    @property
    def stolen(self) -> float | None:
        """The share of the time that the hypervisor took whenever all ran at once; None where it is not told."""
        return statistics.fmean(self.stolen_looks) if self.stolen_looks else None

    @property
    def oversold(self) -> bool:
        """Whether it takes too much, and not for some seconds: at each look or at one, and since the kernel came up.

        How much it must have taken since then is less where it takes too much at each look.
        """
        most, ever = limit("stolen").value, self.stolen_since_boot
        always = min(self.stolen_looks, default=0.0) > most
        if ever is None:
            return always
        return (always and ever > limit("stolen-since-boot").value) or (
            max(self.stolen_looks, default=0.0) > most and ever > most
        )


def _stolen(runs: Sequence[CoreRun]) -> tuple[float, ...]:
    """At the one look that a recording of before tells of, which did not count them."""
    told = [(r.stolen_s, r.took_s) for r in results(runs) if r.stolen_s is not None]
    return (sum(stolen for stolen, _ in told) / sum(took for _, took in told),) if told else ()


def _offered(flags: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in _PRODUCTS if name in offered_sets(flags))


def results(runs: Sequence[CoreRun]) -> list[CoreResult]:
    """Of the processes that returned one."""
    return [run.result for run in runs if run.result is not None]


def slow_groups(rates: dict[tuple[int, ...], float]) -> dict[tuple[int, ...], float]:
    """The groups of CPUs (cores, slices) whose rate is far below the median of the others, and its share of that.

    None below four groups.
    """
    if len(rates) < limit("siblings-to-compare").value:
        return {}
    of_others = {
        group: rate / statistics.median(other for key, other in rates.items() if key != group)
        for group, rate in rates.items()
    }
    return {group: share for group, share in of_others.items() if share < limit("slow-of-siblings").value}
