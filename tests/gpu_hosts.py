"""Machines with AMD GPUs, written file by file into memory: bus, KFD topology, driver and device nodes."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

from amdcheck.host.capture import Outcome
from amdcheck.host.protocol import Identity, OpenOutcome, Stat, UdevDevice
from amdcheck.host.snapshot import SnapshotHost
from amdcheck.knowledge.gpus import products
from tests.memory_host import ROOT, memory_host

TOPOLOGY = "/sys/class/kfd/kfd/topology"
BARE_METAL = "processor\t: 0\nvendor_id\t: AuthenticAMD\nflags\t\t: fpu sse2 avx avx2 fma\n"
GUEST = "processor\t: 0\nvendor_id\t: AuthenticAMD\nflags\t\t: fpu sse2 avx avx2 fma hypervisor\n"
IN_DOCKER = {"/.dockerenv": "", "/proc/self/mounts": "overlay / overlay rw 0 0\n/dev/sda2 /etc/hosts ext4 rw 0 0\n"}
KFD_STAT = Stat(kind="char", mode=0o660, uid=0, gid=109, size=0, device=(235, 0), acl=(), filesystem=None)
USER = Identity(
    uid=1000, user="ann", groups=(1000, 109), group_names={"render": 109, "video": 44}, node_name=None
)  # in group render


@dataclass
class Machine:
    """What a host will hold; tests change it before they ask for the host."""

    files: dict[str, str | bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    outcomes: dict[str, Outcome] = field(default_factory=dict)
    stats: dict[str, Stat] = field(default_factory=dict)
    opens: dict[str, OpenOutcome] = field(default_factory=dict)
    udev: list[UdevDevice] = field(default_factory=list)
    empty_dirs: list[str] = field(default_factory=list)
    identity: Identity = ROOT
    bdfs: list[str] = field(default_factory=list)

    def host(self, *, complete: bool = True) -> SnapshotHost:
        return memory_host(
            self.files,
            links=self.links,
            outcomes=self.outcomes,
            stats=self.stats,
            opens=self.opens,
            udev=self.udev,
            empty_dirs=self.empty_dirs,
            identity=self.identity,
            complete=complete,
        )

    def pci(self, bdf: str) -> str:
        """Where the device really lies."""
        target = self.links[f"/sys/bus/pci/devices/{bdf}"]
        return "/sys/" + target.removeprefix("../../../")

    def set(self, bdf: str, **attributes: str) -> None:
        """Overwrite attributes of a PCI device."""
        for name, value in attributes.items():
            self.files[f"{self.pci(bdf)}/{name}"] = f"{value}\n"

    def unread(self, path: str, outcome: Outcome) -> None:
        """Let a file, link or folder answer with this outcome."""
        self.files.pop(path, None)
        self.links.pop(path, None)
        self.outcomes[path] = outcome

    def take_off_bus(self, bdf: str) -> None:
        """Remove a device from the bus listing, its files included; the KFD forgets it too."""
        place = self.pci(bdf)
        del self.links[f"/sys/bus/pci/devices/{bdf}"]
        self.files = {path: text for path, text in self.files.items() if not path.startswith(f"{place}/")}
        self.links = {path: text for path, text in self.links.items() if not path.startswith(f"{place}/")}
        for node in self.nodes_of(bdf):
            self.forget_node(node)

    def nodes_of(self, bdf: str) -> list[int]:
        bus = int(bdf.split(":")[1], 16)
        found = []
        for path, text in self.files.items():
            if path.startswith(f"{TOPOLOGY}/nodes/") and path.endswith("/properties") and path.count("/") == 8:
                values = dict(line.split() for line in str(text).splitlines())
                if int(values["simd_count"]) and int(values["location_id"]) >> 8 & 0xFF == bus:
                    found.append(int(path.split("/")[7]))
        return found

    def forget_node(self, node: int) -> None:
        """Remove a KFD node and every link that leads to it."""
        gone = [p for p in self.files if p.startswith(f"{TOPOLOGY}/nodes/{node}/")]
        gone += [p for p, text in self.files.items() if "_links/" in p and f"node_to {node}\n" in str(text)]
        for path in gone:
            self.files.pop(path, None)

    def unlink(self, start: int, end: int) -> None:
        """Remove the io_link from one node to another."""
        for path, text in list(self.files.items()):
            if path.startswith(f"{TOPOLOGY}/nodes/{start}/io_links/") and f"node_to {end}\n" in str(text):
                del self.files[path]


def cpu_host(cpuinfo: str = BARE_METAL) -> Machine:
    """A machine without any GPU: a network card and a BMC's display on the bus."""
    machine = Machine()
    machine.files["/proc/cpuinfo"] = cpuinfo
    maker = (
        ("QEMU", "Standard PC (Q35 + ICH9, 2009)") if "hypervisor" in cpuinfo else ("Supermicro", "AS -8125GS-TNMR2")
    )
    machine.files["/sys/class/dmi/id/sys_vendor"], machine.files["/sys/class/dmi/id/product_name"] = maker
    add_device(machine, "0000:00:01.0", [], vendor="0x1022", device="0x1483", class_code="0x060400")
    add_device(machine, "0000:01:00.0", ["0000:00:01.0"], vendor="0x15b3", device="0x1019", class_code="0x020000")
    add_device(machine, "0000:02:00.0", ["0000:00:01.0"], vendor="0x1a03", device="0x2000", class_code="0x030000")
    machine.empty_dirs += ["/opt", "/sys/module", "/dev"]
    return machine


