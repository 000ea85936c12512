"""/proc/cpuinfo and /sys/devices/system/cpu as Linux 6.x writes them on x86."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from tests.compose.plan import Plan, Thread, cpu_list
from tests.compose.products import guest_lacks
from tests.compose.tree import Tree

CPU = "/sys/devices/system/cpu"


def write_cpus(tree: Tree, plan: Plan) -> None:
    """All files about the processors."""
    _write_cpuinfo(tree, plan)
    _write_lists(tree, plan)
    groups = _Groups(plan)
    online = {thread.id for thread in plan.online}
    for thread in plan.threads:
        folder = f"{CPU}/cpu{thread.id}"
        tree.links[f"{folder}/subsystem"] = "../../../../bus/cpu"
        tree.links[f"/sys/bus/cpu/devices/cpu{thread.id}"] = f"../../../devices/system/cpu/cpu{thread.id}"
        if thread.id != 0:
            tree.files[f"{folder}/online"] = "1\n" if thread.id in online else "0\n"
        if thread.id not in online:
            continue  # the kernel takes topology and cache away with the CPU
        tree.links[f"{folder}/node{thread.node}"] = f"../../node/node{thread.node}"
        for name, text in groups.topology(thread).items():
            tree.files[f"{folder}/topology/{name}"] = text
        for index, cache in enumerate(groups.caches(thread)):
            for name, text in cache.items():
                tree.files[f"{folder}/cache/index{index}/{name}"] = text


class _Groups:
    """Who shares what. Masks and lists are made once for each group of CPUs."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        cores: dict[tuple[int, int], list[int]] = defaultdict(list)
        slices: dict[int, list[int]] = defaultdict(list)
        packages: dict[int, list[int]] = defaultdict(list)
        for thread in plan.online:
            cores[thread.socket, thread.core].append(thread.id)
            slices[thread.ccx].append(thread.id)
            packages[thread.socket].append(thread.id)
        self._cores = {key: self._forms(cpus) for key, cpus in cores.items()}
        self._slices = {key: self._forms(cpus) for key, cpus in slices.items()}
        self._packages = {key: self._forms(cpus) for key, cpus in packages.items()}

    def _forms(self, cpus: Sequence[int]) -> tuple[str, str]:
        return f"{self.plan.mask(cpus)}\n", f"{cpu_list(cpus)}\n"

    def topology(self, thread: Thread) -> dict[str, str]:
        """The topology folder of one CPU."""
        core_mask, core_list = self._cores[thread.socket, thread.core]
        package_mask, package_list = self._packages[thread.socket]
        return {
            "physical_package_id": f"{thread.socket}\n",
            "die_id": "0\n",
            "cluster_id": "65535\n",  # none on AMD
            "core_id": f"{thread.core}\n",
            "thread_siblings": core_mask,
            "thread_siblings_list": core_list,
            "core_cpus": core_mask,
            "core_cpus_list": core_list,
            "cluster_cpus": core_mask,
            "cluster_cpus_list": core_list,
            "die_cpus": package_mask,
            "die_cpus_list": package_list,
            "core_siblings": package_mask,
            "core_siblings_list": package_list,
            "package_cpus": package_mask,
            "package_cpus_list": package_list,
        }

    def caches(self, thread: Thread) -> list[dict[str, str]]:
        """L1d, L1i, L2 and L3 of one CPU, in the order of their index folders."""
        zen, core = self.plan.generation, self._cores[thread.socket, thread.core]
        shift = self.plan.threads_per_core - 1
        core_id = thread.apic_id >> shift
        sharing = self.plan.cores_per_ccx * self.plan.threads_per_core
        slice_id = thread.apic_id >> (sharing - 1).bit_length()
        l3 = self.plan.l3_kib(thread.ccx)
        found = [
            _cache("Data", 1, zen.l1d_kib, zen.ways["l1d"], core_id, core),
            _cache("Instruction", 1, zen.l1i_kib, zen.ways["l1i"], core_id, core),
            _cache("Unified", 2, zen.l2_kib, zen.ways["l2"], core_id, core),
        ]
        if l3:
            found.append(_cache("Unified", 3, l3, zen.ways["l3"], slice_id, self._slices[thread.ccx]))
        return found


def _cache(kind: str, level: int, kib: int, ways: int, identity: int, shared: tuple[str, str]) -> dict[str, str]:
    mask, listed = shared
    return {
        "id": f"{identity}\n",
        "level": f"{level}\n",
        "type": f"{kind}\n",
        "size": f"{kib}K\n",
        "coherency_line_size": "64\n",
        "number_of_sets": f"{kib * 1024 // 64 // ways}\n",
        "ways_of_associativity": f"{ways}\n",
        "physical_line_partition": "1\n",
        "shared_cpu_map": mask,
        "shared_cpu_list": listed,
    }


