"""The PCI tree: root complexes, ports, switches, cards, and every file that the PCI core shows of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.compose.config_space import Bar, Link, Window, config_space
from tests.compose.plan import Gpu, Plan, cpu_list
from tests.compose.tree import Tree

BUS = "/sys/bus/pci"
_MIB, _GIB = 1 << 20, 1 << 30
_NO_WINDOW = (1, 0)


@dataclass(frozen=True)
class Function:
    """One PCI function. `path` is its folder below /sys/devices; ids are (vendor, device)."""

    bdf: str
    path: str
    ids: tuple[int, int]
    class_code: int
    node: int
    kind: str | None  # endpoint, root-port, upstream, downstream; None: conventional
    driver: str | None = None
    revision: int = 0
    subsystem: tuple[int, int] = (0, 0)
    asleep: bool = False
    link: Link | None = None
    bars: tuple[Bar, ...] = ()
    buses: tuple[int, int] | None = None  # secondary and subordinate, of a bridge
    window: tuple[int, int] = _NO_WINDOW

    @property
    def bus(self) -> int:
        return int(self.bdf.split(":")[1], 16)


def write_pci(tree: Tree, plan: Plan) -> dict[int, str]:
    """Write every function; returns the folder of each GPU that is on the bus, by its index."""
    functions: list[Function] = []
    folders: dict[int, str] = {}
    for root in plan.roots:
        functions += _root_complex(plan, root)
    for gpu in plan.gpus:
        chain = _chain(plan, gpu)
        if gpu.slot.on_bus:
            folders[gpu.index] = chain[-1].path
            functions += chain
        else:
            functions.append(_empty_port(chain[0]))
    for index, device in enumerate(plan.machine.device):
        functions += _other(plan, index, device.port, device.at)
    for group, function in enumerate(functions):
        _write_function(tree, plan, function)
        _write_group(tree, plan, function, group)
    _write_buses(tree, plan, functions)
    _write_slots(tree, functions)
    return folders


def ids(text: str) -> tuple[int, int]:
    """`vendor:device` in hexadecimal as numbers."""
    vendor, _, device = text.partition(":")
    return int(vendor, 16), int(device, 16)


def _root_path(at: str) -> str:
    return f"/sys/devices/pci{at.rpartition(':')[0]}"


def _root_complex(plan: Plan, root: str) -> list[Function]:
    """Host bridge, IOMMU and the dummy bridges that head the ports' device numbers."""
    path, node = f"/sys/devices/pci{root}", plan.root_node(f"{root}:00.0")

    def conventional(place: str, device: str, class_code: int) -> Function:
        chip = (0x1022, int(device, 16))
        bdf = f"{root}:{place}"
        return Function(bdf, f"{path}/{bdf}", chip, class_code, node, None, subsystem=chip)

    if plan.guest:
        host = conventional("00.0", "29c0", 0x060000)
        return [replace(host, ids=(0x8086, 0x29C0), subsystem=(0x1AF4, 0x1100))]
    complex_ = plan.generation.root_complex
    found = [conventional("00.0", complex_.host, 0x060000), conventional("00.2", complex_.iommu, 0x080600)]
    return found + [conventional(f"{number:02x}.0", complex_.dummy, 0x060000) for number in (1, 2, 3, 4, 5, 7, 8)]


def _step(at: str, back: int) -> str:
    """The address on the bus `back` below that of `at`."""
    domain, bus, _ = at.split(":")
    return f"{domain}:{int(bus, 16) - back:02x}:00.0"


def _chain(plan: Plan, gpu: Gpu) -> list[Function]:
    """The functions from the root port down to the GPU."""
    window, last = _vram_window(plan, gpu), int(gpu.bdf.split(":")[1], 16)
    levels = _levels(plan, gpu)
    below = levels[0][0] if levels else gpu.bdf
    chain = [_port(plan, gpu.slot.port, gpu.node, _port_link(plan, gpu, levels), last, below, window)]
    for address, chip, kind, link in levels:
        bus = int(address.split(":")[1], 16)
        chain.append(
            Function(
                address,
                f"{chain[-1].path}/{address}",
                ids(chip),
                0x060400,
                gpu.node,
                kind,
                driver="pcieport",
                subsystem=ids(chip),
                link=link,
                buses=(bus + 1, last),
                window=window,
            )
        )
    return [*chain, _gpu_function(plan, gpu, chain[-1].path, window[0])]


_Level = tuple[str, str, str, Link]  # address, ids, kind and link of a bridge between root port and GPU


