"""What amdgpu shows of its devices: attributes, hwmon, RAS, firmware, DRM nodes and partitions.

Which attribute exists depends on the chip (`shows` of its product), on the mainline release whose driver it is (`era`),
and on whether it is a virtual function.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping

from tests.compose.plan import Gpu, Plan, number
from tests.compose.products import GpuProduct
from tests.compose.tree import DeviceNode, Tree

MODULE = "/sys/module/amdgpu"
_MIB = 1 << 20

# Parameters of the module with their defaults (Linux 6.8).
_PARAMETERS: Mapping[str, object] = {
    "aspm": -1,
    "bad_page_threshold": -1,
    "cwsr_enable": 1,
    "discovery": -1,
    "dpm": -1,
    "gpu_recovery": -1,
    "hws_max_conc_proc": -1,
    "mcbp": -1,
    "mes": 0,
    "msi": -1,
    "no_system_mem_limit": "N",
    "pcie_gen_cap": 0,
    "pcie_lane_cap": 0,
    "ras_enable": -1,
    "ras_mask": 4294967295,
    "reset_method": -1,
    "runpm": -1,
    "sched_policy": 0,
    "send_sigterm": 0,
    "vm_fragment_size": -1,
    "vm_size": -1,
}


def write_module(tree: Tree, plan: Plan) -> None:
    """/sys/module/amdgpu of the loaded driver. Only a DKMS module has a version of its own."""
    tree.attributes(
        MODULE,
        {
            "coresize": 20619264,
            "initsize": 0,
            "initstate": "live",
            "refcnt": 16 * len(plan.driven),
            "taint": "OE" if plan.dkms else "",
            "srcversion": _srcversion(plan),
        },
    )
    if plan.dkms:
        tree.attributes(MODULE, {"version": plan.dkms.module})
    tree.attributes(f"{MODULE}/parameters", {**_PARAMETERS, "noretry": plan.machine.settings.noretry})
    tree.link_to(f"{MODULE}/drivers/pci:amdgpu", "/sys/bus/pci/drivers/amdgpu")
    tree.link_to("/sys/bus/pci/drivers/amdgpu/module", MODULE)


def _srcversion(plan: Plan) -> str:
    words = plan.dkms.module if plan.dkms else plan.machine.os.kernel
    return f"{number(words, 'srcversion'):016X}{number(words, 'src', bits=44):011X}"[:24]


def write_gpus(tree: Tree, plan: Plan, folders: Mapping[int, str]) -> None:
    """Every file of amdgpu below the PCI devices, and the nodes below /dev."""
    tree.attributes("/sys/class/drm", {"version": "drm 1.1.0 20060810"})
    platform = 0
    for order, gpu in enumerate(plan.driven):
        folder = folders[gpu.index]
        _write_attributes(tree, plan, gpu, folder, order)
        _write_firmware(tree, plan, folder)
        _write_hwmon(tree, plan, folder, f"hwmon{order + 3}")  # the first ones belong to the CPUs and disks
        for partition in gpu.present:
            if partition.index == 0:
                write_drm(tree, folder, card=partition.card)
                write_drm(tree, folder, render=partition.render_minor, group=gpu.slot.render_group)
            else:
                # further partitions are DRM devices of platform devices without any attribute
                owner = f"/sys/devices/platform/amdgpu_xcp_{platform}"
                tree.attributes(owner, {"modalias": f"platform:amdgpu_xcp_{platform}", "driver_override": "(null)"})
                tree.files[f"{owner}/uevent"] = f"MODALIAS=platform:amdgpu_xcp_{platform}\n"
                tree.link_to(f"{owner}/subsystem", "/sys/bus/platform")
                tree.link_to(f"/sys/bus/platform/devices/amdgpu_xcp_{platform}", owner)
                write_drm(tree, owner, card=partition.card)
                write_drm(tree, owner, render=partition.render_minor, group=gpu.slot.render_group)
                platform += 1


def _write_attributes(tree: Tree, plan: Plan, gpu: Gpu, folder: str, order: int) -> None:
    product, era = plan.gpu_product, plan.era
    assert product is not None
    values = _memory(plan, product, order) | _power(product, gpu) | _identity(plan, product, gpu)
    if era >= (6, 12):
        values["enforce_isolation"] = " ".join("0" for _ in gpu.partitions)
        if not product.virtual_function:
            values["board_info"] = f"type : {product.board.lower()}"
    if "partitions" in product.shows:
        values |= _partitions(plan, product, gpu)
    tree.attributes(folder, values)
    tree.files[f"{folder}/gpu_metrics"] = _metrics(product.xcds, product.slot_gts)
    if product.xcds > 1 and not product.virtual_function and era >= (6, 12):
        tree.files[f"{folder}/reg_state/reg_state"] = tree.files[f"{folder}/pm_metrics"] = bytes(64)
    if "ras" in product.shows:
        _write_ras(tree, folder, era)
    if gpu.hive_id:
        _write_hive(tree, plan, gpu, folder)


def _memory(plan: Plan, product: GpuProduct, order: int) -> dict[str, object]:
    """Sizes in bytes; all of the memory is visible to the CPU. A little is in use on an idle GPU."""
    vram, used = product.vram_mib * _MIB, 11 * _MIB + 4096 * order
    return {
        "mem_info_vram_total": vram,
        "mem_info_vram_used": used,
        "mem_info_vis_vram_total": vram,
        "mem_info_vis_vram_used": used,
        "mem_info_gtt_total": plan.memory_kib * 1024 // 2 // 4096 * 4096,
        "mem_info_gtt_used": 14573568,
        "mem_info_preempt_used": 0,
        "mem_info_vram_vendor": "unknown" if product.xcds > 1 else "hynix",
    }


def _power(product: GpuProduct, gpu: Gpu) -> dict[str, object]:
    """Load, clocks and performance levels. A virtual function shows the load alone."""
    values: dict[str, object] = {"gpu_busy_percent": 0, "power_dpm_force_performance_level": "auto"}
    if "mem-busy" in product.shows:
        values["mem_busy_percent"] = 0
    if product.virtual_function:
        return values
    values |= {
        "power_dpm_state": "performance",
        "pp_dpm_sclk": _levels(product.sclk, 0),
        "pp_dpm_mclk": _levels(product.mclk, 0),
        "pp_dpm_socclk": _levels((666, 857, 1000, 1090, 1333), 0),
        "pp_dpm_fclk": _levels((400, 2000), 0),
        "pp_dpm_vclk": _levels((1000,), 0),
        "pp_dpm_dclk": _levels((875,), 0),
        "pp_dpm_pcie": _pcie_levels(product.slot_gts),
        "pp_features": "features high: 0x00000000 low: 0x1ffffff",
        "pp_power_profile_mode": _PROFILES,
        "thermal_throttling_logging": f"{gpu.bdf}: thermal throttling logging enabled, with interval 60 seconds",
    }
    if product.xcds > 1:
        values["pp_od_clk_voltage"] = f"OD_SCLK:\n0: {product.sclk[0]}Mhz\n1: {product.sclk[-1]}Mhz"
    return values


def _identity(plan: Plan, product: GpuProduct, gpu: Gpu) -> dict[str, object]:
    """What names the device, and the counters that only some chips have."""
    shows, era = product.shows, plan.era
    values: dict[str, object] = {"vbios_version": product.vbios}
    if "unique-id" in shows and (product.gfx != "gfx950" or era >= (6, 13)):
        values["unique_id"] = f"{gpu.unique_id:016x}"
    counters = {
        "replay": ("pcie_replay_count", 0),
        "bandwidth": ("pcie_bw", "0 0 256"),
        "hive-errors": ("xgmi_error", 0),
    }
    values |= dict(counter for word, counter in counters.items() if word in shows)
    if "fru" in shows:
        values |= {
            "product_name": f"AMD {plan.machine.gpus.product if plan.machine.gpus else ''}",
            "product_number": f"102-D{product.device.upper()}-00",
            "serial_number": f"69222{number(plan.name, gpu.bdf, 'serial', bits=24):08d}",
        }
        if era >= (6, 12):
            values |= {"fru_id": f"113-{product.device.upper()}", "manufacturer": "AMD"}
    return values


def _partitions(plan: Plan, product: GpuProduct, gpu: Gpu) -> dict[str, object]:
    assert plan.machine.gpus is not None
    values: dict[str, object] = {
        "current_compute_partition": gpu.compute_partition or "SPX",
        "available_compute_partition": ", ".join(product.compute_partitions),
        "current_memory_partition": plan.machine.gpus.memory_partition or "NPS1",
    }
    if plan.era >= (6, 13) and len(product.memory_partitions) > 1:
        values["available_memory_partition"] = ", ".join(product.memory_partitions)
    return values


_PROFILES = (
    "PROFILE_INDEX(NAME) CLOCK_TYPE(NAME) FPS MinActiveFreqType MinActiveFreq BoosterFreqType BoosterFreq\n"
    " 0 BOOTUP_DEFAULT*:\n 4             VR :\n 5        COMPUTE :"
)


def _levels(clocks: tuple[int, ...], active: int) -> str:
    return "\n".join(f"{level}: {mhz}Mhz {'*' if level == active else ''}" for level, mhz in enumerate(clocks))


def _pcie_levels(gts: float) -> str:
    return f"0: 2.5GT/s, x1 619Mhz \n1: {gts:.1f}GT/s, x16 619Mhz *"


def _write_hive(tree: Tree, plan: Plan, gpu: Gpu, folder: str) -> None:
    """The hive is a kobject below its first GPU; every member links to it."""
    members = [other for other in plan.driven if other.hive_id == gpu.hive_id]
    tree.attributes(folder, {"xgmi_device_id": gpu.hive_id + members.index(gpu)})
    if plan.era >= (6, 12):
        place = members.index(gpu)
        ways = [plan.xgmi(gpu, other) or (0, 0) for other in members]
        hops = "".join(
            "00 " if other is gpu else f"{0x40 | way[1]:02x} " for other, way in zip(members, ways, strict=True)
        )
        links = "".join("00 " if other is gpu else f"{way[0]:02x} " for other, way in zip(members, ways, strict=True))
        tree.attributes(folder, {"xgmi_physical_id": place, "xgmi_num_hops": hops, "xgmi_num_links": links})
    first = tree.real(f"/sys/bus/pci/devices/{members[0].bdf}")
    hive = f"{first}/xgmi_hive_info"
    if gpu is members[0]:
        tree.attributes(hive, {"xgmi_hive_id": gpu.hive_id})
        for place, other in enumerate(members, 1):
            tree.link_to(f"{hive}/node{place}", tree.real(f"/sys/bus/pci/devices/{other.bdf}"))
    else:
        tree.link_to(f"{folder}/xgmi_hive_info", hive)


_RAS_BLOCKS = "umc sdma gfx mmhub athub pcie_bif hdp xgmi_wafl mp0 mp1 fuse mca vcn jpeg"


def _write_ras(tree: Tree, folder: str, era: tuple[int, int]) -> None:
    tree.attributes(f"{folder}/ras", {"features": "feature mask: 0x7fff"})
    if era >= (6, 12):
        tree.attributes(f"{folder}/ras", {"version": "table version: 0x10000", "schema": "schema: 0x9"})
        tree.files[f"{folder}/ras/event_state"] = "current seqno: 0\n"
    for block in _RAS_BLOCKS.split():
        deferred = "de: 0\n" if era >= (6, 12) and block == "umc" else ""
        tree.files[f"{folder}/ras/{block}_err_count"] = f"ue: 0\nce: 0\n{deferred}"
    tree.files[f"{folder}/ras/gpu_vram_bad_pages"] = ""


def _write_firmware(tree: Tree, plan: Plan, folder: str) -> None:
    assert plan.gpu_product is not None
    versions = {f"{block}_fw_version": f"0x{version:08x}" for block, version in plan.gpu_product.firmware.items()}
    tree.attributes(f"{folder}/fw_version", versions)


def _write_hwmon(tree: Tree, plan: Plan, folder: str, name: str) -> None:
    product, hwmon = plan.gpu_product, f"{folder}/hwmon/{name}"
    assert product is not None
    tree.attributes(hwmon, {"name": "amdgpu", **({} if product.virtual_function else _sensors(product))})
    tree.link_to(f"{hwmon}/device", folder)
    tree.link_to(f"{hwmon}/subsystem", "/sys/class/hwmon")
    tree.link_to(f"/sys/class/hwmon/{name}", hwmon)


def _sensors(product: GpuProduct) -> dict[str, object]:
    """Temperatures in millidegrees, power in microwatts, clocks in Hz, of an idle GPU."""
    shows, cap = product.shows, product.power_w * 1_000_000
    values: dict[str, object] = {
        "power1_cap": cap,
        "power1_cap_default": cap,
        "power1_cap_max": cap,
        "power1_cap_min": 0,
        "power1_label": "PPT",
        "freq1_input": product.sclk[0] * 1_000_000,
        "freq1_label": "sclk",
        "freq2_input": product.mclk[0] * 1_000_000,
        "freq2_label": "mclk",
    }
    for sensor, (label, heat) in {1: ("edge", 41000), 2: ("junction", 43000), 3: ("mem", 42000)}.items():
        if label != "edge" or "edge" in shows:
            values |= {
                f"temp{sensor}_input": heat,
                f"temp{sensor}_label": label,
                f"temp{sensor}_crit": 100000,
                f"temp{sensor}_crit_hyst": -273150,
                f"temp{sensor}_emergency": 105000,
            }
    if "voltage" in shows:
        values |= {"in0_input": 793, "in0_label": "vddgfx"}
    values |= {f"power1_{word}": 40_000_000 for word in ("average", "input") if f"{word}-power" in shows}
    if "fan" in shows:
        values |= {"fan1_input": 0, "fan1_enable": 0, "fan1_max": 4200, "fan1_min": 0, "pwm1": 0, "pwm1_enable": 2}
    return values


VIDEO_GID, RENDER_GID = 44, 109
GROUP_IDS = {"root": 0, "video": VIDEO_GID, "render": RENDER_GID}


def write_drm(
    tree: Tree, owner: str, *, card: int | None = None, render: int | None = None, group: str = "video"
) -> None:
    """A card or render node, below the device that owns it and below /dev/dri."""
    name, minor = (f"card{card}", card) if card is not None else (f"renderD{render}", render or 0)
    folder = f"{owner}/drm/{name}"
    tree.attributes(folder, {"dev": f"226:{minor}"})
    tree.files[f"{folder}/uevent"] = f"MAJOR=226\nMINOR={minor}\nDEVNAME=dri/{name}\nDEVTYPE=drm_minor\n"
    tree.link_to(f"{folder}/device", owner)
    tree.link_to(f"{folder}/subsystem", "/sys/class/drm")
    tree.link_to(f"/sys/class/drm/{name}", folder)
    tree.link_to(f"/sys/dev/char/226:{minor}", folder)
    tree.devices[f"/dev/dri/{name}"] = DeviceNode(226, minor, 0o660, 0, GROUP_IDS[group])


def write_displays(tree: Tree, plan: Plan) -> None:
    """The cards of displays that other drivers drive; they come first and have no render node."""
    for card, display in enumerate(plan.displays):
        write_drm(tree, tree.real(f"/sys/bus/pci/devices/{display.at}"), card=card)


def _metrics(xcds: int, gts: float) -> bytes:
    """gpu_metrics 1.3, of multi-die chips 1.5, idle: header, temperatures, power and link; all else not supported."""
    if xcds == 1:
        table = bytearray(b"\xff" * 120)
        struct.pack_into("<HBB", table, 0, 120, 1, 3)
        struct.pack_into("<HHH", table, 4, 41, 43, 42)
        struct.pack_into("<H", table, 22, 40)
        struct.pack_into("<HH", table, 74, 16, int(gts * 10))
        return bytes(table)
    table = bytearray(b"\xff" * 360)
    struct.pack_into("<HBB", table, 0, 360, 1, 5)
    struct.pack_into("<HH", table, 4, 43, 42)
    struct.pack_into("<H", table, 10, 140)
    struct.pack_into("<HH", table, 112, 16, int(gts * 10))
    return bytes(table)
