"""A rate that a self-test measured, and whether it can be trusted. Taken by amdcheck/selftest/reading.py."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from amdcheck.knowledge.selftests import limit

# What a child may say: anything else is no measurement.
Number = Annotated[int, Meta(ge=0, le=1 << 53)]
Amount = Annotated[int, Meta(ge=1, le=1 << 53)]
Seconds = Annotated[float, Meta(gt=1e-13, lt=1e6)]
Share = Annotated[float, Meta(ge=0, le=1)]
SHOWN = Meta(max_length=64)  # what is told one by one
PER_CPU = Meta(max_length=8192)  # as many CPUs as Linux can be built for on x86-64
Time = Annotated[float, Meta(ge=0, lt=1e9)]  # in seconds, or none
PerCycle = Annotated[float, Meta(gt=0, lt=1e6)]


class Reading(Struct, frozen=True, kw_only=True):
    """Seconds of the shortest slice and of the median one, and what disturbed the best attempt.

    `cpu_share`: CPU time over wall time of the attempt; `involuntary`: times that the thread was taken off its CPU;
    `stolen_s`: what the hypervisor took from that CPU meanwhile, None where /proc/stat does not say; `cycle_s`: seconds
    of a cycle of the core beside the shortest slice, and `issued`: instructions that it mostly began in one when they
    had nothing to do; None where that was not looked at.
    """

    best_s: Seconds
    median_s: Seconds
    slices: Amount
    attempts: Amount
    cpu_share: Share
    involuntary: Number
    stolen_s: Time | None
    cycle_s: Seconds | None
    issued: PerCycle | None = None  # recordings of before 2026-12 have none

    def __post_init__(self) -> None:
        if self.best_s > self.median_s:
            raise ValueError("the shortest slice is longer than the median one")

    @property
    def disturbed(self) -> bool:
        """Whether something else ran on the CPU, in every attempt."""
        return self.cpu_share < limit("cpu-share").value

    @property
    def disturbance(self) -> str:
        """What ran beside it, in words."""
        stolen = "" if not self.stolen_s else f", {self.stolen_s:.2f} s taken by the hypervisor"
        return (
            f"{100 * self.cpu_share:.0f} % of a CPU in the best of {self.attempts} attempts, "
            f"taken off it {self.involuntary} times{stolen}"
        )

    def rate(self, amount: float) -> float:
        """`amount` per second, by the shortest slice."""
        return amount / self.best_s

    def per_cycle(self, amount: float) -> float | None:
        """`amount` per cycle of the clock beside it; None where that was not taken."""
        return None if self.cycle_s is None else self.rate(amount) * self.cycle_s
