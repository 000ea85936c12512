"""selftest.cpu.triad: memory bandwidth of each NUMA node, and from node to node."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping

from amdcheck.api import (
    HOST,
    Evidence,
    Finding,
    Metric,
    Subject,
    Unknown,
    check,
    failed,
    passed,
    shown,
    skipped,
    undetermined,
    warned,
)
from amdcheck.facts.cpu import Cpu
from amdcheck.facts.cpu_memory import AMOUNT, Matrix, MemorySelfTest, NodeBandwidth, Reached
from amdcheck.facts.cpulist import format_cpulist
from amdcheck.facts.numa import Numa
from amdcheck.facts.selftests import on_x86
from amdcheck.knowledge.remedies import remedy
from amdcheck.knowledge.selftests import limit

from . import not_measured

ID = "selftest.cpu.triad"


@check(ID, title="Memory bandwidth of each NUMA node", level="standard", applies=on_x86)
def triad(test: MemorySelfTest, cpu: Cpu, numa: Numa) -> Iterator[Finding]:
    """Runs the triad a = b + 3 c on every NUMA node with all its idle cores at once, and compares every element.

    Looks at: for each node one process a core, with arrays of its own in the node's memory, once by plain stores and
    once by stores that go past the caches. Bytes are counted as STREAM counts them; plain stores move a third more,
    because each line is read before it is written, so the streaming figure is the higher one. With two nodes and more,
    one core of each node also runs on the memory of every other node. All elements are compared with their exact
    answers, and errors are planted that the comparison must notice.

    Why: generating tokens on a CPU, and feeding GPUs from the host, run at the speed of memory. A DIMM that the BIOS
    has dropped, a channel that was trained to a lower rate or a node whose memory lies elsewhere costs that much of
    the throughput, and no other number on the machine shows it.

    A node whose CPUs other programs use meanwhile is not judged: they use its memory, too.

    slow-node: one node is plainly slower than the others with as many cores at work. Look for a missing DIMM or
    channel on it (dmidecode), and for corrected errors. remote-faster: a node's own memory is slower than another
    one's, so the nodes are not where the firmware or the hypervisor says. A wrong element takes the machine out of
    service. Rates that were disturbed are shown as such and not judged. Where there is no room for arrays larger than
    the caches, sums are compared and no rate is told. A container without CAP_SYS_NICE may not choose
    where its memory lies: what is from node to node is then unknown.

    The share of the peak (channels and fastest DIMMs of the EPYC series) is shown and not judged: boards may have
    fewer or slower DIMMs.

    Source: STREAM's definition of the kernel, J. McCalpin; Linux set_mempolicy(2) and get_mempolicy(2).
    """
    nothing = not_measured(ID, test)
    if nothing is not None:
        yield nothing
        return
    if "triad" in test.not_run:
        yield skipped(ID, HOST, test.not_run["triad"])
        return
    if isinstance(test.bandwidth, Unknown):
        yield undetermined(ID, HOST, "the bandwidth of memory was not measured", because=test.bandwidth)
        return
    nodes = test.bandwidth.value.nodes
    for node in nodes:
        yield _node(test, node, [other for other in nodes if other is not node], _peak(cpu, numa))
    measured = {node.node for node in nodes}
    for other in numa.with_cpus:
        if other.id not in measured:
            reason = "none of the node's cores is idle, allowed and within the quota"
            yield skipped(ID, Subject(kind="numa", id=f"node{other.id}"), reason, outcome="busy")
    if len(numa.with_cpus) > 1:
        yield _between(test)


def _between(test: MemorySelfTest) -> Finding:
    """The finding of what is from node to node."""
    if "matrix" in test.not_run:
        return skipped(ID, HOST, f"not measured from node to node: {test.not_run['matrix']}")
    if isinstance(test.matrix, Unknown):
        return undetermined(ID, HOST, "the bandwidth from node to node was not measured", because=test.matrix)
    return _matrix(test, test.matrix.value)


def _peak(cpu: Cpu, numa: Numa) -> float | None:
    """What the memory of a node can move at most, where all nodes are alike."""
    series, sockets = cpu.series, cpu.sockets.or_none()
    if series is None or series.memory_bytes_s is None or sockets is None or not numa.with_cpus:
        return None
    return series.memory_bytes_s * sockets / len(numa.with_cpus)


def _node(test: MemorySelfTest, node: NodeBandwidth, others: list[NodeBandwidth], peak: float | None) -> Finding:
    subject = Subject(kind="numa", id=f"node{node.node}")
    elements = shown(test.source, f"{node.compared - node.wrong} of {node.compared} elements right", volatile=True)
    planted = shown(
        test.source, f"{node.noticed} of {node.planted} planted errors noticed", note="negative control", volatile=True
    )
    where = shown(
        test.source, f"CPUs {format_cpulist(node.cpus)}", note=f"{node.array_kib >> 10} MiB an array", volatile=True
    )
    if node.wrong:
        return failed(
            f"{ID}/wrong-result",
            subject,
            f"the triad came out wrong on node {node.node}",
            elements,
            *(shown(test.source, f"element {w.element} on CPU {w.cpu}", volatile=True) for w in node.first_wrong),
            where,
            expected="every element exact",
            actual=f"{node.wrong} of {node.compared} elements wrong",
            remedy=remedy(f"{ID}/wrong-result"),
        )
    if node.died:
        return undetermined(
            ID,
            subject,
            f"on node {node.node} not every worker gave an answer",
            *(shown(test.source, f"CPU {worker.cpu}: {worker.why}", volatile=True) for worker in node.died),
            elements,
            outcome="died",
            remedy=remedy(f"{ID}/died"),
        )
    if not node.notices:
        return failed(
            f"{ID}/not-noticed",
            subject,
            "errors planted in the triad went unnoticed, so that its right answers prove nothing",
            elements,
            planted,
            where,
            expected="every planted error noticed",
            actual=f"{node.noticed} of {node.planted}",
            remedy=remedy(f"{ID}/not-noticed"),
        )
    seen = (elements, planted, where, *_in_use(test, node), *_placed(test, node), *_rates(test, node, peak))
    if node.moved_nothing and node.node not in test.nodes_busy:
        # The slower a node, the likelier this is: it must not pass for the rate that it has not shown.
        because = Unknown("timeout", test.source, "too little was moved in time")
        message = f"the sums of the triad are exact on node {node.node}, and it moved too little to tell a rate"
        return undetermined(ID, subject, message, *seen, because=because)
    metrics = () if node.node in test.nodes_busy else _metrics(node, peak)
    slower = _of_siblings(test, node, others)
    if slower is not None and slower < limit("node-of-siblings").value:
        return warned(
            f"{ID}/slow-node",
            subject,
            f"the memory of node {node.node} is plainly slower than that of the other nodes",
            *seen,
            expected="about as fast as the others",
            actual=f"{100 * slower:.0f} % of their median",
            metrics=metrics,
            remedy=remedy(f"{ID}/slow-node"),
        )
    message = f"the triad is exact on node {node.node}"
    if node.no_room_kib is None and all(rate is None or rate.disturbed for rate in (node.plain, node.streaming)):
        message = f"the sums of the triad are exact on node {node.node}; its rate was disturbed and is not judged"
    return passed(ID, subject, message, *seen, metrics=metrics)


def _of_siblings(test: MemorySelfTest, node: NodeBandwidth, others: list[NodeBandwidth]) -> float | None:
    """Its streaming rate as a share of the median of nodes that can be compared with it; None when there are none."""
    alike = [
        other.streaming.rate(AMOUNT)
        for other in others
        if other.streaming is not None and len(other.cpus) == len(node.cpus) and _comparable(test, other)
    ]
    if node.streaming is None or not alike or not _comparable(test, node):
        return None
    return node.streaming.rate(AMOUNT) / statistics.median(alike)


def _comparable(test: MemorySelfTest, node: NodeBandwidth) -> bool:
    return not node.disturbed and node.at_home and not node.died and node.node not in test.nodes_busy


def _in_use(test: MemorySelfTest, node: NodeBandwidth) -> tuple[Evidence, ...]:
    """The CPUs of the node that others used meanwhile."""
    cpus = test.nodes_busy.get(node.node)
    if not cpus:
        return ()
    told = f"other programs used CPUs {format_cpulist(cpus)}"
    return (shown(test.source, told, note="and may have used its memory, not judged", volatile=True),)


def _placed(test: MemorySelfTest, node: NodeBandwidth) -> tuple[Evidence, ...]:
    """Where the arrays lie, when that is not the node itself."""
    if node.at_home:
        return ()
    places = ", ".join(map(str, node.placed))
    return (shown(test.source, f"arrays on node {places}", note="not its own memory, not judged", volatile=True),)


def _rates(test: MemorySelfTest, node: NodeBandwidth, peak: float | None) -> Iterator[Evidence]:
    if node.no_room_kib is not None:
        told = f"not measured: there was no room for arrays of {node.no_room_kib >> 10} MiB, smaller ones lie in caches"
        yield shown(test.source, told, note="bandwidth", volatile=True)
        return
    for name, reading in (("plain stores", node.plain), ("streaming stores", node.streaming)):
        if reading is None:
            yield shown(test.source, "too little was moved in time", note=name, volatile=True)
        elif reading.disturbed:
            yield shown(test.source, f"disturbed, not judged: {reading.disturbance}", note=name, volatile=True)
        else:
            of_peak = "" if peak is None else f", {100 * reading.rate(AMOUNT) / peak:.0f} % of the series' peak"
            yield shown(test.source, f"{reading.rate(AMOUNT) / 1e9:.1f} GB/s{of_peak}", note=name, volatile=True)


def _metrics(node: NodeBandwidth, peak: float | None) -> tuple[Metric, ...]:
    """Nothing of what was disturbed: no slice of it is what the memory can do."""
    if node.plain is None or node.streaming is None or node.disturbed:
        return ()
    plain, streaming = node.plain.rate(AMOUNT), node.streaming.rate(AMOUNT)
    told = {"triad-plain": (plain / 1e9, "GB/s"), "triad-streaming": (streaming / 1e9, "GB/s")}
    told["streaming-of-plain"] = (streaming / plain, "x")
    if peak is not None:
        told["of-peak"] = (100 * streaming / peak, "%")
    return tuple(Metric(name=name, value=round(v, 2), unit=unit, volatile=True) for name, (v, unit) in told.items())


def _matrix(test: MemorySelfTest, matrix: Matrix) -> Finding:
    cells = {(c.cpu_node, c.memory_node): c.result for c in matrix.cells if c.result is not None}
    bad = _bad_cells(test, cells)
    if bad is not None:
        return bad
    unread = next((cell for cell in matrix.cells if cell.result is None), None)
    if unread is not None or not cells:
        source = f"{test.source} from node to node"
        because = Unknown("failed", source, "no pair was measured") if unread is None else unread.unknown(source)
        return undetermined(ID, HOST, "the bandwidth from node to node was not measured", because=because)
    rates = {pair: cell.reading.rate(AMOUNT) / 1e9 for pair, cell in cells.items()}
    disturbed = {pair for pair, cell in cells.items() if cell.reading.disturbed}
    busy = {pair for pair in rates if not test.nodes_busy.keys().isdisjoint(pair)}
    fit = rates.keys() - disturbed - busy
    metrics = tuple(
        Metric(name=f"node{cpu}-from-node{memory}", value=round(rates[cpu, memory], 2), unit="GB/s", volatile=True)
        for cpu, memory in sorted(fit)
    )
    pairs = [(cpu, memory) for cpu, memory in sorted(fit) if cpu != memory and (cpu, cpu) in fit]
    count = len({cpu for cpu, _ in rates})
    seen = (
        shown(test.source, f"{len(rates)} pairs of {count} nodes, memory placed as bound", volatile=True),
        *((shown(test.source, f"{len(disturbed)} pairs disturbed, not judged", volatile=True),) if disturbed else ()),
        *((shown(test.source, f"{len(busy)} pairs of nodes in use, not judged", volatile=True),) if busy else ()),
    )
    if not pairs and disturbed:
        message = "something else ran on the CPUs of every pair of nodes that could have been compared"
        return undetermined(ID, HOST, message, *seen, outcome="disturbed", remedy=remedy(f"{ID}/disturbed"))
    if not pairs:
        return skipped(ID, HOST, "no two nodes were idle to be held against each other", *seen, outcome="busy")
    most = limit("remote-of-local").value
    odd = [(cpu, memory) for cpu, memory in pairs if rates[cpu, memory] > most * rates[cpu, cpu]]
    if odd:
        told = ", ".join(f"node {memory} is nearer to node {cpu} than its own memory" for cpu, memory in odd[:4])
        return warned(
            f"{ID}/remote-faster",
            HOST,
            f"memory is not where the nodes say: {told}",
            *seen,
            metrics=metrics,
            remedy=remedy(f"{ID}/remote-faster"),
        )
    return passed(ID, HOST, "no node reaches another one's memory faster than its own", *seen, metrics=metrics)


def _bad_cells(test: MemorySelfTest, cells: Mapping[tuple[int, int], Reached]) -> Finding | None:
    """Sums that came out wrong on the way between two nodes, or a comparison that proves nothing; None: neither."""
    wrong = {pair: cell for pair, cell in cells.items() if cell.wrong}
    blind = {pair: cell for pair, cell in cells.items() if not cell.notices}
    if not wrong and not blind:
        return None
    outcome, bad = ("wrong-result", wrong) if wrong else ("not-noticed", blind)
    told = ", ".join(f"CPUs of node {cpu} on memory of node {memory}" for cpu, memory in sorted(bad)[:4])
    message = f"the triad came out wrong: {told}" if wrong else f"planted errors went unnoticed: {told}"
    count = sum(cell.wrong for cell in wrong.values()) if wrong else sum(c.planted - c.noticed for c in blind.values())
    return failed(
        f"{ID}/{outcome}",
        HOST,
        message,
        *(
            shown(
                test.source,
                f"{cell.wrong} of {cell.compared} elements wrong, {cell.noticed} of {cell.planted} planted noticed",
                note=f"CPUs of node {cpu}, memory of node {memory}",
                volatile=True,
            )
            for (cpu, memory), cell in sorted(bad.items(), key=lambda item: item[0])[:8]
        ),
        expected="every element right, every planted error noticed",
        actual=f"{count} {'wrong' if wrong else 'unnoticed'}",
        remedy=remedy(f"{ID}/{outcome}"),
    )
