"""The triad a = b + 3 c: bandwidth of each NUMA node with all its idle cores, and from node to node.

No barrier: workers prepare their arrays, then all run through the same windows of time, one after the other, and count
what they moved in each. Who is late or taken off its CPU moves less, and nobody waits for it.
"""

from __future__ import annotations

import ctypes
import resource
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from amdcheck.selftest.buffer import Buffer
from amdcheck.selftest.isolate import Ended, Record
from amdcheck.selftest.library import Library, LibraryMissing
from amdcheck.selftest.limits import limit_value
from amdcheck.selftest.reading import (
    TELL_AT_ONCE,
    UNDISTURBED,
    Judged,
    Reading,
    clock_beside,
    judged,
    looks,
    pin,
    share_of,
)
from amdcheck.selftest.room import needed, room_on_node
from amdcheck.selftest.together import Start, together

WINDOW_S = 0.012
ATTEMPTS = 3  # windows of each kind, in turn, so that one disturbance does not meet all of them
# Whether by stores past the caches. The others come last: what they wrote is what the windows leave to be compared, and
# it came through the caches to memory, as the first kind's does at once.
KINDS = (True, False)
LEAST_ARRAY = 1 << 20  # enough to compute on
CHUNK = 1 << 19  # bytes of each array in one call: some hundred microseconds
LEAST_CHUNKS = 4  # of a window; with fewer, as in an emulator, what is cut off at its ends is all there is
# Past a huge page's boundary, so that the three streams do not fall into the same sets and banks.
OFFSETS = (0, 21 * 64, 42 * 64)
BYTES_MOVED = 24  # of one element, as STREAM counts: what is read and written, not what the cache line costs beside
AMOUNT = 1e9  # bytes; a reading tells the seconds for as many
VERIFIED = 8 << 20  # bytes of an array that each kind of stores writes once more for itself, to be compared
PLACES = 16  # of an array, at which it is asked on which node it lies
PLANT_WITHIN = 4096  # the first elements, among which some are planted wrong
SHOWN = 8
LOOK_WITHIN = 0.5  # of the deadline, looks may last


class Plan(NamedTuple):
    """Who runs: one CPU of each idle core by NUMA node; by CPU the bytes of an array, and the least that tell a rate.

    With less an array comes from the caches.
    """

    node_cpus: Mapping[int, Sequence[int]]
    array: Mapping[int, int]
    least: Mapping[int, int]


def nodes(library: Library, plan: Plan, *, deadline_s: float) -> Record:
    """All nodes at once, each with memory of its own; exactness alone where there is no room for the least arrays.

    Again some moments later, where one is far behind the others. Raises MemoryError.
    """
    cpus = [cpu for members in plan.node_cpus.values() for cpu in members]
    small = dict.fromkeys(cpus, LEAST_ARRAY)
    there = needed(3 * sum(plan.array.values()), least=3 * sum(small.values()))
    arrays = next((sizes for sizes in (plan.array, plan.least) if 3 * sum(sizes.values()) <= there), small)
    began = time.monotonic()
    best = _Best(("node",), ("plain", "streaming"))

    def look() -> list[Record]:
        left_s = began + deadline_s - time.monotonic()
        ended, stolen = together(
            {cpu: partial(_work, library, cpu, arrays[cpu]) for cpu in cpus},
            ready_s=left_s / 2,
            lasts_s=2 * ATTEMPTS * WINDOW_S,
            deadline_s=left_s,
        )
        return [_node(node, members, arrays, plan.least, ended, stolen) for node, members in plan.node_cpus.items()]

    looks(look, partial(best.judged, _judged_nodes), until=began + LOOK_WITHIN * deadline_s)
    return {"nodes": best.records}


def matrix(library: Library, node_cpu: Mapping[int, int], size: int, *, deadline_s: float) -> Record:
    """Each node's CPU with each node's memory: in every round each CPU has another node, and each node another CPU.

    Again some moments later, where a node seems to reach another one's memory faster than its own. Raises MemoryError.
    """
    ids = [node for node in node_cpu if room_on_node(node) != 0]  # some have CPUs and no memory
    needed(3 * size * len(ids))
    began = time.monotonic()
    best = _Best(("cpu_node", "memory_node"), ("reading",))

    def look() -> list[Record]:
        return _rounds(library, node_cpu, ids, size, deadline_s=began + deadline_s - time.monotonic())

    looks(look, partial(best.judged, _judged_cells), until=began + LOOK_WITHIN * deadline_s)
    return {"cells": best.records}


