"""What the children of the memory self-tests print on the machine: right and quick, but for the faults it has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.compose.plan import Plan, Thread
from tests.compose.steps import ended, nothing, reading, returned

# That a socket's memory moves, its channels shared out among its nodes: four fifths of eight DDR4-3200, twelve
# DDR5-4800 or twelve DDR5-6000.
_SOCKET_GB_S = {"zen2": 164, "zen3": 164, "zen4": 369, "zen5": 461}
_HOPS = 4096
_SECOND_NS, _THIRD_NS, _MEMORY_NS, _SMALL_PAGES_NS = 4.0, 14.0, 110.0, 145.0
_INCREMENTS = 60_000


def document(plan: Plan, params: Sequence[str]) -> dict[str, Any]:
    """Of selftest cpu.memory, without its name."""
    if (without := nothing(plan)) is not None:
        steps = dict.fromkeys(("triad", "matrix", "chase", "sharing"), ended("failed"))
        return {**without, **steps, "nodes_busy": {}, "sharers_busy": []}
    return {
        "lacks": None,
        "busy": None,
        "triad": returned({"nodes": [_node(plan, node) for node in _with_cpus(plan)]})
        if "triad" in params
        else ended("not-offered", "the kernel does not offer AVX2 and FMA"),
        "matrix": _matrix(plan, params),
        "chase": returned(_latency(plan)),
        "sharing": _sharing(plan),
        "nodes_busy": {node: [_last_cpu(plan, node)] for node in plan.machine.selftest.memory.nodes_busy},
        "sharers_busy": [plan.online[1].id] if plan.machine.selftest.memory.sharers_busy else [],
    }


def pattern(plan: Plan, params: Sequence[str]) -> dict[str, Any]:
    """Of selftest cpu.pattern, without its name."""
    if (without := nothing(plan)) is not None:
        return {**without, "room_kib": 0, "workers": []}
    workers = [_pattern(plan, thread) for thread in plan.online if thread.thread == 0][:64]
    return {"lacks": None, "busy": None, "room_kib": plan.memory_kib // 8, "workers": workers}


def _with_cpus(plan: Plan) -> list[int]:
    return [node.id for node in plan.nodes if node.cpus]


def _last_cpu(plan: Plan, node: int) -> int:
    return [thread.id for thread in plan.online if thread.node == node][-1]


def _gb_s(plan: Plan, node: int) -> float:
    """What a node's own memory gives its cores, by stores past the caches."""
    nodes = len(_with_cpus(plan)) / plan.sockets
    slow = node in plan.machine.selftest.memory.slow_nodes
    return _SOCKET_GB_S.get(plan.cpu.generation, 300) / nodes * (0.5 if slow else 1.0)


def _node(plan: Plan, node: int) -> dict[str, Any]:
    faults = plan.machine.selftest.memory
    cpus = [thread.id for thread in plan.online if thread.node == node and thread.thread == 0][:32]
    wrong = 3 if node in faults.wrong_nodes else 0
    killed = [{"cpu": cpus[-1], **ended("SIGBUS")}] if node in faults.killed_on else []
    rate = _gb_s(plan, node)
    return {
        "node": node,
        "cpus": cpus,
        "array_kib": 16384,
        "no_room_kib": None,
        "died": killed,
        "placed": [] if faults.binding_refused else [node],
        "plain": reading(plan, 4 / 3 / rate),
        "streaming": reading(plan, 1 / rate),
        "compared": 4 * 1024 * 1024 * len(cpus),
        "wrong": wrong,
        "first_wrong": [{"cpu": cpus[0], "element": 77}] if wrong else [],
        "planted": 8 * len(cpus),
        "noticed": 8 * len(cpus) - (1 if node in faults.blind_nodes else 0),
    }


