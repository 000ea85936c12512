"""/sys/devices/system/node and the memory of the machine."""

from __future__ import annotations

from tests.compose.plan import Plan, cpu_list
from tests.compose.tree import Tree

NODE = "/sys/devices/system/node"


def write_nodes(tree: Tree, plan: Plan) -> None:
    """The NUMA nodes as the kernel shows them, and /proc/meminfo."""
    everywhere = cpu_list([node.id for node in plan.nodes])
    with_memory = cpu_list([node.id for node in plan.nodes if node.memory_kib])
    tree.attributes(
        NODE,
        {
            "online": everywhere,
            "possible": everywhere,
            "has_cpu": cpu_list([node.id for node in plan.nodes if node.cpus]),
            "has_memory": with_memory,
            "has_normal_memory": with_memory,
            "has_generic_initiator": "",
        },
    )
    for node in plan.nodes:
        folder = f"{NODE}/node{node.id}"
        tree.attributes(
            folder,
            {
                "cpulist": cpu_list(node.cpus),
                "cpumap": plan.mask(node.cpus),
                "distance": " ".join(str(plan.distance(node, other)) for other in plan.nodes),
            },
        )
        tree.files[f"{folder}/meminfo"] = _node_meminfo(node.id, node.memory_kib)
        for cpu in node.cpus:
            tree.links[f"{folder}/cpu{cpu}"] = f"../../cpu/cpu{cpu}"
        tree.links[f"{folder}/subsystem"] = "../../../../bus/node"
        tree.links[f"/sys/bus/node/devices/node{node.id}"] = f"../../../devices/system/node/node{node.id}"
        for size in (2048, 1048576):
            pages = {"nr_hugepages": 0, "free_hugepages": 0, "surplus_hugepages": 0}
            tree.attributes(f"{folder}/hugepages/hugepages-{size}kB", pages)
    tree.files["/proc/meminfo"] = _meminfo(plan.memory_kib)


def _node_meminfo(node: int, total: int) -> str:
    free = total * 97 // 100
    rows = {"MemTotal": total, "MemFree": free, "MemUsed": total - free, "SwapCached": 0, "FilePages": total // 100}
    text = "".join(f"Node {node} {name + ':':<15} {kib:8d} kB\n" for name, kib in rows.items())
    huge = "".join(f"Node {node} HugePages_{name + ':':<6} {0:5d}\n" for name in ("Total", "Free", "Surp"))
    return text + huge


def _meminfo(total: int) -> str:
    rows = {
        "MemTotal": total,
        "MemFree": total * 97 // 100,
        "MemAvailable": total * 98 // 100,
        "Buffers": 214308,
        "Cached": total // 100,
        "SwapCached": 0,
        "SwapTotal": 0,
        "SwapFree": 0,
        "CommitLimit": total // 2,
        "AnonHugePages": 0,
        "Hugepagesize": 2048,
        "DirectMap1G": total,
    }
    return "".join(f"{name + ':':<15} {kib:8d} kB\n" for name, kib in rows.items())
