"""Which amdgpu driver is loaded: the kernel's own or AMD's package, and which release of it."""

from __future__ import annotations

from collections.abc import Iterator

from amdcheck.api import (
    HOST,
    Finding,
    Unknown,
    check,
    evidence,
    passed,
    shown,
    undetermined,
    warned,
)
from amdcheck.facts.driver import Driver
from amdcheck.facts.gpus import Gpus
from amdcheck.facts.platform import Platform
from amdcheck.facts.presence import GpuSigns, gpus_expected
from amdcheck.knowledge.remedies import remedy
from amdcheck.knowledge.rocm import packaged_driver
from amdcheck.knowledge.tables import TABLES_DATE

ID = "gpu.driver-version"


def driver_is_loaded(driver: Driver, gpus: Gpus, signs: GpuSigns) -> str | None:
    """Applies to a loaded driver; one that is not loaded is gpu.driver-loaded's to judge."""
    if driver.loaded.or_none() is False:
        return "amdgpu is not loaded, see gpu.driver-loaded"
    return gpus_expected(gpus, driver, signs)


@check(ID, title="amdgpu driver version", level="quick", applies=driver_is_loaded)
def driver_version(driver: Driver, platform: Platform) -> Iterator[Finding]:
    """Which amdgpu driver is loaded, and which release it belongs to.

    AMD's own package (DKMS) carries a version in /sys/module/amdgpu/version. Its numbering changed twice: up to ROCm
    6.4 it stands for a ROCm release (6.12.12 is that of ROCm 6.4), from 30.10 on the driver has releases of its own
    (6.14.14 is 30.10), and from 31.40 on the string spells them in a fourth field (6.19.14.31400100 is 31.40.1). The
    kernel's own amdgpu has no such file: its version is the kernel release, which is no fault and is never compared
    with ROCm's numbers. What goes with which ROCm release is judged by rocm.driver-compat.

    A version that no table knows is a warning: rules that need the release are skipped then.

    Source: AMD GPU Driver documentation; version files and package names of drivers 6.2.4 to 7.1.3.
    """
    if isinstance(driver.kind, Unknown):
        yield undetermined(ID, HOST, "Which amdgpu driver is loaded could not be read.", because=driver.kind)
    elif driver.kind.value == "in-tree":
        yield _in_tree(driver, platform)
    elif isinstance(driver.module_version, Unknown):
        message = "amdgpu is an out-of-tree module without a version."
        yield undetermined(ID, HOST, message, evidence(driver.taint, note="taint"), because=driver.module_version)
    else:
        yield _packaged(driver, driver.module_version.value)


def _in_tree(driver: Driver, platform: Platform) -> Finding:
    if isinstance(platform.kernel, Unknown):
        return undetermined(
            ID, HOST, "amdgpu is the kernel's own; the kernel's release could not be read.", because=platform.kernel
        )
    return passed(
        ID,
        HOST,
        f"amdgpu is the kernel's own driver, of kernel {platform.kernel.value}.",
        evidence(driver.kind, note="kind"),
        evidence(platform.kernel),
        actual=platform.kernel.value,
    )


def _packaged(driver: Driver, version: str) -> Finding:
    release = packaged_driver(version)
    if release is None:
        return warned(
            f"{ID}/not-in-table",
            HOST,
            f"amdgpu {version} is in no table of {TABLES_DATE}: its release is not known.",
            evidence(driver.module_version),
            remedy=remedy(f"{ID}/not-in-table"),
            actual=version,
        )
    return passed(
        ID,
        HOST,
        f"amdgpu {version} is {release.name}.",
        evidence(driver.module_version),
        shown("amdcheck table of driver versions", release.text),
        evidence(driver.srcversion, note="srcversion"),
        actual=release.text,
    )
