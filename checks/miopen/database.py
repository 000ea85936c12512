"""Does MIOpen find its tuning results for the GPUs of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import join

from amdcheck.api import (
    Evidence,
    Finding,
    Subject,
    Unknown,
    check,
    evidence,
    passed,
    shown,
    skipped,
    undetermined,
    warned,
)
from amdcheck.facts.gpus import Gpu, Gpus
from amdcheck.facts.miopen import MiopenInstall, MiopenInstalls, has_library_for_gpus
from amdcheck.facts.miopen_user import MiopenUser
from amdcheck.facts.platform import Platform
from amdcheck.knowledge import miopen as table
from amdcheck.knowledge.remedies import remedy
from amdcheck.knowledge.rocm import release_of
from amdcheck.model.text import counted

ID = "miopen.database"
Target = tuple[str, int]  # gfx, compute units
_FIND, _PERF = (".HIP.fdb.txt",), (".db.txt", ".db")


@check(ID, title="MIOpen system database", level="quick", required=False, applies=has_library_for_gpus)
def database(miopen: MiopenInstalls, user: MiopenUser, gpus: Gpus, platform: Platform) -> Iterator[Finding]:
    """Whether the databases that came with MIOpen hold results for these GPUs, under the name the library looks for.

    A database is named by gfx target and number of compute units: gfx942130 for a whole MI300X (304 in hex),
    gfx942_38 for one XCD of it, gfx90a68 for an MI210, gfx1100_48 and, in newer libraries, gfx110060 for an RX 7900
    XTX. Both the find-db (.HIP.fdb.txt) and the perf-db (.db.txt) should be there. Without them the first run of every
    shape searches for minutes, and kernels run with default parameters.

    Libraries up to 3.5.1 find nothing when the exact name is missing: their search for the nearest count looks for
    the wrong file extension. That leaves partitioned MI300X, the MI308X and everything under HSA_XNACK=1 untuned. Newer
    libraries take the nearest, and for smaller gfx942 the full device's. A target for which the release ships no
    database at all is skipped.

    Source: MIOpen handle.hpp, find_db.cpp, execution_context.hpp; rocm-libraries #8802, #9529, #10050.
    """
    os_id = platform.os_id.or_none()
    targets: set[Target] = set()
    for gpu in gpus.devices:
        found = _targets(gpu)
        targets |= found
        if not found:
            yield _without_target(gpu)
    for install in miopen.installs:
        if isinstance(install.library, Unknown):
            yield skipped(ID, install.subject, "There is no MIOpen library here, see miopen.version.")
        elif isinstance(install.system_db.names, Unknown):
            yield _no_folder(install, install.system_db.names, os_id)
        else:
            names = frozenset(install.system_db.names.value)
            for gfx, units in sorted(targets):
                yield _target(install, names, gfx, units, xnack=user.xnack, os_id=os_id)


def _targets(gpu: Gpu) -> set[Target]:
    """What MIOpen can be asked to run on; empty when one part does not say what it is, and so none is certain."""
    said = [(part.gfx or gpu.gfx.or_none(), part.compute_units) for part in gpu.partitions]
    known = {(gfx, units) for gfx, units in said if gfx is not None and units is not None}
    return known if all(gfx is not None and units is not None for gfx, units in said) else set()


def _without_target(gpu: Gpu) -> Finding:
    if gpu.hidden or gpu.is_undriven:
        return skipped(ID, gpu.subject, "No program here can use this GPU, see gpu.present.")
    why = Unknown("absent", "/sys/class/kfd/kfd/topology", "no node names its target and compute units")
    return undetermined(ID, gpu.subject, "The GPU's target and compute units could not be read.", because=why)


def _no_folder(install: MiopenInstall, why: Unknown, os_id: str | None) -> Finding:
    subject = Subject(kind="path", id=install.system_db.path)
    if why.reason != "absent":
        return undetermined(ID, subject, "MIOpen's database folder could not be read.", because=why)
    return warned(
        f"{ID}/no-folder",
        subject,
        "MIOpen's database folder is missing: every shape is searched for at first use.",
        evidence(why),
        remedy=remedy(f"{ID}/no-folder", os_id=os_id),
    )


def library_version(install: MiopenInstall) -> str | None:
    """The library's version: as it says itself, else by the table for its ROCm release."""
    stated = install.version.or_none()
    if stated is not None:
        return stated
    release = install.rocm_version.or_none() or install.built_for.or_none()
    row = table.carried_by(release_of(release) or release) if release else None
    return row.miopen if row is not None else None


