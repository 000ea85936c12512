"""The device nodes that compute needs, and whether the user who will open them may.

ROCm opens /dev/kfd and the render node (/dev/dri/renderD128 ...) of every GPU, all read-write.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct

from amdcheck.facts.gpus import Gpus
from amdcheck.facts.registry import fact
from amdcheck.host.protocol import Host, Identity, OpenOutcome, Stat
from amdcheck.model.expectations import Expectations
from amdcheck.model.value import Known, Unknown, Value

KFD_DEVICE = "/dev/kfd"
READ_WRITE = 6

_UNIT = re.compile(r"[A-Za-z0-9:_.@\\-]{1,200}")
_UNIT_FOLDERS = ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
_CGROUPS = ("/sys/fs/cgroup", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified")
_IDS = re.compile(r"^(Uid|Gid|Groups):[ \t]*([\d \t]*)$", re.MULTILINE | re.ASCII)
_USER_LINE = re.compile(r"^([^:\n]*):[^:\n]*:(\d{1,10}):(\d{1,10}):", re.MULTILINE | re.ASCII)
_GROUP_LINE = re.compile(r"^([^:\n]*):[^:\n]*:(\d{1,10}):([^\n]*)$", re.MULTILINE | re.ASCII)


class JudgedUser(Struct, frozen=True, kw_only=True):
    """Whose rights are judged: the service's, the process's, or those of the one who runs amdcheck."""

    uid: int
    user: str | None
    groups: tuple[int, ...]
    is_reader: bool  # it is the one who runs amdcheck, so that opening a device speaks for it

    @property
    def label(self) -> str:
        return self.user or f"uid {self.uid}"


class Access(Struct, frozen=True, kw_only=True):
    """May a user open a node read-write, and which entry of its mode or ACL says so."""

    allowed: bool
    by: Literal["root", "owner", "acl-user", "group", "other"]


class DeviceNode(Struct, frozen=True, kw_only=True):
    """One device node. `opened` is None at level quick, where nothing is opened."""

    path: str
    gpu: str | None  # BDF of the GPU behind a render node
    stat: Value[Stat]
    group: str | None  # the group's name on this host
    opened: Value[OpenOutcome] | None
    seat: bool  # udev's uaccess tag: logind gives it to whoever sits at the machine

    @property
    def rights(self) -> str:
        """Kind, mode and owners in one word each: char 0660 uid 0 gid 109 (render)."""
        if isinstance(self.stat, Unknown):
            return self.stat.reason
        stat = self.stat.value
        named = f" ({self.group})" if self.group else ""
        acl = " +acl" if stat.acl else ""
        return f"{stat.kind} {stat.mode:04o} uid {stat.uid} gid {stat.gid}{named}{acl}"


@fact
class DeviceNodes(Struct, frozen=True, kw_only=True):
    """/dev/kfd and the render nodes of the judged GPUs; empty where there is no GPU to judge."""

    user: Value[JudgedUser]
    nodes: tuple[DeviceNode, ...]

    @classmethod
    def read(cls, host: Host, gpus: Gpus, expect: Expectations) -> DeviceNodes:
        user = _user(host, expect)
        wanted = [(KFD_DEVICE, None), *((path, gpu.bdf) for gpu in gpus.devices for path in gpu.render_nodes)]
        if not gpus.devices:
            return cls(user=user, nodes=())
        names = _group_names(host)
        stats = {path: host.stat(path) for path, _ in wanted}
        seats = _seats(host, [path for path, stat in stats.items() if isinstance(stat, Known) and stat.value.acl])
        return cls(
            user=user,
            nodes=tuple(_node(host, path, bdf, stats[path], names, path in seats, expect) for path, bdf in wanted),
        )


def _node(
    host: Host,
    path: str,
    bdf: str | None,
    stat: Value[Stat],
    names: dict[int, str],
    seat: bool,
    expect: Expectations,
) -> DeviceNode:
    there = isinstance(stat, Known)
    return DeviceNode(
        path=path,
        gpu=bdf,
        stat=stat,
        group=names.get(stat.value.gid) if isinstance(stat, Known) else None,
        opened=host.probe_open(path) if there and expect.level != "quick" else None,
        seat=seat,
    )


def access(stat: Stat, user: JudgedUser) -> Access:
    """Read-write access as the kernel decides it (path_resolution(7), acl(5)): owner, named users, groups, others."""
    if user.uid == 0:
        return Access(allowed=True, by="root")
    entries = {entry.tag: entry.permissions for entry in stat.acl if entry.id is None}
    owner = entries.get("owner", stat.mode >> 6 & 7)
    group = entries.get("owning-group", stat.mode >> 3 & 7)
    other = entries.get("other", stat.mode & 7)
    mask = entries.get("mask", 7)
    if user.uid == stat.uid:
        return Access(allowed=_grants(owner), by="owner")
    for entry in stat.acl:
        if entry.tag == "user" and entry.id == user.uid:
            return Access(allowed=_grants(entry.permissions & mask), by="acl-user")
    rights = [group & mask] if stat.gid in user.groups else []
    rights += [e.permissions & mask for e in stat.acl if e.tag == "group" and e.id in user.groups]
    if rights:
        return Access(allowed=any(map(_grants, rights)), by="group")
    return Access(allowed=_grants(other), by="other")


def _grants(permissions: int) -> bool:
    return permissions & READ_WRITE == READ_WRITE


def _user(host: Host, expect: Expectations) -> Value[JudgedUser]:
    if expect.pid is not None:
        return _process_user(host, expect.pid)
    if expect.service is not None:
        return _service_user(host, expect.service)
    return host.identity().parse(_reader)


def _reader(identity: Identity) -> JudgedUser:
    return JudgedUser(uid=identity.uid, user=identity.user, groups=identity.groups, is_reader=True)


def _process_user(host: Host, pid: int) -> Value[JudgedUser]:
    """The effective uid and all groups of a process, from /proc/PID/status."""
    status = host.read(f"/proc/{pid}/status").parse(parse_status)
    if isinstance(status, Unknown):
        return status
    uid, groups = status.value
    name = next((user for user, number, _ in _passwd(host) if number == uid), None)
    return Known(JudgedUser(uid=uid, user=name, groups=groups, is_reader=False), status.source)


def parse_status(text: str) -> tuple[int, tuple[int, ...]]:
    """Effective uid and every group (the effective gid first) of "Uid: real effective saved fs" and its fellows.

    Raises ValueError for text that has no such lines.
    """
    found = {name: [int(word) for word in words.split()[:65536]] for name, words in _IDS.findall(text)}
    if len(found.get("Uid", ())) < 2 or len(found.get("Gid", ())) < 2:
        raise ValueError("no Uid and Gid lines")
    gid = found["Gid"][1]
    return found["Uid"][1], (gid, *(group for group in found.get("Groups", ()) if group != gid))


def _service_user(host: Host, service: str) -> Value[JudgedUser]:
    """The user of a systemd service: that of its first process, else the one its unit file names."""
    unit = service if "." in service else f"{service}.service"
    if _UNIT.fullmatch(unit) is None:
        return Unknown("failed", "--service", "not the name of a unit")
    for folder in _cgroup_folders(unit):
        pids = (host.read(f"{folder}/cgroup.procs").or_none() or "").split()
        if pids and pids[0].isdigit():
            return _process_user(host, int(pids[0]))
    return _unit_user(host, unit)


def _cgroup_folders(unit: str) -> Iterator[str]:
    template, at, _ = unit.partition("@")
    for root in _CGROUPS:
        yield f"{root}/system.slice/{unit}"
        if at:
            yield f"{root}/system.slice/system-{template}.slice/{unit}"


def _unit_user(host: Host, unit: str) -> Value[JudgedUser]:
    """The user of a service that does not run: User=, Group= and SupplementaryGroups= of its unit file and drop-ins."""
    texts: list[str] = []
    source = f"{_UNIT_FOLDERS[0]}/{unit}"
    for folder in _UNIT_FOLDERS:
        read = host.read(f"{folder}/{unit}")
        if isinstance(read, Known):
            texts, source = [read.value], read.source
            break
    if not texts:
        return Unknown("absent", source, "the service neither runs nor has a unit file")
    for folder in reversed(_UNIT_FOLDERS):
        for name in host.entries(f"{folder}/{unit}.d").or_none() or ():
            texts.append(host.read(f"{folder}/{unit}.d/{name}").or_none() or "")
    settings = _settings("\n".join(texts))
    if settings.get("DynamicUser", ["no"])[-1] in ("yes", "true", "1", "on"):
        return Unknown("failed", source, "DynamicUser: the user exists only while the service runs")
    wanted = settings.get("User", ["root"])[-1]
    row = next((row for row in _passwd(host) if wanted in (row[0], str(row[1]))), None)
    if row is None:
        return Unknown("failed", source, f"/etc/passwd has no user {wanted[:40]!r}")
    groups = _groups_of(host, row[0], row[2], settings)
    return Known(JudgedUser(uid=row[1], user=row[0], groups=groups, is_reader=False), source)


def _settings(text: str) -> dict[str, list[str]]:
    settings: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and not name.startswith(("#", ";")):
            settings.setdefault(name.strip(), []).append(value.strip())
    return settings


def _passwd(host: Host) -> list[tuple[str, int, int]]:
    """Name, uid and gid of every user."""
    text = host.read("/etc/passwd").or_none() or ""
    return [(name, int(uid), int(gid)) for name, uid, gid in _USER_LINE.findall(text)]


def _groups_of(host: Host, user: str, gid: int, settings: dict[str, list[str]]) -> tuple[int, ...]:
    rows = _GROUP_LINE.findall(host.read("/etc/group").or_none() or "")
    asked = {word for value in settings.get("SupplementaryGroups", ()) for word in value.split()}
    asked |= set(settings.get("Group", ())[-1:])
    member = [int(number) for name, number, users in rows if user in users.split(",") or asked & {name, number}]
    return (gid, *(number for number in member if number != gid))


def _group_names(host: Host) -> dict[int, str]:
    """Names by gid: of /etc/group, and those the running process knows (a directory service)."""
    rows = _GROUP_LINE.findall(host.read("/etc/group").or_none() or "")
    names = {int(number): name for name, number, _ in rows}
    identity = host.identity().or_none()
    return {gid: name for name, gid in identity.group_names.items()} | names if identity else names


def _seats(host: Host, paths: Sequence[str]) -> frozenset[str]:
    """Those of these nodes that udev tags uaccess."""
    devices = host.udev(paths).or_none() if paths else ()
    return frozenset(device.node for device in devices or () if "uaccess" in device.tags)