def _slot_link(plan: Plan, gpu: Gpu, max_gts: float) -> Link:
    """The link of the slot, seen from an end that can do `max_gts`."""
    product, slot = plan.gpu_product, gpu.slot
    assert product is not None
    gts = slot.link_gts or min(product.slot_gts, _port_gts(plan))
    return Link(slot.link_width or slot.lanes, gts, slot.lanes, max_gts)


def _port_gts(plan: Plan) -> float:
    return 16.0 if plan.guest else plan.generation.root_complex.gts


def _levels(plan: Plan, gpu: Gpu) -> list[_Level]:
    """The board's switch, if there is one, then the bridges on the card."""
    product, gpus = plan.gpu_product, plan.machine.gpus
    assert product is not None
    assert gpus is not None
    levels: list[_Level] = []
    on_card = 2 * bool(product.on_card)
    if gpus.switch:
        full = Link(16, _port_gts(plan), 16, _port_gts(plan))
        levels.append((_step(gpu.bdf, on_card + 2), gpus.switch, "upstream", full))
        levels.append((_step(gpu.bdf, on_card + 1), gpus.switch, "downstream", _slot_link(plan, gpu, _port_gts(plan))))
    if product.on_card:
        inner = Link(16, product.link_gts, 16, product.link_gts)
        levels.append((_step(gpu.bdf, 2), product.on_card[0], "upstream", _slot_link(plan, gpu, product.slot_gts)))
        levels.append((_step(gpu.bdf, 1), product.on_card[1], "downstream", inner))
    return levels


def _port_link(plan: Plan, gpu: Gpu, levels: Sequence[_Level]) -> Link:
    """The root port's link: the slot's, unless the slot is below a switch."""
    has_switch = plan.machine.gpus is not None and plan.machine.gpus.switch is not None
    return levels[0][3] if has_switch else _slot_link(plan, gpu, _port_gts(plan))


def _gpu_function(plan: Plan, gpu: Gpu, above: str, start: int) -> Function:
    product = plan.gpu_product
    assert product is not None
    if product.virtual_function:
        link = Link(0, 0.0, 0, 0.0)
    elif product.on_card:
        link = Link(16, product.link_gts, 16, product.link_gts)
    else:
        link = _slot_link(plan, gpu, product.slot_gts)
    return Function(
        gpu.bdf,
        f"{above}/{gpu.bdf}",
        (0x1002, int(product.device, 16)),
        int(product.class_code, 16),
        gpu.node,
        "endpoint",
        driver=_gpu_driver(plan, gpu),
        revision=int(product.revision, 16),
        subsystem=(0x1002, int(product.subsystem, 16)),
        asleep=gpu.slot.asleep,
        link=link,
        bars=_gpu_bars(plan, start),
    )


def _gpu_driver(plan: Plan, gpu: Gpu) -> str | None:
    """The driver that is bound: amdgpu only when it is loaded."""
    bound = gpu.slot.driver
    return (bound or None) if bound != "amdgpu" or plan.driver_loaded else None


def _vram_window(plan: Plan, gpu: Gpu) -> tuple[int, int]:
    """Where the GPU's memory is mapped: a terabyte for each GPU, far above the machine's own."""
    start = 0x200_0000_0000 + gpu.index * (1 << 40)
    return start, start + 2 * _vram_bar(plan) - 1


def _vram_bar(plan: Plan) -> int:
    """A BAR is a power of two: the next above the memory's size."""
    assert plan.gpu_product is not None
    return 1 << (plan.gpu_product.vram_mib * _MIB - 1).bit_length()


def _gpu_bars(plan: Plan, start: int) -> tuple[Bar, ...]:
    """VRAM in BAR 0, doorbells in BAR 2, registers in BAR 5: what amdgpu needs of every chip since Vega."""
    vram = _vram_bar(plan)
    return (
        Bar(0, start, vram, wide=True, prefetchable=True),
        Bar(2, start + vram, 2 * _MIB, wide=True, prefetchable=True),
        Bar(5, 0xB0000000 + (start >> 40) * _MIB, 512 << 10, wide=False, prefetchable=False),
    )


def _port(plan: Plan, at: str, node: int, link: Link, last: int, below: str, window: tuple[int, int]) -> Function:
    chip = (0x1B36, 0x000C) if plan.guest else (0x1022, int(plan.generation.root_complex.port, 16))
    return Function(
        at,
        f"{_root_path(at)}/{at}",
        chip,
        0x060400,
        node,
        "root-port",
        driver="pcieport",
        subsystem=chip,
        link=link,
        buses=(int(below.split(":")[1], 16), last),
        window=window,
    )


