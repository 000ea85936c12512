"""A composed machine: its files and answers, as a host to judge, as a capture, and as a tree on disk."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from functools import cached_property
from pathlib import Path
from typing import cast

from amdcheck import __version__
from amdcheck.engine.injection import FactStore
from amdcheck.engine.registry import all_checks
from amdcheck.host.capture import (
    SCHEMA,
    Capture,
    Device,
    Manifest,
    Operation,
    Outcome,
    Text,
    command_key,
    selftest_key,
    to_text,
)
from amdcheck.host.protocol import (
    AclEntry,
    Command,
    CommandResult,
    FileKind,
    Identity,
    OpenOutcome,
    SelfTest,
    SelfTestResult,
    Stat,
    SystemAnswers,
    UdevDevice,
)
from amdcheck.host.snapshot import SnapshotHost
from amdcheck.model.expectations import Expectations
from amdcheck.model.value import Known, Reason, Unknown, Value
from tests.compose.amdgpu import GROUP_IDS
from tests.compose.plan import Plan
from tests.compose.programs import answer
from tests.compose.selftests import selftest
from tests.compose.tree import DeviceNode, Tree

_RECORDED = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
_CONFIG_FOR_ALL = 64  # bytes of configuration space that the kernel shows to everyone
_TMPFS = 0x01021994
_MAGIC = {"ext4": 0xEF53, "nfs": 0x6969, "gpfs": 0x47504653}  # what statfs says
# Folders and files below these have a stat; elsewhere nobody asks for one.
_STATED = ("/dev", "/home", "/root", "/tmp")


class ComposedMachine(SnapshotHost):
    """The machine as a host in this process; unlike a capture it answers any question to its programs."""

    def __init__(self, capture: Capture, plan: Plan) -> None:
        super().__init__(capture)
        self._plan = plan
        self.asked: dict[str, CommandResult | Reason] = {}
        self.tested: dict[str, SelfTestResult] = {}

    def run(self, commands: Sequence[Command]) -> tuple[Value[CommandResult], ...]:
        return tuple(self._answer(command) for command in commands)

    def _answer(self, command: Command) -> Value[CommandResult]:
        key = command_key(command.argv)
        self.asked[key] = given = answer(self._plan, command.argv)
        return Known(given, key) if isinstance(given, CommandResult) else Unknown(given, key)

    def selftest(self, test: SelfTest) -> Value[SelfTestResult]:
        given = selftest(self._plan, test.name, test.params, test.python)
        key = selftest_key(test.name, test.params, test.python)
        self.tested[key] = given
        return Known(given, key)


class ComposedHost:
    """A whole machine. `tree` holds its files; faults may have changed them."""

    def __init__(self, name: str, plan: Plan, tree: Tree) -> None:
        self.name = name
        self.plan = plan
        self.tree = tree

    @property
    def identity(self) -> Identity:
        """Who reads: the user of the description."""
        user = self.plan.machine.user
        groups = {GROUP_IDS.get(name, user.uid) for name in user.groups}
        return Identity(
            uid=user.uid,
            user=user.name if user.known else None,
            groups=tuple(sorted(groups)),
            group_names={name: GROUP_IDS[name] for name in ("render", "video")},
            node_name=None,
        )

    @cached_property
    def host(self) -> ComposedMachine:
        """The machine to read facts from in this process."""
        return ComposedMachine(self._capture((), (), {}), self.plan)

    def capture(self, expect: Expectations | None = None) -> Capture:
        """The whole machine as a capture, with the answers to what amdcheck asks its programs and self-tests."""
        asking = ComposedMachine(self._capture((), (), {}), self.plan)
        facts = FactStore(asking, expect or Expectations())
        for check in all_checks().values():
            facts.supply(check.parameters)
        done = tuple(given for given in asking.asked.values() if isinstance(given, CommandResult))
        refused = {key: given for key, given in asking.asked.items() if not isinstance(given, CommandResult)}
        return self._capture(done, tuple(asking.tested.values()), {"run": refused})

    def _capture(
        self,
        commands: tuple[CommandResult, ...],
        selftests: tuple[SelfTestResult, ...],
        unanswered: dict[Operation, dict[str, Reason]],
    ) -> Capture:
        tree, root = self.tree, self.identity.uid == 0
        files: dict[str, Text] = {}
        outcomes = {path: cast(Outcome, outcome) for path, outcome in tree.unread.items()}
        outcomes |= dict.fromkeys(self._closed, "denied")
        for path, content in tree.files.items():
            if path in tree.private and not root:
                outcomes.setdefault(path, "denied")
            elif path not in outcomes:
                shown = content if root or not path.endswith("/config") else content[:_CONFIG_FOR_ALL]
                files[path] = to_text(shown)
        return Capture(
            schema=SCHEMA,
            manifest=Manifest(
                created=_RECORDED,
                amdcheck=__version__,
                source="live",
                redacted=False,
                level="standard",
                expectations=None,
                identity=self.identity,
                system=self._system(),
            ),
            files=files,
            links={path: target for path, target in tree.links.items() if path not in outcomes},
            dirs={path: names for path, names in tree.listings().items() if path not in outcomes},
            outcomes=outcomes,
            commands=commands,
            devices=tuple(self._devices()),
            selftests=selftests,
            real_paths=True,
            unanswered=unanswered,
        )

    def _system(self) -> SystemAnswers:
        memory = self.plan.memory_kib * 1024
        return SystemAnswers(
            logical_cpus=len(self.plan.online),
            physical_cores=self.plan.cores * self.plan.sockets,
            memory_bytes=memory,
            available_bytes=memory * 98 // 100,
            load_1m=0.08,
            boot_time=1767260000.0,
        )

    @property
    def _closed(self) -> tuple[str, ...]:
        """Folders that the reader may not search: what lies in them answers nothing to him."""
        return tuple(path for path, mode in self.tree.modes.items() if self.identity.uid and not mode & 1)

    def _devices(self) -> list[Device]:
        tree = self.tree
        found = [
            Device(path=path, stat=_folder_stat(path, self.plan, tree.modes.get(path)))
            for path in tree.listings()
            if path == "/" or path.startswith(_STATED)
        ]
        for path, node in tree.devices.items():
            if path.startswith(tuple(f"{folder}/" for folder in self._closed)):
                continue
            stat = _stat("char", node.mode, node.uid, node.gid, (node.major, node.minor), _TMPFS, node.acl)
            found.append(Device(path=path, stat=stat, open=self._open(stat, node), udev=_udev(path, node)))
        return found

    def _open(self, stat: Stat, node: DeviceNode) -> OpenOutcome:
        """What the kernel answers to who reads: no, or what the driver then says."""
        return OpenOutcome(errno=node.open_fails if _may_open(stat, self.identity) else "EACCES")

    def write_tree(self, directory: Path) -> None:
        """Write the machine below an empty folder as hwloc-gather-topology would: /proc, /sys, /etc and the rest.

        Without /dev, for nodes of devices that are not there could only be made by root, and none should be.
        """
        tree = self.tree
        for folder in sorted(set(tree.listings()) - set(tree.unread)):
            if not folder.startswith("/dev"):
                (directory / folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
        for path, content in tree.files.items():
            if not path.startswith("/dev/") and path not in tree.unread:
                data = content if isinstance(content, bytes) else content.encode()
                (directory / path.lstrip("/")).write_bytes(data)
        for path, target in tree.links.items():
            # a link to an absolute path would leave the tree
            relative = target if not target.startswith("/") else _relative(path, target)
            (directory / path.lstrip("/")).symlink_to(relative)


def _may_open(stat: Stat, who: Identity) -> bool:
    """Read and write by the first of acl(5) that fits: owner, named user, any group, others; root may always."""
    if who.uid in (0, stat.uid):
        return who.uid == 0 or stat.mode >> 6 & 6 == 6
    named = {(entry.tag, entry.id): entry.permissions for entry in stat.acl}
    mask = named.get(("mask", None), 7)
    if ("user", who.uid) in named:
        return named["user", who.uid] & mask & 6 == 6
    # With an ACL the mode's group bits show the mask, and the group's own rights stand in the ACL.
    of_groups = [(stat.gid, named.get(("owning-group", None), stat.mode >> 3))]
    of_groups += [(id, rights) for (tag, id), rights in named.items() if tag == "group" and id is not None]
    granted = [rights & mask & 6 == 6 for gid, rights in of_groups if gid in who.groups]
    return any(granted) if granted else stat.mode & 6 == 6


def _relative(path: str, target: str) -> str:
    return "../" * (path.count("/") - 1) + target.lstrip("/")


def _stat(
    kind: FileKind,
    mode: int,
    uid: int,
    gid: int,
    device: tuple[int, int] | None,
    magic: int,
    acl: tuple[AclEntry, ...] = (),
) -> Stat:
    return Stat(kind=kind, mode=mode, uid=uid, gid=gid, size=0, device=device, acl=acl, filesystem=magic)


def _folder_stat(path: str, plan: Plan, mode: int | None) -> Stat:
    user = plan.machine.user
    if path.startswith(("/root", "/home/")):
        owner = user.uid if user.home_owner is None else user.home_owner
        return _stat("dir", 0o700, owner, owner, None, _MAGIC[user.home_filesystem])
    magic = _TMPFS if path.startswith("/dev") else _MAGIC["ext4"]
    return _stat("dir", mode or (0o1777 if path == "/tmp" else 0o755), 0, 0, None, magic)


def _udev(path: str, node: DeviceNode) -> UdevDevice:
    """udev tags what it gives to whoever sits at the machine, and sets an ACL for them."""
    name = path.removeprefix("/dev/")
    tagged = name.startswith("dri/card") or bool(node.acl)
    properties = {
        "DEVNAME": path,
        "MAJOR": str(node.major),
        "MINOR": str(node.minor),
        "SUBSYSTEM": "drm" if name.startswith("dri/") else "kfd",
        "USEC_INITIALIZED": "12345678",
        **({"DEVTYPE": "drm_minor"} if name.startswith("dri/") else {}),
        **({"TAGS": ":seat:uaccess:"} if tagged else {}),
    }
    return UdevDevice(node=path, properties=properties, tags=("seat", "uaccess") if tagged else ())