def gpu_host(
    product: str,
    gpus: int,
    *,
    partitions: int = 1,
    hives: tuple[int, ...] = (),
    guest: bool = False,
    device_id: str | None = None,
) -> Machine:
    """A machine with GPUs of one product, its driver loaded, all links as they should be.

    `hives` are the sizes of its xGMI hives, in the order of the GPUs; without it no GPU has xGMI.
    """
    machine = cpu_host(GUEST if guest else BARE_METAL)
    machine.files["/sys/module/amdgpu/initstate"] = "live\n"
    machine.stats["/dev/kfd"] = KFD_STAT
    hive_of = [number for number, size in enumerate(hives) for _ in range(size)]
    for index in range(gpus):
        add_gpu(machine, product, index, guest=guest, device_id=device_id)
    add_topology(machine, product, gpus, partitions=partitions, hive_of=hive_of, device_id=device_id)
    return machine


def add_device(
    machine: Machine,
    bdf: str,
    parents: list[str],
    *,
    vendor: str,
    device: str,
    class_code: str,
    **attributes: str,
) -> None:
    """One device on the bus; `parents` from the root port down."""
    place = "/".join(["devices/pci" + bdf.rpartition(":")[0].partition(":")[0] + ":00", *parents, bdf])
    machine.links[f"/sys/bus/pci/devices/{bdf}"] = f"../../../{place}"
    values = {"vendor": vendor, "device": device, "class": class_code, "numa_node": "0", **attributes}
    for name, value in values.items():
        machine.files[f"/sys/{place}/{name}"] = f"{value}\n"


def link(
    width: int = 16, full: int = 16, speed: str = "16.0 GT/s PCIe", full_speed: str | None = None
) -> dict[str, str]:
    """The link attributes of a port."""
    return {
        "current_link_width": str(width),
        "max_link_width": str(full),
        "current_link_speed": speed,
        "max_link_speed": full_speed or speed,
    }


def add_gpu(machine: Machine, product: str, index: int, *, guest: bool = False, device_id: str | None = None) -> str:
    """A GPU below a root port and, on products that have one, the switch of its card."""
    row = products()[product]
    bus = 0x10 + 0x10 * index
    root, up, down, bdf = f"0000:{bus - 1:02x}:01.1", f"0000:{bus:02x}:00.0", f"0000:{bus + 1:02x}:00.0", ""
    bdf = f"0000:{bus + 2:02x}:00.0"
    parents: list[str] = []
    if not guest:
        add_device(machine, root, [], vendor="0x1022", device="0x1483", class_code="0x060400", **link())
        parents = [root]
        if row.slot_behind_switch:
            ids = {"gfx90a": ("0x1022", "0x14c7"), "gfx942": ("0x1022", "0x1500")}.get(row.gfx, ("0x1002", "0x14a0"))
            add_device(machine, up, parents, vendor=ids[0], device=ids[1], class_code="0x060400", **link())
            add_device(machine, down, [*parents, up], vendor=ids[0], device="0x14a1", class_code="0x060400", **link())
            parents = [root, up, down]
    code = "0x120000" if row.gfx in ("gfx942", "gfx950") else "0x038000" if row.gfx.startswith("gfx9") else "0x030000"
    add_device(
        machine, bdf, parents, vendor="0x1002", device=device_id or f"0x{row.pci_ids[0]}", class_code=code,
        revision="0x00", mem_info_vram_total=str((row.memory_gib or (16,))[0] << 30), vbios_version="113-X", **link(),
    )  # fmt: skip
    place = machine.pci(bdf)
    machine.links[f"{place}/driver"] = "../../../../bus/pci/drivers/amdgpu"
    machine.files[f"{place}/power/runtime_status"] = "active\n"
    machine.files[f"{place}/drm/renderD{128 + index}/dev"] = f"226:{128 + index}\n"
    machine.stats[f"/dev/dri/renderD{128 + index}"] = KFD_STAT
    machine.bdfs.append(bdf)
    return bdf


