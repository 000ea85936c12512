"""The operating system around the hardware: release files, DMI, kernel settings, users, the kernel log."""

from __future__ import annotations

from tests.compose.amdgpu import GROUP_IDS
from tests.compose.description import Settings
from tests.compose.plan import Plan, number
from tests.compose.products import os_release
from tests.compose.tree import Tree

DMI = "/sys/devices/virtual/dmi/id"
_SHORT = "/usr/lib/os-release"


def write_system(tree: Tree, plan: Plan) -> None:
    """Everything that is neither hardware nor ROCm."""
    _write_release(tree, plan)
    _write_dmi(tree, plan)
    _write_proc(tree, plan)
    _write_modules(tree, plan)
    _write_settings(tree, plan.machine.settings)
    _write_kernel_config(tree, plan)
    _write_users(tree, plan)
    _write_log(tree, plan)


def _write_release(tree: Tree, plan: Plan) -> None:
    release = os_release(plan.machine.os.release)
    kernel = plan.machine.os.kernel
    like = f"ID_LIKE={release.id_like}\n" if release.id_like else ""
    tree.files[_SHORT] = (
        f'PRETTY_NAME="{release.pretty}"\nNAME="{release.name}"\nVERSION_ID="{release.version_id}"\n'
        f"VERSION_CODENAME={release.codename}\nID={release.id}\n{like}"
    )
    tree.links["/etc/os-release"] = "../usr/lib/os-release"
    tree.files["/etc/machine-id"] = f"{number(plan.name, 'machine'):016x}{number(plan.name, 'id'):016x}\n"
    tree.files["/etc/hostname"] = f"{plan.name}\n"
    tree.files["/proc/version"] = (
        f"Linux version {kernel} ({release.builder}) ({release.compiler}) #63-{release.name.split()[0]} SMP "
        "PREEMPT_DYNAMIC Tue Apr 15 19:04:15 UTC 2025\n"
    )
    options = " ".join(("ro", *plan.machine.os.options))
    tree.files["/proc/cmdline"] = (
        f"BOOT_IMAGE=/boot/vmlinuz-{kernel} root=UUID=0c2c1f0e-0000-4000-8000-1d1d1d1d1d1d {options}\n"
    )


def _write_dmi(tree: Tree, plan: Plan) -> None:
    platform = plan.machine.platform
    vendor, version, date = platform.bios
    values = {
        "bios_vendor": vendor,
        "bios_version": version,
        "bios_date": date,
        "sys_vendor": platform.vendor,
        "product_name": platform.product,
        "product_family": "" if plan.guest else "Server",
        "product_sku": "",
        "product_version": "pc-q35-9.2" if plan.guest else "0123456789",
        "chassis_vendor": platform.vendor,
        "chassis_type": 1 if plan.guest else 23,
    }
    if not plan.guest:
        values |= {"board_vendor": platform.vendor, "board_name": platform.product, "board_version": "1.02"}
    secrets = {
        "product_serial": f"S{number(plan.name, 'serial', bits=32):010d}",
        "product_uuid": _uuid(plan.name, "product"),
        "board_serial": f"B{number(plan.name, 'board', bits=32):010d}",
    }
    tree.attributes(DMI, {**values, **secrets})
    tree.private |= {f"{DMI}/{name}" for name in secrets}
    tree.link_to("/sys/class/dmi/id", DMI)


def _uuid(*words: str) -> str:
    """A random UUID that is always the same for these words."""
    return f"{number(*words, bits=32):08x}-0000-4000-8000-{number(*words, 'tail', bits=48):012x}"


def _write_proc(tree: Tree, plan: Plan) -> None:
    tree.attributes(
        "/proc/sys/kernel",
        {
            "arch": "x86_64",
            "osrelease": plan.machine.os.kernel,
            "ostype": "Linux",
            "hostname": plan.name,
            "random/boot_id": _uuid(plan.name, "boot"),
            "pid_max": 4194304,
            "perf_event_paranoid": 4,
        },
    )
    tree.attributes("/proc/sys/vm", {"swappiness": 60, "zone_reclaim_mode": 0, "overcommit_memory": 0})
    tree.files["/proc/uptime"] = f"864000.00 {8640 * len(plan.online)}.00\n"
    tree.files["/proc/loadavg"] = "0.08 0.03 0.01 1/1998 4242\n"
    tree.files["/proc/swaps"] = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"
    mounts = (
        "/dev/nvme0n1p2 / ext4 rw,relatime 0 0\nproc /proc proc rw,nosuid,nodev,noexec,relatime 0 0\n"
        "sysfs /sys sysfs rw,nosuid,nodev,noexec,relatime 0 0\ntmpfs /dev/shm tmpfs rw,nosuid,nodev 0 0\n"
    )
    if plan.machine.platform.container:
        names = ("hostname", "hosts", "resolv.conf")
        mounts += "".join(f"/dev/nvme0n1p2 /etc/{name} ext4 rw,relatime 0 0\n" for name in names)
    tree.files["/proc/mounts"] = tree.files["/proc/self/mounts"] = mounts
    tree.files["/proc/self/cgroup"] = "0::/user.slice/user-0.slice/session-1.scope\n"
    tree.files["/proc/1/cgroup"] = "0::/init.scope\n"
    if plan.machine.platform.container:
        tree.files["/.dockerenv"] = ""
        tree.files["/proc/self/cgroup"] = tree.files["/proc/1/cgroup"] = "0::/\n"


