"""From a description to places: which CPU lies in which CCX and node, which GPU behind which ports, in which hive."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from tests.compose.description import DescriptionError, Machine, OtherDevice, Slot
from tests.compose.products import (
    CpuProduct,
    DriverRelease,
    Generation,
    GpuProduct,
    cpu_product,
    driver_release,
    generation,
    gpu_product,
)

PARTITIONS = {"SPX": 1, "DPX": 2, "TPX": 3, "QPX": 4}  # CPX: one for each XCD
FIRST_RENDER_MINOR = 128

# First bus of each root complex, quadrant by quadrant, as EPYC servers number them: one socket, two, four (MI300A).
_ROOT_BUSES: dict[int, tuple[tuple[int, ...], ...]] = {
    1: ((0xC0, 0x80, 0x40, 0x00),),
    2: ((0x60, 0x40, 0x20, 0x00), (0xE0, 0xC0, 0xA0, 0x80)),
    4: ((0x00,), (0x40,), (0x80,), (0xC0,)),
}


@dataclass(frozen=True)
class Thread:
    """One logical CPU. `core` counts within the socket, `ccx` over the machine."""

    id: int
    socket: int
    core: int
    thread: int
    ccx: int
    node: int
    apic_id: int


@dataclass(frozen=True)
class Node:
    """One NUMA node; `cpus` are the online ones."""

    id: int
    socket: int
    cpus: tuple[int, ...]
    memory_kib: int


@dataclass(frozen=True)
class Partition:
    """One KFD node of a GPU."""

    index: int
    kfd_node: int
    gpu_id: int
    card: int
    render_minor: int
    cus: int
    memory_bytes: int


@dataclass(frozen=True)
class Gpu:
    """One GPU of the description; without partitions when the driver does not drive it."""

    index: int
    slot: Slot
    node: int
    unique_id: int
    hive_id: int
    compute_partition: str | None
    partitions: tuple[Partition, ...]
    present: tuple[Partition, ...]  # without the missing ones

    @property
    def bdf(self) -> str:
        return self.slot.at


def number(*words: object, bits: int = 64) -> int:
    """A number that is always the same for these words, never zero: serials, unique ids, hive ids."""
    digest = hashlib.sha256("\0".join(map(str, words)).encode()).digest()
    return int.from_bytes(digest[:8], "little") >> (64 - bits) or 1


def cpu_list(cpus: Sequence[int]) -> str:
    """The kernel's list form, for example 0-3,8."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and cpu == runs[-1][1] + 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)


