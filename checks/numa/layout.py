"""Are the NUMA nodes what the sockets and their BIOS setting should give, each with CPUs, memory and distances."""

from __future__ import annotations

from collections.abc import Iterator

from amdcheck.api import (
    HOST,
    Evidence,
    Finding,
    Known,
    Subject,
    Unknown,
    check,
    evidence,
    failed,
    has_amd_cpu,
    passed,
    shown,
    skipped,
    undetermined,
    warned,
)
from amdcheck.facts.cpu import Cpu
from amdcheck.facts.cpulist import format_cpulist
from amdcheck.facts.gpus import Gpus
from amdcheck.facts.nps import Nps, without_memory
from amdcheck.facts.numa import FOLDER, Numa
from amdcheck.facts.platform import Platform
from amdcheck.knowledge.epyc import FIRST_ZEN
from amdcheck.knowledge.remedies import remedy
from amdcheck.knowledge.settings import nodes_per_socket

CHECK = "numa.layout"


@check(CHECK, title="NUMA layout", level="quick")
def layout(numa: Numa, nps: Nps, cpu: Cpu, platform: Platform, gpus: Gpus) -> Iterator[Finding]:
    """How CPUs and memory are divided into NUMA nodes, and whether that suits what the machine has to serve.

    Looks at the nodes under /sys/devices/system/node: CPUs, MemTotal and distances, and at the sockets and L3 slices.
    The number of nodes a socket is the BIOS setting NPS. Work is placed by node (numactl --cpunodebind, RCCL's choice
    of a GPU's neighbour), so a wrong division costs bandwidth without any error.

    - A node with CPUs and no memory: every access goes to another node. A whole socket without any memory fails; one
      node of several warns (an EPYC 7001 with two DIMMs a socket looks so).
    - A node that is said to be online and has no folder: undetermined.
    - Hosts with MI300: NPS1, one node a socket. MI200 allows NPS1, 2 and 4. Without GPUs NPS4, with one instance of
      the server pinned to each node, is the usual choice, and nothing here objects to it.
    - "L3 cache as NUMA domain" makes every CCX a node. It helps to pin small models, but on a GPU host it confuses
      what places work near a GPU.
    - NPS0 interleaves memory over both sockets: half of all accesses cross between them.
    - Distances that differ by direction, or that call another node as near as the own: the firmware's table is wrong.

    Node ids may be sparse; nodes of memory alone (CXL, HBM, a GPU's memory) are counted with neither. EPYC 7001 has
    four nodes a socket whatever is set. In a guest the nodes are the hypervisor's, and NPS is not derived.

    Source: AMD's BIOS settings for MI300X and MI200 hosts; ACPI SLIT for distances; hwloc's recordings for shapes.
    """
    if not numa.nodes:
        yield _without_nodes(numa, cpu)
        return
    yield from (_no_folder(number) for number in numa.missing)
    unread = _unread(numa)
    if unread is not None:
        yield undetermined(CHECK, HOST, "The NUMA nodes could not be read in full.", *_nodes(numa), because=unread)
    findings = [*_homeless(numa, cpu), *_memoryless(numa, nps), *_distances(numa)]
    if _judges_nps(cpu, platform):
        findings += _division(numa, nps, cpu, gpus)
    yield from findings
    if not findings and unread is None and not numa.missing:
        yield _well(numa, nps, cpu, platform)


def _without_nodes(numa: Numa, cpu: Cpu) -> Finding:
    """No node folder: a kernel built without NUMA, which is well on one socket, or a listing that was not read."""
    is_absent = isinstance(numa.online, Unknown) and numa.online.reason == "absent"
    if is_absent and isinstance(cpu.sockets, Known) and cpu.sockets.value == 1:
        reason = "This kernel shows no NUMA nodes, and the machine has one socket."
        return skipped(CHECK, HOST, reason, evidence(cpu.sockets, note="sockets"))
    because = numa.online if isinstance(numa.online, Unknown) else Unknown("absent", f"{FOLDER}/node*")
    return undetermined(CHECK, HOST, "The NUMA nodes could not be read.", because=because)


def _no_folder(number: int) -> Finding:
    return undetermined(
        CHECK,
        Subject(kind="numa", id=str(number)),
        f"Node {number} is said to be online, but has no folder.",
        because=Unknown("absent", f"{FOLDER}/node{number}"),
    )


