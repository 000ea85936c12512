"""The report (schema amdcheck.report/1). No field has a default, so that the schema lists every key as required."""

from __future__ import annotations

from datetime import date, datetime
from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from amdcheck.model.expectations import Level
from amdcheck.model.finding import Finding

Verdict = Literal["ready", "ready-with-warnings", "not-ready", "undetermined"]
DriverKind = Literal["dkms", "in-tree", "absent"]


class Tool(Struct, frozen=True, kw_only=True):
    name: str
    version: str
    tables_date: date


class Lost(Struct, frozen=True, kw_only=True):
    """A check whose evidence needs more privilege than this run had."""

    check: str
    needs: Literal["user", "render", "root"]
    source: str


class Run(Struct, frozen=True, kw_only=True):
    id: str
    started: Annotated[datetime, Meta(tz=True)]  # RFC 3339, written in UTC
    duration_s: float
    level: Level
    source: Literal["live", "capture", "tree"]
    privileged: bool
    lost: tuple[Lost, ...]
    not_selected: tuple[str, ...]
    deadline_hit: bool


class Bios(Struct, frozen=True, kw_only=True):
    vendor: str | None
    version: str | None
    date: str | None


class CpuSummary(Struct, frozen=True, kw_only=True):
    vendor: str | None
    model: str | None
    family: int | None
    sockets: int | None
    cores: int | None
    threads: int | None
    numa_nodes: int | None
    l3_kib_per_slice: tuple[int, ...]
    isa: tuple[str, ...]


class DriverSummary(Struct, frozen=True, kw_only=True):
    kind: DriverKind | None
    version: str | None
    srcversion: str | None


class RocmSummary(Struct, frozen=True, kw_only=True):
    root: str
    version: str | None
    found_by: str
    in_use: bool | None


class MiopenSummary(Struct, frozen=True, kw_only=True):
    root: str
    version: str | None


class PartitionSummary(Struct, frozen=True, kw_only=True):
    kfd_node: int
    render_minor: int | None


class GpuSummary(Struct, frozen=True, kw_only=True):
    """One physical device, however it is partitioned."""

    bdf: str
    slot: str | None
    serial: str | None
    unique_id: str | None
    product: str | None
    gfx: str | None
    vram_mib: int | None
    vbios: str | None
    firmware: dict[str, str]
    compute_partition: str | None
    memory_partition: str | None
    partitions: tuple[PartitionSummary, ...]


class HostSummary(Struct, frozen=True, kw_only=True):
    id: str | None
    name: str | None
    node: str | None
    boot_id: str | None
    uptime_s: float | None
    os: str | None
    kernel: str | None
    virtualization: str | None
    container: str | None
    bios: Bios
    cpu: CpuSummary
    memory_mib: int | None
    driver: DriverSummary
    rocm: tuple[RocmSummary, ...]
    miopen: tuple[MiopenSummary, ...]
    gpus: tuple[GpuSummary, ...]


class PolicySummary(Struct, frozen=True, kw_only=True):
    profile: str
    file: str | None
    expect: dict[str, str]
    date: date


class Counts(Struct, frozen=True, kw_only=True):
    """Disjoint: a waived finding counts as waived alone; the sum is the number of findings."""

    pass_: int = field(name="pass")
    warn: int
    fail: int
    unknown: int
    skip: int
    manual: int
    waived: int


class Summary(Struct, frozen=True, kw_only=True):
    verdict: Verdict
    exit_code: int
    counts: Counts
    headline: str
    drain: bool
    reason: Annotated[str, Meta(max_length=200)]


class Report(Struct, frozen=True, kw_only=True):
    schema: Literal["amdcheck.report/1"]
    tool: Tool
    run: Run
    host: HostSummary
    policy: PolicySummary
    summary: Summary
    findings: tuple[Finding, ...]
