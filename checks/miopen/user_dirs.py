"""Can MIOpen keep what it learns: the user's database and kernel cache."""

from __future__ import annotations

from collections.abc import Iterator

from amdcheck.api import (
    HOST,
    Evidence,
    Finding,
    Stat,
    Subject,
    Unknown,
    check,
    failed,
    passed,
    shown,
    undetermined,
    warned,
)
from amdcheck.facts.miopen import has_library_for_gpus
from amdcheck.facts.miopen_user import MiopenUser, UserFolder
from amdcheck.knowledge.miopen import file_system
from amdcheck.knowledge.remedies import remedy

ID = "miopen.user-dirs"


@check(ID, title="MIOpen's folders of the user", level="quick", required=False, applies=has_library_for_gpus)
def user_dirs(user: MiopenUser) -> Iterator[Finding]:
    """Whether the serving user may write MIOpen's own folders, and whether they lie on a local disk.

    MIOpen writes tuning results to ~/.config/miopen (MIOPEN_USER_DB_PATH) and compiled kernels to ~/.cache/miopen
    (MIOPEN_CUSTOM_CACHE_DIR). Where it may not, the process ends with "cannot create directories" or a disk I/O error.
    On a network home of a kind that it knows (NFS, SMB, Lustre, Ceph ...) it takes the temporary folder instead, so
    that everything is compiled again after a reboot; on others (GPFS, FUSE) many processes share one database file.

    Judged is the user of --service or --pid, with that process's environment; otherwise whoever runs amdcheck, and
    then a folder that cannot be written is only a warning.

    Source: MIOpen db_path.cpp.in, binary_cache.cpp, expanduser.cpp.
    """
    if user.without_place:
        yield _no_home(user)
    for folder in user.folders:
        yield _judge(folder, user)


def _no_home(user: MiopenUser) -> Finding:
    if isinstance(user.home, Unknown):
        message = "Where the user's home directory is could not be found out."
        return undetermined(ID, HOST, message, because=user.home)
    verdict = failed if user.asked_for else warned
    message = f"The user has no home directory: MIOpen has nowhere to keep its {' and '.join(user.without_place)}."
    read = shown(user.home.source, "no home directory")
    return verdict(f"{ID}/no-home", HOST, message, read, remedy=remedy(f"{ID}/no-home"))


def _judge(folder: UserFolder, user: MiopenUser) -> Finding:
    subject = Subject(kind="path", id=folder.path)
    unexamined = f"The {folder.purpose}'s folder could not be examined."
    if isinstance(user.user, Unknown):
        return undetermined(ID, subject, unexamined, because=user.user)
    if isinstance(folder.stat, Unknown):
        return undetermined(ID, subject, unexamined, because=folder.stat)
    if isinstance(folder.writable, Unknown):
        return undetermined(ID, subject, unexamined, because=folder.writable)
    if folder.writable.value and isinstance(folder.read_only_mount, Unknown):
        message = f"Whether the {folder.purpose}'s folder lies on a read-only file system could not be found out."
        return undetermined(ID, subject, message, because=folder.read_only_mount)
    who = user.user.value.label
    read = shown(folder.nearest, _described(folder.stat.value), note=f"{folder.purpose} of {who}")
    if not folder.writable.value or folder.read_only_mount.or_none():
        verdict = failed if user.asked_for else warned
        why = "lies on a read-only file system" if folder.writable.value else f"may not be written by {who}"
        return verdict(
            f"{ID}/not-writable",
            subject,
            f"The {folder.purpose} cannot be kept: {folder.nearest} {why}.",
            read,
            remedy=remedy(f"{ID}/not-writable"),
            expected=f"a folder that {who} may write",
        )
    return _by_file_system(folder, folder.stat.value, subject, read)


def _described(stat: Stat) -> str:
    system = file_system(stat.filesystem) if stat.filesystem is not None else None
    kind = system.name if system else f"file system {stat.filesystem:#x}" if stat.filesystem is not None else ""
    return f"mode {stat.mode:04o} uid {stat.uid} gid {stat.gid} {kind}".rstrip()


def _by_file_system(folder: UserFolder, stat: Stat, subject: Subject, read: Evidence) -> Finding:
    system = file_system(stat.filesystem) if stat.filesystem is not None else None
    if system is None:
        return passed(ID, subject, f"The {folder.purpose} can be kept.", read)
    if system.diverted and folder.set_by is None:
        return warned(
            f"{ID}/network-home",
            subject,
            f"The {folder.purpose} would lie on {system.name}; MIOpen takes the temporary folder, lost on reboot.",
            read,
            remedy=remedy(f"{ID}/network-home"),
            expected="a local disk",
            actual=system.name,
        )
    return warned(
        f"{ID}/shared-home",
        subject,
        f"The {folder.purpose} lies on {system.name}, where processes of several hosts write the same file.",
        read,
        remedy=remedy(f"{ID}/shared-home"),
        expected="a local disk",
        actual=system.name,
    )
