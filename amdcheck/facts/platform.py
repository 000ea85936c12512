"""What kind of machine this is: kernel, distribution, BIOS, virtual machine, container."""

from __future__ import annotations

import re
from collections.abc import Callable

from msgspec import Struct

from amdcheck.facts.cpuinfo import CpuInfo
from amdcheck.facts.registry import fact
from amdcheck.facts.text import stripped
from amdcheck.host.protocol import Host
from amdcheck.knowledge.environments import container_in_cgroup, containers, hypervisor_of, hypervisor_on_bus
from amdcheck.model.value import Known, Unknown, Value

_KERNEL = "/proc/sys/kernel"
_DMI = "/sys/class/dmi/id"
# hwloc-gather-topology writes here what uname(2) said, since a tree of files has no uname.
_HWLOC_INFO = "/proc/hwloc-nofile-info"
_VERSION = re.compile(r"Linux version (\S{1,100})")
_CONTAINER = re.compile(r"(?:^|\0)container=([A-Za-z0-9-]{1,40})(?:\0|$)")
_NAME = re.compile(r"[A-Za-z0-9-]{1,40}")
_NUMBERS = re.compile(r"(\d{1,4})\.(\d{1,4})", re.ASCII)


@fact
class Platform(Struct, frozen=True, kw_only=True):
    """Identity of the operating system and the machine around it."""

    machine: Value[str]  # uname -m: x86_64, aarch64, ppc64le
    kernel: Value[str]  # release, as uname -r
    os: Value[str]  # PRETTY_NAME of os-release
    os_id: Value[str]  # ID of os-release: ubuntu, debian, rhel, sles
    hostname: Value[str]
    node_name: str | None  # the scheduler's name of this node: SLURMD_NODENAME or NODE_NAME
    machine_id: Value[str]
    boot_id: Value[str]
    uptime_s: Value[float]
    bios_vendor: Value[str]
    bios_version: Value[str]
    bios_date: Value[str]
    product: Value[str]  # DMI product name
    virtualization: (
        str | None
    )  # qemu, kvm, vmware, hyperv, xen, oracle, wsl, vm-other ...; None: bare metal, or unknown
    virtualization_evidence: Value[str]  # what says so; unknown when it cannot be told
    container: str | None  # docker, podman, kubernetes, lxc, apptainer ...; None: no container found
    container_evidence: Value[str]
    command_line: Value[str]

    @property
    def is_bare_metal(self) -> bool:
        """It is known to be no guest, and no container was found: what the machine lacks is lacking."""
        known = isinstance(self.virtualization_evidence, Known)
        return known and self.virtualization is None and self.container is None

    @property
    def confined(self) -> str:
        """What a device cgroup keeps devices from; outside containers they come from Slurm and systemd."""
        return "this container" if self.container else "this job or service"

    @property
    def release(self) -> Value[tuple[int, int]]:
        """The kernel's release as numbers: (6, 8)."""
        return self.kernel.parse(_release_numbers)

    @classmethod
    def read(cls, host: Host, info: CpuInfo) -> Platform:
        kernel = _kernel(host)
        release = host.read("/etc/os-release")
        if isinstance(release, Unknown):
            release = host.read("/usr/lib/os-release")
        product = _dmi(host, "product_name")
        virtualization, why_virtual = _virtualization(host, info, kernel, product)
        container, why_container = _container(host)
        return cls(
            machine=_machine(host, info, kernel),
            kernel=kernel,
            os=release.parse(_assigned("PRETTY_NAME")),
            os_id=release.parse(_assigned("ID")),
            hostname=_first_known(
                host.read(f"{_KERNEL}/hostname").parse(_line),
                lambda: host.read("/etc/hostname").parse(_line),
                lambda: host.read(_HWLOC_INFO).parse(_named("HostName")),
            ),
            node_name=identity.node_name if (identity := host.identity().or_none()) is not None else None,
            machine_id=host.read("/etc/machine-id").parse(_line),
            boot_id=host.read(f"{_KERNEL}/random/boot_id").parse(_line),
            uptime_s=host.read("/proc/uptime").parse(_first_number),
            bios_vendor=_dmi(host, "bios_vendor"),
            bios_version=_dmi(host, "bios_version"),
            bios_date=_dmi(host, "bios_date"),
            product=product,
            virtualization=virtualization,
            virtualization_evidence=why_virtual,
            container=container,
            container_evidence=why_container,
            command_line=host.read("/proc/cmdline").parse(_line),
        )


def _machine(host: Host, info: CpuInfo, kernel: Value[str]) -> Value[str]:
    """The kernel's own word (6.1 and newer), uname's in a recorded tree, else what /proc/cpuinfo's shape tells."""
    return _first_known(
        host.read(f"{_KERNEL}/arch").parse(_line),
        lambda: host.read(_HWLOC_INFO).parse(_named("Architecture")),
        lambda: _by_shape(info.architecture, kernel.or_none() or ""),
    )


def _by_shape(architecture: Value[str], release: str) -> Value[str]:
    """A machine's name; POWER's byte order stands at most in the name of the kernel."""
    if isinstance(architecture, Known) and architecture.value == "power":
        if release.endswith("ppc64le"):
            return Known("ppc64le", architecture.source)
        return Unknown("failed", architecture.source, "POWER, of a byte order that is not said")
    return architecture


def _kernel(host: Host) -> Value[str]:
    return _first_known(
        host.read(f"{_KERNEL}/osrelease").parse(_line),
        lambda: host.read("/proc/version").parse(_release),
        lambda: host.read(_HWLOC_INFO).parse(_named("OSRelease")),
    )


