"""Where MIOpen keeps a user's tuning results and compiled kernels, and whether that user may write there."""

from __future__ import annotations

import re
from posixpath import dirname, join

from msgspec import Struct

from amdcheck.facts.registry import fact
from amdcheck.host.protocol import Host, Identity, Stat
from amdcheck.model.expectations import Expectations
from amdcheck.model.value import Known, Unknown, Value

_UNIT = re.compile(r"[A-Za-z0-9:_.@\\-]{1,200}")
# Purpose, the variable that moves it, and its usual place below the home directory.
_PLACES = (
    ("user database", "MIOPEN_USER_DB_PATH", ".config/miopen"),
    ("kernel cache", "MIOPEN_CUSTOM_CACHE_DIR", ".cache/miopen"),
)


class UserFolder(Struct, frozen=True, kw_only=True):
    """A folder that MIOpen writes as the judged user; `nearest` is the part of its path that exists."""

    purpose: str  # user database, kernel cache
    path: str
    set_by: str | None  # the variable that moved it from its usual place
    nearest: str
    stat: Value[Stat]  # of `nearest`
    writable: Value[bool]
    read_only_mount: Value[bool]


@fact
class MiopenUser(Struct, frozen=True, kw_only=True):
    """Whose folders: the process that was asked for, else whoever runs the check."""

    name: Value[str]
    uid: Value[int]
    home: Value[str]
    asked_for: bool  # --pid or --service named it
    xnack: bool  # HSA_XNACK=1 in that process
    folders: tuple[UserFolder, ...]

    @classmethod
    def read(cls, host: Host, expect: Expectations) -> MiopenUser:
        who = _who(host, expect)
        accounts = host.read("/etc/passwd")
        home = _home(who.uid, accounts, who.environment)
        return cls(
            name=_account(who.uid, accounts, 0),
            uid=who.uid,
            home=home,
            asked_for=who.asked_for,
            xnack=who.environment.get("HSA_XNACK") == "1",
            folders=_folders(host, home, who),
        )


class _Who(Struct, frozen=True, kw_only=True):
    """The user that is judged, and the environment of its process (empty when no process was asked for)."""

    uid: Value[int]
    groups: Value[tuple[int, ...]]
    environment: dict[str, str]
    asked_for: bool


def _who(host: Host, expect: Expectations) -> _Who:
    pid = _judged_pid(host, expect)
    if pid is None:
        identity = host.identity()
        return _Who(uid=identity.parse(_uid), groups=identity.parse(_groups), environment={}, asked_for=False)
    if isinstance(pid, Unknown):
        return _Who(uid=pid, groups=pid, environment={}, asked_for=True)
    status = host.read(f"/proc/{pid.value}/status")
    return _Who(
        uid=status.parse(_uid_of_status),
        groups=status.parse(_groups_of_status),
        environment=_environment(host.read(f"/proc/{pid.value}/environ").or_none() or ""),
        asked_for=True,
    )


def _uid(identity: Identity) -> int:
    return identity.uid


def _groups(identity: Identity) -> tuple[int, ...]:
    return identity.groups


def _judged_pid(host: Host, expect: Expectations) -> Value[int] | None:
    """The process of --pid, or the first one of --service's control group."""
    if expect.pid is not None:
        return Known(expect.pid, "--pid")
    if expect.service is None:
        return None
    unit = expect.service if expect.service.endswith(".service") else f"{expect.service}.service"
    if not _UNIT.fullmatch(unit) or unit.startswith("."):
        return Unknown("failed", "--service", "not the name of a unit")
    return host.read(f"/sys/fs/cgroup/system.slice/{unit}/cgroup.procs").parse(_first_number)


def _first_number(text: str) -> int:
    words = text.split()
    if not words or not words[0].isascii() or not words[0].isdigit():
        raise ValueError("no process in this control group")
    return int(words[0][:10])


def _uid_of_status(text: str) -> int:
    match = re.search(r"^Uid:\s*\d+\s+(\d{1,10})\b", text, re.MULTILINE)
    if match is None:
        raise ValueError("no Uid line")
    return int(match[1])


