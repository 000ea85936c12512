"""What the child of the cores' self-test prints on the machine: all alike, but for the faults it has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.compose import steps
from tests.compose.plan import Plan, Thread

_OPERATIONS, _CYCLES, _PORTS = 1_769_472, 6000, 384_000
_PER_CYCLE = 24.0  # of the ports' 32, two multiply-adds of eight lanes
_ALONE_S, _TOGETHER_S = 0.015, 0.045


def document(plan: Plan, params: Sequence[str]) -> dict[str, Any]:
    """Of selftest cpu.cores, without its name."""
    wanted = plan.machine.selftest.cores
    online = [thread.id for thread in plan.online]
    told: dict[str, Any] = {"lacks": None, "busy": None, "allowed": wanted.allowed or online, "quota": None}
    told |= {"stolen_looks": [], "stolen_since_boot": wanted.stolen_since_boot}
    nothing = steps.nothing(plan)
    if nothing is not None:
        return {**told, "alone": [], "waves": [], "together": [], **nothing}
    idle = [thread for thread in plan.online if thread.id in (wanted.idle or wanted.allowed or online)]
    cores = _one_a_core(idle)
    quota = {"path": "/sys/fs/cgroup/machine.slice", "cpus": wanted.quota, "throttled": 3, "throttled_s": 0.12}
    return {
        **told,
        "quota": None if wanted.quota is None else quota,
        "operations": _OPERATIONS,
        "cycles": _CYCLES,
        "ports_operations": _PORTS,
        "alone": [_run(plan, thread, _ALONE_S, among=1) for thread in _spread(cores, 4)],
        "waves": [_wave(number, wanted.together) for number in _waves(len(cores), len(idle))],
        "together": [_run(plan, t, _TOGETHER_S, among=len(idle)) for t in idle] if len(idle) > 1 else [],
        "stolen_looks": (wanted.stolen_looks or (wanted.stolen,)) if len(idle) > 1 else (),
    }


def _one_a_core(threads: Sequence[Thread]) -> list[Thread]:
    cores = {(thread.socket, thread.core): thread for thread in reversed(threads)}
    return sorted(cores.values(), key=lambda thread: thread.id)


def _spread(cores: Sequence[Thread], most: int) -> list[Thread]:
    number = min(most, len(cores))
    return [cores[at * len(cores) // number] for at in range(number)]


def _waves(cores: int, cpus: int) -> list[int]:
    """Two, four, eight ... cores, and all of them when their other threads come after that."""
    return [n for n in (2**power for power in range(1, 12)) if n < cores] + ([cores] if 1 < cores < cpus else [])


def _wave(cores: int, share: float) -> dict[str, Any]:
    return {"cpus": cores, "cores": cores, "per_cycle": cores * _PER_CYCLE * share / 1.02, "cpu_share": 1.0}


def _run(plan: Plan, thread: Thread, window_s: float, *, among: int) -> dict[str, Any]:
    cores, cpu = plan.machine.selftest.cores, thread.id
    if cpu in cores.killed:
        return {"cpu": cpu, **steps.ended("SIGBUS")}
    mhz = plan.cpu.base_mhz + 400
    if cpu in cores.held_down or thread.ccx in cores.slices_held_down:
        mhz //= 2
    hz = mhz * 1e6 * (cores.clock_together if among > 1 else 1)
    share = 0.5 if cpu in cores.neighbour_on else 1.0
    if among > 1:
        share *= cores.together / plan.threads_per_core
    product_s, words = _OPERATIONS / (hz * _PER_CYCLE * share), 9216 * 400
    result = {
        "cpus": [cpu],
        "slices": 400,
        "compared": words,
        "wrong": 2 if cpu in cores.wrong_on else 0,
        "planted": 4,
        "noticed": 3 if cpu in cores.blind_on else 4,
        "product_best_s": product_s,
        "product_median_s": product_s * 1.02,
        "chain_best_s": _CYCLES / hz,
        "ports_best_s": _PORTS / (hz * 32),
        "took_s": window_s,
        "cpu_share": cores.cpu_share,
        "involuntary": 0 if cores.cpu_share == 1 else 12,
        "stolen_s": cores.stolen * window_s,
    }
    return {"cpu": cpu, **steps.returned(result)}
