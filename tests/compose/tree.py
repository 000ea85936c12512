"""The files of a machine in memory: what the kernel and the packages put there, at their real places."""

from __future__ import annotations

import os.path
from collections.abc import Mapping
from dataclasses import dataclass, field

from amdcheck.host.protocol import AclEntry


@dataclass(frozen=True)
class DeviceNode:
    """A character device below /dev. `open_fails`: the errno that opening it gives to those who may."""

    major: int
    minor: int
    mode: int = 0o600
    uid: int = 0
    gid: int = 0
    acl: tuple[AclEntry, ...] = ()
    open_fails: str | None = None


@dataclass
class Tree:
    """Paths are absolute and hold no link in their folders, so that each file has one name here.

    `private` are files that only root may read; `unread` are files whose read gives an outcome other than content.
    """

    files: dict[str, str | bytes] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)  # empty ones; the others follow from their content
    devices: dict[str, DeviceNode] = field(default_factory=dict)
    private: set[str] = field(default_factory=set)
    unread: dict[str, str] = field(default_factory=dict)
    modes: dict[str, int] = field(default_factory=dict)  # of folders of root that not everybody may search

    def attributes(self, folder: str, values: Mapping[str, object]) -> None:
        """One-line files of a folder, each ended by a newline as sysfs does."""
        for name, value in values.items():
            self.files[f"{folder}/{name}"] = f"{value}\n"

    def link_to(self, path: str, target: str) -> None:
        """A relative link at `path` to the absolute `target`, as sysfs and packages write them."""
        self.links[path] = os.path.relpath(target, os.path.dirname(path))

    def remove(self, path: str) -> None:
        """Take away a file, link or device node, or a folder with all that is in it. KeyError when nothing is there."""
        below = path + "/"
        found = False
        for kept in (self.files, self.links, self.devices):
            for name in [n for n in kept if n == path or n.startswith(below)]:
                del kept[name]
                found = True
        for name in [n for n in self.folders if n == path or n.startswith(below)]:
            self.folders.discard(name)
            found = True
        if not found:
            raise KeyError(f"{path}: the machine has no such file")

    def real(self, path: str) -> str:
        """The path with every link in it followed."""
        parts, real, hops = path.strip("/").split("/"), "", 0
        while parts:
            step = f"{real}/{parts.pop(0)}"
            target = self.links.get(step)
            if target is None:
                real = step
                continue
            hops += 1
            if hops > 40:
                raise KeyError(f"{path}: too many links")
            joined = os.path.normpath(target if target.startswith("/") else f"{real}/{target}")
            parts, real = [*joined.strip("/").split("/"), *parts], ""
        return real

    def listings(self) -> dict[str, tuple[str, ...]]:
        """Every folder with the names in it, sorted."""
        names: dict[str, set[str]] = {"/": set()}
        for path in (*self.files, *self.links, *self.devices, *self.unread, *self.folders):
            while path != "/":
                parent, _, name = path.rpartition("/")
                parent = parent or "/"
                known = names.get(parent)
                if known is not None:
                    known.add(name)
                    break
                names[parent] = {name}
                path = parent
        for folder in self.folders:
            names.setdefault(folder, set())
        return {folder: tuple(sorted(inside)) for folder, inside in names.items()}