def _matrix(plan: Plan, params: Sequence[str]) -> dict[str, Any]:
    nodes, faults = _with_cpus(plan), plan.machine.selftest.memory
    if "triad" not in params:
        return ended("not-offered", "the kernel does not offer AVX2 and FMA")
    if len(nodes) < 2:
        return ended("one-node", "there is one NUMA node with CPUs that nobody uses")
    if len(nodes) > 8 and "deep" not in params:
        return ended("not-asked", f"between {len(nodes)} nodes it takes long: run at level deep")
    if faults.binding_refused:
        refused = ended("denied", "the kernel refused to take memory from node 0")
        return returned({"cells": [{"cpu_node": nodes[0], "memory_node": nodes[0], **refused}]})
    cells = []
    for cpu in nodes:
        for memory in nodes:
            rate = 25.0 if cpu == memory else 40.0 if (cpu, memory) in faults.remote_faster else 18.0
            cells.append({"cpu_node": cpu, "memory_node": memory, **returned(_reached(plan, rate))})
    return returned({"cells": cells})


def _reached(plan: Plan, rate: float) -> dict[str, Any]:
    counts = {"compared": 1 << 22, "wrong": 0, "planted": 4, "noticed": 4}
    told = reading(plan, 1 / rate)
    if plan.machine.selftest.memory.pairs_disturbed:
        told |= {"cpu_share": 0.4, "involuntary": 9}
    return {"reading": told, **counts}


def _latency(plan: Plan) -> dict[str, Any]:
    """Sizes about the slice of the first CPU; what does not fit into its share is as slow as memory."""
    faults, cpu = plan.machine.selftest.memory, plan.online[0]
    claimed = plan.l3_kib(cpu.ccx)
    share = claimed * faults.l3_share
    sizes = [16, 256, *(size for size in (2048, 4096, 8192, 16384, 32768) if size <= claimed), 65536 * 2]
    huge = plan.machine.settings.transparent_hugepages != "never"

    def point(kib: int, pages: str) -> dict[str, Any]:
        small = pages == "small" or not huge
        memory = _SMALL_PAGES_NS if small else _MEMORY_NS
        ns = 1.2 if kib <= 16 else _SECOND_NS if kib <= 256 else _THIRD_NS if kib <= share else memory
        walked = reading(plan, 1e-9 * ns * _HOPS)
        lost = 2 if faults.walks_lost and kib > 65536 else 0
        return {"bytes": kib << 10, "pages": pages, "hops": _HOPS, "lost": lost, "reading": walked}

    return {
        "cpu": cpu.id,
        "points": [*(point(size, "huge") for size in sizes), point(sizes[-1], "small")],
        "memory_kib": sizes[-1],
        "wanted_kib": sizes[-1],
        "huge_kib": sizes[-1] if huge else 0,
        "allowed_huge": True,
        "planted": 3,
        "noticed": 2 if faults.walks_blind else 3,
    }


def _sharing(plan: Plan) -> dict[str, Any]:
    faults = plan.machine.selftest.memory
    pair = [thread.id for thread in plan.online if thread.thread == 0][:2]
    if len(pair) < 2:
        return ended("no-pair", "it takes two CPUs of different cores that nobody uses")
    near_ns = 7.0 if faults.one_core else 38.0
    distances = [
        {"bytes": bytes, "reading": reading(plan, 1e-9 * ns * _INCREMENTS)}
        for bytes, ns in ((8, near_ns), (64, 7.0), (128, 6.9))
    ]
    return returned(
        {
            "cpus": pair,
            "increments": _INCREMENTS,
            "distances": distances,
            "compared": 18,
            "wrong": 1 if faults.additions_lost else 0,
            "planted": 6,
            "noticed": 5 if faults.additions_blind else 6,
        }
    )


def _pattern(plan: Plan, thread: Thread) -> dict[str, Any]:
    faults = plan.machine.selftest.memory
    if thread.id in faults.pattern_killed:
        return {"cpu": thread.id, **ended("SIGBUS")}
    if faults.no_room:
        return {"cpu": thread.id, **ended("memory", "1 MiB may be taken without harm to others")}
    word = {
        "pattern": "walking-one",
        "offset": 0x2A7F0,
        "got": f"{1 << 17:#018x}",
        "want": f"{1 << 17 | 1 << 40:#018x}",
        "node": thread.node,
    }
    wrong = thread.id in faults.pattern_wrong
    result = {
        "bytes": 1 << 28,
        "passes": 12,
        "compared": 12 << 25,
        "wrong": 1 if wrong else 0,
        "first_wrong": [word] if wrong else [],
        "planted": 48,
        "noticed": 47 if thread.id in faults.pattern_blind else 48,
        "nodes": [thread.node],
    }
    return {"cpu": thread.id, **returned(result)}
