"""A host tree in a .tar, .tar.gz, .tar.bz2 or .tar.xz, read into memory: nothing is unpacked, nothing is written."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import Any, BinaryIO

from amdcheck import __version__
from amdcheck.host.capture import SCHEMA, Capture, Device, Manifest, Text, to_text
from amdcheck.host.capture_file import ENTRIES_LIMIT
from amdcheck.host.packed import unpacked
from amdcheck.host.paths import FILE_LIMIT, PATH_LIMIT, TREE_FOLDERS, encodable
from amdcheck.host.tree import tree_stat
from amdcheck.model.errors import InputError
from amdcheck.model.text import printable
from amdcheck.model.value import Known, Reason

ARCHIVE_LIMIT = 256 << 20  # bytes, decompressed
_HEADER_LIMIT = 64 << 10  # bytes of one member's long name or pax records
_BLOCK = 512


def read_archive(file: BinaryIO, *, name: str) -> Capture:
    """The tree as a capture with source "tree"; one leading folder that alone holds proc or sys is stripped.

    Only the first 4 MiB of a file are kept, as every host answers no more. Raises InputError for an archive that is
    damaged, too large, holds no host, or names anything outside of itself.
    """
    data = b"".join(unpacked(file, name, limit=ARCHIVE_LIMIT))
    _count_members(data, name)
    tree = _Tree(name)
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:", tarinfo=_Member, errors="surrogateescape") as tar:
            for member in _members(tar):
                tree.add(member, data)
            end = tar.offset
    except (tarfile.TarError, ValueError, ArithmeticError, EOFError, OSError) as error:
        raise InputError(f"{name}: is a damaged archive ({printable(str(error), limit=200)})") from None
    if any(data[end : end + _BLOCK]) or end >= len(data):
        raise InputError(f"{name}: is damaged or cut off; copy or record it again")
    return tree.capture()


class _Member(tarfile.TarInfo):
    """A member whose header may not be larger than any honest one, for tarfile takes it into memory and searches it."""

    _HEADERS = (
        tarfile.GNUTYPE_LONGNAME,
        tarfile.GNUTYPE_LONGLINK,
        tarfile.XHDTYPE,
        tarfile.XGLTYPE,
        tarfile.SOLARIS_XHDTYPE,
    )

    def _proc_member(self, tar: tarfile.TarFile) -> Any:
        if self.type in self._HEADERS and self.size > _HEADER_LIMIT:
            raise tarfile.ReadError("a header of a member is too large")
        return super()._proc_member(tar)  # type: ignore[misc]  # documented in tarfile.py, not in its stub


def _count_members(data: bytes, name: str) -> None:
    """Refuse too many members before tarfile makes an object of each; what it cannot follow, tarfile judges."""
    offset = count = 0
    while offset + _BLOCK <= len(data) and data[offset]:
        size = data[offset + 124 : offset + 136].strip(b" \0")
        if not size.isdigit():
            return
        offset += _BLOCK + (int(size, 8) + _BLOCK - 1) // _BLOCK * _BLOCK
        count += 1
        if count > ENTRIES_LIMIT:
            raise InputError(f"{name}: holds more than {ENTRIES_LIMIT} entries, which no recorded machine does")


def _members(tar: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """The members in order; tarfile's own list of them is not kept."""
    while (member := tar.next()) is not None:
        yield member
        tar.members.clear()  # type: ignore[attr-defined]