def _write_lists(tree: Tree, plan: Plan) -> None:
    everything = [thread.id for thread in plan.threads]
    online = [thread.id for thread in plan.online]
    tree.attributes(
        CPU,
        {
            "possible": cpu_list(everything),
            "present": cpu_list(everything),
            "online": cpu_list(online),
            "offline": cpu_list(sorted(set(everything) - set(online))),
            "isolated": "",
            "nohz_full": "(null)",
            "kernel_max": 8191,
            "smt/active": int(plan.machine.cpu.smt),
            "smt/control": "on" if plan.machine.cpu.smt else ("notsupported" if plan.guest else "off"),
        },
    )
    for name, text in _VULNERABILITIES.items():
        tree.files[f"{CPU}/vulnerabilities/{name}"] = f"{text}\n"
    if not plan.guest:  # a guest has no P-states
        for thread in plan.online:
            folder = f"{CPU}/cpufreq/policy{thread.id}"
            tree.attributes(folder, _frequency(plan, thread))
            tree.links[f"{CPU}/cpu{thread.id}/cpufreq"] = f"../cpufreq/policy{thread.id}"
            tree.attributes(f"{CPU}/cpu{thread.id}/acpi_cppc", _performance(plan))


def _performance(plan: Plan) -> Mapping[str, object]:
    """CPPC as the firmware gives it: frequencies in MHz, performance on a scale of its own."""
    return {
        "highest_perf": 255,
        "lowest_freq": 400,
        "lowest_nonlinear_perf": 120,
        "lowest_perf": 30,
        "nominal_freq": plan.cpu.base_mhz,
        "nominal_perf": 180,
        "reference_perf": 180,
    }


def _frequency(plan: Plan, thread: Thread) -> Mapping[str, object]:
    top = plan.cpu.base_mhz * 1000
    return {
        "affected_cpus": thread.id,
        "cpuinfo_max_freq": top,
        "cpuinfo_min_freq": 1500000,
        "scaling_driver": "acpi-cpufreq",
        "scaling_governor": "performance",
        "scaling_max_freq": top,
        "scaling_min_freq": 1500000,
    }


_VULNERABILITIES = {
    "meltdown": "Not affected",
    "spec_store_bypass": "Mitigation: Speculative Store Bypass disabled via prctl",
    "spectre_v1": "Mitigation: usercopy/swapgs barriers and __user pointer sanitization",
    "spectre_v2": "Mitigation: Retpolines; IBPB: conditional; IBRS_FW; STIBP: always-on; RSB filling; "
    "PBRSB-eIBRS: Not affected; BHI: Not affected",
    "spec_rstack_overflow": "Mitigation: Safe RET",
}


def offered_flags(plan: Plan, cpu: int) -> list[str]:
    """The flags that the kernel prints for one CPU."""
    masked = {*plan.machine.cpu.masked_flags, *plan.machine.cpu.masked_on.get(str(cpu), ())}
    flags = plan.generation.flags.split()
    hypervisor = plan.guest if plan.machine.cpu.hypervisor_bit is None else plan.machine.cpu.hypervisor_bit
    if plan.guest:
        lacks = set(guest_lacks())
        flags = [flag for flag in flags if flag not in lacks]
    if hypervisor:
        flags.insert(flags.index("rdrand") + 1, "hypervisor")
    return [flag for flag in flags if flag not in masked]


def _write_cpuinfo(tree: Tree, plan: Plan) -> None:
    tree.files["/proc/cpuinfo"] = "".join(_cpuinfo_block(plan, thread) for thread in plan.online)


def _cpuinfo_block(plan: Plan, thread: Thread) -> str:
    product, zen = plan.cpu, plan.generation
    model = zen.model if product.model is None else product.model
    stepping = zen.stepping if product.stepping is None else product.stepping
    vendor = plan.machine.cpu.vendor or "AuthenticAMD"
    physical, virtual = zen.address_bits
    return (
        f"processor\t: {thread.id}\n"
        f"vendor_id\t: {vendor}\n"
        f"cpu family\t: {zen.family}\n"
        f"model\t\t: {model}\n"
        f"model name\t: {product.model_name}\n"
        f"stepping\t: {stepping}\n"
        f"microcode\t: {product.microcode or zen.microcode}\n"
        f"cpu MHz\t\t: {product.base_mhz}.000\n"
        f"cache size\t: {zen.l2_kib} KB\n"
        f"physical id\t: {thread.socket}\n"
        f"siblings\t: {plan.cores * plan.threads_per_core}\n"
        f"core id\t\t: {thread.core}\n"
        f"cpu cores\t: {plan.cores}\n"
        f"apicid\t\t: {thread.apic_id}\n"
        f"initial apicid\t: {thread.apic_id}\n"
        "fpu\t\t: yes\n"
        "fpu_exception\t: yes\n"
        "cpuid level\t: 16\n"
        "wp\t\t: yes\n"
        f"flags\t\t: {' '.join(offered_flags(plan, thread.id))}\n"
        f"bugs\t\t: {zen.bugs}\n"
        f"bogomips\t: {product.base_mhz * 2 - 0.15:.2f}\n"
        f"TLB size\t: {zen.tlb_pages} 4K pages\n"
        "clflush size\t: 64\n"
        "cache_alignment\t: 64\n"
        f"address sizes\t: {physical} bits physical, {virtual} bits virtual\n"
        "power management:" + ("" if plan.guest else " ts ttp tm hwpstate cpb eff_freq_ro [13] [14]") + "\n\n"
    )
