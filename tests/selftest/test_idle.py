"""Which CPUs a self-test may use: those that are not in use, and how much that is."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping

import pytest

from amdcheck.selftest import idle
from amdcheck.selftest.cgroup import Quota
from amdcheck.selftest.idle import Busy, busy_ticks, choose_cpu, idle_cpus

STAT = """cpu  30 2 9 1000 4 3 1 7 0 0
cpu0 10 1 4 500 2 1 0 3 0 0
cpu1 20 1 5 500 2 2 1 4 0 0
intr 17114446 0 0
ctxt 100
"""
TICKS = round(idle.WINDOW_S * os.sysconf("SC_CLK_TCK"))


def use(monkeypatch: pytest.MonkeyPatch, allowed: set[int], *samples: Mapping[int, int]) -> None:
    """A machine whose CPUs have used so many ticks at each look."""
    looks: Iterator[Mapping[int, int]] = iter(samples)
    monkeypatch.setattr(idle, "_busy_ticks", lambda: next(looks))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: allowed)
    monkeypatch.setattr(idle, "core_of", lambda cpu: (cpu,))
    monkeypatch.setattr("amdcheck.selftest.cgroup.quotas", dict)


def test_ticks_of_programs_and_interrupts_count_and_waiting_and_steal_do_not() -> None:
    assert busy_ticks(STAT.splitlines()) == {0: 16, 1: 29}


@pytest.mark.parametrize("line", ["cpu0 10 x 4 500 2 1 0", "cpu0 10 1", "cpux 1 2 3 4 5 6 7"])
def test_a_line_that_is_none_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"invalid literal|unpack"):
        busy_ticks([line])


def test_the_idlest_cpu_comes_first_and_one_with_a_hog_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, {0, 1, 2, 3}, {0: 5, 1: 5, 2: 5, 3: 5}, {0: 6, 1: 5 + TICKS, 2: 5, 3: 7})
    assert idle_cpus(allow_busy=False) == (2, 0, 3)


def test_a_cpu_whose_core_somebody_uses_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other thread's CPU may be one that we may not run on."""
    use(monkeypatch, {0, 1, 2}, dict.fromkeys(range(4), 0), {0: 1, 1: 0, 2: 0, 3: TICKS})
    monkeypatch.setattr(idle, "core_of", lambda cpu: {0: (0,), 1: (1, 3), 2: (2,)}[cpu])
    assert idle_cpus(allow_busy=False) == (2, 0)
    monkeypatch.undo()
    use(monkeypatch, {0, 1, 2}, dict.fromkeys(range(4), 0), {0: 1, 1: 0, 2: 0, 3: TICKS})
    monkeypatch.setattr(idle, "core_of", lambda cpu: {0: (0,), 1: (1, 3), 2: (2,)}[cpu])
    assert idle_cpus(allow_busy=True) == (2, 0, 1)


def test_busy_cpus_are_used_last_when_that_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, {0, 1}, {0: 0, 1: 0}, {0: TICKS, 1: 0})
    assert idle_cpus(allow_busy=True) == (1, 0)


def test_a_machine_whose_every_cpu_computes_is_busy_and_says_how_much(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, {0, 1}, {0: 0, 1: 0}, {0: TICKS, 1: TICKS})
    with pytest.raises(Busy, match=r"every CPU that amdcheck may run on is in use, the least of them CPU 0 \d+ %"):
        choose_cpu(allow_busy=False)


@pytest.mark.parametrize("allow_busy", [True, False])
@pytest.mark.parametrize(
    ("quota", "used_s", "cpus"),
    [
        (0.5, 0.0, (0,)),
        (2.0, 0.0, (2, 0)),  # spread over all, the idlest first
        (2.0, 1.5, (0,)),  # others of the group use half of it
        (3.9, 0.0, (2, 0, 1)),
        (4.0, None, (2, 0, 3, 1)),
        (64.0, 0.0, (2, 0, 3, 1)),
    ],
)
def test_no_more_are_used_than_the_quota_has_left(
    monkeypatch: pytest.MonkeyPatch, quota: float, used_s: float | None, cpus: tuple[int, ...], *, allow_busy: bool
) -> None:
    use(monkeypatch, {0, 1, 2, 3}, dict.fromkeys(range(4), 0), {0: 1, 1: 2, 2: 0, 3: 1})
    spent = None if used_s is None else used_s * idle.WINDOW_S
    looks = iter([0.0, spent])
    monkeypatch.setattr(
        "amdcheck.selftest.cgroup.quotas",
        lambda: {"/a": Quota(quota, 0, 0.0, next(looks)), "/": Quota(99.0, 0, 0.0, None)},
    )
    assert idle_cpus(allow_busy=allow_busy) == cpus


def test_only_cpus_of_our_affinity_are_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, {1}, {0: 0, 1: 0}, {0: 0, 1: 1})
    assert idle_cpus(allow_busy=False) == (1,)


def test_without_proc_stat_every_allowed_cpu_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, {3, 1}, {}, {})
    assert idle_cpus(allow_busy=False) == (1, 3)