def _unread(numa: Numa) -> Unknown | None:
    """The first thing that was not read. With one node neither its memory nor its distances say anything."""
    several = len(numa.nodes) > 1
    for node in numa.nodes:
        for value in (node.cpus, node.memory_kib, node.distances) if several else (node.cpus,):
            if isinstance(value, Unknown):
                return value
        if several and numa.columns(node) is None and isinstance(node.distances, Known):
            row = " ".join(map(str, node.distances.value))
            return Unknown("failed", node.distances.source, f"{row}: not a number for each node")
    return None


def _nodes(numa: Numa) -> Iterator[Evidence]:
    """The CPUs of every node, and what is special about it."""
    if isinstance(numa.online, Known):
        yield shown(numa.online.source, format_cpulist(numa.online.value), note="online nodes")
    said = [f"{n.id}: {format_cpulist(n.cpus.value) or 'no CPUs'}" for n in numa.nodes if isinstance(n.cpus, Known)]
    if said:
        yield shown(f"{FOLDER}/node*/cpulist", "; ".join(said), note="CPUs of each node")


def _homeless(numa: Numa, cpu: Cpu) -> Iterator[Finding]:
    """Online CPUs that no node names: their node was taken offline, or the firmware's table leaves them out."""
    homes = [node.cpus for node in numa.nodes]
    homeless = set(cpu.online.or_none() or ()).difference(*(home.value for home in homes if isinstance(home, Known)))
    if homeless and all(isinstance(home, Known) for home in homes) and not numa.missing:
        yield warned(
            f"{CHECK}/cpus-without-node",
            HOST,
            f"CPUs {format_cpulist(homeless)} belong to no online node: nothing says which memory is near them.",
            *_nodes(numa),
            expected="every online CPU in a node",
            actual=f"{format_cpulist(homeless)} in none",
            remedy=remedy(f"{CHECK}/cpus-without-node"),
        )


def _memoryless(numa: Numa, nps: Nps) -> Iterator[Finding]:
    """Nodes whose CPUs have no memory of their own; a socket that has none anywhere is one finding, a fail."""
    bare = [node for node in numa.nodes if without_memory(node) and nps.sockets_of[node.id]]
    of_socket = {socket: [n for n in bare if socket in nps.sockets_of[n.id]] for socket in nps.nodes_of}
    empty = [socket for socket, nodes in nps.nodes_of.items() if not nodes and of_socket[socket]]
    for socket in empty:
        yield failed(
            f"{CHECK}/socket-without-memory",
            Subject(kind="cpu", id=f"socket {socket}"),
            f"Socket {socket} has CPUs but no memory at all: every access of its CPUs goes to another socket.",
            *(evidence(node.memory_kib, note=f"MemTotal of node {node.id}, KiB") for node in of_socket[socket]),
            expected="memory on every socket",
            actual="0 KiB",
            remedy=remedy(f"{CHECK}/socket-without-memory"),
        )
    for node in bare:
        if set(nps.sockets_of[node.id]).isdisjoint(empty):
            yield warned(
                f"{CHECK}/node-without-memory",
                Subject(kind="numa", id=str(node.id)),
                f"Node {node.id} has CPUs but no memory: work that is bound to it fails or runs on remote memory.",
                evidence(node.memory_kib, note="MemTotal, KiB"),
                shown(node.cpus.source, format_cpulist(node.cpus.or_none() or ()), note="CPUs"),
                expected="memory beside the CPUs",
                actual="0 KiB",
                remedy=remedy(f"{CHECK}/node-without-memory"),
            )


def _distances(numa: Numa) -> Iterator[Finding]:
    """What the firmware's table says of near and far, where it contradicts itself."""
    table = {(a, b): distance for a, b, distance in numa.distances()}
    one_way = [(a, b) for (a, b), d in table.items() if a < b and table.get((b, a), d) != d]
    near = [(a, b) for (a, b), d in table.items() if a != b and d <= table.get((a, a), 0)]
    rows = [
        shown(node.distances.source, " ".join(map(str, node.distances.value)), note=f"distances of node {node.id}")
        for node in numa.nodes[:8]
        if isinstance(node.distances, Known)
    ]
    for outcome, pairs, what in (
        ("distance-asymmetric", one_way, "is farther in one direction than in the other"),
        ("distance-flat", near, "is called as near as the own node"),
    ):
        if pairs:
            (a, b), more = pairs[0], len(pairs) - 1
            yield warned(
                f"{CHECK}/{outcome}",
                HOST,
                f"From node {a} to node {b} it {what}{f' (and {more} pairs more)' if more else ''}.",
                *rows,
                expected="10 to itself, more to others, the same both ways",
                actual=f"{a} to {b}: {table[a, b]}, {b} to {a}: {table.get((b, a), '?')}",
                remedy=remedy(f"{CHECK}/{outcome}"),
            )