def _empty_port(port: Function) -> Function:
    """The root port when nothing answers behind it: the link is down."""
    assert port.link is not None
    down = Link(0, 2.5, port.link.max_width, port.link.max_gts)
    return replace(port, link=down, window=_NO_WINDOW)


def _other(plan: Plan, index: int, port: str, at: str) -> list[Function]:
    device = plan.machine.device[index]
    link = Link(device.lanes, device.gts, device.lanes, device.gts)
    node, start = plan.root_node(port), 0x100_0000_0000 + index * _GIB
    last = int(at.split(":")[1], 16)
    above = _port(plan, port, node, link, last, at, (start, start + 16 * _MIB - 1))
    endpoint = Function(
        at,
        f"{above.path}/{at}",
        ids(device.id),
        int(device.class_code, 16),
        node,
        "endpoint",
        driver=device.driver,
        subsystem=ids(device.id),
        link=link,
        bars=(Bar(0, start, 16 * _MIB, wide=True, prefetchable=True),),
    )
    return [above, endpoint]


# -- files -------------------------------------------------------------------------------------------------------------


def _write_function(tree: Tree, plan: Plan, function: Function) -> None:
    path, (vendor, device) = function.path, function.ids
    sub_vendor, sub_device = function.subsystem
    code = function.class_code
    modalias = (
        f"pci:v{vendor:08X}d{device:08X}sv{sub_vendor:08X}sd{sub_device:08X}"
        f"bc{code >> 16:02X}sc{code >> 8 & 255:02X}i{code & 255:02X}"
    )
    local = [t.id for t in plan.online if function.node in (-1, t.node)]
    tree.attributes(
        path,
        {
            "vendor": f"0x{vendor:04x}",
            "device": f"0x{device:04x}",
            "subsystem_vendor": f"0x{sub_vendor:04x}",
            "subsystem_device": f"0x{sub_device:04x}",
            "class": f"0x{code:06x}",
            "revision": f"0x{function.revision:02x}",
            "modalias": modalias,
            "irq": 0 if function.driver is None else 40 + function.bus,
            "enable": 0 if function.driver is None else 1,
            "numa_node": function.node,
            "local_cpus": plan.mask(local),
            "local_cpulist": cpu_list(local),
            "broken_parity_status": 0,
            "msi_bus": 1,
            "d3cold_allowed": 1,
            "power_state": "D3cold" if function.asleep else "D0",
            "driver_override": "(null)",
            "dma_mask_bits": 48 if function.driver == "amdgpu" else 32,
            "consistent_dma_mask_bits": 48 if function.driver == "amdgpu" else 32,
            "ari_enabled": 0,
            "power/control": "auto" if function.asleep else "on",
            "power/runtime_status": "suspended" if function.asleep else "active",
            "power/runtime_usage": 0 if function.asleep else 1,
            **({"boot_vga": int(function.driver == "ast")} if code >> 8 == 0x0300 else {}),
        },
    )
    tree.files[f"{path}/uevent"] = (
        (f"DRIVER={function.driver}\n" if function.driver else "")
        + f"PCI_CLASS={code:X}\nPCI_ID={vendor:04X}:{device:04X}\nPCI_SUBSYS_ID={sub_vendor:04X}:{sub_device:04X}\n"
        f"PCI_SLOT_NAME={function.bdf}\nMODALIAS={modalias}\n"
    )
    tree.files[f"{path}/resource"] = _resource(function)
    tree.files[f"{path}/config"] = _config(function)
    _write_link(tree, function)
    tree.link_to(f"{path}/subsystem", BUS)
    tree.link_to(f"{BUS}/devices/{function.bdf}", path)
    if function.driver:
        driver = f"{BUS}/drivers/{function.driver}"
        tree.link_to(f"{path}/driver", driver)
        tree.link_to(f"{driver}/{function.bdf}", path)
        if function.driver != "pcieport":
            tree.link_to(f"{driver}/module", f"/sys/module/{function.driver}")


def _write_link(tree: Tree, function: Function) -> None:
    """Link and error attributes exist for PCIe functions alone."""
    link = function.link
    if function.kind is None or link is None:
        return
    tree.attributes(
        function.path,
        {
            "current_link_speed": _speed(link.gts),
            "current_link_width": link.width,
            "max_link_speed": _speed(link.max_gts),
            "max_link_width": link.max_width,
        },
    )
    if link.max_width:  # a virtual function has no error counters of its own either
        for name, errors in _AER.items():
            tree.files[f"{function.path}/aer_dev_{name}"] = "".join(f"{error} 0\n" for error in errors.split())


