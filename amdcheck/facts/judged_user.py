"""Whose rights and environment are judged: those of the service, of the process, or of whoever runs amdcheck."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from amdcheck.facts.registry import fact
from amdcheck.host.protocol import Host, Identity, Stat
from amdcheck.model.expectations import Expectations
from amdcheck.model.value import Known, Unknown, Value

READ_WRITE = 6
CREATE = 3  # in a folder: write and search
SEARCH = 1

_UNIT = re.compile(r"[A-Za-z0-9:_@\\-][A-Za-z0-9:_.@\\-]{0,199}")
_UNIT_KINDS = (".service", ".scope", ".socket")
_UNIT_FOLDERS = ("/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system")
_CGROUPS = ("/sys/fs/cgroup", "/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified")
_IDS = re.compile(r"^(Uid|Gid|Groups):[ \t]*([\d \t]*)$", re.MULTILINE | re.ASCII)
_ACCOUNT = re.compile(r"^([^:\n]*):[^:\n]*:(\d{1,10}):(\d{1,10}):[^:\n]*:([^:\n]*):", re.MULTILINE | re.ASCII)
_GROUP_LINE = re.compile(r"^([^:\n]*):[^:\n]*:(\d{1,10}):([^\n]*)$", re.MULTILINE | re.ASCII)


class User(Struct, frozen=True, kw_only=True):
    """A user by numbers, and the name behind them where this host knows it."""

    uid: int
    user: str | None
    groups: tuple[int, ...]
    is_reader: bool  # it is the one who runs amdcheck, so that opening a device speaks for it

    @property
    def label(self) -> str:
        return self.user or f"uid {self.uid}"


class Access(Struct, frozen=True, kw_only=True):
    """May a user do something with a file, and which entry of its mode or ACL says so."""

    allowed: bool
    by: Literal["root", "owner", "acl-user", "group", "other"]


@fact
class JudgedUser(Struct, frozen=True, kw_only=True):
    """The user of --pid or --service, else whoever runs amdcheck.

    `environment` is that of the process; of a service that does not run, what its unit file sets; of whoever runs
    amdcheck it is empty, since what serves will be started from elsewhere.
    """

    user: Value[User]
    pid: int | None  # the process that is judged; None: whoever runs amdcheck, or a service that does not run
    asked_for: bool  # --pid or --service named it
    environment: Value[dict[str, str]]
    home: Value[str | None]  # HOME of that environment, else the account's; None: there is no such account

    @classmethod
    def read(cls, host: Host, expect: Expectations) -> JudgedUser:
        if expect.pid is not None:
            return _of_process(host, expect.pid)
        if expect.service is not None:
            return _of_service(host, expect.service)
        user = host.identity().parse(_reader)
        return _judged(host, user, Known({}, "nothing was asked for"), asked_for=False)


def access(stat: Stat, user: User, *, wanted: int = READ_WRITE) -> Access:
    """Access as the kernel decides it (path_resolution(7), acl(5)): owner, named users, groups, others.

    `wanted` are the permission bits that must all be there: READ_WRITE of a device, CREATE or SEARCH of a folder.
    """

    def grants(permissions: int) -> bool:
        return permissions & wanted == wanted

    if user.uid == 0:
        return Access(allowed=True, by="root")
    entries = {entry.tag: entry.permissions for entry in stat.acl if entry.id is None}
    owner = entries.get("owner", stat.mode >> 6 & 7)
    group = entries.get("owning-group", stat.mode >> 3 & 7)
    other = entries.get("other", stat.mode & 7)
    mask = entries.get("mask", 7)
    if user.uid == stat.uid:
        return Access(allowed=grants(owner), by="owner")
    for entry in stat.acl:
        if entry.tag == "user" and entry.id == user.uid:
            return Access(allowed=grants(entry.permissions & mask), by="acl-user")
    rights = [group & mask] if stat.gid in user.groups else []
    rights += [e.permissions & mask for e in stat.acl if e.tag == "group" and e.id in user.groups]
    if rights:
        return Access(allowed=any(map(grants, rights)), by="group")
    return Access(allowed=grants(other), by="other")


def unit_of(service: str) -> str | None:
    """The systemd unit that --service names, None where no unit can have that name."""
    unit = service if service.endswith(_UNIT_KINDS) else f"{service}.service"
    return None if _UNIT.fullmatch(unit) is None or unit in _UNIT_KINDS else unit


def is_known_unit(host: Host, unit: str) -> bool:
    """Does it run, or has it a unit file to judge it by."""
    return _first_pid(host, unit) is not None or _unit_text(host, unit)[1] is not None


def group_names(host: Host) -> dict[int, str]:
    """Names by gid: of /etc/group, and those the running process knows (a directory service)."""
    names = {int(number): name for name, number, _ in _group_lines(host)}
    identity = host.identity().or_none()
    return {gid: name for name, gid in identity.group_names.items()} | names if identity else names


def _judged(
    host: Host, user: Value[User], environment: Value[dict[str, str]], *, pid: int | None = None, asked_for: bool = True
) -> JudgedUser:
    home = _home(host, user, environment)
    return JudgedUser(user=user, pid=pid, asked_for=asked_for, environment=environment, home=home)


def _home(host: Host, user: Value[User], environment: Value[dict[str, str]]) -> Value[str | None]:
    """Where HOME or the account says; unknown while an environment that might name another was not read."""
    if isinstance(environment, Unknown):
        return environment
    named = environment.value.get("HOME", "")
    if named.startswith("/"):
        return Known(named, "HOME of the process")
    if isinstance(user, Unknown):
        return user
    accounts = host.read("/etc/passwd")
    if isinstance(accounts, Unknown):
        return accounts
    home = next((home for _, uid, _, home in _accounts(accounts.value) if uid == user.value.uid), None)
    return Known(home if home and home.startswith("/") else None, accounts.source)


def _reader(identity: Identity) -> User:
    return User(uid=identity.uid, user=identity.user, groups=identity.groups, is_reader=True)


def _of_process(host: Host, pid: int) -> JudgedUser:
    """The effective uid and all groups of a process, from /proc/PID/status, and its environment."""
    status = host.read(f"/proc/{pid}/status").parse(parse_status)
    environment = host.read(f"/proc/{pid}/environ").parse(_environment)
    if isinstance(status, Unknown):
        return _judged(host, status, environment, pid=pid)
    uid, groups = status.value
    name = next((user for user, number, *_ in _accounts(_passwd(host)) if number == uid), None)
    user = Known(User(uid=uid, user=name, groups=groups, is_reader=False), status.source)
    return _judged(host, user, environment, pid=pid)


def _environment(text: str) -> dict[str, str]:
    pairs = (entry.partition("=") for entry in text.split("\0"))
    return {name: value for name, equals, value in pairs if equals}


def parse_status(text: str) -> tuple[int, tuple[int, ...]]:
    """Effective uid and every group (the effective gid first) of "Uid: real effective saved fs" and its fellows.

    Raises ValueError for text that has no such lines.
    """
    found = {name: [int(word) for word in words.split()[:65536]] for name, words in _IDS.findall(text)}
    if len(found.get("Uid", ())) < 2 or len(found.get("Gid", ())) < 2:
        raise ValueError("no Uid and Gid lines")
    gid = found["Gid"][1]
    return found["Uid"][1], (gid, *(group for group in found.get("Groups", ()) if group != gid))


def _of_service(host: Host, service: str) -> JudgedUser:
    """The user of a systemd service: that of its first process, else the one its unit file names."""
    unit = unit_of(service)
    if unit is None:
        no_unit = Unknown("failed", "--service", "not the name of a unit")
        return _judged(host, no_unit, no_unit)
    pid = _first_pid(host, unit)
    return _of_process(host, pid) if pid is not None else _of_unit(host, unit)


def _first_pid(host: Host, unit: str) -> int | None:
    """The first process of a unit that runs."""
    for folder in _cgroup_folders(unit):
        pids = (host.read(f"{folder}/cgroup.procs").or_none() or "").split()
        if pids and pids[0].isascii() and pids[0].isdigit():
            return int(pids[0][:10])
    return None


def _cgroup_folders(unit: str) -> Iterator[str]:
    template, at, _ = unit.partition("@")
    for root in _CGROUPS:
        yield f"{root}/system.slice/{unit}"
        if at:
            yield f"{root}/system.slice/system-{template}.slice/{unit}"


def _of_unit(host: Host, unit: str) -> JudgedUser:
    """A service that does not run: User=, Group=, SupplementaryGroups= and Environment= of its unit and drop-ins."""
    source, text = _unit_text(host, unit)
    if text is None:
        nowhere = Unknown("absent", source, "the service neither runs nor has a unit file")
        return _judged(host, nowhere, nowhere)
    settings = _settings(text)
    return _judged(host, _unit_user(host, source, settings), _unit_environment(source, settings))


def _unit_text(host: Host, unit: str) -> tuple[str, str | None]:
    """Where the unit's file lies (a template's for an instance), and its text with that of its drop-ins."""
    template, at, instance = unit.partition("@")
    names = [unit, f"{template}@.{instance.rpartition('.')[2]}"] if at else [unit]
    places = [f"{folder}/{name}" for name in names for folder in _UNIT_FOLDERS]
    found = next((read for path in places if isinstance(read := host.read(path), Known)), None)
    if found is None:
        return places[0], None
    texts = [found.value]
    for drop_ins in (f"{folder}/{name}.d" for name in reversed(names) for folder in reversed(_UNIT_FOLDERS)):
        texts += [host.read(f"{drop_ins}/{file}").or_none() or "" for file in host.entries(drop_ins).or_none() or ()]
    return found.source, "\n".join(texts)


def _unit_user(host: Host, source: str, settings: dict[str, list[str]]) -> Value[User]:
    if settings.get("DynamicUser", ["no"])[-1] in ("yes", "true", "1", "on"):
        return Unknown("failed", source, "DynamicUser: the user exists only while the service runs")
    wanted = settings.get("User", ["root"])[-1]
    row = next((row for row in _accounts(_passwd(host)) if wanted in (row[0], str(row[1]))), None)
    if row is None:
        return Unknown("failed", source, f"/etc/passwd has no user {wanted[:40]!r}")
    groups = _groups_of(host, row[0], row[2], settings)
    return Known(User(uid=row[1], user=row[0], groups=groups, is_reader=False), source)


def _unit_environment(source: str, settings: dict[str, list[str]]) -> Value[dict[str, str]]:
    """What Environment= sets; files that the unit reads as well may set anything."""
    if any(settings.get("EnvironmentFile", ())):
        return Unknown("failed", source, "EnvironmentFile: what it sets is known only while the service runs")
    found: dict[str, str] = {}
    for line in settings.get("Environment", ()):
        if not line:
            found.clear()
        try:
            words = shlex.split(line)
        except ValueError as error:
            return Unknown("failed", source, f"Environment={line[:80]}: {error}")
        found |= _environment("\0".join(words))
    return Known(found, source)


def _settings(text: str) -> dict[str, list[str]]:
    settings: dict[str, list[str]] = {}
    for line in text.splitlines():
        name, equals, value = line.strip().partition("=")
        if equals and not name.startswith(("#", ";")):
            settings.setdefault(name.strip(), []).append(value.strip())
    return settings


def _passwd(host: Host) -> str:
    return host.read("/etc/passwd").or_none() or ""


def _accounts(passwd: str) -> list[tuple[str, int, int, str]]:
    """Name, uid, gid and home of every user."""
    return [(name, int(uid), int(gid), home) for name, uid, gid, home in _ACCOUNT.findall(passwd)]


def _group_lines(host: Host) -> list[tuple[str, str, str]]:
    """Name, gid and members of every group."""
    return _GROUP_LINE.findall(host.read("/etc/group").or_none() or "")


def _groups_of(host: Host, user: str, gid: int, settings: dict[str, list[str]]) -> tuple[int, ...]:
    asked = {word for value in settings.get("SupplementaryGroups", ()) for word in value.split()}
    asked |= set(settings.get("Group", ())[-1:])
    rows = _group_lines(host)
    member = [int(number) for name, number, users in rows if user in users.split(",") or asked & {name, number}]
    return (gid, *(number for number in member if number != gid))