def _virtualization(
    host: Host, info: CpuInfo, kernel: Value[str], product: Value[str]
) -> tuple[str | None, Value[str]]:
    """The hypervisor and what gives it away. Bare metal is said on a flags line or DMI strings that were read."""
    if isinstance(kernel, Known) and re.search("microsoft|wsl", kernel.value, re.IGNORECASE):
        return "wsl", kernel
    flagged = "hypervisor" in info.flags.value if _has_flags(info) and isinstance(info.flags, Known) else None
    vendor = _dmi(host, "sys_vendor")
    name = hypervisor_of(vendor.or_none() or "", product.or_none() or "", flagged=flagged)
    if name is not None:
        return name, Known(f"{vendor.or_none() or ''} {product.or_none() or ''}".strip(), _DMI)
    if flagged:
        return _behind_the_flag(host, info)
    if isinstance(product, Unknown):
        bus = host.read("/proc/bus/pci/devices")
        name = hypervisor_on_bus(line.split("\t")[1] for line in _lines(bus) if "\t" in line)
        if name is not None:
            return name, Known(f"a PCI device of {name}", bus.source)
    if flagged is False:
        return None, Known("no hypervisor flag", info.flags.source)
    return None, product


def _has_flags(info: CpuInfo) -> bool:
    """Only x86 has a flag that every hypervisor sets."""
    return info.architecture.or_none() in ("x86_64", "x86")


def _behind_the_flag(host: Host, info: CpuInfo) -> tuple[str | None, Value[str]]:
    """The flag is set and DMI names nobody: Xen has a file of its own, and its first domain is the bare machine."""
    kind = host.read("/sys/hypervisor/type").parse(_line)
    if isinstance(kind, Known) and _NAME.fullmatch(kind.value):
        capabilities = host.read("/proc/xen/capabilities")
        if isinstance(capabilities, Known) and "control_d" in capabilities.value:
            return None, capabilities.parse(_line)
        return kind.value.lower(), kind
    return "vm-other", Known("hypervisor flag", info.flags.source)


def _container(host: Host) -> tuple[str | None, Value[str]]:
    """The kind of container and the file that gives it away; for none, the cgroup file that was read."""
    for row in containers():
        for mark, found in ((row.file, host.read), (row.folder, host.entries)):
            if mark is not None and isinstance(found(mark), Known) and _mounted(host, row.mounted):
                return row.name, Known("exists", mark)
    manager = host.read("/run/systemd/container").parse(_line)
    if isinstance(manager, Known) and _NAME.fullmatch(manager.value):
        return manager.value.lower(), manager
    cgroup = host.read("/proc/self/cgroup")
    name = container_in_cgroup(cgroup.value) if isinstance(cgroup, Known) else None
    if name is not None:
        return name, cgroup
    # Last, since only root may read it and a service's environment holds what is nobody's business.
    variable = host.read("/proc/1/environ").parse(_container_variable)
    return (variable.value.lower(), variable) if isinstance(variable, Known) else (None, cgroup)


def _mounted(host: Host, files: tuple[str, ...]) -> bool:
    """Is one of these files a mount point; true where none is asked for."""
    if not files:
        return True
    points = {line.split(" ")[1] for line in _lines(host.read("/proc/self/mounts")) if line.count(" ") > 1}
    return not points.isdisjoint(files)


def _container_variable(environ: str) -> str:
    match = _CONTAINER.search(environ)
    if match is None:
        raise ValueError("no variable container")
    return match[1]


def _first_known(first: Value[str], *others: Callable[[], Value[str]]) -> Value[str]:
    """The first that is known; when none is, the answer of the first."""
    if isinstance(first, Known):
        return first
    for other in others:
        found = other()
        if isinstance(found, Known):
            return found
    return first


def _dmi(host: Host, name: str) -> Value[str]:
    return host.read(f"{_DMI}/{name}").parse(_line)


def _line(text: str) -> str:
    """One line that says something. Raises ValueError for an empty one."""
    line = stripped(text)
    if not line:
        raise ValueError("empty")
    return line


def _lines(text: Value[str]) -> list[str]:
    return text.value.splitlines() if isinstance(text, Known) else []


def _release(text: str) -> str:
    match = _VERSION.match(text)
    if match is None:
        raise ValueError(f"no Linux version: {text[:60]!r}")
    return match[1]


def _release_numbers(text: str) -> tuple[int, int]:
    match = _NUMBERS.match(text)
    if match is None:
        raise ValueError(f"{text[:60]!r} is no kernel release")
    return int(match[1]), int(match[2])


def _named(name: str) -> Callable[[str], str]:
    """A parser for a line `name: value`."""

    def parse(text: str) -> str:
        for line in text.splitlines():
            key, _, value = line.partition(":")
            if key == name and value.strip():
                return value.strip()
        raise ValueError(f"no line {name}")

    return parse


def _assigned(name: str) -> Callable[[str], str]:
    """A parser for a variable of os-release, its quotes and escapes removed."""

    def parse(text: str) -> str:
        for line in text.splitlines():
            key, equals, value = line.strip().partition("=")
            if equals and key == name:
                return _line(re.sub(r"\\(.)", r"\1", value.strip().strip("\"'")))
        raise ValueError(f"no variable {name}")

    return parse


def _first_number(text: str) -> float:
    words = text.split()
    number = float(words[0]) if words else -1.0
    if not 0 <= number < 1e10:
        raise ValueError(f"not seconds: {text[:60]!r}")
    return number
