"""The memory self-tests: triad of each NUMA node and from node to node, latency and the last level's share, sharing.

Parameters: standard or deep; "allow-busy"; "triad" where the kernel offers what that is built from; l1=KiB of the data
cache, l2=KiB, l3=KiB:CPUS;KiB:CPUS..., node=CPUS for each NUMA node, with CPUS in the kernel's form (0-7,64-71). All
steps run on CPUs that are idle, each in processes of its own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from amdcheck.host.asked import ALLOW_BUSY
from amdcheck.selftest import chase, sharing, stat, triad
from amdcheck.selftest.idle import Busy, busy_ticks, cpus_of, idle_cpus, known_core, one_a_core
from amdcheck.selftest.isolate import Ended, Record, isolated
from amdcheck.selftest.library import Library, LibraryMissing, load
from amdcheck.selftest.limits import limit_value
from amdcheck.selftest.room import be_first_to_go

DEADLINE_S = 8.0  # of one step at level standard, which takes some hundred milliseconds
DEEP_DEADLINE_S = 20.0
WITHIN = 0.8  # of a step's deadline for its own processes: a step that is killed has told nothing of them
MOST_WORKERS = {"standard": 32, "deep": 128}  # of one node
MOST_ARRAY = {"standard": 32 << 20, "deep": 256 << 20}
TIMES_CACHE = 4  # an array is so much larger than the share of the caches that its core has
# Two of the three arrays are read, and stores may go past the caches: what comes round is four times the share then.
LEAST_TIMES_CACHE = 2
UNKNOWN_SHARE = 8 << 20
MATRIX_ARRAY = 32 << 20
MOST_NODES = {"standard": 8, "deep": 64}


class Asked(NamedTuple):
    """The parameters."""

    level: str
    allow_busy: bool
    triad: bool
    l1_kib: int | None
    l2_kib: int | None
    l3: Sequence[tuple[int, Sequence[int]]]  # KiB and CPUs of each slice
    nodes: dict[int, Sequence[int]]

    def slice_of(self, cpu: int) -> tuple[int, Sequence[int]] | None:
        return next((part for part in self.l3 if cpu in part[1]), None)


def run(params: tuple[str, ...]) -> Record:
    """Choose CPUs, then run the steps one after the other."""
    asked = parse(params)
    try:
        library = load()
        idle = idle_cpus(allow_busy=asked.allow_busy)
    except LibraryMissing as missing:
        return {"lacks": str(missing), "busy": None, **_nothing(str(missing))}
    except Busy as busy:
        return {"lacks": None, "busy": str(busy), **_nothing(str(busy))}
    be_first_to_go()
    return {"lacks": None, "busy": None, **_steps(library, asked, idle)}


def _nothing(why: str) -> Record:
    steps = dict.fromkeys(("triad", "matrix", "chase", "sharing"), _not_run("failed", why))
    return {**steps, "nodes_busy": {}, "sharers_busy": []}


def _not_run(ended: str, why: str) -> Ended:
    return Ended(ended=ended, detail=why, result=None)


def _steps(library: Library, asked: Asked, idle: Sequence[int]) -> Record:
    deadline_s = DEADLINE_S if asked.level == "standard" else DEEP_DEADLINE_S
    plan = workers(asked, idle)
    node_cpu = {node: cpus[0] for node, cpus in plan.node_cpus.items()}
    working = {cpu for cpus in plan.node_cpus.values() for cpu in cpus}
    watch = _Watch()
    if not asked.triad:
        bandwidth = matrix = _not_run("not-offered", "the kernel does not offer AVX2 and FMA")
    else:
        bandwidth = isolated(lambda: triad.nodes(library, plan, deadline_s=WITHIN * deadline_s), deadline_s=deadline_s)
        matrix = _matrix(library, asked, node_cpu, deadline_s)
    others = [cpu for cpu in watch.busy() if cpu not in working]
    cpu = idle[0]
    part = asked.slice_of(cpu)
    caches = (asked.l1_kib, asked.l2_kib, None if part is None else part[0])
    pair = sharing.pair(idle, [cpus for _, cpus in asked.l3])
    watch = _Watch()
    latency = isolated(lambda: chase.judge(library, cpu, caches, asked.level), deadline_s=deadline_s)
    return {
        "triad": bandwidth,
        "matrix": matrix,
        "nodes_busy": {node: here for node, cpus in asked.nodes.items() if (here := [c for c in others if c in cpus])},
        "chase": latency,
        "sharers_busy": [other for other in watch.busy() if part and other in part[1] and other != cpu],
        "sharing": _no_pair(asked)
        if pair is None
        else isolated(lambda: sharing.judge(library, pair), deadline_s=deadline_s),
    }


def _no_pair(asked: Asked) -> Ended:
    """Why there are no two CPUs to share a line: others use all but one core, or there is one, or nobody says."""
    allowed = sorted(os.sched_getaffinity(0))
    if sharing.pair(allowed, [cpus for _, cpus in asked.l3]) is not None:
        return _not_run("busy", "no two CPUs of different cores are idle and within the quota")
    if len(allowed) > 1 and any(known_core(cpu) is None for cpu in allowed):
        return _not_run("failed", "the kernel does not say which CPUs are of one core")
    return _not_run("no-pair", "it takes two CPUs of different cores, and amdcheck may run on one core alone")


class _Watch:
    """Which CPUs are in use from now on, ours or not: what they do to a cache or to memory is seen by who shares it."""

    def __init__(self) -> None:
        self._before, self._began = self._ticks(), time.monotonic()

    @staticmethod
    def _ticks() -> Mapping[int, int]:
        with suppress(ValueError):
            return busy_ticks(stat.lines())
        return {}

    def busy(self) -> list[int]:
        after = self._ticks()
        ticks = (time.monotonic() - self._began) * os.sysconf("SC_CLK_TCK")
        most = limit_value("cpu-in-use") * ticks
        return [cpu for cpu, used in after.items() if cpu in self._before and used - self._before[cpu] > most]


def _matrix(library: Library, asked: Asked, node_cpu: dict[int, int], deadline_s: float) -> Ended:
    if len(node_cpu) < 2:
        return _not_run("one-node", "of one NUMA node alone there are CPUs that are idle, allowed and within the quota")
    if len(node_cpu) > MOST_NODES[asked.level]:
        return _not_run("not-asked", f"between {len(node_cpu)} nodes it takes long: run at level deep")
    size = max(MATRIX_ARRAY, *(_least_array(asked, cpu, [cpu]) for cpu in node_cpu.values()))
    within_s = WITHIN * deadline_s
    return isolated(lambda: triad.matrix(library, node_cpu, size, deadline_s=within_s), deadline_s=deadline_s)


def workers(asked: Asked, idle: Sequence[int]) -> triad.Plan:
    """One idle CPU of each core by node, and arrays that are larger than the share of the cache that each has."""
    nodes = asked.nodes or {0: idle}
    most = MOST_WORKERS[asked.level]
    chosen = {
        node: one_a_core(here, most=most)
        for node, cpus in nodes.items()
        if (here := [cpu for cpu in idle if cpu in cpus])
    }
    working = [cpu for cpus in chosen.values() for cpu in cpus]
    least = {cpu: _least_array(asked, cpu, working) for cpu in working}
    times = TIMES_CACHE // LEAST_TIMES_CACHE
    arrays = {cpu: max(size, min(MOST_ARRAY[asked.level], times * size)) for cpu, size in least.items()}
    return triad.Plan(node_cpus=chosen, array=arrays, least=least)


def _least_array(asked: Asked, cpu: int, working: Sequence[int]) -> int:
    """Bytes of an array that does not stay in the second level and the share of the third that this CPU has."""
    part = asked.slice_of(cpu)
    share = UNKNOWN_SHARE if part is None else (part[0] << 10) // sum(other in part[1] for other in working)
    size = LEAST_TIMES_CACHE * (share + ((asked.l2_kib or 0) << 10))
    return -(-size // triad.CHUNK) * triad.CHUNK


def parse(params: Sequence[str]) -> Asked:
    """The parameters as they come. Raises ValueError."""
    named = dict(word.partition("=")[::2] for word in params if "=" in word)
    l3 = [part.partition(":")[::2] for part in named.get("l3", "").split(";") if part]
    nodes = {int(name[4:]): cpus for name, cpus in named.items() if name.startswith("node")}
    return Asked(
        level="deep" if "deep" in params else "standard",
        allow_busy=ALLOW_BUSY in params,
        triad="triad" in params,
        l1_kib=int(named["l1"]) if "l1" in named else None,
        l2_kib=int(named["l2"]) if "l2" in named else None,
        l3=[(int(size), cpus_of(cpus)) for size, cpus in l3],
        nodes={node: cpus_of(cpus) for node, cpus in nodes.items()},
    )
