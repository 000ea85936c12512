"""The processor: identity, instruction sets as the kernel offers them, caches per slice, SMT, offline CPUs.

Costs one file a fact of the whole machine, two or three a core and four a cache: what CPUs share is read once.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial

from msgspec import Struct

from amdcheck.facts.cpuinfo import CpuInfo, decimal
from amdcheck.facts.cpulist import format_cpulist, not_empty, numbered, parse_cpulist, parse_cpumap
from amdcheck.facts.registry import fact
from amdcheck.facts.text import stripped
from amdcheck.host.protocol import Host
from amdcheck.knowledge.epyc import AMD, Generation, Series, generation, series
from amdcheck.knowledge.isa import isa_table
from amdcheck.model.value import Known, Unknown, Value

FOLDER = "/sys/devices/system/cpu"
_INDEX = re.compile(r"index[0-9]{1,2}")
_SIZE = re.compile(r"([0-9]{1,9})K")
_GAPS = 8  # as many are kept; one is enough to say that something was not read


class Cache(Struct, frozen=True, kw_only=True):
    """One cache instance (for L3: one slice, which is what one CCX shares)."""

    level: int
    type: str  # Data, Instruction, Unified
    size_kib: Value[int]
    cpus: tuple[int, ...]  # the online CPUs that share it
    source: str  # the folder that was read


@fact
class Cpu(Struct, frozen=True, kw_only=True):
    """All CPUs of the machine. Counts are of what is online; unknown where the topology is not readable."""

    architecture: Value[str]  # x86_64, x86, aarch64, arm, power, riscv: by the shape of /proc/cpuinfo
    vendor: Value[str]  # AuthenticAMD, GenuineIntel, HygonGenuine ...
    model_name: Value[str]
    family: Value[int]  # decimal, as in /proc/cpuinfo
    model: Value[int]
    stepping: Value[int]
    microcode: Value[str]
    flags: Value[tuple[str, ...]]  # sorted; those that every CPU offers
    uneven_flags: tuple[str, ...]  # offered by some CPUs only
    online: Value[tuple[int, ...]]
    offline: Value[tuple[int, ...]]
    present: Value[tuple[int, ...]]
    possible: Value[tuple[int, ...]]
    sockets: Value[int]
    cores: Value[int]
    threads: Value[int]
    threads_per_core: Value[int]  # of the core that has most
    smt_control: Value[str]  # on, off, forceoff, notsupported
    package_of: dict[int, int]  # cpu -> physical package id, where readable
    core_threads: tuple[tuple[int, ...], ...]  # the online CPUs of each core, where readable
    caches: tuple[Cache, ...]  # by level, type and first CPU
    cache_gaps: tuple[Unknown, ...]  # what of the cache folders could not be read; the first few

    @classmethod
    def read(cls, host: Host, info: CpuInfo) -> Cpu:
        online = _online(host, info)
        cpus = online.value if isinstance(online, Known) else ()
        packages = _packages(host, cpus, info)
        cores = _cores(host, cpus, info)
        caches, gaps = _caches(host, cpus, cores.or_none() or ())
        return cls(
            architecture=info.architecture,
            vendor=info.vendor,
            model_name=info.model_name,
            family=info.family,
            model=info.model,
            stepping=info.stepping,
            microcode=info.microcode,
            flags=info.flags,
            uneven_flags=info.uneven_flags,
            online=online,
            offline=_list(host, "offline"),
            present=_list(host, "present"),
            possible=_list(host, "possible"),
            sockets=packages.parse(_distinct),
            cores=cores.parse(len),
            threads=online.parse(len),
            threads_per_core=cores.parse(_largest),
            smt_control=host.read(f"{FOLDER}/smt/control").parse(str.strip),
            package_of=packages.value if isinstance(packages, Known) else {},
            core_threads=cores.value if isinstance(cores, Known) else (),
            caches=caches,
            cache_gaps=gaps,
        )

    @property
    def l3(self) -> tuple[Cache, ...]:
        """The L3 slices, in order of their first CPU."""
        return tuple(c for c in self.caches if c.level == 3)

    @property
    def isa(self) -> tuple[str, ...]:
        """The instruction sets that matter here and that every CPU offers: avx2, fma, avx512, vnni, bf16 ..."""
        return isa_table().names(self.flags.or_none() or ())

    @property
    def series(self) -> Series | None:
        """The row of a server part, None for others and for what the table does not have."""
        if isinstance(self.family, Unknown) or isinstance(self.model, Unknown):
            return None
        return series(family=self.family.value, model=self.model.value, name=self.model_name.or_none() or "")

    @property
    def generation(self) -> Generation | None:
        """The Zen generation, None for what is older than Zen or newer than the table."""
        if isinstance(self.family, Unknown) or isinstance(self.model, Unknown):
            return None
        return generation(self.family.value, self.model.value)

    def cores_among(self, cpus: Iterable[int]) -> int:
        """How many cores these CPUs belong to; 0 where the topology is not readable."""
        wanted = set(cpus)
        return sum(not wanted.isdisjoint(core) for core in self.core_threads)


def has_amd_cpu(cpu: Cpu) -> str | None:
    """Predicate: None when the processor is AMD's or its vendor could not be read, else the reason to skip."""
    if isinstance(cpu.architecture, Known) and cpu.architecture.value not in ("x86_64", "x86"):
        return f"the processor is {cpu.architecture.value}, not one of AMD's"
    if isinstance(cpu.vendor, Known) and cpu.vendor.value != AMD:
        return f"the processor is by {cpu.vendor.value}, not by AMD"
    return None