def _rounds(
    library: Library, node_cpu: Mapping[int, int], ids: Sequence[int], size: int, *, deadline_s: float
) -> list[Record]:
    """The cells of all pairs. A round in which one gives no result is the last: it is waited for once."""
    cells: list[Record] = []
    for shift in range(len(ids)):
        pairs = [(ids[place], ids[(place + shift) % len(ids)]) for place in range(len(ids))]
        free = {to: room_on_node(to) for _, to in pairs}
        if any(there is not None and there < 3 * size for there in free.values()):
            raise MemoryError(f"no {3 * size >> 20} MiB of free memory on each node")
        ended, stolen = together(
            {node_cpu[cpu]: partial(_reach, library, node_cpu[cpu], to, size) for cpu, to in pairs},
            ready_s=deadline_s / len(ids) / 2,
            lasts_s=ATTEMPTS * WINDOW_S,
            deadline_s=deadline_s / len(ids),
        )
        told = [_cell(cpu, to, ended[node_cpu[cpu]], stolen[node_cpu[cpu]]) for cpu, to in pairs]
        cells += told
        if any(cell["result"] is None for cell in told):
            break
    return cells


# ---- in a worker ----


class _Arrays:
    """Three arrays of this worker, filled by it: the pages lie where it runs, or where it bound them."""

    def __init__(self, library: Library, size: int) -> None:
        self._library = library
        self._buffers = [Buffer(size + OFFSETS[-1]) for _ in OFFSETS]
        self.a, self.b, self.c = (
            buffer.address + offset for buffer, offset in zip(self._buffers, OFFSETS, strict=True)
        )
        self.size = size
        self.written = 0  # bytes of a that the windows have written
        self.count = size // 8
        self.poison(size)
        library.triad_operands(self.b, self.c, self.count)

    def poison(self, size: int) -> None:
        """What is not written is not right."""
        ctypes.memset(self.a, 0xA5, size)

    def placed(self) -> list[int]:
        """The nodes that the arrays lie on, by places all over them: a node that is full gives the first pages alone.

        Empty where the kernel does not say.
        """
        step = max(self.size // PLACES, 1)
        places = (array + at for array in (self.a, self.b, self.c) for at in range(0, self.size, step))
        return sorted({node for place in places if (node := self._library.node_of(place)) is not None})

    def run(self, *, non_temporal: bool, offset: int = 0, size: int = CHUNK, wrong: int = -1) -> None:
        took = self._library.time_triad(
            non_temporal=non_temporal,
            a=self.a + offset,
            b=self.b + offset,
            c=self.c + offset,
            count=size // 8,
            wrong=wrong,
        )
        if took is None:
            raise LibraryMissing("no triad in this build")

    def through(self, start: Start, kinds: Sequence[bool]) -> list[Record]:
        """Run in a window for each kind of stores; what was moved in each, and what CPU time it had."""
        first = start.wait()
        offset, told = 0, []
        for number, kind in enumerate(kinds):
            begin, end = first + number * WINDOW_S, first + (number + 1) * WINDOW_S
            moved, chunks = 0.0, 0
            cpu, switched = time.thread_time(), resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
            cycle_s = clock_beside(self._library.pace)
            while (now := time.monotonic()) < end:
                self.run(non_temporal=kind, offset=offset)
                self.written = max(self.written, offset + CHUNK)
                then = time.monotonic()
                inside = max(0.0, min(then, end) - max(now, begin))
                moved += CHUNK // 8 * BYTES_MOVED * inside / (then - now)
                chunks += inside > 0
                offset = (offset + CHUNK) % self.size
            told.append(
                {
                    "moved": moved if chunks >= LEAST_CHUNKS else 0.0,
                    "cpu_s": min(time.thread_time() - cpu, WINDOW_S),
                    "involuntary": resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw - switched,
                    "cycle_s": cycle_s,
                }
            )
        return told

    def verify(self) -> Record:
        """All that the windows wrote, then each kind of stores alone over the first part, every element compared; then
        errors are planted.
        """
        found: Record = {"compared": 0, "wrong": 0, "first_wrong": [], "planted": 0, "noticed": 0}
        self._compare(found, min(self.written, self.size) // 8)
        for kind in KINDS:
            size = min(self.size, VERIFIED)
            self.poison(size)
            self.run(non_temporal=kind, size=size)
            self._compare(found, size // 8)
            within = min(PLANT_WITHIN, self.count)
            for place in (0, 13, within // 2 + 6, within - 1):
                self.run(non_temporal=kind, size=8 * within, wrong=place)
                found["planted"] += 1
                found["noticed"] += self._library.triad_differences(self.a, within) == (1, place)
        return found

    def _compare(self, found: Record, count: int) -> None:
        wrong, where = self._library.triad_differences(self.a, count)
        found["compared"] += count
        found["wrong"] += wrong
        if where is not None:
            found["first_wrong"].append(where)


def _work(library: Library, cpu: int, size: int, start: Start) -> Record:
    """One worker of a node. First touch: its pages come from the node that it runs on."""
    pin(cpu)
    arrays = _Arrays(library, size)
    told = arrays.through(start, ATTEMPTS * KINDS)
    return {"windows": told, "placed": arrays.placed(), **arrays.verify()}


def _reach(library: Library, cpu: int, node: int, size: int, start: Start) -> Record:
    """One CPU with memory of one node, by stores past the caches."""
    pin(cpu)
    if not library.bind_memory(node):
        raise PermissionError(f"the kernel refused to take memory from node {node}")
    arrays = _Arrays(library, size)
    placed = arrays.placed()
    if not placed:
        raise PermissionError("the kernel does not say on which node memory lies")
    if placed != [node]:
        raise RuntimeError(f"memory bound to node {node} lies on node {', '.join(map(str, placed))}")
    return {"windows": arrays.through(start, ATTEMPTS * (True,)), **arrays.verify()}


# ---- in the parent of the workers ----


class _Best:
    """Of each node or pair of nodes the best look: one whose neighbour was disturbed in it is not held against that."""

    def __init__(self, names: Sequence[str], readings: Sequence[str]) -> None:
        self._names, self._readings = names, readings
        self._best: dict[tuple[int, ...], Record] = {}

    @property
    def records(self) -> list[Record]:
        return list(self._best.values())

    def judged(self, judge: Callable[[Sequence[Record]], Judged], records: Sequence[Record]) -> Judged:
        """What is judged with these taken into account; when something went wrong, they alone are told, at once."""
        by_name = {tuple(record[name] for name in self._names): record for record in records}
        if any(map(_went_wrong, records)):
            self._best = by_name
            return TELL_AT_ONCE
        for name, record in by_name.items():
            if name not in self._best or self._of(record) > self._of(self._best[name]):
                self._best[name] = record
        return judge(self.records)

    def _of(self, record: Record) -> Judged:
        """The share of its CPUs, and the rate of stores past the caches, which comes last; none is none."""
        told = [(record.get("result") or record)[name] for name in self._readings]
        if None in told:
            return Judged(0.0, 0.0)
        return judged(share_of(*told), 1 / told[-1]["best_s"])


def _went_wrong(record: Record) -> bool:
    """A worker that died, an element that is wrong, an error that went unnoticed."""
    if record.get("died") or ("result" in record and record["result"] is None):
        return True
    told = record.get("result") or record
    return bool(told["wrong"] or told["noticed"] < told["planted"])


def _judged_nodes(nodes: Sequence[Record]) -> Judged:
    """Each node's rate against the least of the nodes with as many CPUs, as the check judges it."""
    told = [node for node in nodes if node["no_room_kib"] is None]
    if any(node["plain"] is None or node["streaming"] is None for node in told):
        return Judged(0.0, 0.0)  # nothing was moved in time
    rate = {node["node"]: 1 / node["streaming"]["best_s"] for node in told}
    rates = [
        rate[node["node"]] / statistics.median(alike) / limit_value("node-of-siblings")
        for node in told
        if (alike := [rate[n["node"]] for n in told if n is not node and len(n["cpus"]) == len(node["cpus"])])
    ]
    share = min((share_of(node["plain"], node["streaming"]) for node in told), default=UNDISTURBED)
    return judged(share, min(rates, default=1.0))


def _judged_cells(cells: Sequence[Record]) -> Judged:
    """Each node's own memory against that of the other nodes, as the check judges it."""
    readings = {(cell["cpu_node"], cell["memory_node"]): cell["result"]["reading"] for cell in cells}
    took = {pair: reading["best_s"] for pair, reading in readings.items()}
    of_local = [seconds / took[cpu, cpu] for (cpu, node), seconds in took.items() if cpu != node]
    share = share_of(*readings.values()) if readings else UNDISTURBED
    return judged(share, limit_value("remote-of-local") * min(of_local, default=1.0))


def _cell(cpu: int, memory: int, end: Ended, stolen: float | None) -> Record:
    """What one node's CPU gave with one node's memory; who was ready after the windows has told nothing."""
    if (result := end["result"]) is not None:
        reading = _reading([result.pop("windows")], stolen=stolen)
        end = Ended(ended="returned", detail=None, result={"reading": reading, **result})
        if reading is None:
            end = Ended(ended="timeout", detail="nothing was moved within the windows", result=None)
    return {"cpu_node": cpu, "memory_node": memory, **end}


def _node(
    node: int,
    members: Sequence[int],
    arrays: Mapping[int, int],
    least: Mapping[int, int],
    ended: Mapping[int, Ended],
    stolen: Mapping[int, float | None],
) -> Record:
    """What the workers of one node gave together."""
    done = {cpu: result for cpu in members if (result := ended[cpu]["result"]) is not None}
    taken = [stolen[cpu] for cpu in done]
    small = any(arrays[cpu] < least[cpu] for cpu in members)
    told = [] if small else [result["windows"] for result in done.values()]
    whole = sum(s for s in taken if s is not None) if taken and None not in taken else None
    return {
        "node": node,
        "cpus": list(members),
        "array_kib": min(arrays[cpu] for cpu in members) >> 10,
        "no_room_kib": max(least[cpu] for cpu in members) >> 10 if small else None,
        "died": [{"cpu": cpu, **ended[cpu]} for cpu in members if cpu not in done],
        "placed": sorted({node for result in done.values() for node in result["placed"]}),
        "plain": _reading([windows[KINDS.index(False) :: 2] for windows in told], stolen=whole),
        "streaming": _reading([windows[KINDS.index(True) :: 2] for windows in told], stolen=whole),
        **{name: sum(r[name] for r in done.values()) for name in ("compared", "wrong", "planted", "noticed")},
        "first_wrong": [
            {"cpu": cpu, "element": where} for cpu, result in done.items() for where in result["first_wrong"]
        ][:SHOWN],
    }


def _reading(workers: Sequence[Sequence[Record]], *, stolen: float | None) -> Reading | None:
    """Seconds for AMOUNT bytes by all workers together, in the best of their windows; None when nothing was moved."""
    windows = list(zip(*workers, strict=True))
    moved = [sum(worker["moved"] for worker in window) for window in windows]
    if not moved or max(moved) <= 0:
        return None
    best = windows[moved.index(max(moved))]
    cycles = [worker["cycle_s"] for worker in best if worker["cycle_s"] is not None]
    return {
        "best_s": AMOUNT * WINDOW_S / max(moved),
        # What is less than a call of one worker is none, and would be told as days.
        "median_s": AMOUNT * WINDOW_S / max(statistics.median(moved), min(max(moved), CHUNK // 8 * BYTES_MOVED)),
        "slices": len(windows),
        "attempts": len(windows),
        "cpu_share": min(1.0, sum(worker["cpu_s"] for worker in best) / (len(best) * WINDOW_S)),
        "involuntary": sum(worker["involuntary"] for worker in best),
        "stolen_s": stolen,
        "cycle_s": statistics.median(cycles) if cycles else None,
        "issued": None,
    }
