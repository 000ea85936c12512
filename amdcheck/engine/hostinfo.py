"""The report's `host` block, from facts."""

from __future__ import annotations

import hashlib
from typing import Protocol, TypeVar

from msgspec import Struct

from amdcheck.facts.cpu import Cpu
from amdcheck.facts.driver import Driver
from amdcheck.facts.gpus import Gpu, Gpus
from amdcheck.facts.memory import Memory
from amdcheck.facts.miopen import MiopenInstalls
from amdcheck.facts.numa import Numa
from amdcheck.facts.platform import Platform
from amdcheck.facts.presence import GpuSigns
from amdcheck.facts.rocm import RocmInstalls
from amdcheck.model.report import (
    Bios,
    CpuSummary,
    DriverSummary,
    GpuSummary,
    HostSummary,
    MiopenSummary,
    PartitionSummary,
    RocmSummary,
)
from amdcheck.model.text import printable
from amdcheck.model.value import Known, Unknown

F = TypeVar("F", bound=Struct)
T = TypeVar("T")


class Facts(Protocol):
    """Facts by type, None for one that was not read."""

    def get(self, kind: type[F]) -> F | None: ...


# Read in every run, whatever checks are selected, because the report shows them.
HOST_FACTS: tuple[type[Struct], ...] = (
    Platform,
    Cpu,
    Numa,
    Memory,
    Driver,
    RocmInstalls,
    MiopenInstalls,
    Gpus,
    GpuSigns,
)

# Instruction sets that matter for inference, by the kernel's names.
_ISA = ("sse4_2", "avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "avx_vnni")


def summarize_host(facts: Facts) -> HostSummary:
    """What the machine is, every unknown as None."""
    platform = facts.get(Platform)
    memory = facts.get(Memory)
    total_kib = None if memory is None else memory.total_kib.or_none()
    rocm, miopen, gpus = facts.get(RocmInstalls), facts.get(MiopenInstalls), facts.get(Gpus)
    return HostSummary(
        id=None if platform is None else _hashed(platform.machine_id),
        name=None if platform is None else _text(platform.hostname),
        node=None if platform is None else _printable(platform.node_name),
        boot_id=None if platform is None else _text(platform.boot_id),
        uptime_s=None if platform is None else platform.uptime_s.or_none(),
        os=None if platform is None else _text(platform.os),
        kernel=None if platform is None else _text(platform.kernel),
        virtualization=None if platform is None else _printable(platform.virtualization),
        container=None if platform is None else _printable(platform.container),
        bios=_bios(platform),
        cpu=_cpu(facts.get(Cpu), facts.get(Numa)),
        memory_mib=None if total_kib is None else total_kib // 1024,
        driver=_driver(facts.get(Driver)),
        rocm=()
        if rocm is None
        else tuple(
            RocmSummary(root=printable(r.root), version=_text(r.version), found_by=printable(r.found_by), in_use=None)
            for r in rocm.roots
        ),
        miopen=()
        if miopen is None
        else tuple(MiopenSummary(root=printable(m.root), version=_text(m.version)) for m in miopen.installs),
        gpus=() if gpus is None else tuple(_gpu(gpu) for gpu in gpus.devices),
    )


def _printable(text: str | None) -> str | None:
    return None if text is None else printable(text)


def _text(value: Known[str] | Unknown) -> str | None:
    return _printable(value.or_none())


def _hashed(machine_id: Known[str] | Unknown) -> str | None:
    """Tells machines apart without giving the id away that systemd asks to keep confidential."""
    text = machine_id.or_none()
    return None if text is None else hashlib.sha256(b"amdcheck:" + text.encode()).hexdigest()[:16]


def _bios(platform: Platform | None) -> Bios:
    if platform is None:
        return Bios(vendor=None, version=None, date=None)
    return Bios(
        vendor=_text(platform.bios_vendor), version=_text(platform.bios_version), date=_text(platform.bios_date)
    )


def _cpu(cpu: Cpu | None, numa: Numa | None) -> CpuSummary:
    nodes = None if numa is None else numa.online.or_none()
    flags = () if cpu is None else cpu.flags.or_none() or ()
    sizes = () if cpu is None else tuple(cache.size_kib.or_none() for cache in cpu.l3)
    return CpuSummary(
        vendor=None if cpu is None else _text(cpu.vendor),
        model=None if cpu is None else _text(cpu.model_name),
        family=None if cpu is None else cpu.family.or_none(),
        sockets=None if cpu is None else cpu.sockets.or_none(),
        cores=None if cpu is None else cpu.cores.or_none(),
        threads=None if cpu is None else cpu.threads.or_none(),
        numa_nodes=None if nodes is None else len(nodes),
        l3_kib_per_slice=tuple(size for size in sizes if size is not None),
        isa=tuple(name for name in _ISA if name in flags),
    )


def _driver(driver: Driver | None) -> DriverSummary:
    if driver is None:
        return DriverSummary(kind=None, version=None, srcversion=None)
    return DriverSummary(
        kind=driver.kind.or_none(), version=_text(driver.module_version), srcversion=_text(driver.srcversion)
    )


def _gpu(gpu: Gpu) -> GpuSummary:
    vram = gpu.vram_bytes.or_none()
    return GpuSummary(
        bdf=printable(gpu.bdf),
        slot=_text(gpu.slot),
        serial=_text(gpu.serial),
        unique_id=_text(gpu.unique_id),
        product=_printable(gpu.product_name),
        gfx=_text(gpu.gfx),
        vram_mib=None if vram is None else vram >> 20,
        vbios=_text(gpu.vbios),
        firmware={printable(k): printable(v) for k, v in sorted(gpu.firmware.items())},
        compute_partition=_text(gpu.compute_partition),
        memory_partition=_text(gpu.memory_partition),
        partitions=tuple(PartitionSummary(kfd_node=p.kfd_node, render_minor=p.render_minor) for p in gpu.partitions),
    )
