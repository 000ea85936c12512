"""Are the GPUs linked with each other as their board wires them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from amdcheck.api import (
    HOST,
    Evidence,
    Finding,
    Subject,
    Unknown,
    check,
    evidence,
    failed,
    has_amd_gpu,
    passed,
    shown,
    skipped,
    undetermined,
    warned,
)
from amdcheck.facts.driver import Driver
from amdcheck.facts.gpus import Gpu, Gpus
from amdcheck.facts.kernel_log import KernelLog
from amdcheck.facts.kfd import TOPOLOGY, Kfd
from amdcheck.facts.platform import Platform
from amdcheck.facts.topology import Topology, boards, bridged
from amdcheck.knowledge.gpus import GpuProduct
from amdcheck.knowledge.kfd import kfd_table
from amdcheck.knowledge.remedies import remedy
from amdcheck.model.text import counted

ID = "gpu.topology"
NODES = f"{TOPOLOGY}/nodes"


@check(ID, title="GPU link topology", level="quick", applies=has_amd_gpu)
def topology(
    gpus: Gpus, kfd: Kfd, links: Topology, log: KernelLog, driver: Driver, platform: Platform
) -> Iterator[Finding]:
    """How the GPUs are linked with each other, from the compute driver's own list.

    Reads /sys/class/kfd/kfd/topology: the nodes (one for each GPU, or for each partition of one) and the links between
    them with their type, PCIe or xGMI. rocm-smi --showtopo prints the same list; it never shows a lane width, for
    which there is pci.link-width.

    Looked at: every GPU that amdgpu drives has its nodes, as many as its partition mode gives; no link goes one way
    only; an xGMI hive is complete, every GPU linked with every other; GPUs of one product are in hives alike (two hives
    of four MI210 are right); and products whose board is wired as one hive (MI250, MI300 and later) are in one. The
    link type counts, never the weight: 41 is a partition of another package and PCIe across sockets. A bandwidth of 0
    is no fault (drivers give it for indirect links), and kernels that list no p2p_links are fine.

    Collective communication of tensor-parallel inference runs over these links. A GPU that left the hive is reached
    over PCIe at a tenth of the bandwidth, and all others wait for it.

    Source: Linux kfd_topology.c and kfd_crat.c; recorded topologies of MI210 and MI300X. On one source rest the wiring
    of MI250 and MI300A (a recorded RCCL topology each) and the partition modes of MI300X and MI325X.
    """
    if all(gpu.is_undriven for gpu in gpus.devices) and not kfd.gpu_nodes:
        yield skipped(ID, HOST, "No GPU is driven by amdgpu, so that there is no topology; gpu.driver-loaded says why.")
        return
    if isinstance(kfd.listing, Unknown):
        yield undetermined(ID, HOST, "The compute driver's topology could not be read.", because=kfd.listing)
        return
    if isinstance(kfd.generation, Unknown) and kfd.generation.reason == "failed":
        yield undetermined(ID, HOST, "The topology changed while it was read.", because=kfd.generation)
        return
    faults = [
        *_contradictions(kfd),
        *_off_bus(gpus),
        *_without_node(gpus, kfd, log, platform.os_id.or_none()),
        *_more_than_hidden(gpus, kfd, platform.os_id.or_none()),
        *_missing_partitions(gpus, kfd),
        *_one_way(links),
        *_broken_hives(links),
        *_not_one_hive(gpus, links, platform),
        *_uneven_hives(gpus, kfd, links),
        *_indirect(gpus, links),
        *_unread(gpus, kfd, links),
    ]
    yield from faults or [_all_well(gpus, kfd, links, platform)]


def _unread(gpus: Gpus, kfd: Kfd, links: Topology) -> Iterator[Finding]:
    """What cannot be said because a node, a link or a device on the bus did not say what it is."""
    for node in kfd.unread[:1]:
        message = f"{len(kfd.unread)} KFD nodes could not be read: a GPU or partition may be among them."
        yield undetermined(ID, HOST, message, because=node)
    if gpus.unidentified and not kfd.unread:
        message = "A device on the bus does not say what it is: the topology may hold one GPU more."
        why = next(iter(gpus.unidentified.values()))
        yield undetermined(ID, HOST, message, because=why, outcome="unreadable")
    for bdf, why in links.unread.items():
        message = f"Not all links of {bdf} could be read."
        yield undetermined(ID, Subject(kind="gpu", id=bdf), message, because=why)


def _all_well(gpus: Gpus, kfd: Kfd, links: Topology, platform: Platform) -> Finding:
    shown_nodes = [gpu for gpu in gpus.devices if gpu.partitions]
    if not shown_nodes:
        hidden = f"The device cgroup keeps the GPUs' topology from {platform.confined}."
        return skipped(ID, HOST, hidden, shown(NODES, counted(kfd.hidden, "hidden node")))
    return passed(ID, HOST, f"{_summary(links, shown_nodes)}.", _matrix(links, shown_nodes))


def _summary(links: Topology, gpus: list[Gpu]) -> str:
    xgmi = sum(pair.xgmi == pair.links for pair in links.pairs)
    if not links.pairs:
        return "One GPU, linked with the processor"
    hives = " and ".join(str(len(members)) for members in links.hives.values())
    joined = f", in {'one hive' if len(links.hives) == 1 else 'hives'} of {hives}" if links.hives else ""
    return f"{counted(len(gpus), 'GPU')}, {xgmi} of {len(links.pairs)} pairs linked by xGMI{joined}"


def _matrix(links: Topology, gpus: list[Gpu]) -> Evidence:
    """Each GPU with its nodes and its peers over xGMI."""
    rows = []
    for gpu in gpus:
        peers = [p.b if p.a == gpu.bdf else p.a for p in links.pairs if gpu.bdf in (p.a, p.b) and p.xgmi]
        nodes = ",".join(str(partition.kfd_node) for partition in gpu.partitions)
        rows.append(f"{gpu.bdf} (node {nodes}) xGMI to {' '.join(peers) or 'none'}")
    return shown(NODES, "; ".join(rows))


def _contradictions(kfd: Kfd) -> Iterator[Finding]:
    for node in kfd.nodes:
        if node.link_faults:
            subject = Subject(kind="link", id=f"node{node.id}")
            message = f"KFD node {node.id} contradicts itself: {node.link_faults[0]}."
            seen = [shown(f"{NODES}/{node.id}", fault) for fault in node.link_faults[:8]]
            yield failed(f"{ID}/inconsistent", subject, message, *seen, remedy=remedy(f"{ID}/inconsistent"))


def _off_bus(gpus: Gpus) -> Iterator[Finding]:
    for bdf in gpus.off_bus:
        yield warned(
            f"{ID}/off-bus",
            Subject(kind="gpu", id=bdf),
            f"The compute driver lists {bdf}, which is off the bus.",
            shown(NODES, f"a node at {bdf}"),
            shown(gpus.listing.source, f"no {bdf}"),
            remedy=remedy(f"{ID}/off-bus"),
        )


def _without_node(gpus: Gpus, kfd: Kfd, log: KernelLog, os_id: str | None) -> Iterator[Finding]:
    """GPUs that amdgpu drives and the compute driver left out; nodes that the device cgroup hides are none of them.

    A node that could not be read may be the one that is missed.
    """
    for gpu in gpus.devices if not kfd.unread else ():
        if gpu.driver.or_none() == "amdgpu" and not gpu.partitions and not gpu.hidden:
            event = next((e for e in log.events if e.pattern in ("no-atomics", "kfd-unsupported")), None)
            said = (shown(log.lines.source, event.line, volatile=True),) if event else ()
            yield failed(
                f"{ID}/no-node",
                gpu.subject,
                f"amdgpu drives {gpu.label}, but the compute driver has no node for it.",
                shown(NODES, f"{counted(len(kfd.gpu_nodes), 'GPU node')}, none at {gpu.bdf}"),
                *said,
                expected="a KFD node",
                actual="none",
                remedy=remedy(f"{ID}/no-node", os_id=os_id, bdf=gpu.bdf),
            )


def _more_than_hidden(gpus: Gpus, kfd: Kfd, os_id: str | None) -> Iterator[Finding]:
    """More GPUs have no node than the device cgroup hides nodes; which of them is hidden, it does not say."""
    without = [gpu.bdf for gpu in gpus.devices if gpu.hidden]
    left_out = len(without) - gpus.kept_away
    if left_out and not kfd.unread:
        yield failed(
            f"{ID}/no-node",
            HOST,
            f"amdgpu drives {counted(len(without), 'GPU')} for which the compute driver shows no node, "
            f"and the device cgroup hides {kfd.hidden}: {', '.join(without)}.",
            shown(NODES, f"{counted(len(kfd.gpu_nodes), 'GPU node')}, {kfd.hidden} hidden"),
            expected="a KFD node for every GPU",
            actual=f"{left_out} without",
            remedy=remedy(f"{ID}/no-node", os_id=os_id, bdf=without[0]),
        )


def _missing_partitions(gpus: Gpus, kfd: Kfd) -> Iterator[Finding]:
    if kfd.unread or any(gpu.hidden for gpu in gpus.devices):
        return  # a device cgroup hides partitions one by one
    for gpu in gpus.devices:
        count = len(gpu.partitions)
        expected = _expected_partitions(gpu, gpus)
        if count and expected is not None and count < expected:
            nodes = ", ".join(str(partition.kfd_node) for partition in gpu.partitions)
            say = failed if gpu.row is None or gpu.row.may_fail("compute_partitions", "xcds") else warned
            yield say(
                f"{ID}/partition-missing",
                gpu.subject,
                f"{gpu.label} shows {count} of its {expected} partitions.",
                shown(NODES, f"nodes {nodes}"),
                evidence(gpu.compute_partition, note="partition mode"),
                expected=f"{expected} partitions",
                actual=str(count),
                remedy=remedy(f"{ID}/partition-missing", bdf=gpu.bdf),
            )


def _expected_partitions(gpu: Gpu, gpus: Gpus) -> int | None:
    """What the partition mode gives; where it cannot be read, the next number that some mode of the product gives."""
    row = gpu.row
    mode = gpu.compute_partition.or_none()
    if mode is not None:
        by_mode = kfd_table().partitions(mode, xcds=row.xcds if row else None)
        if by_mode is not None:
            return by_mode
    if row is not None and row.compute_partitions:
        modes = (kfd_table().partitions(name, xcds=row.xcds) for name in row.compute_partitions)
        return min((n for n in modes if n is not None and n >= len(gpu.partitions)), default=None)
    alike = [len(other.partitions) for other in gpus.devices if other.device_id.or_none() == gpu.device_id.or_none()]
    most, how_many = Counter(alike).most_common(1)[0]
    return most if how_many > 1 else None


def _one_way(links: Topology) -> Iterator[Finding]:
    for link in links.one_way:
        back = f"is {link.back} in the other direction" if link.back else "does not come back"
        yield failed(
            f"{ID}/one-way",
            link.subject,
            f"The {link.type} link from {link.device_from} to {link.device_to} {back}.",
            shown(f"{NODES}/{link.node_from}/io_links", f"{link.type} to node {link.node_to}"),
            shown(f"{NODES}/{link.node_to}/io_links", f"{link.back or 'no link'} to node {link.node_from}"),
            expected=f"{link.type} both ways",
            actual=link.back or "one way",
            remedy=remedy(f"{ID}/one-way"),
        )


def _broken_hives(links: Topology) -> Iterator[Finding]:
    told = {subject for link in links.one_way for subject in (link.subject.id, f"{link.device_to}-{link.device_from}")}
    for pair in links.pairs:
        hive = links.hive_of(pair.a)
        if hive is None or hive != links.hive_of(pair.b) or pair.xgmi == pair.links or pair.subject.id in told:
            continue
        if {pair.a, pair.b} & links.unread.keys():
            continue
        yield failed(
            f"{ID}/hive-incomplete",
            pair.subject,
            f"{pair.a} and {pair.b} are in one hive, but no xGMI link joins them"
            + (f" ({pair.xgmi} of {pair.links} partition pairs are linked)." if pair.xgmi else "."),
            shown(NODES, f"hive {hive}: {', '.join(links.hives[hive])}"),
            shown(NODES, f"{pair.xgmi} of {pair.links} links are xGMI"),
            expected="xGMI between all GPUs of a hive",
            actual=f"{pair.xgmi} of {pair.links} links",
            remedy=remedy(f"{ID}/hive-incomplete"),
        )


def _not_one_hive(gpus: Gpus, links: Topology, platform: Platform) -> Iterator[Finding]:
    """Products whose board wires all devices together. A guest may have been given devices of several boards."""
    for row, hives in boards(gpus, links):
        if len(hives) < 2 or (len(set(hives.values())) == 1 and None not in hives.values()):
            continue
        seen = shown(NODES, "; ".join(f"{bdf} hive {hive or 'none'}" for bdf, hive in hives.items()))
        alone = list(hives.values()).count(None)
        but = f"; {alone} of {len(hives)} are in no hive" if alone else ""
        groups = len(set(hives.values()))
        say = failed if row.may_fail("hive") and platform.is_bare_metal else warned
        yield say(
            f"{ID}/not-one-hive",
            HOST,
            f"The board of {row.name} is wired as one xGMI hive, but its GPUs are not in one{but}.",
            seen,
            expected=f"one hive of {len(hives)}",
            actual=f"{groups} groups" if groups > 1 else "no hive",
            remedy=remedy(f"{ID}/not-one-hive"),
        )


def _uneven_hives(gpus: Gpus, kfd: Kfd, links: Topology) -> Iterator[Finding]:
    """Cards that bridges join: equal among equals, whatever the size of the groups."""
    if kfd.unread or gpus.unidentified:
        return  # the hive that seems smaller may hold the one that is not known
    for sizes in bridged(gpus, links):
        if len(set(sizes.values())) > 1:
            usual = Counter(sizes.values()).most_common(1)[0][0]
            odd = [bdf for bdf, size in sizes.items() if size != usual]
            yield warned(
                f"{ID}/uneven-hives",
                HOST,
                f"GPUs of one product are in xGMI hives of different size; unlike the others: {', '.join(odd)}.",
                shown(NODES, "; ".join(f"{bdf} hive of {size or 'none'}" for bdf, size in sizes.items())),
                expected="hives of one size",
                actual=" and ".join(map(str, sorted(set(sizes.values())))),
                remedy=remedy(f"{ID}/uneven-hives"),
            )


def _indirect(gpus: Gpus, links: Topology) -> Iterator[Finding]:
    """Boards that link every GPU with every other need one hop; more says that a direct link is down."""
    hop = kfd_table().weight.xgmi_hop
    direct = {gpu.bdf for gpu in gpus.devices if (row := gpu.row) and _is_fully_linked(row)}
    for pair in links.pairs:
        if pair.weight is not None and pair.weight > hop and {pair.a, pair.b} <= direct:
            yield warned(
                f"{ID}/indirect",
                pair.subject,
                f"{pair.a} reaches {pair.b} over another GPU: their link is down.",
                shown(NODES, f"weight {pair.weight}", note=f"{hop} for each xGMI hop"),
                expected=f"weight {hop}",
                actual=str(pair.weight),
                remedy=remedy(f"{ID}/indirect"),
            )


def _is_fully_linked(row: GpuProduct) -> bool:
    return row.baseboard is not None and row.xgmi_links == row.baseboard - 1
