"""The products that descriptions name (fixtures/products/*.toml), as typed records."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from tests.compose.description import DescriptionError, read_toml

T = TypeVar("T")


class _Row(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every product row."""


class RootComplex(_Row, frozen=True, kw_only=True):
    """PCI device ids of the generation's root complex (vendor 1022), and its ports' speed in GT/s."""

    host: str
    iommu: str
    dummy: str
    port: str
    gts: float


class Generation(_Row, frozen=True, kw_only=True):
    """What all processors of one Zen generation share; see fixtures/products/cpus.toml."""

    family: int
    model: int
    stepping: int
    microcode: str
    l1d_kib: int
    l1i_kib: int
    l2_kib: int
    ways: dict[str, int]
    tlb_pages: int
    address_bits: tuple[int, int]
    bugs: str
    flags: str
    root_complex: RootComplex


class CpuProduct(_Row, frozen=True, kw_only=True):
    """One processor; `model`, `stepping` and `microcode` where they differ from the generation's."""

    generation: str
    model_name: str
    cores: int
    cores_per_ccx: int
    l3_mib_per_ccx: int
    base_mhz: int
    model: int | None = None
    stepping: int | None = None
    microcode: str | None = None
    guest: bool = False


class MemoryType(_Row, frozen=True, kw_only=True):
    """Bus width in bits and clock in MHz, as KFD shows them."""

    width: int
    mhz: int


class GpuCaches(_Row, frozen=True, kw_only=True):
    """Sizes in KiB: vector L1 of one CU; scalar and instruction L1 of two; L2; memory-side cache, 0: none."""

    vector: int
    scalar: int
    instruction: int
    l2: int
    mall: int = 0


class SdmaEngines(_Row, frozen=True, kw_only=True):
    """DMA engines towards the host and towards XGMI."""

    host: int
    xgmi: int


class GpuProduct(_Row, frozen=True, kw_only=True):
    """One GPU (of an MI250X, one GCD); see fixtures/products/gpus.toml."""

    device: str
    subsystem: str
    revision: str
    class_code: str = msgspec.field(name="class")
    virtual_function: bool = False
    apu: bool = False
    gfx_target_version: int
    kfd_name: str
    cus: int
    physical_cus: int
    engines: int
    arrays_per_engine: int
    xcds: int = 1
    simd_per_cu: int
    waves_per_simd: int
    wavefront: int
    lds_kib: int
    clock_mhz: int
    sclk: tuple[int, ...]
    mclk: tuple[int, ...]
    vram_mib: int
    memory: MemoryType
    cache_kib: GpuCaches
    sdma: SdmaEngines
    firmware: dict[str, int]
    capability: int
    debug_prop: int
    vbios: str
    power_w: int
    on_card: tuple[str, ...]
    slot_gts: float
    link_gts: float
    board: str = "CEM"
    compute_partitions: tuple[str, ...] = ()
    memory_partitions: tuple[str, ...] = ()
    shows: tuple[str, ...]

    @property
    def gfx(self) -> str:
        """The target as compilers name it."""
        version = self.gfx_target_version
        return f"gfx{version // 10000}{version // 100 % 100}{version % 100:x}"


class OsRelease(_Row, frozen=True, kw_only=True):
    """The fields of os-release, and who compiled the kernel."""

    id: str
    id_like: str
    version_id: str
    codename: str
    name: str
    pretty: str
    compiler: str
    builder: str


class RocmRelease(_Row, frozen=True, kw_only=True):
    """What a ROCm release installs."""

    build: str | None = None
    layout: str = "legacy"
    miopen: str
    hip: str
    smi: str
    find: tuple[str, ...]
    perf: tuple[str, ...]
    kernels: tuple[str, ...]


class DriverRelease(_Row, frozen=True, kw_only=True):
    """A DKMS build of amdgpu; `era` is the mainline release whose attributes it shows."""

    module: str
    package: str
    era: tuple[int, int]


class _Cpus(_Row, frozen=True, kw_only=True):
    guest_lacks: str
    generation: dict[str, Generation]
    product: dict[str, CpuProduct]


class _Gpus(_Row, frozen=True, kw_only=True):
    product: dict[str, GpuProduct]


class _Software(_Row, frozen=True, kw_only=True):
    os: dict[str, OsRelease]
    rocm: dict[str, RocmRelease]
    driver: dict[str, DriverRelease]


@functools.cache
def _load(name: str, kind: Any) -> Any:
    try:
        return msgspec.convert(read_toml(f"products/{name}"), kind)
    except msgspec.ValidationError as error:
        raise DescriptionError(f"fixtures/products/{name}.toml: {error}") from None


def _named(rows: Mapping[str, T], key: str, name: str | None) -> T:
    if name is None or name not in rows:
        raise DescriptionError(f"{key}: no {name!r} among {', '.join(rows)}")
    return rows[name]


def cpu_product(name: str) -> CpuProduct:
    """The processor of that name; DescriptionError names the key and what there is."""
    cpus: _Cpus = _load("cpus", _Cpus)
    return _named(cpus.product, "cpu.product", name)


def generation(name: str) -> Generation:
    """A Zen generation."""
    cpus: _Cpus = _load("cpus", _Cpus)
    return _named(cpus.generation, "generation", name)


def guest_lacks() -> list[str]:
    """The flags that QEMU does not pass on."""
    cpus: _Cpus = _load("cpus", _Cpus)
    return cpus.guest_lacks.split()


def gpu_product(name: str) -> GpuProduct:
    """The GPU of that name."""
    gpus: _Gpus = _load("gpus", _Gpus)
    return _named(gpus.product, "gpus.product", name)


def os_release(name: str) -> OsRelease:
    """The distribution of that name."""
    software: _Software = _load("software", _Software)
    return _named(software.os, "os.release", name)


def rocm_release(version: str) -> RocmRelease:
    """The ROCm release of that version."""
    software: _Software = _load("software", _Software)
    return _named(software.rocm, "rocm.version", version)


def driver_release(name: str | None) -> DriverRelease:
    """The DKMS release of that name."""
    software: _Software = _load("software", _Software)
    return _named(software.driver, "driver.release", name)
