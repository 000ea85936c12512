"""Memory and caches as they were measured: bandwidth by NUMA node, latency by size, one line shared by two cores."""

from __future__ import annotations

from typing import Annotated, TypeVar

from msgspec import Meta, Struct

from amdcheck.facts.cpu import Cpu
from amdcheck.facts.cpulist import format_cpulist
from amdcheck.facts.numa import Numa
from amdcheck.facts.readings import PER_CPU, SHOWN, Amount, Number, Reading
from amdcheck.facts.registry import fact
from amdcheck.facts.selftests import (
    Compared,
    Group,
    GroupDocument,
    Step,
    allowing_busy,
    distinct,
    document_of,
    offered_sets,
    step_of,
)
from amdcheck.host.protocol import Host, SelfTest
from amdcheck.knowledge.selftests import limit
from amdcheck.model.expectations import Expectations
from amdcheck.model.value import Known, Unknown, Value

T = TypeVar("T")

TIMEOUT_S = 90.0  # more than the deadlines of all steps together at level deep
_TRIAD = "fma"  # the row of isa.toml whose instructions it is built from
AMOUNT = 1e9  # bytes that a bandwidth's reading is the time for


class WorkerEnd(Step, frozen=True, kw_only=True):
    """How a worker ended that gave no result."""

    cpu: Number


class WrongElement(Struct, frozen=True, kw_only=True):
    """The first wrong element of one worker's array."""

    cpu: Number
    element: Number


class NodeBandwidth(Compared, frozen=True, kw_only=True):
    """The triad on one NUMA node by all of its workers at once, each on arrays of its own.

    `plain` and `streaming` are seconds for AMOUNT bytes as STREAM counts them, by stores through the caches and past
    them. `no_room_kib`: there was no room for arrays of that size, smaller ones lie in the caches and tell no rate.
    `placed`: the nodes that the arrays lie on, empty where the kernel does not say. `compared` elements, of which
    `wrong`; `planted` errors, of which the comparison `noticed` so many.
    """

    node: Number
    cpus: tuple[Number, ...]
    array_kib: Number
    no_room_kib: Number | None
    died: Annotated[tuple[WorkerEnd, ...], PER_CPU]
    placed: tuple[Number, ...]
    plain: Reading | None
    streaming: Reading | None
    first_wrong: Annotated[tuple[WrongElement, ...], SHOWN]

    @property
    def disturbed(self) -> bool:
        return any(reading is None or reading.disturbed for reading in (self.plain, self.streaming))

    @property
    def moved_nothing(self) -> bool:
        """Whether there was room for arrays that tell a rate, and no window in which enough of them was moved."""
        return self.no_room_kib is None and (self.plain is None or self.streaming is None)

    @property
    def at_home(self) -> bool:
        """Whether the arrays lie on the node itself, or nobody says otherwise."""
        return self.placed in ((), (self.node,))


class Bandwidth(Struct, frozen=True, kw_only=True):
    nodes: Annotated[tuple[NodeBandwidth, ...], Meta(max_length=1024)]

    def __post_init__(self) -> None:
        distinct({node.node: node for node in self.nodes}, self.nodes)


class Reached(Compared, frozen=True, kw_only=True):
    """Seconds for AMOUNT bytes by stores past the caches, and what was compared of them."""

    reading: Reading


class Reach(Step, frozen=True, kw_only=True):
    """One core of a node with memory of one node."""

    cpu_node: Number
    memory_node: Number
    result: Reached | None


class Matrix(Struct, frozen=True, kw_only=True):
    cells: Annotated[tuple[Reach, ...], Meta(max_length=4096)]

    def __post_init__(self) -> None:
        distinct({(cell.cpu_node, cell.memory_node): cell for cell in self.cells}, self.cells)


class Point(Struct, frozen=True, kw_only=True):
    """A walk of `hops` through `bytes` on huge or small pages; `lost` walks did not end where they must."""

    bytes: Amount
    pages: str
    hops: Amount
    lost: Number
    reading: Reading

    @property
    def seconds(self) -> float:
        """Of one load that waits for the one before it."""
        return self.reading.best_s / self.hops


class Latency(Struct, frozen=True, kw_only=True):
    """Points of one CPU, in ascending order on huge pages and then on small ones.

    `wanted_kib`: what would have been walked had there been room for it, None where a recording of before does not say.
    `huge_kib`: what of the buffer for huge pages lies on such, of `memory_kib`; None where the kernel does not say.
    `allowed_huge`: False where this process was forbidden them. `planted` cycles were linked wrong, `noticed` so many.
    """

    cpu: Number
    points: Annotated[tuple[Point, ...], Meta(max_length=256)]
    memory_kib: Amount
    wanted_kib: Amount | None = None
    huge_kib: Number | None
    allowed_huge: bool | None
    planted: Number
    noticed: Number

    def __post_init__(self) -> None:
        if not self.on("huge") or not self.on("small") or self.noticed > self.planted:
            raise ValueError("a latency without points, or more is noticed than was planted")
        for pages in ("huge", "small"):
            sizes = [point.bytes for point in self.on(pages)]
            if sorted(set(sizes)) != sizes:
                raise ValueError("the points are not in ascending order")

    def on(self, pages: str) -> tuple[Point, ...]:
        return tuple(point for point in self.points if point.pages == pages)

    @property
    def memory(self) -> Point:
        """The largest size, on huge pages if there are any."""
        return self.on("huge")[-1]

    @property
    def lost(self) -> int:
        return sum(point.lost for point in self.points)