def _target(
    install: MiopenInstall, names: frozenset[str], gfx: str, units: int, *, xnack: bool, os_id: str | None
) -> Finding:
    bases = table.base_names(gfx, units, xnack=xnack)
    folder = install.system_db.path
    subject = Subject(kind="path", id=join(folder, bases[0]))
    version = library_version(install)
    with_perf = table.shipped_names(version)[1] if version else frozenset(bases)
    listing = shown(folder, f"{counted(len(names), 'file')}, none of {', '.join(base + _FIND[0] for base in bases)}")
    for base in bases:
        find, perf = _present(names, base, _FIND), _present(names, base, _PERF)
        if find is not None and (perf is not None or base not in with_perf):
            read = shown(folder, ", ".join(name for name in (find, perf) if name is not None))
            return passed(ID, subject, f"MIOpen has tuning results for {gfx} with {units} compute units.", read)
        if find is not None or perf is not None:
            listing = shown(folder, f"{find or perf} alone")
    nearest = _nearest(names, gfx, units, xnack=xnack)
    return _inexact(version, nearest, gfx, units, bases, subject, listing, os_id)


def _present(names: frozenset[str], base: str, suffixes: tuple[str, ...]) -> str | None:
    return next((base + suffix for suffix in suffixes if base + suffix in names), None)


def _nearest(names: frozenset[str], gfx: str, units: int, *, xnack: bool) -> str | None:
    """What a library that can search takes instead: the full device's, else the nearest count of the same dbid."""
    there = frozenset(name[: -len(_FIND[0])] for name in names if name.endswith(_FIND[0]))
    redirected = None if xnack else table.redirected_name(gfx, units)
    if redirected in there:
        return redirected
    return table.nearest_name(table.database_id(gfx, xnack=xnack), table.hip_units(gfx, units), there)


def _inexact(
    version: str | None,
    nearest: str | None,
    gfx: str,
    units: int,
    bases: tuple[str, ...],
    subject: Subject,
    listing: Evidence,
    os_id: str | None,
) -> Finding:
    """The exact name is missing, wholly or in part: what that means depends on the library's release."""
    if version is None:
        message = f"There is no database for {gfx} with {units} compute units, and the library's release is not known."
        return undetermined(
            ID, subject, message, listing, outcome="unknown-release", remedy=remedy(f"{ID}/unknown-release")
        )
    shipped_find, shipped_perf = table.shipped_names(version)
    if any(base in shipped_find and base in shipped_perf for base in bases):
        return warned(
            f"{ID}/missing",
            subject,
            f"MIOpen {version} ships tuning results for {gfx} with {units} compute units; here they are missing.",
            listing,
            remedy=remedy(f"{ID}/missing", os_id=os_id),
            expected=f"{bases[0]}{_FIND[0]} and {bases[0]}{_PERF[0]}",
        )
    if nearest is None and not table.ships_for(gfx, version):
        message = f"MIOpen {version} ships no tuning results for {gfx}."
        return skipped(ID, subject, message, listing, outcome="not-shipped")
    if nearest is not None and table.searches_nearest(version):
        read = shown(listing.source, f"{nearest}{_FIND[0]}")
        message = f"MIOpen {version} uses the results of {nearest} for {gfx} with {units} compute units."
        return passed(ID, subject, message, read, listing)
    needs = ": it needs the exact name" if nearest is not None else ""
    return warned(
        f"{ID}/untuned",
        subject,
        f"MIOpen {version} finds no tuning results for {gfx} with {units} compute units{needs}.",
        listing,
        remedy=remedy(f"{ID}/untuned"),
        expected=f"{bases[0]}{_FIND[0]}",
    )