def add_topology(
    machine: Machine,
    product: str,
    gpus: int,
    *,
    partitions: int,
    hive_of: list[int],
    device_id: str | None = None,
) -> None:
    """One CPU node and the nodes of all GPUs, every link both ways."""
    row = products()[product]
    machine.files[f"{TOPOLOGY}/generation_id"] = "2\n"
    _node(machine, 0, cpu_cores_count=64, simd_count=0, location_id=0, domain=0)
    ids = count(1)
    nodes: list[tuple[int, int]] = []  # node, gpu
    for gpu in range(gpus):
        bus = int(machine.bdfs[gpu].split(":")[1], 16)
        for part in range(partitions):
            node = next(ids)
            nodes.append((node, gpu))
            _node(
                machine, node, cpu_cores_count=0, simd_count=(row.cus or 64) * 4 // partitions, simd_per_cu=4,
                gfx_target_version=_version(row.gfx), vendor_id=4098,
                device_id=int(device_id or row.pci_ids[0], 16), location_id=bus << 8 | part, domain=0,
                drm_render_minor=128 + (gpu if partitions == 1 else node), unique_id=0xABCD000000000000 + gpu,
                hive_id=0xF00D0000 + hive_of[gpu] if hive_of else 0, gpu_id=1000 + node,
            )  # fmt: skip
            if partitions > 1:
                machine.stats[f"/dev/dri/renderD{128 + node}"] = KFD_STAT
            memory = (row.memory_gib or (16,))[0] << 30
            folder = f"{TOPOLOGY}/nodes/{node}/mem_banks/0"
            machine.files[f"{folder}/properties"] = f"heap_type 1\nsize_in_bytes {memory // partitions}\n"
    for node, gpu in nodes:
        _link(machine, node, 0, 0, 2, 20)
        _link(machine, 0, node - 1, node, 2, 20)
        for index, (other, theirs) in enumerate(nodes, start=1):
            if other == node:
                continue
            joined = theirs == gpu or (bool(hive_of) and hive_of[theirs] == hive_of[gpu])
            if joined:
                weight = 13 if theirs == gpu else 41 if partitions > 1 else 15
                _link(machine, node, index, other, 11, weight)


def _version(gfx: str) -> int:
    digits = gfx.removeprefix("gfx")
    return int(digits[:-2]) * 10000 + int(digits[-2]) * 100 + int(digits[-1], 16)


def _node(machine: Machine, node: int, **values: int) -> None:
    folder = f"{TOPOLOGY}/nodes/{node}"
    machine.files[f"{folder}/gpu_id"] = f"{values.pop('gpu_id', 0)}\n"
    machine.files[f"{folder}/name"] = "\n"
    machine.files[f"{folder}/properties"] = "".join(f"{name} {value}\n" for name, value in values.items())


def _link(machine: Machine, node: int, index: int, to: int, kind: int, weight: int) -> None:
    machine.files[f"{TOPOLOGY}/nodes/{node}/io_links/{index}/properties"] = (
        f"type {kind}\nversion_major 0\nversion_minor 0\nnode_from {node}\nnode_to {to}\nweight {weight}\n"
        "min_latency 0\nmax_latency 0\nmin_bandwidth 0\nmax_bandwidth 0\nrecommended_transfer_size 0\nflags 1\n"
    )