def _groups_of_status(text: str) -> tuple[int, ...]:
    own = re.search(r"^Gid:\s*\d+\s+(\d{1,10})\b", text, re.MULTILINE)
    more = re.search(r"^Groups:([ \t\d]*)$", text, re.MULTILINE)
    words = ([own[1]] if own else []) + (more[1].split() if more else [])
    return tuple(int(word[:10]) for word in words)


def _environment(text: str) -> dict[str, str]:
    pairs = (entry.partition("=") for entry in text.split("\0"))
    return {name: value for name, equals, value in pairs if equals}


def _account(uid: Value[int], accounts: Value[str], field: int) -> Value[str]:
    """A field of the account with this uid in /etc/passwd: 0 the name, 5 the home."""
    if isinstance(uid, Unknown):
        return uid

    def find(text: str) -> str:
        for line in text.splitlines():
            fields = line.split(":")
            if len(fields) == 7 and fields[2] == str(uid.value):
                return fields[field]
        raise ValueError(f"no account with uid {uid.value}")

    return accounts.parse(find)


def _home(uid: Value[int], accounts: Value[str], environment: dict[str, str]) -> Value[str]:
    if environment.get("HOME", "").startswith("/"):
        return Known(environment["HOME"], "HOME of the process")
    return _account(uid, accounts, 5)


def _folders(host: Host, home: Value[str], who: _Who) -> tuple[UserFolder, ...]:
    mounts = host.read("/proc/self/mounts")
    folders = []
    for purpose, variable, usual in _PLACES:
        moved = who.environment.get(variable, "")
        if moved.startswith("/"):
            folders.append(_folder(host, purpose, moved, variable, who, mounts))
        elif isinstance(home, Known) and home.value.startswith("/"):
            folders.append(_folder(host, purpose, join(home.value, usual), None, who, mounts))
    return tuple(folders)


def _folder(host: Host, purpose: str, path: str, set_by: str | None, who: _Who, mounts: Value[str]) -> UserFolder:
    nearest, stat = _nearest(host, path)

    def read_only(text: str) -> bool:
        return _is_read_only(text, nearest)

    return UserFolder(
        purpose=purpose,
        path=path,
        set_by=set_by,
        nearest=nearest,
        stat=stat,
        writable=_writable(stat, who.uid, who.groups),
        read_only_mount=mounts.parse(read_only),
    )


def _nearest(host: Host, path: str) -> tuple[str, Value[Stat]]:
    """The deepest part of the path that exists, at most sixteen levels up."""
    stat = host.stat(path)
    for _ in range(16):
        if isinstance(stat, Known) or stat.reason != "absent" or path == "/":
            break
        path = dirname(path)
        stat = host.stat(path)
    return path, stat


def _writable(stat: Value[Stat], uid: Value[int], groups: Value[tuple[int, ...]]) -> Value[bool]:
    """May this user create something in the folder, by its mode and its ACL? Root may."""
    if isinstance(stat, Unknown):
        return stat
    if isinstance(uid, Unknown):
        return uid
    member = set(groups.or_none() or ())
    return Known(uid.value == 0 or _may_write(stat.value, uid.value, member), stat.source)


def _may_write(stat: Stat, uid: int, groups: set[int]) -> bool:
    if stat.kind != "dir":
        return False
    if uid == stat.uid:
        return stat.mode & 0o300 == 0o300
    mask = next((entry.permissions for entry in stat.acl if entry.tag == "mask"), 0o7)
    for entry in stat.acl:
        if entry.tag == "user" and entry.id == uid:
            return entry.permissions & mask & 0o3 == 0o3
    named = [entry for entry in stat.acl if entry.tag == "group" and entry.id in groups]
    own = [entry.permissions for entry in stat.acl if entry.tag == "owning-group"] or [stat.mode >> 3 & 0o7]
    if named or stat.gid in groups:
        rights = [entry.permissions & mask for entry in named] + ([own[0] & mask] if stat.gid in groups else [])
        return any(right & 0o3 == 0o3 for right in rights)
    return stat.mode & 0o3 == 0o3


def _is_read_only(mounts: str, path: str) -> bool:
    """Is the mount that holds this path read-only? The last of the longest matching mount points counts."""
    best, options = "", ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 4:
            continue
        point = fields[1].replace("\\040", " ")
        if (path == point or path.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
            best, options = point, fields[3]
    if not best:
        raise ValueError(f"no mount holds {path}")
    return "ro" in options.split(",")
