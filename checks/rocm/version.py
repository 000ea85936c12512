"""Which ROCm releases are installed, and are they the ones that are meant to be."""

from __future__ import annotations

from collections.abc import Iterator

from amdcheck.api import (
    HOST,
    Expectations,
    Finding,
    Unknown,
    check,
    evidence,
    failed,
    passed,
    skipped,
    undetermined,
)
from amdcheck.facts.rocm import RocmInstalls, RocmRoot, has_rocm
from amdcheck.knowledge.remedies import remedy

ID = "rocm.version"


@check(ID, title="ROCm release", level="quick", applies=has_rocm)
def version(rocm: RocmInstalls, expect: Expectations) -> Iterator[Finding]:
    """Which ROCm release each installation is, and whether the policy's range holds it.

    Takes the release from .info/version of every installation: below /opt/rocm in all its layouts, in /usr, and in the
    Python that is judged. Without a range in the policy (rocm under [expect], as in ">=6.4,<11") it only says what is
    there.

    A fleet whose nodes differ in ROCm answers differently on each: other kernels, other tuning databases, other bugs.
    The range is judged for every installation, for which one a program loads is decided by its paths.

    Source: the .info files that rocm-core installs; Python packaging, version specifiers (PEP 440).
    """
    if not rocm.roots and isinstance(rocm.searched, Unknown):
        yield undetermined(ID, HOST, "Where ROCm might be installed could not be read.", because=rocm.searched)
    for broken in rocm.broken:
        if not broken.leads:
            yield undetermined(ID, broken.subject, "There is no ROCm installation at this path.", because=broken.why)
        else:
            yield skipped(ID, broken.subject, "The link leads nowhere, see rocm.driver-compat.")
    for root in rocm.roots:
        yield _judge(root, expect.rocm)


def _judge(root: RocmRoot, wanted: str | None) -> Finding:
    if isinstance(root.version, Unknown):
        message = "The release of this installation could not be read."
        return undetermined(ID, root.subject, message, because=root.version, expected=wanted)
    release = evidence(root.version)
    if wanted is None or _within(root.version.value, wanted):
        return passed(ID, root.subject, f"ROCm {root.version.value} is installed.", release, expected=wanted)
    return failed(
        f"{ID}/other-release",
        root.subject,
        f"ROCm {root.version.value} is installed; the policy expects {wanted}.",
        release,
        expected=f"{wanted} (policy)",
        actual=root.version.value,
        remedy=remedy(f"{ID}/other-release"),
    )


def _within(release: str, wanted: str) -> bool:
    """Is the release in the range; one that is no version is in none."""
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion

    try:
        return SpecifierSet(wanted).contains(release, prereleases=True)
    except InvalidVersion:
        return False
