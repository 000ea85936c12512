"""Are MIOpen's precompiled kernels there, and are they what they should be."""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import join

from amdcheck.api import (
    Finding,
    Known,
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
from amdcheck.facts.gpus import Gpus
from amdcheck.facts.miopen import KernelDb, MiopenInstall, MiopenInstalls, has_library_for_gpus
from amdcheck.facts.platform import Platform
from amdcheck.knowledge import miopen as table
from amdcheck.knowledge.remedies import remedy
from amdcheck.model.text import counted

ID = "miopen.kernel-cache"


@check(ID, title="MIOpen precompiled kernels", level="quick", required=False, applies=has_library_for_gpus)
def kernel_cache(miopen: MiopenInstalls, gpus: Gpus, platform: Platform) -> Iterator[Finding]:
    """Whether MIOpen's databases of precompiled kernels (.kdb) are installed for these GPUs, and are real databases.

    They come in packages of their own, one a target (miopen-hip-gfx90akdb). Without them the first request of every
    shape waits for the compiler. They exist for gfx900, gfx906, gfx908, gfx90a, gfx942 and gfx1030; for all others
    their absence is normal and the check is skipped. A file that is no SQLite database is a pointer of Git LFS or DVC
    that a source build left in its place: MIOpen then fails on opening it.

    Source: MIOpen CMakeLists.txt and binary_cache.cpp; MIOpen#1930.
    """
    for gpu in gpus.devices:
        if isinstance(gpu.gfx, Unknown):
            yield undetermined(ID, gpu.subject, "The GPU's gfx target is not known.", because=gpu.gfx)
    targets = sorted({gpu.gfx.value for gpu in gpus.devices if isinstance(gpu.gfx, Known)})
    for install in miopen.installs:
        if isinstance(install.library, Unknown) or isinstance(install.system_db.names, Unknown):
            yield skipped(ID, install.subject, "There is no database folder here, see miopen.database.")
            continue
        for gfx in targets:
            yield _judge(install, gfx, frozenset(install.system_db.names.value), platform.os_id.or_none())


def _judge(install: MiopenInstall, gfx: str, names: frozenset[str], os_id: str | None) -> Finding:
    folder = install.system_db.path
    subject = Subject(kind="path", id=join(folder, f"{gfx}.kdb"))
    found = [db for db in install.system_db.kernel_dbs if _is_for(db.name, gfx)]
    if found:
        return _is_real(found, folder, subject)
    if gfx not in table.table().kernel_db.targets:
        return skipped(ID, subject, f"There are no precompiled kernels for {gfx} in any release.")
    return warned(
        f"{ID}/missing",
        subject,
        f"The precompiled kernels for {gfx} are not installed: the first use of every shape waits for the compiler.",
        shown(folder, f"{counted(len(names), 'file')}, no .kdb for {gfx}"),
        remedy=remedy(f"{ID}/missing", os_id=os_id, package=f"miopen-hip-{gfx}kdb"),
        expected=f"{gfx}.kdb",
    )


def _is_for(name: str, gfx: str) -> bool:
    """<gfx>.kdb, or one for a number of compute units: gfx90a68.kdb, gfx906_60.kdb."""
    base = name[: -len(".kdb")]
    return base == gfx or table.count_of(base, gfx) is not None


def _is_real(found: list[KernelDb], folder: str, subject: Subject) -> Finding:
    for db in found:
        path = join(folder, db.name)
        if isinstance(db.is_sqlite, Unknown):
            return undetermined(ID, subject, f"{db.name} could not be read.", because=db.is_sqlite)
        if not db.is_sqlite.value:
            return failed(
                f"{ID}/pointer",
                subject,
                f"{db.name} is no SQLite database but what Git LFS or DVC left in its place.",
                shown(path, "no SQLite header, or shorter than any database"),
                remedy=remedy(f"{ID}/pointer", path=path),
                expected="a SQLite database",
            )
    read = [evidence(db.is_sqlite.parse(lambda _: "SQLite format 3"), note=db.name) for db in found]
    return passed(ID, subject, "The precompiled kernels are there.", *read)
