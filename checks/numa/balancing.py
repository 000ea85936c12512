"""Does the kernel move pages between NUMA nodes behind the back of what runs."""

from __future__ import annotations

from collections.abc import Iterator

from amdcheck.api import HOST, Finding, Known, check, evidence, passed, shown, skipped, undetermined, warned
from amdcheck.facts.cpulist import format_cpulist
from amdcheck.facts.memory import Memory
from amdcheck.facts.numa import Numa
from amdcheck.knowledge.remedies import remedy
from amdcheck.knowledge.settings import numa_balancing


@check("numa.balancing", title="Automatic NUMA balancing", level="quick")
def balancing(memory: Memory, numa: Numa) -> Iterator[Finding]:
    """Whether the kernel's automatic NUMA balancing is off.

    Looks at kernel.numa_balancing, a bit mask: 1 unmaps pages now and then, to see who touches them, and moves them
    between nodes; 2 moves pages between memory tiers (DRAM and CXL). With bit 1 set, a serving process takes page
    faults on its weights and its pinned staging buffers, RCCL's latencies scatter, and managed memory that a GPU
    migrates is fought over page by page. AMD asks for 0 on Instinct hosts; work that is pinned by node loses nothing.
    The value 2 alone moves nothing between DRAM nodes and is no finding.

    A machine with one node has nothing to balance. A kernel without the feature has no such file: that is well when
    the listing of /proc/sys/kernel was read and does not name it.

    To change it: sysctl, and a file in /etc/sysctl.d to keep it. tuned's profiles may switch it on again.

    Source: AMD's system optimization guides for MI300X and single-node configuration; Linux 6.12
    Documentation/admin-guide/sysctl/kernel.rst.
    """
    if isinstance(numa.online, Known) and len(numa.online.value) == 1:
        seen = shown(numa.online.source, format_cpulist(numa.online.value), note="online nodes")
        yield skipped("numa.balancing", HOST, "There is one NUMA node: nothing to balance.", seen)
    elif isinstance(memory.numa_balancing, Known):
        yield _judged(memory.numa_balancing)
    elif isinstance(memory.numa_balancing_offered, Known) and not memory.numa_balancing_offered.value:
        listing = shown(memory.numa_balancing_offered.source, "does not name numa_balancing", note="listing")
        yield passed("numa.balancing", HOST, "This kernel was built without NUMA balancing.", listing)
    else:
        yield undetermined(
            "numa.balancing", HOST, "Automatic NUMA balancing could not be read.", because=memory.numa_balancing
        )


def _judged(setting: Known[int]) -> Finding:
    row = numa_balancing()
    if setting.value & row.balancing_bit:
        return warned(
            "numa.balancing/on",
            HOST,
            "Automatic NUMA balancing is on: pages of running processes are unmapped and moved between nodes.",
            evidence(setting),
            expected=str(row.good),
            actual=str(setting.value),
            remedy=remedy("numa.balancing/on"),
        )
    tiering = " (it moves pages between memory tiers only)" if setting.value & row.tiering_bit else ""
    return passed(
        "numa.balancing",
        HOST,
        f"Automatic NUMA balancing between nodes is off{tiering}.",
        evidence(setting),
        expected=f"bit {row.balancing_bit} not set",
        actual=str(setting.value),
    )