class _Tree:
    """What the members say, by path from the top of the archive: "sys/devices"."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._files: dict[str, Text] = {}
        self._links: dict[str, str] = {}
        self._folders: dict[str, set[str]] = {"": set()}
        self._devices: dict[str, tarfile.TarInfo] = {}
        self._unreadable: dict[str, Reason] = {}
        self._count = 0

    def add(self, member: tarfile.TarInfo, data: bytes) -> None:
        self._count += 1
        if self._count > ENTRIES_LIMIT:
            raise InputError(f"{self._name}: holds more than {ENTRIES_LIMIT} entries, which no recorded machine does")
        path = self._path(member.name)
        self._forget(path)
        if path:
            self._list(path)
        if member.isdir():
            self._folders.setdefault(path, set())
        elif member.issym():
            self._links[path] = encodable(member.linkname)
        elif member.islnk():
            source = self._path(member.linkname)
            if source not in self._files:
                raise self._refused(member.name, "is a hard link to something that is not in the archive")
            self._files[path] = self._files[source]
        elif member.isreg():
            self._files[path] = to_text(_content(member, data))
        else:
            self._unreadable[path] = "failed"
            if member.isdev() and not member.isfifo():
                self._devices[path] = member

    def _path(self, name: str) -> str:
        """A member's name as a path from the top, without "." and doubled slashes."""
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if name.startswith("/") or ".." in parts or len(name) > PATH_LIMIT:
            raise self._refused(name, "names a place outside of the archive")
        return encodable("/".join(parts))

    def _refused(self, member: str, why: str) -> InputError:
        return InputError(f"{self._name}: refused, for its member {printable(member, limit=200)} {why}")

    def _list(self, path: str) -> None:
        """Enter a path into the listing of its folder, and that into its own."""
        while path:
            folder, _, name = path.rpartition("/")
            known = self._folders.setdefault(folder, set())
            if name in known:
                return
            known.add(name)
            path = folder

    def _forget(self, path: str) -> None:
        """A later member of the same name counts."""
        for kind in (self._files, self._links, self._devices, self._unreadable):
            kind.pop(path, None)

    def capture(self) -> Capture:
        top = self._top()
        links = dict(self._moved(self._links, top))
        for path, target in links.items():
            self._check_link(path, target)
        return Capture(
            schema=SCHEMA,
            manifest=Manifest(
                created=datetime.fromtimestamp(0, timezone.utc),
                amdcheck=__version__,
                source="tree",
                redacted=False,
                level="standard",
                expectations=None,
                identity=None,
                system=None,
            ),
            files=dict(self._moved(self._files, top)),
            links=links,
            dirs={path: tuple(sorted(names)) for path, names in self._moved(self._folders, top)},
            outcomes={},
            commands=(),
            devices=tuple(self._device(path, member) for path, member in self._moved(self._devices, top)),
            selftests=(),
            real_paths=True,
            unanswered={"read": dict(self._moved(self._unreadable, top))},
        )

    def _top(self) -> str:
        """The folder that is the host's root: the archive's own top, or the one folder in it that holds a host."""
        if not self._folders[""].isdisjoint(TREE_FOLDERS):
            return ""
        tops = [name for name in self._folders[""] if not self._folders.get(name, set()).isdisjoint(TREE_FOLDERS)]
        if len(tops) != 1:
            raise InputError(f"{self._name}: holds neither proc nor sys, so it is no host tree")
        return tops[0] + "/"

    def _moved(self, by_path: dict[str, Any], top: str) -> Iterator[tuple[str, Any]]:
        """What lies below the host's root, by absolute path."""
        for path, value in by_path.items():
            if (path + "/").startswith(top):
                yield "/" + path[len(top) :], value

    def _check_link(self, path: str, target: str) -> None:
        """Absolute targets are the host's own; a relative one may not climb above its root."""
        depth = 0 if target.startswith("/") else path.count("/") - 1
        for part in target.split("/"):
            if part not in ("", "."):
                depth += -1 if part == ".." else 1
            if depth < 0:
                raise self._refused(path, f"is a link out of it, to {printable(target, limit=200)}")

    def _device(self, path: str, member: tarfile.TarInfo) -> Device:
        kind = 0o020000 if member.ischr() else 0o060000
        found = tree_stat(path, kind | member.mode, member.uid, member.gid, (member.devmajor, member.devminor))
        assert isinstance(found, Known)
        return Device(path=path, stat=found.value)


def _content(member: tarfile.TarInfo, data: bytes) -> bytes:
    if member.issparse():
        return b""  # holes only matter to disk images
    start = member.offset_data
    if start + member.size > len(data):
        raise tarfile.ReadError("a member goes on behind the end")
    return data[start : start + min(member.size, FILE_LIMIT)]