def _judges_nps(cpu: Cpu, platform: Platform) -> bool:
    """NPS is a setting of AMD's firmware since Zen, on the bare machine."""
    is_zen = isinstance(cpu.family, Known) and cpu.family.value >= FIRST_ZEN
    return platform.virtualization is None and isinstance(cpu.vendor, Known) and has_amd_cpu(cpu) is None and is_zen


def _division(numa: Numa, nps: Nps, cpu: Cpu, gpus: Gpus) -> Iterator[Finding]:
    """The number of nodes of each socket, against what the machine has to serve."""
    counts = "; ".join(f"socket {socket}: {len(nodes)}" for socket, nodes in nps.nodes_of.items())
    seen = (shown(f"{FOLDER}/node*/cpulist", counts, note="nodes of each socket"), *_nodes(numa))
    if nps.per_socket is None:
        if all(nps.nodes_of.values()) and nps.nodes_of and not any(map(without_memory, numa.nodes)):
            yield _divided(
                "uneven", f"The sockets have different numbers of nodes: {counts}.", "as many each", counts, seen
            )
    elif nps.per_socket == 0:
        said = "One node spans the sockets (NPS0): half of all memory accesses cross between them."
        yield _divided("nps0", said, "at least one node a socket", "NPS0", seen)
    elif gpus.devices:
        yield from _on_a_gpu_host(nps, nps.per_socket, cpu, gpus, seen)


def _on_a_gpu_host(nps: Nps, per_socket: int, cpu: Cpu, gpus: Gpus, seen: tuple[Evidence, ...]) -> Iterator[Finding]:
    row = cpu.series
    rule = nodes_per_socket(gpu.gfx.value for gpu in gpus.devices if isinstance(gpu.gfx, Known))
    if per_socket > 1 and nps.slices and (row is None or per_socket not in row.nps):
        said = f"Every L3 slice is a node of its own ({per_socket} a socket): GPUs have no node that is wholly theirs."
        yield _divided("l3-as-numa", said, "NPS1", f"{per_socket} nodes a socket", seen)
    elif rule is not None and per_socket not in rule.good and not (row is not None and row.nps == (per_socket,)):
        good = " or ".join(f"NPS{number}" for number in rule.good)
        said = f"The sockets are divided into {per_socket} nodes each, for {', '.join(rule.gfx)} hosts {good} is right."
        yield _divided("nps", said, good, f"NPS{per_socket}", seen)


def _divided(outcome: str, said: str, expected: str, actual: str, seen: tuple[Evidence, ...]) -> Finding:
    id = f"{CHECK}/{outcome}"
    return warned(id, HOST, said, *seen, expected=expected, actual=actual, remedy=remedy(id))


def _well(numa: Numa, nps: Nps, cpu: Cpu, platform: Platform) -> Finding:
    is_server = cpu.series is not None and _judges_nps(cpu, platform)
    derived = f" (NPS{nps.per_socket})" if is_server and nps.per_socket else ""
    if len(numa.nodes) == 1:
        return passed(CHECK, HOST, f"One node holds every CPU{derived}.", *_nodes(numa), actual=f"1 node{derived}")
    memory = "; ".join(f"{n.id}: {n.memory_kib.value}" for n in numa.nodes if isinstance(n.memory_kib, Known))
    return passed(
        CHECK,
        HOST,
        f"{len(numa.nodes)} nodes{derived}, whose CPUs, memory and distances fit together.",
        *_nodes(numa),
        shown(f"{FOLDER}/node*/meminfo", memory, note="MemTotal of each node, KiB"),
        actual=f"{len(numa.nodes)} nodes{derived}",
    )
