"""Is MIOpen there, and is it the one that belongs to its ROCm release."""

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
    passed,
    shown,
    skipped,
    undetermined,
    warned,
)
from amdcheck.facts.miopen import MiopenInstall, MiopenInstalls, has_miopen
from amdcheck.facts.platform import Platform
from amdcheck.facts.rocm import RocmInstalls
from amdcheck.knowledge.miopen import Carried, carried_by
from amdcheck.knowledge.remedies import remedy
from amdcheck.knowledge.rocm import release_of
from amdcheck.knowledge.tables import TABLES_DATE
from amdcheck.knowledge.versions import numbers

ID = "miopen.version"


@check(ID, title="MIOpen version", level="quick", required=False, applies=has_miopen)
def version(miopen: MiopenInstalls, rocm: RocmInstalls, platform: Platform) -> Iterator[Finding]:
    """Whether every ROCm installation has the MIOpen of its own release, and PyTorch wheels the one they name.

    MIOpen runs the convolutions. A library of another release reads databases that it does not understand, or none,
    and compiles every kernel anew. At level quick the check takes the release that the library's file name ends in
    (libMIOpen.so.1.0.60303 is of ROCm 6.3.3) and the development header; at standard also what the library answers
    when it is called (miopenGetVersion, in a process of its own) and what the package manager says. No database file
    holds a version, and there is no Python module of that name.

    Which MIOpen a release carries stands in a table. Its number alone does not tell every build apart: 3.5.1 came
    with ROCm 7.1, 7.2 and 7.11.

    Source: MIOpen CHANGELOG.md and include/miopen/miopen.h; rocm-docs component list of 10.0.
    """
    if isinstance(rocm.searched, Unknown) and not miopen.installs:
        yield undetermined(ID, HOST, "Where MIOpen might be installed could not be read.", because=rocm.searched)
    elif not miopen.installs:
        told = shown(
            "ROCm installations", ", ".join(broken.path for broken in rocm.broken) or "none that has a library"
        )
        yield skipped(ID, HOST, "No ROCm installation is there to look for MIOpen in, see rocm.version.", told)
    for install in miopen.installs:
        yield _judge(install, platform.os_id.or_none())


def _judge(install: MiopenInstall, os_id: str | None) -> Finding:
    if isinstance(install.library, Unknown):
        return _no_library(install, install.library, os_id)
    read = _read(install)
    stated = {value.value for value in (install.api, install.header, install.package) if isinstance(value, Known)}
    if len(stated) > 1:
        return warned(
            f"{ID}/inconsistent",
            install.subject,
            f"Library, header and package name different versions: {', '.join(sorted(stated))}.",
            *read,
            remedy=remedy(f"{ID}/inconsistent", os_id=os_id),
        )
    if isinstance(install.rocm_version, Unknown):
        message = "The ROCm release that this MIOpen belongs to could not be read."
        return undetermined(ID, install.subject, message, *read, because=install.rocm_version)
    return _against_release(install, install.rocm_version.value, read, os_id)


def _no_library(install: MiopenInstall, why: Unknown, os_id: str | None) -> Finding:
    if why.reason != "absent":
        return undetermined(ID, install.subject, "Whether there is a MIOpen library could not be read.", because=why)
    return warned(
        f"{ID}/missing",
        install.subject,
        "This ROCm installation has no MIOpen: frameworks that use it for convolutions will not load.",
        evidence(why),
        remedy=remedy(f"{ID}/missing", os_id=os_id),
        expected="libMIOpen.so.1",
    )


def _read(install: MiopenInstall) -> tuple[Evidence, ...]:
    """What was read, the library itself first."""
    values = (install.library, install.rocm_version, install.api, install.header, install.package)
    return tuple(evidence(value) for value in values if isinstance(value, Known))


def _against_release(install: MiopenInstall, release: str, read: tuple[Evidence, ...], os_id: str | None) -> Finding:
    built_for = install.built_for.or_none()
    if built_for is not None and not _same(built_for, release):
        return warned(
            f"{ID}/mismatch",
            install.subject,
            f"The library is of ROCm {built_for}, its installation is ROCm {release}.",
            *read,
            remedy=remedy(f"{ID}/mismatch", os_id=os_id),
            expected=f"MIOpen of ROCm {release}",
            actual=f"MIOpen of ROCm {built_for}",
        )
    row = carried_by(release_of(release) or release)
    if row is None:
        return warned(
            f"{ID}/not-in-table",
            install.subject,
            f"Which MIOpen belongs to ROCm {release} is not in the tables of {TABLES_DATE}.",
            *read,
            remedy=remedy(f"{ID}/not-in-table"),
        )
    return _against_table(install, release, row, read, os_id)


def _same(one: str, other: str) -> bool:
    """Do two versions agree in the fields that both have?"""
    a, b = numbers(one), numbers(other)
    shared = min(len(a), len(b))
    return a[:shared] == b[:shared]


def _against_table(
    install: MiopenInstall, release: str, row: Carried, read: tuple[Evidence, ...], os_id: str | None
) -> Finding:
    carried = f"MIOpen {row.miopen}{' or later' if row.at_least else ''}"
    rule = shown(row.source, carried, note=f"ROCm {row.rocm}")
    if isinstance(install.version, Known):
        if row.matches(install.version.value):
            message = f"MIOpen {install.version.value} is the one of ROCm {row.rocm}."
            return passed(ID, install.subject, message, *read, rule, actual=install.version.value)
        return warned(
            f"{ID}/mismatch",
            install.subject,
            f"MIOpen is {install.version.value}, ROCm {release} carries {row.miopen}.",
            *read,
            rule,
            remedy=remedy(f"{ID}/mismatch", os_id=os_id),
            expected=carried,
            actual=install.version.value,
        )
    if isinstance(install.built_for, Known):
        message = f"By its name the library is of ROCm {install.built_for.value}, which carries {carried}."
        return passed(ID, install.subject, message, *read, rule)
    return undetermined(
        ID,
        install.subject,
        "Neither the library's name nor a header says its version.",
        *read,
        evidence(install.api),
        outcome="not-asked",
        remedy=remedy(f"{ID}/not-asked"),
        expected=carried,
    )
