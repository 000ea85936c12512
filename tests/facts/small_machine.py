"""A small machine as files: sockets, CCXs, cores and nodes as a test asks for, each file open to be changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from amdcheck.facts.cpulist import format_cpulist

CPU = "/sys/devices/system/cpu"
NODE = "/sys/devices/system/node"
DMI = "/sys/class/dmi/id"

ZEN3 = "fpu lm nx sse sse2 avx fma avx2 f16c"
ZEN4 = f"{ZEN3} avx512f avx512dq avx512bw avx512vl avx512_vnni avx512_bf16"
NO_FLAG = "no hypervisor flag"


def mask(cpus: Iterable[int]) -> str:
    """As the kernel prints it: groups of 32 bits, the most significant first."""
    bits = sum(1 << cpu for cpu in cpus)
    groups = [f"{bits >> shift & 0xFFFFFFFF:08x}" for shift in range(0, max(bits.bit_length(), 1), 32)]
    return ",".join(reversed(groups))


def machine(
    *,
    sockets: int = 1,
    ccx: int = 2,
    cores: int = 4,
    threads: int = 2,
    nodes: int = 1,
    l3: str = "32768K",
    name: str = "AMD EPYC 7763 64-Core Processor",
    vendor: str = "AuthenticAMD",
    family: int = 25,
    model: int = 1,
    flags: str = ZEN3,
    memory_kib: int = 263_000_000,
) -> dict[str, str]:
    """The files of a healthy machine: `ccx` a socket, `cores` a CCX, `nodes` a socket (0: one for all sockets).

    CPUs are numbered as Linux does on EPYC: every core's first thread, then every core's second.
    """
    total = sockets * ccx * cores

    def among(belongs: Callable[[int], bool]) -> list[int]:
        return [cpu for cpu in range(total * threads) if belongs(cpu % total)]

    everyone = format_cpulist(range(total * threads)) + "\n"
    files = {f"{CPU}/{file}": everyone for file in ("online", "present", "possible")}
    files |= {f"{CPU}/offline": "\n", f"{CPU}/smt/control": "on\n" if threads > 1 else "notsupported\n"}
    for cpu in range(total * threads):
        core, slice, socket = cpu % total, cpu % total // cores, cpu % total // (cores * ccx)
        core_cpus = among(lambda c, core=core: c == core)  # type: ignore[misc]
        slice_cpus = among(lambda c, slice=slice: c // cores == slice)  # type: ignore[misc]
        socket_cpus = among(lambda c, socket=socket: c // (cores * ccx) == socket)  # type: ignore[misc]
        files |= _topology(cpu, socket, core_cpus, socket_cpus)
        for index, level, kind, size, cpus in (
            (0, 1, "Data", "32K", core_cpus),
            (1, 1, "Instruction", "32K", core_cpus),
            (2, 2, "Unified", "512K", core_cpus),
            (3, 3, "Unified", l3, slice_cpus),
        ):
            files |= _cache(cpu, index, level, kind, size, cpus)
    files["/proc/cpuinfo"] = "".join(
        _block(cpu, total, cores * ccx, name, vendor, family, model, flags) for cpu in range(total * threads)
    )
    files |= _nodes(sockets, nodes, memory_kib, lambda low, high: among(lambda c: low <= c < high), total)
    return files | {
        "/proc/meminfo": f"MemTotal:       {memory_kib * max(1, nodes) * sockets} kB\nHugePages_Total:       0\n",
        "/proc/sys/kernel/osrelease": "6.8.0-60-generic\n",
        "/proc/sys/kernel/numa_balancing": "0\n",
        "/proc/cmdline": "BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro\n",
        f"{DMI}/sys_vendor": "Supermicro\n",
        f"{DMI}/product_name": "AS-2124GQ-NART\n",
        "/sys/bus/pci/devices/0000:00:00.0/vendor": "0x1022\n",
    }


def _topology(cpu: int, socket: int, core: list[int], package: list[int]) -> dict[str, str]:
    folder = f"{CPU}/cpu{cpu}/topology"
    return {
        f"{folder}/physical_package_id": f"{socket}\n",
        f"{folder}/thread_siblings_list": f"{format_cpulist(core)}\n",
        f"{folder}/thread_siblings": f"{mask(core)}\n",
        f"{folder}/core_siblings_list": f"{format_cpulist(package)}\n",
        f"{folder}/core_siblings": f"{mask(package)}\n",
    }


def _cache(cpu: int, index: int, level: int, kind: str, size: str, cpus: list[int]) -> dict[str, str]:
    folder = f"{CPU}/cpu{cpu}/cache/index{index}"
    return {
        f"{folder}/level": f"{level}\n",
        f"{folder}/type": f"{kind}\n",
        f"{folder}/size": f"{size}\n",
        f"{folder}/shared_cpu_list": f"{format_cpulist(cpus)}\n",
        f"{folder}/shared_cpu_map": f"{mask(cpus)}\n",
    }


def _block(cpu: int, total: int, per_socket: int, name: str, vendor: str, family: int, model: int, flags: str) -> str:
    core = cpu % total
    lines = {
        "processor": cpu,
        "vendor_id": vendor,
        "cpu family": family,
        "model": model,
        "model name": name,
        "stepping": 1,
        "microcode": "0xa0011d5",
        "cache size": "512 KB",
        "physical id": core // per_socket,
        "core id": core % per_socket,
        "flags": flags,
    }
    return "".join(f"{key}\t: {value}\n" for key, value in lines.items()) + "\n"


def _nodes(
    sockets: int, nodes: int, memory_kib: int, between: Callable[[int, int], list[int]], total: int
) -> dict[str, str]:
    count = sockets * nodes if nodes else 1
    share = total // count
    listed = f"{format_cpulist(range(count))}\n"
    files = {f"{NODE}/{file}": listed for file in ("online", "possible", "has_cpu", "has_memory")}
    for number in range(count):
        cpus = between(number * share, (number + 1) * share)
        row = [10 if n == number else 12 if n // max(nodes, 1) == number // max(nodes, 1) else 32 for n in range(count)]
        files |= {
            f"{NODE}/node{number}/cpulist": f"{format_cpulist(cpus)}\n",
            f"{NODE}/node{number}/cpumap": f"{mask(cpus)}\n",
            f"{NODE}/node{number}/distance": " ".join(map(str, row)) + "\n",
            f"{NODE}/node{number}/meminfo": f"Node {number} MemTotal:       {memory_kib} kB\n",
        }
    return files


def without(files: dict[str, str], *endings: str) -> dict[str, str]:
    """The same machine with the files of these endings gone."""
    return {path: text for path, text in files.items() if not path.endswith(endings)}


KFD = "/sys/class/kfd/kfd/topology"
MI210 = {"device": 0x740F, "class_code": 0x038000, "target": 90010}
MI300X = {"device": 0x74A1, "class_code": 0x120000, "target": 90402}
MI300A = {"device": 0x74A0, "class_code": 0x120000, "target": 90402}
MI100 = {"device": 0x738C, "class_code": 0x038000, "target": 90008}
W7900 = {"device": 0x7448, "class_code": 0x030000, "target": 110000}
SVM = 0x2C77A280  # `capability` as recorded on an MI210 and an MI308X
NO_SVM = SVM & ~0x08000000


def gpu(
    *, device: int, class_code: int, target: int, bus: int = 3, node: int = 2, capability: int | None = SVM
) -> dict[str, str]:
    """The files of one GPU that its driver knows; its driver link is `driver_link(bus)`."""
    function = f"/sys/bus/pci/devices/0000:{bus:02x}:00.0"
    properties = {
        "simd_count": 416,
        "simd_per_cu": 4,
        "gfx_target_version": target,
        "vendor_id": 0x1002,
        "device_id": device,
        "location_id": bus << 8,
        "domain": 0,
        "drm_render_minor": 126 + node,
        "capability": capability,
    }
    return {
        f"{function}/vendor": "0x1002\n",
        f"{function}/device": f"0x{device:04x}\n",
        f"{function}/class": f"0x{class_code:06x}\n",
        f"{KFD}/generation_id": "2\n",
        f"{KFD}/nodes/{node}/gpu_id": f"{1000 + bus}\n",
        f"{KFD}/nodes/{node}/name": "\n",
        f"{KFD}/nodes/{node}/properties": "".join(f"{k} {v}\n" for k, v in properties.items() if v is not None),
        "/sys/module/amdgpu/parameters/noretry": "-1\n",
    }


def driver_link(bus: int = 3) -> dict[str, str]:
    return {f"/sys/bus/pci/devices/0000:{bus:02x}:00.0/driver": "../../../../bus/pci/drivers/amdgpu"}
