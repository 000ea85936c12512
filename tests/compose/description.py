"""Machine descriptions (fixtures/machines/*.toml) as typed records: a machine in the field's words."""

from __future__ import annotations

import functools
import sys
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct, field

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

FIXTURES = Path(__file__).parents[2] / "fixtures"


class DescriptionError(ValueError):
    """A description or fault that cannot be composed; the message names the file and the key."""


class _Table(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every table of a description: an unknown key is an error."""


class Platform(_Table, frozen=True, kw_only=True):
    """The board as DMI names it; `hypervisor` for a guest."""

    vendor: str
    product: str
    bios: tuple[str, str, str]  # vendor, version, date
    hypervisor: Literal["kvm"] | None = None
    container: Literal["docker"] | None = None  # amdcheck runs in one


class Cpu(_Table, frozen=True, kw_only=True):
    """Sockets, SMT, NPS (0: one node over all sockets; "l3": a node for each L3) and memory, with their faults."""

    product: str
    sockets: int = 1
    smt: bool = True
    nps: Literal[0, 1, 2, 4, "l3"] = 1
    nps_of: dict[str, Literal[1, 2, 4]] = {}  # socket -> NPS other than that
    memory_gib: int
    cores: int | None = None  # a socket; None: as the product has
    cores_per_ccx: int | None = None
    l3_mib: int | None = None  # of one slice; 0: no L3 is shown
    l3_mib_of: dict[str, int] = {}  # slice, counted over the machine -> MiB other than that
    offline: tuple[int, ...] = ()
    masked_flags: tuple[str, ...] = ()  # not offered by any CPU
    masked_on: dict[str, tuple[str, ...]] = {}  # CPU number -> flags that this one lacks
    nodes_without_memory: tuple[int, ...] = ()
    distance_of: dict[str, int] = {}  # "from to" -> distance other than EPYC's, in this direction alone
    equal_distances: bool = False  # firmware without a sensible SLIT: 10 everywhere
    vendor: str | None = None
    hypervisor_bit: bool | None = None  # None: as the platform says


class Os(_Table, frozen=True, kw_only=True):
    """Distribution and kernel; `options` are added to the kernel's command line."""

    release: str
    kernel: str
    options: tuple[str, ...] = ()


class Settings(_Table, frozen=True, kw_only=True):
    """What an administrator sets. None: the file does not exist on this kernel."""

    numa_balancing: int | None = None
    transparent_hugepages: Literal["always", "madvise", "never"] = "madvise"
    iommu: Literal["identity", "DMA", "DMA-FQ", "off"] = "identity"
    dmesg_restrict: Literal[0, 1] = 1
    noretry: int = -1
    hmm: bool = True  # device memory registered with HMM, and the kernel options for it
    kernel_log: tuple[str, ...] = ()  # lines added to this boot's log


class Driver(_Table, frozen=True, kw_only=True):
    """amdgpu: in-tree, or a DKMS release of products/software.toml; `built` for the running kernel."""

    kind: Literal["in-tree", "dkms"]
    release: str | None = None
    loaded: bool = True
    built: bool = True


class Rocm(_Table, frozen=True, kw_only=True):
    """One ROCm installation."""

    version: str
    miopen: bool = True
    miopen_of: str | None = None  # the ROCm release whose MIOpen lies here, when that is another
    miopen_says: str | None = None  # the version its library reports, when that is not the release's
    kernel_databases: bool = True


class Slot(_Table, frozen=True, kw_only=True):
    """One GPU: its address, the root port above it, its hive, and what is wrong with it."""

    at: str
    port: str
    hive: int | None = None
    lanes: int = 16  # that the board wires to it
    link_width: int | None = None  # what the slot trained to
    link_gts: float | None = None
    on_bus: bool = True
    driver: str | None = "amdgpu"  # that is bound to it
    asleep: bool = False  # runtime suspended
    in_kfd: bool = True  # the compute side of the driver took it, too
    missing_partitions: tuple[int, ...] = ()
    compute_partition: str | None = None  # other than the machine's
    render_group: str = "render"
    node: int | None = None  # NUMA node, when the firmware names another than the root complex's


class Gpus(_Table, frozen=True, kw_only=True):
    """The GPUs, all of one product. `switch`: a PCIe switch between root port and card; `packages`: GCDs in pairs."""

    product: str
    compute_partition: str | None = None
    memory_partition: str | None = None
    switch: str | None = None
    gcds_per_package: int = 1
    slot: tuple[Slot, ...]
    xgmi_links: tuple[tuple[int, int, int], ...] = ()  # slot, slot, links; none: one between all pairs of a hive
    xgmi_missing: tuple[tuple[int, int], ...] = ()  # pairs of slots whose XGMI link is down
    xgmi_one_way: tuple[tuple[int, int], ...] = ()  # pairs of slots of which only the first knows the link
    xgmi_hops: dict[str, int] = {}  # "slot slot" -> hops, when the direct link of a fully linked board is down


class OtherDevice(_Table, frozen=True, kw_only=True):
    """A PCI device that is no AMD GPU: NIC, NVMe, the BMC's VGA."""

    at: str
    port: str
    id: str  # vendor:device
    class_code: str
    driver: str | None = None
    lanes: int = 16
    gts: float = 16.0


class Smi(_Table, frozen=True, kw_only=True):
    """The vendor tools of the machine: what they say beside the truth, and how long they take."""

    installed: bool = True
    seconds: float = 0.4
    hangs: bool = False
    prints: str | None = None  # instead of JSON
    complains: str = ""  # on stderr
    forgets_gpus: tuple[int, ...] = ()
    repeats_gpus: int = 1
    forgets_xgmi: bool = False  # every pair is PCIE
    numa_node: int | None = None  # of every GPU
    driver_version: str | None = None
    rocm_version: str | None = None


class Cores(_Table, frozen=True, kw_only=True):
    """What is wrong with the cores beside each other; lists name CPUs."""

    allowed: tuple[int, ...] = ()  # by the affinity; none: all
    idle: tuple[int, ...] = ()  # none: all that are allowed
    wrong_on: tuple[int, ...] = ()
    blind_on: tuple[int, ...] = ()  # planted errors go unnoticed
    killed: tuple[int, ...] = ()
    held_down: tuple[int, ...] = ()  # at half the clock
    slices_held_down: tuple[int, ...] = ()  # L3 slices, counted over the machine
    neighbour_on: tuple[int, ...] = ()  # somebody else shares the core
    together: float = 1.0  # what all do at once, of what they should
    clock_together: float = 1.0  # of each, of what it is alone
    cpu_share: float = 1.0  # of wall time
    stolen: float = 0.0  # by the hypervisor, of wall time
    stolen_looks: tuple[float, ...] = ()  # the same, each time that all were looked at; none: once
    stolen_since_boot: float = 0.0
    quota: float | None = None  # CPUs


class MemoryTests(_Table, frozen=True, kw_only=True):
    """What is wrong with memory and caches under test; lists name NUMA nodes, or CPUs of cpu.pattern."""

    slow_nodes: tuple[int, ...] = ()  # at half of what the others do
    nodes_busy: tuple[int, ...] = ()  # their last CPU is in use by another program
    wrong_nodes: tuple[int, ...] = ()
    blind_nodes: tuple[int, ...] = ()  # planted errors go unnoticed
    killed_on: tuple[int, ...] = ()  # one worker of the node, by SIGBUS
    remote_faster: tuple[tuple[int, int], ...] = ()  # CPU node, memory node
    pairs_disturbed: bool = False  # while memory is measured from node to node
    binding_refused: bool = False  # a container without CAP_SYS_NICE
    l3_share: float = 1.0  # of the named slice
    sharers_busy: bool = False
    walks_lost: bool = False
    walks_blind: bool = False
    additions_lost: bool = False
    additions_blind: bool = False
    one_core: bool = False  # two CPUs that behave like one core
    pattern_wrong: tuple[int, ...] = ()
    pattern_blind: tuple[int, ...] = ()
    pattern_killed: tuple[int, ...] = ()
    no_room: bool = False  # for patterns


class SelfTests(_Table, frozen=True, kw_only=True):
    """What is wrong with the machine's computing; lists name instruction sets by their flags."""

    illegal_instruction: tuple[str, ...] = ()
    killed: tuple[str, ...] = ()
    no_library: bool = False  # an amdcheck that was installed without its native kernels
    never_ends: tuple[str, ...] = ()
    wrong_result: tuple[str, ...] = ()
    plant_unnoticed: tuple[str, ...] = ()
    cpuid_lacks: tuple[str, ...] = ()  # flags that CPUID does not announce
    cpuid_refused: bool = False  # no executable memory
    allocator_ignores_alignment: bool = False
    numpy_cannot_align: bool = False
    cores: Cores = Cores()
    memory: MemoryTests = MemoryTests()
    disturbed: bool = False  # something else runs on every CPU, in every attempt
    all_busy: bool = False  # so much that no CPU is taken for a self-test
    clock_mhz: int | None = None  # under load
    clock_control_unnoticed: bool = False  # a chain of twice the cycles takes no longer
    chains_differ: bool = False  # dependent additions and multiplications tell two clocks
    # Matrix products, by name: what is wrong with their words, control, rate and ports, and how they end.
    product_wrong: tuple[str, ...] = ()
    product_unnoticed: tuple[str, ...] = ()
    product_slow: tuple[str, ...] = ()
    product_shared: tuple[str, ...] = ()  # with the other thread of the core
    half_the_ports: tuple[str, ...] = ()
    product_ends: dict[str, str] = field(default_factory=dict)


class User(_Table, frozen=True, kw_only=True):
    """Who runs amdcheck."""

    name: str = "root"
    uid: int = 0
    groups: tuple[str, ...] = ("root",)
    known: bool = True  # to /etc/passwd
    home_filesystem: Literal["ext4", "nfs", "gpfs"] = "ext4"
    home_owner: int | None = None  # uid, when that is not the user's


class Healthy(_Table, frozen=True, kw_only=True):
    """What a run says of the machine without a fault: findings as "id subject". There is never a fail."""

    unknown: tuple[str, ...] = ()
    warn: tuple[str, ...] = ()


class Machine(_Table, frozen=True, kw_only=True):
    """A whole machine."""

    title: str
    platform: Platform
    cpu: Cpu
    os: Os
    settings: Settings = Settings()
    driver: Driver | None = None
    rocm: tuple[Rocm, ...] = ()
    gpus: Gpus | None = None
    device: tuple[OtherDevice, ...] = ()
    smi: Smi = Smi()
    selftest: SelfTests = SelfTests()
    user: User = User()
    healthy: Healthy = Healthy()


def machine_names() -> tuple[str, ...]:
    """The machines that are described."""
    return tuple(sorted(path.stem for path in (FIXTURES / "machines").glob("*.toml")))


def raw_machine(name: str) -> dict[str, Any]:
    """The description as TOML gives it; DescriptionError names the nearest machine when there is none of that name."""
    if name not in machine_names():
        near = get_close_matches(name, machine_names(), n=1)
        raise DescriptionError(f"no such machine: {name!r}" + (f"; the nearest is {near[0]!r}" if near else ""))
    return read_toml(f"machines/{name}")


def parse_machine(name: str, raw: dict[str, Any], *, changed_by: str | None = None) -> Machine:
    """The typed description; `changed_by` is the fault to name for what does not fit."""
    try:
        return msgspec.convert(raw, Machine)
    except msgspec.ValidationError as error:
        where = f"fixtures/machines/{name}.toml" if changed_by is None else f"fault {changed_by!r}: machine"
        raise DescriptionError(f"{where}: {error}") from None


@functools.cache
def _text(name: str) -> str:
    return (FIXTURES / f"{name}.toml").read_text(encoding="utf-8")


def read_toml(name: str) -> dict[str, Any]:
    """A fresh copy of fixtures/NAME.toml."""
    try:
        return tomllib.loads(_text(name))
    except tomllib.TOMLDecodeError as error:
        raise DescriptionError(f"fixtures/{name}.toml: {error}") from None
