"""What kind of machine this is: kernel, distribution, BIOS, virtual machine, container."""

from __future__ import annotations

from msgspec import Struct

from amdcheck.facts.registry import fact
from amdcheck.host.protocol import Host
from amdcheck.model.value import Value


@fact
class Platform(Struct, frozen=True, kw_only=True):
    """Identity of the operating system and the machine around it."""

    machine: Value[str]  # uname -m: x86_64, aarch64, ppc64le
    kernel: Value[str]  # release, as uname -r
    os: Value[str]  # PRETTY_NAME of os-release
    os_id: Value[str]  # ID of os-release: ubuntu, debian, rhel, sles
    hostname: Value[str]
    machine_id: Value[str]
    boot_id: Value[str]
    uptime_s: Value[float]
    bios_vendor: Value[str]
    bios_version: Value[str]
    bios_date: Value[str]
    product: Value[str]  # DMI product name
    virtualization: (
        str | None
    )  # kvm, vmware, hyperv, xen, oracle, ... ; None: bare metal or cannot be told
    virtualization_evidence: Value[str]
    container: (
        str | None
    )  # docker, podman, kubernetes, lxc, ... ; None: no container found
    container_evidence: Value[str]
    command_line: Value[str]

    @classmethod
    def read(cls, host: Host) -> Platform:
        raise NotImplementedError
