"""How the NUMA nodes divide the sockets: NPS as the field says it, derived from nodes, packages and L3 slices."""

from __future__ import annotations

from msgspec import Struct

from amdcheck.facts.cpu import Cpu
from amdcheck.facts.numa import Numa, NumaNode
from amdcheck.facts.registry import fact
from amdcheck.host.protocol import Host
from amdcheck.model.value import Known


@fact
class Nps(Struct, frozen=True, kw_only=True):
    """Only nodes with CPUs and memory count; nodes of memory alone divide no socket.

    `sockets_of` are the packages that a node's online CPUs lie in; `nodes_of` the counted nodes of a package.
    `per_socket` is the number of nodes of every package: 0 for a node that spans packages (NPS0), None where packages
    differ or could not be read. `slices` says that every counted node is exactly one L3 slice.
    """

    sockets_of: dict[int, tuple[int, ...]]
    nodes_of: dict[int, tuple[int, ...]]
    per_socket: int | None
    slices: bool

    @classmethod
    def read(cls, host: Host, cpu: Cpu, numa: Numa) -> Nps:
        online = frozenset(cpu.online.or_none() or ())
        cpus_of = {node.id: online.intersection(node.cpus.or_none() or ()) for node in numa.nodes}
        counted = [node.id for node in numa.nodes if cpus_of[node.id] and not without_memory(node)]
        sockets_of = {
            number: tuple(sorted({cpu.package_of[c] for c in cpus if c in cpu.package_of}))
            for number, cpus in cpus_of.items()
        }
        nodes_of = {
            socket: tuple(number for number in counted if socket in sockets_of[number])
            for socket in sorted(set(cpu.package_of.values()))
        }
        counts = {len(nodes) for nodes in nodes_of.values()}
        if any(len(sockets_of[number]) > 1 for number in counted):
            counts = {0}
        return cls(
            sockets_of=sockets_of,
            nodes_of=nodes_of,
            per_socket=counts.pop() if len(counts) == 1 else None,
            slices={cpus_of[number] for number in counted} == {frozenset(slice.cpus) for slice in cpu.l3},
        )


def without_memory(node: NumaNode) -> bool:
    """Was the node's memory read, and is there none?"""
    return isinstance(node.memory_kib, Known) and node.memory_kib.value == 0