def nominal_hz(host: Host, cpu: int) -> Value[float]:
    """What the firmware calls the nominal clock (CPPC, written in MHz); virtual machines have none."""
    return host.read(f"{FOLDER}/cpu{cpu}/acpi_cppc/nominal_freq").parse(_mhz)


def _mhz(text: str) -> float:
    """In Hz. Firmware that does not know the clock writes 0."""
    value = int(text)
    if value <= 0:
        raise ValueError("the firmware names no nominal clock")
    return 1e6 * value


def _distinct(package_of: dict[int, int]) -> int:
    return len(set(package_of.values()))


def _largest(cores: tuple[tuple[int, ...], ...]) -> int:
    return max(map(len, cores))


def _list(host: Host, name: str) -> Value[tuple[int, ...]]:
    return host.read(f"{FOLDER}/{name}").parse(parse_cpulist)


def _online(host: Host, info: CpuInfo) -> Value[tuple[int, ...]]:
    """The kernel's list; where a recording lacks it, the CPU folders without `online` 0; then /proc/cpuinfo."""
    listed = _list(host, "online").parse(not_empty)
    if isinstance(listed, Known):
        return listed
    folders = host.entries(FOLDER).parse(partial(numbered, prefix="cpu")).parse(not_empty)
    if isinstance(folders, Known):
        off = {cpu for cpu in folders.value if host.read(f"{FOLDER}/cpu{cpu}/online").or_none() in ("0", "0\n")}
        return folders.parse(lambda cpus: not_empty(tuple(cpu for cpu in cpus if cpu not in off)))
    return info.processors if isinstance(info.processors, Known) else listed


class _CpuSets:
    """Reads sets of CPUs that stand in files of several names and forms; the name that worked is tried first."""

    def __init__(self, host: Host, *, lists: tuple[str, ...], masks: tuple[str, ...]) -> None:
        self._host = host
        self._ways = [*((name, parse_cpulist) for name in lists), *((name, parse_cpumap) for name in masks)]

    def read(self, folder: str) -> Value[tuple[int, ...]]:
        """The set; for what cannot be read, the answer for the first name."""
        first: Unknown | None = None
        for position, (name, parse) in enumerate(self._ways):
            found = self._host.read(f"{folder}/{name}").parse(parse)
            if isinstance(found, Known):
                self._ways.insert(0, self._ways.pop(position))
                return found
            first = first or found
        assert first is not None
        return first


def _groups(sets: _CpuSets, folder: str, cpus: tuple[int, ...]) -> Value[tuple[tuple[int, ...], ...]]:
    """The online CPUs in groups, each group read from its first CPU; unknown when any CPU's group is."""
    online, seen = set(cpus), set[int]()
    groups = []
    for cpu in cpus:
        if cpu in seen:
            continue
        members = sets.read(f"{FOLDER}/cpu{cpu}/{folder}")
        if isinstance(members, Unknown):
            return members
        if cpu not in members.value:
            return Unknown("failed", members.source, f"{format_cpulist(members.value)} lacks CPU {cpu} itself")
        group = tuple(sorted(online.intersection(members.value) - seen))
        seen.update(group)
        groups.append(group)
    return Known(tuple(groups), f"{FOLDER}/cpu*/{folder}")


def _cores(host: Host, cpus: tuple[int, ...], info: CpuInfo) -> Value[tuple[tuple[int, ...], ...]]:
    """The CPUs of each core, by sibling lists; where there are none, by /proc/cpuinfo."""
    if not cpus:
        return Unknown("absent", FOLDER, "no CPU is known")
    sets = _CpuSets(host, lists=("thread_siblings_list", "core_cpus_list"), masks=("thread_siblings", "core_cpus"))
    groups = _groups(sets, "topology", cpus)
    if isinstance(groups, Known) or not all(cpu in info.package_of and cpu in info.core_of for cpu in cpus):
        return groups
    cores: dict[tuple[int, int], list[int]] = {}
    for cpu in cpus:
        cores.setdefault((info.package_of[cpu], info.core_of[cpu]), []).append(cpu)
    return Known(tuple(map(tuple, cores.values())), info.processors.source)