def _write_modules(tree: Tree, plan: Plan) -> None:
    """/sys/module names loaded modules and those built in; only the former have a state."""
    for name in ("acpi", "kernel", "pcie_aspm", "printk", "vt"):
        tree.folders.add(f"/sys/module/{name}/parameters")
    loaded = ["k10temp"] if not plan.guest else ["virtio_net"]
    loaded += [device.driver for device in plan.machine.device if device.driver]
    for name in dict.fromkeys(loaded):
        tree.attributes(f"/sys/module/{name}", {"initstate": "live", "refcnt": 0, "coresize": 16384, "taint": ""})
    tree.files["/proc/modules"] = _modules(plan, loaded)


def _modules(plan: Plan, loaded: list[str]) -> str:
    """/proc/modules: out-of-tree modules are marked."""
    lines = [f"{name} 16384 0 - Live 0x0000000000000000" for name in loaded]
    if plan.driver_loaded:
        names = ["amdgpu"] + (["amdttm", "amdkcl", "amdxcp", "amddrm_ttm_helper"] if plan.dkms else ["ttm", "amdxcp"])
        mark = " (OE)" if plan.dkms else ""
        lines += [f"{name} 20619264 16 - Live 0x0000000000000000{mark}" for name in names]
    return "".join(f"{line}\n" for line in lines)


def _write_settings(tree: Tree, settings: Settings) -> None:
    if settings.numa_balancing is not None:
        tree.attributes("/proc/sys/kernel", {"numa_balancing": settings.numa_balancing})
    tree.attributes("/proc/sys/kernel", {"dmesg_restrict": settings.dmesg_restrict})
    huge = "/sys/kernel/mm/transparent_hugepage"
    tree.attributes(
        huge,
        {
            "enabled": _chosen(("always", "madvise", "never"), settings.transparent_hugepages),
            "defrag": _chosen(("always", "defer", "defer+madvise", "madvise", "never"), "madvise"),
            "use_zero_page": 1,
            "khugepaged/defrag": 1,
        },
    )


def _chosen(choices: tuple[str, ...], active: str) -> str:
    return " ".join(f"[{choice}]" if choice == active else choice for choice in choices)


def _write_kernel_config(tree: Tree, plan: Plan) -> None:
    """Distributions install the configuration beside the kernel; what HMM needs is on in all of them."""
    kernel = plan.machine.os.kernel
    hmm = ("HSA_AMD_SVM", "DEVICE_PRIVATE", "HMM_MIRROR")
    on = ["64BIT", "X86_64", "SMP", "NUMA", "X86_64_ACPI_NUMA", "PCI", "HSA_AMD", "HSA_AMD_P2P", "PCI_P2PDMA"]
    if plan.machine.settings.numa_balancing is not None:
        on.append("NUMA_BALANCING")
    off: list[str] = []
    (on if plan.machine.settings.hmm else off).extend(hmm)
    text = "#\n# Automatically generated file; DO NOT EDIT.\n# Linux/x86 Kernel Configuration\n#\n"
    text += "".join(f"CONFIG_{name}=y\n" for name in on) + "CONFIG_DRM_AMDGPU=m\n"
    tree.files[f"/boot/config-{kernel}"] = text + "".join(f"# CONFIG_{name} is not set\n" for name in off)


def _write_users(tree: Tree, plan: Plan) -> None:
    user = plan.machine.user
    others = (
        []
        if user.name == "root" or not user.known
        else [f"{user.name}:x:{user.uid}:{user.uid}::/home/{user.name}:/bin/bash"]
    )
    tree.files["/etc/passwd"] = "".join(f"{line}\n" for line in ["root:x:0:0:root:/root:/bin/bash", *others])
    groups = {**GROUP_IDS, **({} if user.name == "root" else {user.name: user.uid})}
    members = {name: user.name for name in user.groups if name not in ("root", user.name)}
    tree.files["/etc/group"] = "".join(f"{name}:x:{gid}:{members.get(name, '')}\n" for name, gid in groups.items())
    home = "/root" if user.uid == 0 else f"/home/{user.name}"
    tree.folders |= {home, "/tmp", "/opt", "/etc/modprobe.d"}


def _write_log(tree: Tree, plan: Plan) -> None:
    """This boot's messages as /dev/kmsg gives them; with dmesg_restrict only root may read them."""
    messages = [f"Linux version {plan.machine.os.kernel}", "Command line: " + str(tree.files["/proc/cmdline"]).strip()]
    for gpu in plan.driven:
        name = f"amdgpu {gpu.bdf}: amdgpu:"
        messages += [
            f"{name} Fetched VBIOS from platform",
            f"{name} SMU is initialized successfully!",
            f"kfd kfd: amdgpu: added device 1002:{plan.gpu_product.device if plan.gpu_product else ''}",
            f"[drm] Initialized amdgpu 3.57.0 20150101 for {gpu.bdf} on minor {gpu.partitions[0].card}",
        ]
        if plan.machine.settings.hmm and plan.gpu_product and not plan.gpu_product.apu:
            messages.insert(-1, f"amdgpu: HMM registered {plan.gpu_product.vram_mib}MB device memory")
    messages += plan.machine.settings.kernel_log
    tree.files["/dev/kmsg"] = "".join(
        f"6,{place},{1_000_000 + 1000 * place},-;{message}\n" for place, message in enumerate(messages)
    )
    if plan.machine.settings.dmesg_restrict:
        tree.private.add("/dev/kmsg")
