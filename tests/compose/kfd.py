"""The KFD topology and /dev/kfd: compute nodes, memory banks, caches, links (Linux kfd_topology.c, kfd_crat.c)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tests.compose.amdgpu import RENDER_GID
from tests.compose.plan import Gpu, Node, Partition, Plan
from tests.compose.tree import DeviceNode, Tree

KFD = "/sys/devices/virtual/kfd/kfd"
TOPOLOGY = f"{KFD}/topology"
_CPU_CPU, _PCIE, _XGMI = 1, 2, 11
_XGMI_MBS = 50_000  # one link, as amdkfd assumes it: x16 at 25 Gbit/s
_PACKAGE_MBS = 819_200
_SVM = 0x0800_0000  # HSA_CAP_SVMAPI_SUPPORTED
_PROCESSOR_BASE = 0x8000_1000
_SIBLINGS = 256

# Every key that amdkfd prints of a node, in its order; values that a node does not have are zero.
_KEYS = """cpu_cores_count simd_count mem_banks_count caches_count io_links_count p2p_links_count cpu_core_id_base
    simd_id_base max_waves_per_simd lds_size_in_kb gds_size_in_kb num_gws wave_front_size array_count
    simd_arrays_per_engine cu_per_simd_array simd_per_cu max_slots_scratch_cu gfx_target_version vendor_id device_id
    location_id domain drm_render_minor hive_id num_sdma_engines num_sdma_xgmi_engines num_sdma_queues_per_engine
    num_cp_queues"""


@dataclass(frozen=True)
class _Link:
    """An io_link or p2p_link, from the node in whose folder it stands."""

    type: int
    to: int
    weight: int
    min_mbs: int = 0
    max_mbs: int = 0
    engines: int = 0
    flags: int = 0


@dataclass(frozen=True)
class _GpuNode:
    """A partition with its GPU and the CPU node that it hangs on."""

    gpu: Gpu
    partition: Partition
    home: Node


def write_kfd(tree: Tree, plan: Plan) -> None:
    """The whole topology as an amdgpu driver of today shows it."""
    nodes = [
        _GpuNode(gpu, partition, _home(plan, gpu))
        for gpu in plan.driven
        if gpu.slot.in_kfd
        for partition in gpu.present
    ]
    tree.attributes(KFD, {"dev": "510:0"})
    tree.files[f"{KFD}/uevent"] = "MAJOR=510\nMINOR=0\nDEVNAME=kfd\n"
    tree.link_to(f"{KFD}/subsystem", "/sys/class/kfd")
    tree.link_to("/sys/class/kfd/kfd", KFD)
    tree.folders.add(f"{KFD}/proc")
    tree.devices["/dev/kfd"] = DeviceNode(510, 0, 0o660, 0, RENDER_GID)
    oem = int.from_bytes(plan.machine.platform.vendor[:6].encode().ljust(6), "little")
    tree.attributes(TOPOLOGY, {"generation_id": len(plan.nodes) + len(nodes)})
    tree.files[f"{TOPOLOGY}/system_properties"] = f"platform_oem {oem}\nplatform_id 85015745549651\nplatform_rev 2\n"
    for node in plan.nodes:
        _write_cpu_node(tree, plan, node, nodes)
    for order, gpu_node in enumerate(nodes):
        _write_gpu_node(tree, plan, gpu_node, nodes, order)


def _home(plan: Plan, gpu: Gpu) -> Node:
    """The CPU node of a GPU; the first one when the firmware names none."""
    return next((node for node in plan.nodes if node.id == gpu.node), plan.nodes[0])


def _kfd_id(plan: Plan, node: Node) -> int:
    """KFD counts CPU nodes in their order."""
    return plan.nodes.index(node)


def _write_cpu_node(tree: Tree, plan: Plan, node: Node, gpus: list[_GpuNode]) -> None:
    folder = f"{TOPOLOGY}/nodes/{_kfd_id(plan, node)}"
    links = [_Link(_CPU_CPU, _kfd_id(plan, o), plan.distance(node, o)) for o in plan.nodes if o.id != node.id]
    p2p: list[_Link] = []
    for gpu in gpus:
        to = gpu.partition.kfd_node
        if gpu.home.id == node.id:
            links.append(_host_link(plan, to, flags=3))
        else:
            p2p.append(_Link(_PCIE, to, 20 + plan.distance(node, gpu.home), flags=3))
    first = next((t.apic_id for t in plan.online if t.node == node.id), 0)
    properties = dict.fromkeys(_KEYS.split(), 0) | {
        "cpu_cores_count": len(node.cpus),
        "mem_banks_count": 1 if node.memory_kib else 0,
        "io_links_count": len(links),
        "p2p_links_count": len(p2p),
        "cpu_core_id_base": first,
        "max_engine_clk_ccompute": plan.cpu.base_mhz,
    }
    _write_node(tree, folder, 0, "", properties, links, p2p, _kfd_id(plan, node))
    if node.memory_kib:
        _write_bank(tree, folder, 0, node.memory_kib * 1024, 64, 0 if plan.guest else 3200)


def _host_link(plan: Plan, to: int, *, flags: int) -> _Link:
    product = plan.gpu_product
    assert product is not None
    if product.apu:  # the GPU shares the package with its CPU
        return _Link(_XGMI, to, 13, _PACKAGE_MBS, _PACKAGE_MBS, 1, flags)
    low = 0 if product.virtual_function or _partitioned(plan) else 312
    high = {16.0: 32_000, 32.0: 64_000}[min(product.slot_gts, plan.generation.root_complex.gts)]
    return _Link(_PCIE, to, 20, low, high, (1 << product.sdma.host) - 1, flags)


def _partitioned(plan: Plan) -> bool:
    return any(len(gpu.partitions) > 1 for gpu in plan.driven)


def _write_gpu_node(tree: Tree, plan: Plan, own: _GpuNode, gpus: list[_GpuNode], order: int) -> None:
    product, partition = plan.gpu_product, own.partition
    assert product is not None
    folder = f"{TOPOLOGY}/nodes/{partition.kfd_node}"
    links, p2p = _gpu_links(plan, own, gpus)
    caches = list(_caches(plan, partition, len(own.gpu.partitions)))
    properties = _gpu_properties(plan, own, order) | {
        "mem_banks_count": 1,
        "caches_count": len(caches),
        "io_links_count": len(links),
        "p2p_links_count": len(p2p),
    }
    _write_node(tree, folder, partition.gpu_id, product.kfd_name, properties, links, p2p, partition.kfd_node)
    _write_bank(tree, folder, 1, partition.memory_bytes, product.memory.width, product.memory.mhz)
    tree.files[f"{folder}/mem_banks/0/used_memory"] = "11534336\n"
    for index, cache in enumerate(caches):
        tree.files[f"{folder}/caches/{index}/properties"] = _lines(cache)


def _gpu_properties(plan: Plan, own: _GpuNode, order: int) -> dict[str, int]:
    """All properties in the kernel's order; the counts are filled in by the caller."""
    product, partition, share = plan.gpu_product, own.partition, len(own.gpu.partitions)
    assert product is not None
    domain, bus, rest = own.gpu.bdf.split(":")
    location = int(bus, 16) << 8 | int(rest[:2], 16) << 3 | int(rest[3], 16)
    engines = (product.sdma.host + product.sdma.xgmi) // share
    return dict.fromkeys(_KEYS.split(), 0) | {
        "simd_count": partition.cus * product.simd_per_cu,
        "simd_id_base": _PROCESSOR_BASE + order * (product.physical_cus // share),
        "max_waves_per_simd": product.waves_per_simd,
        "lds_size_in_kb": product.lds_kib,
        "num_gws": 64 if product.gfx.startswith("gfx9") else 0,
        "wave_front_size": product.wavefront,
        "array_count": product.engines // share,
        "simd_arrays_per_engine": product.arrays_per_engine,
        "cu_per_simd_array": product.physical_cus // product.engines,
        "simd_per_cu": product.simd_per_cu,
        "max_slots_scratch_cu": 32,
        "gfx_target_version": product.gfx_target_version,
        "vendor_id": 0x1002,
        "device_id": int(product.device, 16),
        "location_id": location | (partition.index if share > 1 else 0),
        "domain": int(domain, 16),
        "drm_render_minor": partition.render_minor,
        "hive_id": own.gpu.hive_id,
        "num_sdma_engines": min(product.sdma.host, engines),
        "num_sdma_xgmi_engines": max(0, engines - product.sdma.host),
        "num_sdma_queues_per_engine": 8,
        "num_cp_queues": 24,
        "max_engine_clk_fcompute": product.clock_mhz,
        "local_mem_size": 0,
        "fw_version": product.firmware["mec"],
        "capability": product.capability if plan.machine.settings.hmm else product.capability & ~_SVM,
        "debug_prop": product.debug_prop,
        "sdma_fw_version": product.firmware["sdma"],
        "unique_id": own.gpu.unique_id,
        "num_xcc": max(1, product.xcds // share),
        "max_engine_clk_ccompute": plan.cpu.base_mhz,
    }


def _gpu_links(plan: Plan, own: _GpuNode, gpus: list[_GpuNode]) -> tuple[list[_Link], list[_Link]]:
    """The links of a GPU node to its CPU node and over XGMI, and the ways over PCIe to all others."""
    product = plan.gpu_product
    assert product is not None
    links = [_host_link(plan, _kfd_id(plan, own.home), flags=1)]
    p2p = [
        _Link(_PCIE, _kfd_id(plan, node), 20 + plan.distance(node, own.home), flags=1)
        for node in plan.nodes
        if node.id != own.home.id
    ]
    for other in gpus:
        if other is own:
            continue
        direct = _peer_link(plan, own, other)
        if direct:
            links.append(direct)
            continue
        across = own.home.id != other.home.id
        weight = 40 + (plan.distance(own.home, other.home) if across else 0)
        to = other.partition.kfd_node
        # as recorded: engines are named in the direction from the GPU that was found later
        engines = (1 << product.sdma.host) - 1 if to < own.partition.kfd_node else 0
        p2p.append(_Link(_PCIE, to, weight, engines=engines, flags=3 if across else 1))
    return links, p2p


def _peer_link(plan: Plan, own: _GpuNode, other: _GpuNode) -> _Link | None:
    """The XGMI link between two GPU nodes, of one device or of one hive; None when there is none."""
    product = plan.gpu_product
    assert product is not None
    to, host = other.partition.kfd_node, (1 << product.sdma.host) - 1
    if own.gpu is other.gpu:
        return _Link(_XGMI, to, 13, _PACKAGE_MBS, _PACKAGE_MBS, host, 1)
    way = plan.xgmi(own.gpu, other.gpu)
    if way is None:
        return None
    if len(own.gpu.partitions) > 1 or len(other.gpu.partitions) > 1:
        return _Link(_XGMI, to, 41, 0, 0, host, 1)
    count, hops = way
    engines = ((1 << product.sdma.xgmi) - 1) << product.sdma.host
    most = 0 if product.gfx == "gfx908" else _XGMI_MBS * count
    return _Link(_XGMI, to, 15 * hops, min(most, _XGMI_MBS), most, engines, 1)


def _caches(plan: Plan, partition: Partition, share: int) -> Iterator[dict[str, object]]:
    """Vector L1 of each active CU, scalar and instruction L1 of each pair of CUs, L2, memory-side cache.

    The counts are those recorded on an MI210 (217) and on an MI300X partition (80).
    """
    product = plan.gpu_product
    assert product is not None
    sizes, pairs = product.cache_kib, product.physical_cus // share // 2
    one, two = _siblings(1), _siblings(2)
    rows = [(1, sizes.vector, 9, one)] * partition.cus
    rows += [(1, sizes.scalar, 9, two), (1, sizes.instruction, 10, two)] * pairs
    rows.append((2, sizes.l2, 9, _siblings(partition.cus)))
    if sizes.mall:
        rows.append((3, sizes.mall, 9, _siblings(partition.cus)))
    for number, (level, kib, kind, siblings) in enumerate(rows):
        yield {
            "processor_id_low": _PROCESSOR_BASE + number,
            "level": level,
            "size": kib,
            "cache_line_size": 128 if level == 2 else 64,
            "cache_lines_per_tag": 1,
            "association": 0,
            "latency": 0,
            "type": kind,
            "sibling_map": siblings,
        }


def _siblings(cus: int) -> str:
    return ",".join("1" if cu < cus else "0" for cu in range(_SIBLINGS))


def _lines(properties: Mapping[str, object]) -> str:
    return "".join(f"{key} {value}\n" for key, value in properties.items())


def _write_node(
    tree: Tree,
    folder: str,
    gpu_id: int,
    name: str,
    properties: Mapping[str, object],
    links: list[_Link],
    p2p: list[_Link],
    own: int,
) -> None:
    tree.attributes(folder, {"gpu_id": gpu_id, "name": name})
    tree.files[f"{folder}/properties"] = _lines(properties)
    for kind, group in (("io_links", links), ("p2p_links", p2p)):
        tree.folders.add(f"{folder}/{kind}")
        for index, link in enumerate(group):
            tree.files[f"{folder}/{kind}/{index}/properties"] = (
                f"type {link.type}\nversion_major 0\nversion_minor 0\nnode_from {own}\nnode_to {link.to}\n"
                f"weight {link.weight}\nmin_latency 0\nmax_latency 0\nmin_bandwidth {link.min_mbs}\n"
                f"max_bandwidth {link.max_mbs}\nrecommended_transfer_size 0\n"
                f"recommended_sdma_engine_id_mask {link.engines}\nflags {link.flags}\n"
            )
    tree.folders.update({f"{folder}/mem_banks", f"{folder}/caches"})


def _write_bank(tree: Tree, folder: str, heap: int, size: int, width: int, mhz: int) -> None:
    tree.files[f"{folder}/mem_banks/0/properties"] = (
        f"heap_type {heap}\nsize_in_bytes {size}\nflags 0\nwidth {width}\nmem_clk_max {mhz}\n"
    )