def _packages(host: Host, cpus: tuple[int, ...], info: CpuInfo) -> Value[dict[int, int]]:
    """The package of each CPU: one id a package where the siblings are listed; else /proc/cpuinfo's."""
    sets = _CpuSets(host, lists=("core_siblings_list", "package_cpus_list"), masks=("core_siblings", "package_cpus"))
    package_of: dict[int, int] = {}
    for cpu in cpus:
        if cpu in package_of:
            continue
        package = host.read(f"{FOLDER}/cpu{cpu}/topology/physical_package_id").parse(decimal)
        if isinstance(package, Unknown):
            known = all(other in info.package_of for other in cpus)
            return (
                Known({other: info.package_of[other] for other in cpus}, info.processors.source) if known else package
            )
        package_of[cpu] = package.value
        siblings = sets.read(f"{FOLDER}/cpu{cpu}/topology").or_none() or ()
        package_of.update(dict.fromkeys(set(siblings).intersection(cpus) - package_of.keys(), package.value))
    return Known(package_of, f"{FOLDER}/cpu*/topology/physical_package_id") if cpus else Unknown("absent", FOLDER)


def _caches(
    host: Host, cpus: tuple[int, ...], cores: tuple[tuple[int, ...], ...]
) -> tuple[tuple[Cache, ...], tuple[Unknown, ...]]:
    """Every cache once, and what could not be read. Of a core's CPUs that share all its caches, one is read."""
    reader = _CacheReader(host, cpus, cores)
    for cpu in cpus:
        reader.read(cpu)
    by_place = sorted(reader.caches, key=lambda cache: (cache.level, cache.type, cache.cpus))
    return tuple(by_place), tuple(reader.gaps[:_GAPS])


class _CacheReader:
    def __init__(self, host: Host, cpus: tuple[int, ...], cores: tuple[tuple[int, ...], ...]) -> None:
        self.caches: list[Cache] = []
        self.gaps: list[Unknown] = []
        self._host = host
        self._online = frozenset(cpus)
        self._sets = _CpuSets(host, lists=("shared_cpu_list",), masks=("shared_cpu_map",))
        self._sharers: dict[tuple[str, int], frozenset[int]] = {}  # index folder, CPU -> who shares it
        self._known: set[tuple[int, str, tuple[int, ...]]] = set()
        self._siblings = {cpu: core for core in cores for cpu in core}
        self._done: set[int] = set()

    def read(self, cpu: int) -> None:
        if cpu in self._done:
            return
        folder = f"{FOLDER}/cpu{cpu}/cache"
        names = self._host.entries(folder)
        if isinstance(names, Unknown):
            self.gaps.append(names)
            return
        shared = [self._index(folder, name, cpu) for name in names.value if _INDEX.fullmatch(name)]
        if shared:
            self._done |= frozenset.intersection(*shared).intersection(self._siblings.get(cpu, ()))

    def _index(self, folder: str, name: str, cpu: int) -> frozenset[int]:
        """Read one index folder, unless a CPU that shares it was read; who shares it."""
        seen = self._sharers.get((name, cpu))
        if seen is not None:
            return seen
        path = f"{folder}/{name}"
        level = self._host.read(f"{path}/level").parse(decimal)
        type_ = self._host.read(f"{path}/type").parse(str.strip)
        members = self._sets.read(path)
        for value in (level, type_, members):
            if isinstance(value, Unknown):
                self.gaps.append(value)
        if isinstance(level, Unknown) or isinstance(type_, Unknown) or isinstance(members, Unknown):
            return frozenset((cpu,))
        sharers = self._online.intersection(members.value) | {cpu}
        self._sharers.update({(name, other): sharers for other in sharers})
        cpus = tuple(sorted(sharers))
        # A VirtualBox guest lists the same cache in two folders; no CPU has two of one level and type.
        if (level.value, type_.value, cpus) not in self._known:
            self._known.add((level.value, type_.value, cpus))
            size = self._host.read(f"{path}/size").parse(_kib)
            self.caches.append(Cache(level=level.value, type=type_.value, size_kib=size, cpus=cpus, source=path))
        return sharers


def _kib(text: str) -> int:
    match = _SIZE.fullmatch(stripped(text))
    if match is None:
        raise ValueError(f"not a cache size: {text[:60]!r}")
    return int(match[1])
