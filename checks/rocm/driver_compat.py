"""Does AMD support this ROCm release on this driver."""

from __future__ import annotations

from collections.abc import Iterator

from amdcheck.api import (
    HOST,
    Evidence,
    Finding,
    Subject,
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
from amdcheck.facts.driver import Driver
from amdcheck.facts.platform import Platform
from amdcheck.facts.rocm import BrokenRoot, RocmInstalls, RocmRoot, has_rocm
from amdcheck.knowledge.remedies import remedy
from amdcheck.knowledge.rocm import Compatibility, compatibility, packaged_driver, release_of
from amdcheck.knowledge.tables import TABLES_DATE

ID = "rocm.driver-compat"
_WARNINGS = {
    "unclear": "unclear",
    "preview": "preview",
    "release-unknown": "not-in-table",
    "driver-unknown": "not-in-table",
}


@check(ID, title="ROCm goes with the driver", level="quick", applies=has_rocm)
def driver_compat(rocm: RocmInstalls, driver: Driver, platform: Platform) -> Iterator[Finding]:
    """Whether each installed ROCm release may run on the loaded amdgpu driver.

    Takes the release from .info/version of every installation, and the driver's from /sys/module/amdgpu/version. The
    list that AMD publishes for the ROCm release decides first, then the one for the driver. For a pair that no list
    names, AMD's rule decides and the finding says "inferred": before ROCm 6.4 up to two releases apart, from 6.4 on
    up to a year apart. Release numbers are not contiguous (7.2, 7.14, 10.0), so distances are counted in an ordered
    list and in days, never in numbers. Technology previews (7.9 to 7.13) go with their own drivers only.

    Outside these lists programs start and then fail in odd ways: missing ioctls, hangs, wrong queue sizes. AMD's lists
    cover its packaged (DKMS) driver alone. On the kernel's own driver the check is skipped and says so; what that
    driver can and cannot do shows in the checks of gpu and memory.

    Source: AMD ROCm documentation, user and kernel-space support matrix; ROCm compatibility matrices 7.14 and 10.0.
    """
    for broken in rocm.broken:
        yield _broken(broken)
    if isinstance(rocm.searched, Unknown) and not rocm.roots and not rocm.broken:
        yield undetermined(ID, HOST, "Where ROCm might be installed could not be read.", because=rocm.searched)
    for root in rocm.roots:
        yield _judge(root, driver, platform)


def _broken(broken: BrokenRoot) -> Finding:
    subject = Subject(kind="path", id=broken.path)
    if not broken.leads:
        return undetermined(ID, subject, "There is no ROCm installation at this path.", because=broken.why)
    return warned(
        f"{ID}/dangling",
        subject,
        f"{broken.path} leads to {broken.leads[-1]}, which is gone: programs that look for ROCm there find none.",
        shown(broken.path, " -> ".join(broken.leads)),
        expected="a link to an installation that is there",
        remedy=remedy(f"{ID}/dangling", path=broken.path),
    )


def _judge(root: RocmRoot, driver: Driver, platform: Platform) -> Finding:
    if isinstance(root.version, Unknown):
        return undetermined(
            ID, root.subject, "The release of this installation could not be read.", because=root.version
        )
    release = evidence(root.version, note="ROCm release")
    if isinstance(driver.kind, Unknown):
        return undetermined(ID, root.subject, "Which driver is loaded could not be read.", release, because=driver.kind)
    if driver.kind.value == "absent":
        return skipped(ID, root.subject, "amdgpu is not loaded, see gpu.driver-loaded.", release)
    if driver.kind.value == "in-tree":
        return _in_tree(root, release, platform)
    if isinstance(driver.module_version, Unknown):
        message = "The driver's version could not be read."
        return undetermined(ID, root.subject, message, release, because=driver.module_version)
    module = evidence(driver.module_version, note="loaded driver")
    packaged = packaged_driver(driver.module_version.value)
    if packaged is None:
        return warned(
            f"{ID}/not-in-table",
            root.subject,
            f"amdgpu {driver.module_version.value} is in no table of {TABLES_DATE}.",
            release,
            module,
            remedy=remedy(f"{ID}/not-in-table"),
        )
    return _verdict(root, root.version.value, compatibility(root.version.value, packaged), release, module)


def _in_tree(root: RocmRoot, release: Evidence, platform: Platform) -> Finding:
    kernel = platform.kernel.or_none() or "of unknown release"
    return skipped(
        ID,
        root.subject,
        f"AMD's lists pair ROCm with its packaged driver; the in-tree driver of kernel {kernel} is in none of them.",
        release,
        evidence(platform.kernel),
        outcome="in-tree",
    )


def _verdict(root: RocmRoot, version: str, pair: Compatibility, *read: Evidence) -> Finding:
    rule = shown(pair.source, pair.why, note=f"basis: {pair.basis}")
    said = f"{pair.why}{' (one source)' if pair.confidence == 'one-source' else ''}."
    if pair.supported:
        inferred = "Inferred, as no list names the pair: " if pair.basis == "inferred" else ""
        return passed(ID, root.subject, f"{inferred}{said}", *read, rule)
    if pair.supported is None:
        outcome = _WARNINGS[pair.basis]
        return warned(f"{ID}/{outcome}", root.subject, said, *read, rule, remedy=remedy(f"{ID}/{outcome}"))
    verdict = warned if pair.confidence == "unverified" else failed
    return verdict(
        f"{ID}/unsupported",
        root.subject,
        f"AMD does not support ROCm {version} on this driver: {said}",
        *read,
        rule,
        remedy=remedy(f"{ID}/unsupported", release=release_of(version) or version),
        expected=f"a driver that goes with ROCm {release_of(version)}",
    )