class Plan:
    """A machine laid out. Everything that the writers need more than once is here."""

    def __init__(self, name: str, machine: Machine) -> None:
        self.name = name
        self.machine = machine
        self.cpu: CpuProduct = cpu_product(machine.cpu.product)
        self.generation: Generation = generation(self.cpu.generation)
        self.gpu_product: GpuProduct | None = gpu_product(machine.gpus.product) if machine.gpus else None
        self.guest = machine.platform.hypervisor is not None

    # -- processors ---------------------------------------------------------------------------------------------------

    @property
    def sockets(self) -> int:
        return self.machine.cpu.sockets

    @property
    def cores(self) -> int:
        """Cores of one socket."""
        return self.machine.cpu.cores or self.cpu.cores

    @property
    def threads_per_core(self) -> int:
        return 2 if self.machine.cpu.smt else 1

    @property
    def cores_per_ccx(self) -> int:
        return self.machine.cpu.cores_per_ccx or self.cpu.cores_per_ccx

    @property
    def ccx_per_socket(self) -> int:
        return -(-self.cores // self.cores_per_ccx)

    def l3_kib(self, ccx: int) -> int:
        """Size of one L3 slice; 0 when none is shown."""
        cpu = self.machine.cpu
        usual = self.cpu.l3_mib_per_ccx if cpu.l3_mib is None else cpu.l3_mib
        return cpu.l3_mib_of.get(str(ccx), usual) * 1024

    @cached_property
    def threads(self) -> tuple[Thread, ...]:
        """Every CPU: first the first thread of all cores of all sockets, then the second, as Linux numbers them."""
        cores, stride = self.cores, 1 << (self.cores * self.threads_per_core - 1).bit_length()
        return tuple(
            Thread(
                id=(thread * self.sockets + socket) * cores + core,
                socket=socket,
                core=core,
                thread=thread,
                ccx=socket * self.ccx_per_socket + core // self.cores_per_ccx,
                node=self._node_of(socket, core),
                apic_id=socket * stride + core * self.threads_per_core + thread,
            )
            for thread in range(self.threads_per_core)
            for socket in range(self.sockets)
            for core in range(cores)
        )

    def _node_of(self, socket: int, core: int) -> int:
        ccx, cpu = core // self.cores_per_ccx, self.machine.cpu
        if cpu.nps == 0:
            return 0
        if cpu.nps == "l3":
            return socket * self.ccx_per_socket + ccx
        nps = [cpu.nps_of.get(str(place), cpu.nps) for place in range(self.sockets)]
        return sum(nps[:socket]) + ccx * nps[socket] // self.ccx_per_socket

    @cached_property
    def online(self) -> tuple[Thread, ...]:
        """The CPUs that are not offline."""
        offline = set(self.machine.cpu.offline)
        if not offline < {t.id for t in self.threads}:
            raise DescriptionError(f"cpu.offline: {sorted(offline)} are not some of {len(self.threads)} CPUs")
        return tuple(t for t in self.threads if t.id not in offline)

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The NUMA nodes, all online."""
        sockets = {t.node: t.socket for t in self.threads}
        empty = set(self.machine.cpu.nodes_without_memory)
        if not empty < set(sockets):
            raise DescriptionError(f"cpu.nodes_without_memory: {sorted(empty)} are not some of {sorted(sockets)}")
        kib = self.machine.cpu.memory_gib << 20
        share = kib // (len(sockets) - len(empty))
        reserved = share // 64  # what firmware and the kernel's page tables keep for themselves
        cpus: dict[int, list[int]] = {node: [] for node in sockets}
        for thread in self.online:
            cpus[thread.node].append(thread.id)
        return tuple(
            Node(node, sockets[node], tuple(cpus[node]), 0 if node in empty else share - reserved)
            for node in sorted(sockets)
        )

    @property
    def memory_kib(self) -> int:
        """MemTotal."""
        return sum(node.memory_kib for node in self.nodes)

    def distance(self, a: Node, b: Node) -> int:
        """The SLIT as EPYC firmware writes it: 10 itself, 12 in the socket (11 beside it for L3 nodes), 32 across."""
        cpu = self.machine.cpu
        if a.id == b.id or cpu.equal_distances:
            return 10
        if f"{a.id} {b.id}" in cpu.distance_of:
            return cpu.distance_of[f"{a.id} {b.id}"]
        if a.socket != b.socket:
            return 32
        return 11 if cpu.nps == "l3" else 12

    def mask(self, cpus: Sequence[int]) -> str:
        """The kernel's mask form: as many digits as there are possible CPUs, in groups of 32 bits."""
        bits = 0
        for cpu in cpus:
            bits |= 1 << cpu
        possible = len(self.threads)
        digits = f"{bits:0{-(-possible // 4)}x}"
        head = len(digits) % 8
        groups = [digits[:head]] if head else []
        return ",".join(groups + [digits[i : i + 8] for i in range(head, len(digits), 8)])

    # -- root complexes ----------------------------------------------------------------------------------------------

    def root_node(self, at: str) -> int:
        """The NUMA node of the root complex that holds the PCI address `at`; -1 where the firmware names none."""
        if self.guest or len(at.partition(":")[0]) > 4:
            return -1
        bus = int(at[5:7], 16)
        for socket, buses in enumerate(_ROOT_BUSES[self.sockets]):
            for quadrant, first in enumerate(buses):
                if first == bus:
                    first_core = self.cores * quadrant // len(buses)
                    return self._node_of(socket, first_core)
        raise DescriptionError(f"gpus.slot: {at} is on no root complex of {self.sockets} sockets")

    @cached_property
    def roots(self) -> tuple[str, ...]:
        """The root buses, for example 0000:60, of the whole machine in ascending order."""
        ports = [slot.port for slot in self.machine.gpus.slot] if self.machine.gpus else []
        ports += [device.port for device in self.machine.device]
        named = {port.rpartition(":")[0] for port in ports}
        if self.guest:
            return tuple(sorted(named | {"0000:00"}))
        return tuple(sorted({f"0000:{bus:02x}" for buses in _ROOT_BUSES[self.sockets] for bus in buses} | named))

    # -- graphics ----------------------------------------------------------------------------------------------------

    @property
    def dkms(self) -> DriverRelease | None:
        """The DKMS release, when the driver is one."""
        driver = self.machine.driver
        return driver_release(driver.release) if driver and driver.kind == "dkms" else None

    @property
    def driver_loaded(self) -> bool:
        driver = self.machine.driver
        return bool(driver and driver.loaded and driver.built)

    @property
    def era(self) -> tuple[int, int]:
        """The mainline release whose amdgpu attributes the driver shows."""
        if self.dkms:
            return self.dkms.era
        major, minor = self.machine.os.kernel.split(".")[:2]
        return int(major), int(minor)

    @cached_property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs of the description, in the order in which the driver finds them."""
        gpus, product = self.machine.gpus, self.gpu_product
        if gpus is None or product is None:
            return ()
        found: list[Gpu] = []
        kfd_node, minor = len(self.nodes), 0
        for index, slot in enumerate(gpus.slot):
            mode = slot.compute_partition or gpus.compute_partition
            parts = self._partitions(slot, mode, product, kfd_node, minor)
            present = tuple(part for part in parts if part.index not in slot.missing_partitions)
            kfd_node += len(present) if slot.in_kfd else 0
            minor += len(present)
            found.append(
                Gpu(
                    index=index,
                    slot=slot,
                    node=self.root_node(slot.port) if slot.node is None else slot.node,
                    unique_id=number(self.name, slot.at, "unique"),
                    hive_id=0 if slot.hive is None else number(self.name, slot.hive, "hive"),
                    compute_partition=mode,
                    partitions=parts,
                    present=present,
                )
            )
        return tuple(found)

    def _partitions(
        self, slot: Slot, mode: str | None, product: GpuProduct, kfd_node: int, minor: int
    ) -> tuple[Partition, ...]:
        """The partitions of a slot's GPU, none when amdgpu does not drive it. Missing ones take no numbers."""
        if not (self.driver_loaded and slot.on_bus and slot.driver == "amdgpu"):
            return ()
        count = self._partition_count(mode, product)
        before = [sum(gone < part for gone in slot.missing_partitions) for part in range(count)]
        return tuple(
            Partition(
                index=part,
                kfd_node=kfd_node + part - before[part],
                gpu_id=number(self.name, slot.at, part, "gpu_id", bits=16),
                card=self.first_card + minor + part - before[part],
                render_minor=FIRST_RENDER_MINOR + minor + part - before[part],
                cus=product.cus // count,
                memory_bytes=(product.vram_mib << 20) // count,
            )
            for part in range(count)
        )

    @property
    def first_card(self) -> int:
        """The first card number of amdgpu: other displays, as the BMC's, are found before."""
        return len(self.displays)

    @property
    def displays(self) -> tuple[OtherDevice, ...]:
        """The displays that other drivers drive."""
        return tuple(d for d in self.machine.device if d.class_code == "030000" and d.driver)

    @staticmethod
    def _partition_count(mode: str | None, product: GpuProduct) -> int:
        if mode is None:
            return 1
        if mode not in product.compute_partitions:
            raise DescriptionError(f"gpus.compute_partition: {mode!r} is none of {product.compute_partitions}")
        return product.xcds if mode == "CPX" else PARTITIONS[mode]

    @cached_property
    def _xgmi(self) -> dict[tuple[int, int], int]:
        """The XGMI links between pairs of slots, in both directions."""
        gpus = self.machine.gpus
        if gpus is None:
            return {}
        hives = [slot.hive for slot in gpus.slot]
        everyone = range(len(hives))
        pairs = gpus.xgmi_links or [
            (a, b, 1) for a in everyone for b in everyone if a < b and hives[a] == hives[b] and hives[a] is not None
        ]
        gone = {tuple(sorted(pair)) for pair in gpus.xgmi_missing}
        up = [(a, b, count) for a, b, count in pairs if (a, b) not in gone]
        back = [(b, a, count) for a, b, count in up if (a, b) not in gpus.xgmi_one_way]
        return {(a, b): count for a, b, count in [*up, *back]}

    def xgmi(self, a: Gpu, b: Gpu) -> tuple[int, int] | None:
        """Links and hops between two GPUs of a hive: links 0 when the way leads over a third one.

        None for GPUs of different hives, and for a pair of a fully linked hive whose own link is down.
        """
        gpus = self.machine.gpus
        if gpus is None or not a.hive_id or a.hive_id != b.hive_id:
            return None
        around = gpus.xgmi_hops.get(f"{min(a.index, b.index)} {max(a.index, b.index)}")
        if around is not None:
            return 0, around
        direct = self._xgmi.get((a.index, b.index))
        if direct is not None:
            return direct, 1
        return (0, 2) if gpus.xgmi_links and (a.index, b.index) not in gpus.xgmi_missing else None

    @property
    def driven(self) -> tuple[Gpu, ...]:
        """The GPUs that amdgpu drives."""
        return tuple(gpu for gpu in self.gpus if gpu.partitions)