class Distance(Struct, frozen=True, kw_only=True):
    """Both CPUs count words of their own that lie so many bytes apart."""

    bytes: Amount
    reading: Reading


class Sharing(Compared, frozen=True, kw_only=True):
    """Two CPUs of different cores, the nearest distance first. `compared` counts, of which `wrong`."""

    cpus: tuple[Number, Number]
    increments: Amount
    distances: Annotated[tuple[Distance, ...], Meta(max_length=16)]

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.distances) < 2:
            raise ValueError("one distance says nothing of another")

    @property
    def factor(self) -> float:
        """How much slower words on one line are counted than words that lie farthest apart."""
        return self.distances[0].reading.median_s / self.distances[-1].reading.median_s

    @property
    def disturbed(self) -> bool:
        """Whether the two did not run at the same time, and so met no contention."""
        return any(d.reading.cpu_share < limit("sharing-cpu-share").value for d in self.distances)


class _BandwidthStep(Step, frozen=True, kw_only=True):
    result: Bandwidth | None


class _MatrixStep(Step, frozen=True, kw_only=True):
    result: Matrix | None


class _LatencyStep(Step, frozen=True, kw_only=True):
    result: Latency | None


class _SharingStep(Step, frozen=True, kw_only=True):
    result: Sharing | None


class _Document(GroupDocument, frozen=True, kw_only=True):
    triad: _BandwidthStep
    matrix: _MatrixStep
    chase: _LatencyStep
    sharing: _SharingStep
    nodes_busy: dict[Number, tuple[Number, ...]]
    sharers_busy: tuple[Number, ...]


# Ends of a step that say why it was not asked for on this machine.
_BUSY = "busy"
_NOT_RUN = ("not-offered", "one-node", "not-asked", "no-pair", _BUSY)


@fact
class MemorySelfTest(Group, frozen=True, kw_only=True):
    """selftest cpu.memory: idle CPUs, their nodes' bandwidth, one CPU's latencies, and two CPUs on one line.

    `not_run`: the steps that this machine gave no cause for, by name, and why; `no_pair_idle`: false sharing among
    them, because others use the CPUs. `nodes_busy`: the CPUs of each node that other programs used while bandwidth
    was measured, for nodes that have such. `sharers_busy`: the CPUs that share the L3 slice with the one whose
    latencies were measured, and were in use.
    """

    bandwidth: Value[Bandwidth]
    matrix: Value[Matrix]
    latency: Value[Latency]
    sharing: Value[Sharing]
    not_run: dict[str, str]
    no_pair_idle: bool
    nodes_busy: dict[Number, tuple[Number, ...]]
    sharers_busy: tuple[Number, ...]

    @classmethod
    def read(cls, host: Host, cpu: Cpu, numa: Numa, expect: Expectations) -> MemorySelfTest:
        test = SelfTest(name="cpu.memory", params=_params(cpu, numa, expect), timeout_s=TIMEOUT_S)
        source = f"selftest {test.name}"
        document = document_of(host, test, expect, _Document, source=source)
        known = document.value if isinstance(document, Known) else None
        return cls(
            source=source,
            unread=document if isinstance(document, Unknown) else None,
            lacks=known.lacks if known else None,
            busy=known.busy if known else None,
            bandwidth=_offered(cpu, step_of(document, lambda d: (d.triad, d.triad.result))),
            matrix=_offered(cpu, step_of(document, lambda d: (d.matrix, d.matrix.result))),
            latency=step_of(document, lambda d: (d.chase, d.chase.result)),
            sharing=step_of(document, lambda d: (d.sharing, d.sharing.result)),
            not_run={} if known is None else _not_run(known, cpu),
            no_pair_idle=known is not None and known.sharing.ended == _BUSY,
            nodes_busy={} if known is None else known.nodes_busy,
            sharers_busy=() if known is None else known.sharers_busy,
        )


def _offered(cpu: Cpu, measured: Value[T]) -> Value[T]:
    """What needs instruction sets is not measured where nobody could read which there are: that is the reason then."""
    return cpu.flags if isinstance(cpu.flags, Unknown) else measured


def _not_run(document: _Document, cpu: Cpu) -> dict[str, str]:
    steps = {"triad": document.triad, "matrix": document.matrix, "sharing": document.sharing}
    if isinstance(cpu.flags, Unknown):
        del steps["triad"], steps["matrix"]
    return {name: step.detail or step.ended for name, step in steps.items() if step.ended in _NOT_RUN}


def _params(cpu: Cpu, numa: Numa, expect: Expectations) -> tuple[str, ...]:
    """What the child is told of the machine, so far as it is known."""
    flags = cpu.flags.or_none() or ()
    data = _first_kib(cpu, 1, "Data"), _first_kib(cpu, 2, "Unified")
    slices = ";".join(f"{size}:{format_cpulist(c.cpus)}" for c in cpu.l3 if (size := c.size_kib.or_none()))
    return (
        "deep" if expect.level == "deep" else "standard",
        *allowing_busy(expect),
        *(("triad",) if _TRIAD in offered_sets(flags) else ()),
        *(f"{name}={size}" for name, size in zip(("l1", "l2"), data, strict=True) if size),
        *((f"l3={slices}",) if slices else ()),
        *(f"node{node.id}={format_cpulist(node.cpus.or_none() or ())}" for node in numa.with_cpus),
    )


def _first_kib(cpu: Cpu, level: int, type_: str) -> int | None:
    sizes = (c.size_kib.or_none() for c in cpu.caches if c.level == level and c.type == type_)
    return next((size for size in sizes if size), None)