def _speed(gts: float) -> str:
    return f"{gts:.1f} GT/s PCIe" if gts else "Unknown"


_FATAL = (
    "Undefined DLP SDES TLP FCP CmpltTO CmpltAbrt UnxCmplt RxOF MalfTLP ECRC UnsupReq ACSViol UncorrIntErr BlockedTLP "
    "AtomicOpBlocked TLPBlockedErr PoisonTLPBlocked DMWrReqBlocked IDECheck MisIDETLP PCRC_CHECK TLPXlatBlocked"
)
_AER = {
    "correctable": "RxErr BadTLP BadDLLP Rollover Timeout NonFatalErr CorrIntErr HeaderOF TOTAL_ERR_COR",
    "nonfatal": f"{_FATAL} TOTAL_ERR_NONFATAL",
    "fatal": f"{_FATAL} TOTAL_ERR_FATAL",
}


def _resource(function: Function) -> str:
    """One line a resource: six BARs, the ROM, six for virtual functions, and four windows of a bridge."""
    lines = [(0, 0, 0)] * (17 if function.buses else 13)
    for bar in function.bars:
        flags = 0x40200 | (0x2000 if bar.prefetchable else 0) | (0x10000C if bar.wide else 0)
        lines[bar.index] = (bar.address, bar.address + bar.size - 1, flags)
    start, end = function.window
    if function.buses and end > start:
        lines[15] = (start, end, 0x102201)
    return "".join(f"0x{a:016x} 0x{b:016x} 0x{flags:016x}\n" for a, b, flags in lines)


def _config(function: Function) -> bytes:
    buses = function.buses
    return config_space(
        vendor=function.ids[0],
        device=function.ids[1],
        class_code=function.class_code,
        revision=function.revision,
        subsystem=function.subsystem,
        port_type=function.kind,
        port_number=function.bus & 7,
        link=function.link,
        bars=function.bars,
        window=Window(function.bus, *buses, *function.window) if buses else None,
    )


def _write_group(tree: Tree, plan: Plan, function: Function, number: int) -> None:
    """With ACS on, each function is an IOMMU group of its own."""
    if plan.machine.settings.iommu == "off" or plan.guest:
        return
    group = f"/sys/kernel/iommu_groups/{number}"
    tree.attributes(group, {"type": plan.machine.settings.iommu})
    tree.files[f"{group}/reserved_regions"] = "0x00000000fee00000 0x00000000feefffff msi\n"
    tree.link_to(f"{group}/devices/{function.bdf}", function.path)
    tree.link_to(f"{function.path}/iommu_group", group)


def _write_buses(tree: Tree, plan: Plan, functions: Sequence[Function]) -> None:
    """The pci_bus class: which CPUs are near each bus."""
    for root in plan.roots:
        _write_bus(tree, plan, root, f"/sys/devices/pci{root}", plan.root_node(f"{root}:00.0"))
    for function in functions:
        if function.buses:
            bus = f"{function.bdf.split(':')[0]}:{function.buses[0]:02x}"
            _write_bus(tree, plan, bus, function.path, function.node)
            tree.attributes(
                function.path,
                {"secondary_bus_number": function.buses[0], "subordinate_bus_number": function.buses[1]},
            )


def _write_slots(tree: Tree, functions: Sequence[Function]) -> None:
    """Physical slots: those whose port has something behind it name its address, without the function."""
    ports = [f for f in functions if f.kind == "root-port" and f.buses and f.link]
    for number, port in enumerate(ports, 1):
        assert port.buses is not None
        assert port.link is not None
        speeds = {"cur_bus_speed": _speed(port.link.gts), "max_bus_speed": _speed(port.link.max_gts)}
        address = f"{port.bdf.split(':')[0]}:{port.buses[0]:02x}:00"
        tree.attributes(f"{BUS}/slots/{number}", {"address": address, **speeds})


def _write_bus(tree: Tree, plan: Plan, bus: str, parent: str, node: int) -> None:
    folder = f"{parent}/pci_bus/{bus}"
    local = [t.id for t in plan.online if node in (-1, t.node)]
    tree.attributes(folder, {"cpuaffinity": plan.mask(local), "cpulistaffinity": cpu_list(local)})
    tree.link_to(f"/sys/class/pci_bus/{bus}", folder)
