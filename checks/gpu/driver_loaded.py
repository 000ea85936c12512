"""Is the amdgpu driver loaded, and if not, what keeps it away."""

from __future__ import annotations

from collections.abc import Iterator

from amdcheck.api import (
    HOST,
    Evidence,
    Finding,
    Known,
    Unknown,
    check,
    evidence,
    failed,
    passed,
    shown,
    skipped,
    undetermined,
    warned,
)
from amdcheck.facts.driver import Driver, is_in_tree
from amdcheck.facts.gpus import Gpus
from amdcheck.facts.kfd import TOPOLOGY, Kfd
from amdcheck.facts.platform import Platform
from amdcheck.facts.presence import gpus_expected
from amdcheck.knowledge.gpus import gpu_table
from amdcheck.knowledge.remedies import remedy
from amdcheck.model.text import counted

ID = "gpu.driver-loaded"


@check(ID, title="amdgpu driver loaded", level="quick", applies=gpus_expected)
def driver_loaded(driver: Driver, gpus: Gpus, kfd: Kfd, platform: Platform) -> Iterator[Finding]:
    """Whether the amdgpu kernel driver is loaded and has finished starting.

    Looks at /sys/module/amdgpu (a driver built into the kernel has no `initstate` there), at the KFD topology where
    the module folder is not readable. When the driver is not loaded it says why: a boot option (nomodeset,
    modprobe.blacklist) or a line in modprobe.d that blocks it, a DKMS package that was not built for the running
    kernel, or a kernel that comes without the module. Without the driver no program can reach a GPU. rocm-smi leaves
    with exit code 0 in that case, so its exit code says nothing.

    Where all GPUs are bound to vfio-pci they belong to guests, and the driver is not missed here. A GPU that the
    loaded driver did not take is gpu.present's to judge.

    Source: kernel documentation, ABI sysfs-module and admin-guide/kernel-parameters; dkms(8).
    """
    if isinstance(driver.loaded, Unknown):
        yield _by_topology(driver.loaded, kfd)
    elif not driver.loaded.value:
        yield _not_loaded(driver, gpus, platform.os_id.or_none())
    elif driver.initstate.or_none() == "coming":
        yield undetermined(
            ID,
            HOST,
            "amdgpu is still starting.",
            evidence(driver.initstate),
            outcome="starting",
            remedy=remedy(f"{ID}/starting"),
        )
    elif driver.initstate.or_none() == "going":
        yield failed(
            f"{ID}/unloading",
            HOST,
            "amdgpu is being unloaded.",
            evidence(driver.initstate),
            remedy=remedy(f"{ID}/unloading"),
        )
    elif isinstance(driver.initstate, Unknown) and not driver.built_in:
        message = "amdgpu is loaded; whether it has finished starting could not be read."
        yield undetermined(ID, HOST, message, because=driver.initstate)
    else:
        yield _loaded(driver, platform.os_id.or_none())


def _by_topology(why: Unknown, kfd: Kfd) -> Finding:
    """Only amdgpu's compute side writes GPU nodes into the KFD topology."""
    if kfd.gpu_nodes:
        nodes = shown(TOPOLOGY, counted(len(kfd.gpu_nodes), "GPU node"))
        return passed(ID, HOST, "amdgpu is loaded: the KFD topology lists GPUs.", nodes)
    return undetermined(ID, HOST, "Whether amdgpu is loaded could not be read.", because=why)


def _loaded(driver: Driver, os_id: str | None) -> Finding:
    state = shown(driver.loaded.source, "built into the kernel") if driver.built_in else evidence(driver.initstate)
    built = driver.dkms_built.or_none()
    path = driver.module_path.or_none()
    if driver.kind.or_none() == "in-tree" and built and path is not None and not is_in_tree(path):
        return warned(
            f"{ID}/other-module",
            HOST,
            f"The kernel's own amdgpu is loaded although amdgpu {built[0]} is built by DKMS for this kernel.",
            state,
            evidence(driver.kind, note="kind of the loaded module"),
            evidence(driver.module_path),
            remedy=remedy(f"{ID}/other-module", os_id=os_id),
            expected="the module of DKMS",
            actual="the in-tree module",
        )
    return passed(ID, HOST, "amdgpu is loaded.", state, evidence(driver.kind, note="kind"))


def _not_loaded(driver: Driver, gpus: Gpus, os_id: str | None) -> Finding:
    absent = shown(driver.loaded.source, "no amdgpu in it")
    holders = {gpu.driver.or_none() for gpu in gpus.devices}
    if gpus.devices and holders <= set(gpu_table().handed_over.drivers):
        handed = [shown(f"/sys/bus/pci/devices/{gpu.bdf}/driver", gpu.driver.or_none() or "") for gpu in gpus.devices]
        return skipped(ID, HOST, "All GPUs are handed to guests; amdgpu belongs in the guest.", *handed[:8])
    if driver.blocked_by:
        return _blocked(driver.blocked_by, absent, os_id)
    installed, built = driver.dkms_installed.or_none(), driver.dkms_built.or_none()
    if installed and built == ():
        return failed(
            f"{ID}/not-built",
            HOST,
            f"amdgpu is not loaded: DKMS has {', '.join(installed[:3])}, but not for the running kernel.",
            absent,
            evidence(driver.dkms_installed.parse(", ".join)),
            remedy=remedy(f"{ID}/not-built", os_id=os_id),
            expected="amdgpu built for the running kernel",
        )
    if isinstance(driver.module_path, Unknown) and driver.module_path.reason == "absent":
        return failed(
            f"{ID}/no-module",
            HOST,
            "amdgpu is not loaded: the running kernel has no amdgpu module.",
            absent,
            evidence(driver.module_path),
            remedy=remedy(f"{ID}/no-module", os_id=os_id),
        )
    return failed(
        f"{ID}/not-loaded",
        HOST,
        "amdgpu is not loaded, although GPUs are expected here.",
        absent,
        evidence(driver.module_path, note="module of the running kernel"),
        remedy=remedy(f"{ID}/not-loaded"),
        expected="amdgpu loaded",
    )


def _blocked(lines: tuple[Known[str], ...], absent: Evidence, os_id: str | None) -> Finding:
    first = lines[0]
    return failed(
        f"{ID}/blocked",
        HOST,
        f"amdgpu is not loaded: `{first.value}` in {first.source} keeps it away.",
        absent,
        *(evidence(line) for line in lines[:4]),
        remedy=remedy(f"{ID}/blocked", os_id=os_id, where=first.source),
    )
