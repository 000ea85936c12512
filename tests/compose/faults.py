"""Named faults (fixtures/faults/*.toml): what changes on which machine, and what amdcheck must say of it."""

from __future__ import annotations

import copy
import functools
from dataclasses import replace
from difflib import get_close_matches
from typing import Any, Literal

import msgspec
from msgspec import Struct

from amdcheck.host.capture import Outcome
from amdcheck.host.protocol import AclEntry
from amdcheck.model.expectations import Expectations, Level
from amdcheck.model.finding import Finding, Status, SubjectKind
from tests.compose.amdgpu import GROUP_IDS
from tests.compose.description import FIXTURES, DescriptionError, read_toml
from tests.compose.plan import Plan
from tests.compose.rocm import root_of
from tests.compose.tree import DeviceNode, Tree


class ExpectedFinding(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A finding that the fault must yield. `subject` is "kind id"; "gpu 3" is the fourth GPU of the description."""

    id: str
    subject: str
    status: Status

    def subject_id(self, plan: Plan) -> tuple[SubjectKind, str]:
        """The subject with places filled in."""
        kind, _, name = filled(self.subject, plan).partition(" ")
        if kind == "gpu" and name.isdecimal():
            name = plan.gpus[int(name)].bdf
        return msgspec.convert(kind, SubjectKind), name or kind

    def matches(self, finding: Finding, plan: Plan) -> bool:
        """Is this the finding?"""
        return (finding.id, finding.status, finding.subject.kind, finding.subject.id) == (
            self.id,
            self.status,
            *self.subject_id(plan),
        )


class DeviceChange(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is wrong with a device node: its rights, or what opening it gives to those who may."""

    mode: str | None = None  # octal
    group: Literal["root", "video", "render"] | None = None
    open_fails: str | None = None  # name of an errno
    seat_user: int | None = None  # uid that udev lets in by an ACL while that user sits at the machine


class Fault(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One fault. `machine` is merged into the description; `files`, `remove` and `unread` change the finished host.

    In a list of tables a number as key changes that entry: machine.gpus.slot.2 is the third GPU.
    """

    says: str
    machines: tuple[str, ...]
    level: Level = "quick"
    expect_gpus: int | None = None  # --expect-gpus, or the policy's
    expect_gfx: str | None = None  # the policy's
    expect_rocm: str | None = None  # the policy's
    python: str | None = None  # --python
    machine: dict[str, Any] = {}
    files: dict[str, str] = {}
    replace: dict[str, tuple[str, str]] = {}  # path -> what stands there, what shall stand there
    copies: dict[str, str] = {}  # path -> path of the file that stands there instead
    links: dict[str, str] = {}
    devices: dict[str, DeviceChange] = {}
    folders: dict[str, str] = {}  # folder of root -> its mode, octal
    remove: tuple[str, ...] = ()
    unread: dict[str, Outcome] = {}
    unread_below: dict[str, Outcome] = {}  # folder -> how reading any file in it ends; it can still be listed
    expect: tuple[ExpectedFinding, ...]
    also: tuple[str, ...] = ()  # ids of further findings that follow from the fault, whatever their subject

    @property
    def expectations(self) -> Expectations:
        """What the run that finds the fault was asked for."""
        return Expectations(
            level=self.level, gpus=self.expect_gpus, gfx=self.expect_gfx, rocm=self.expect_rocm, python=self.python
        )


@functools.cache
def faults() -> dict[str, Fault]:
    """Every fault by name."""
    found: dict[str, Fault] = {}
    for path in sorted((FIXTURES / "faults").glob("*.toml")):
        for name, raw in read_toml(f"faults/{path.stem}").items():
            if name in found:
                raise DescriptionError(f"fixtures/faults/{path.name}: {name} is named twice")
            try:
                found[name] = msgspec.convert(raw, Fault)
            except msgspec.ValidationError as error:
                raise DescriptionError(f"fixtures/faults/{path.name}: {name}: {error}") from None
    return found


def fault(name: str) -> Fault:
    """The fault of that name; DescriptionError names the nearest when there is none."""
    known = faults()
    if name not in known:
        near = get_close_matches(name, known, n=1)
        raise DescriptionError(f"no such fault: {name!r}" + (f"; the nearest is {near[0]!r}" if near else ""))
    return known[name]


def merge(into: dict[str, Any], change: dict[str, Any]) -> None:
    """Put a change into a raw description. Tables are merged, everything else is replaced."""
    for key, value in change.items():
        present = into.get(key)
        if isinstance(value, dict) and isinstance(present, dict):
            merge(present, value)
        elif isinstance(value, dict) and isinstance(present, list):
            _merge_entries(key, present, value)
        else:
            into[key] = copy.deepcopy(value)  # a second fault writes into it


def _merge_entries(key: str, present: list[Any], change: dict[str, Any]) -> None:
    for place, entry in change.items():
        if not place.isdecimal() or int(place) >= len(present):
            raise DescriptionError(f"{key}.{place}: there are {len(present)} entries, counted from 0")
        merge(present[int(place)], entry)


def filled(text: str, plan: Plan) -> str:
    """{gpu 2}: the address of a GPU; {gfx}: their target; {rocm}: the first ROCm installation; {kernel}, {dkms}."""
    places = {f"{{gpu {gpu.index}}}": gpu.bdf for gpu in plan.gpus}
    if plan.gpu_product:
        places["{gfx}"] = plan.gpu_product.gfx
    places["{kernel}"] = plan.machine.os.kernel
    if plan.machine.rocm:
        places["{rocm}"] = root_of(plan.machine.rocm[0])
    if plan.dkms:
        places["{dkms}"] = plan.dkms.package
    for place, value in places.items():
        text = text.replace(place, value)
    return text


def change_files(fault: Fault, tree: Tree, plan: Plan) -> None:
    """Apply the changes of a fault to the finished files."""
    for path in fault.remove:
        tree.remove(_place(path, tree, plan))
    for path, (old, new) in fault.replace.items():
        place = _place(path, tree, plan)
        text = tree.files[place]
        if not isinstance(text, str) or filled(old, plan) not in text:
            raise DescriptionError(f"{path}: holds no {old!r}")
        tree.files[place] = text.replace(filled(old, plan), filled(new, plan))
    for path, other in fault.copies.items():
        tree.files[_place(path, tree, plan)] = tree.files[_place(other, tree, plan)]
    for path, target in fault.links.items():
        tree.links[_place(path, tree, plan)] = filled(target, plan)
    for path, change in fault.devices.items():
        tree.devices[filled(path, plan)] = _changed(tree.devices[filled(path, plan)], change)
    for path, mode in fault.folders.items():
        tree.modes[path] = int(mode, 8)
    for path, content in fault.files.items():
        tree.files[_place(path, tree, plan)] = filled(content, plan)
    for path, outcome in fault.unread.items():
        tree.unread[_place(path, tree, plan)] = outcome
    for path, outcome in fault.unread_below.items():
        below = f"{_place(path, tree, plan)}/"
        tree.unread |= {name: outcome for name in tree.files if name.startswith(below)}


def _changed(node: DeviceNode, change: DeviceChange) -> DeviceNode:
    acl = node.acl
    if change.seat_user is not None:
        acl = (
            AclEntry(tag="owner", id=None, permissions=6),
            AclEntry(tag="user", id=change.seat_user, permissions=6),
            AclEntry(tag="owning-group", id=None, permissions=6),
            AclEntry(tag="mask", id=None, permissions=6),
            AclEntry(tag="other", id=None, permissions=0),
        )
    return replace(
        node,
        mode=node.mode if change.mode is None else int(change.mode, 8),
        gid=node.gid if change.group is None else GROUP_IDS[change.group],
        open_fails=change.open_fails or node.open_fails,
        acl=acl,
    )


def _place(path: str, tree: Tree, plan: Plan) -> str:
    """The real place of a path: its folder's links followed."""
    folder, _, name = filled(path, plan).rpartition("/")
    return f"{tree.real(folder)}/{name}" if folder else f"/{name}"
