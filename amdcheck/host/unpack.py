"""Writing a capture as a host tree, for tools that read one: lstopo (HWLOC_FSROOT) and lscpu (--sysroot)."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from posixpath import relpath

from amdcheck.host.capture import Capture, text_bytes
from amdcheck.host.paths import LINK_HOPS, bad_path
from amdcheck.model.errors import InputError
from amdcheck.model.text import printable


def unpack(capture: Capture, directory: Path) -> None:
    """Write the recorded files, folders and links below `directory`, which must not exist or be empty.

    A file that was read through a link lies where the link leads, so that tools find it either way. Absolute link
    targets are the recorded host's own, so they are written relative, within the tree. Raises InputError when the
    capture names a place outside of the tree, when the directory holds something, or when it cannot be written.
    """
    tree = _Tree(capture)
    directory = Path(os.path.abspath(directory))
    if directory.is_symlink() or (directory.exists() and not directory.is_dir()) or _holds_something(directory):
        raise InputError(f"{directory}: exists already; name a new or empty folder")
    beside = directory.with_name(f".{directory.name}.{os.getpid()}.tmp")
    try:
        beside.mkdir(mode=0o700)
        try:
            tree.write(beside)
            os.rename(beside, directory)
        except BaseException:
            shutil.rmtree(beside, ignore_errors=True)
            raise
    except OSError as error:
        raise InputError(f"{directory}: cannot be written ({error.strerror})") from None


def _holds_something(directory: Path) -> bool:
    try:
        return directory.is_dir() and any(directory.iterdir())
    except OSError as error:
        raise InputError(f"{directory}: cannot be read ({error.strerror})") from None


class _Tree:
    """Where everything goes, decided before anything is written."""

    def __init__(self, capture: Capture) -> None:
        self._links: dict[str, str] = {}  # real path -> target, relative to its folder
        self._follow: dict[str, str] = {}  # real path -> target, absolute
        for path in sorted({*capture.links, *capture.resolved}, key=_by_depth):  # a folder's own link comes first
            self._place_link(path, capture.links.get(path), capture.resolved.get(path))
        self._folders = {self._real(path) for path in capture.dirs}
        self._files: dict[str, bytes] = {}
        for path, content in capture.files.items():
            try:
                self._files[self._real(path)] = text_bytes(content)
            except ValueError:
                raise InputError(f"the capture is damaged: the text of {_shown(path)}") from None
        for path in (*self._files, *self._folders, *self._links):
            self._folders.update(_above(path))
        self._check()

    def write(self, root: Path) -> None:
        base = str(root)
        for folder in sorted(self._folders - {"/"}):
            os.mkdir(base + folder)
        for path, content in self._files.items():
            with open(base + path, "xb", buffering=0) as file:
                file.write(content)
        for path, target in self._links.items():  # last, so that nothing is written through one
            os.symlink(target, base + path)

    def _place_link(self, path: str, target: str | None, resolved: str | None) -> None:
        """Note the link at a path, known by its target or by where the path led."""
        place = self._real(path, last=False)
        if target is None:
            if resolved is None or resolved in (place, self._real(path)):
                return  # no link, or one on the way that is known already
            target = resolved
        leads = _within(target if target.startswith("/") else f"{_folder(place)}/{target}", f"the link {place}")
        self._follow[place] = leads
        self._links[place] = relpath(leads, _folder(place) or "/")

    def _real(self, path: str, *, last: bool = True) -> str:
        """The path with every link followed; with `last` False its own name stays."""
        if bad_path(path) is not None or ".." in path.split("/"):
            raise InputError(f"the capture is refused: {_shown(path)} is not a path of a host")
        done, hops = "", 0
        todo = path.split("/")[::-1]
        while todo:
            name = todo.pop()
            if name in ("", "."):
                continue
            done = f"{done}/{name}"
            target = self._follow.get(done)
            if target is not None and (todo or last):
                hops += 1
                if hops > LINK_HOPS:
                    raise InputError(f"the capture is refused: the links of {_shown(path)} go round")
                done = ""
                todo.extend(target.split("/")[::-1])
        return done or "/"

    def _check(self) -> None:
        """One place, one thing."""
        for path in (*self._files, *self._links):
            if path in self._folders or (path in self._files and path in self._links):
                raise InputError(f"the capture is refused: {_shown(path)} is two things at once")


def _by_depth(path: str) -> tuple[int, str]:
    return path.count("/"), path


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _above(path: str) -> set[str]:
    """All folders on the way to a path."""
    found = set()
    while path := _folder(path):
        found.add(path)
    return found


def _within(target: str, what: str) -> str:
    """An absolute path without "." and "..". Raises InputError when it climbs above the root."""
    done: list[str] = []
    for part in target.split("/"):
        if part == "..":
            if not done:
                raise InputError(f"the capture is refused: {_shown(what)} leads out of the tree")
            done.pop()
        elif part not in ("", "."):
            done.append(part)
    return "/" + "/".join(done)


def _shown(text: str) -> str:
    return printable(text, limit=200)
