"""Where MIOpen keeps a user's tuning results and compiled kernels, and whether that user may write there."""

from __future__ import annotations

from posixpath import dirname, join

from msgspec import Struct

from amdcheck.facts.judged_user import CREATE, JudgedUser, User, access
from amdcheck.facts.registry import fact
from amdcheck.host.protocol import Host, Stat
from amdcheck.model.value import Known, Unknown, Value

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

    user: Value[User]
    home: Value[str | None]  # None: the user has no home directory
    asked_for: bool  # --pid or --service named it
    xnack: bool  # HSA_XNACK=1 in that process
    folders: tuple[UserFolder, ...]
    without_place: tuple[str, ...]  # purposes whose folder no variable and no home names

    @classmethod
    def read(cls, host: Host, judged: JudgedUser) -> MiopenUser:
        environment = judged.environment.or_none() or {}
        folders = _folders(host, judged, environment)
        placed = {folder.purpose for folder in folders}
        return cls(
            user=judged.user,
            home=judged.home,
            asked_for=judged.asked_for,
            xnack=environment.get("HSA_XNACK") == "1",
            folders=folders,
            without_place=tuple(purpose for purpose, _, _ in _PLACES if purpose not in placed),
        )


def _folders(host: Host, judged: JudgedUser, environment: dict[str, str]) -> tuple[UserFolder, ...]:
    """The folder of each purpose. Mounts are those of the judged process: a service may have some of its own."""
    mounts = host.read(f"/proc/{judged.pid or 'self'}/mounts")
    home = judged.home.or_none()
    folders = []
    for purpose, variable, usual in _PLACES:
        moved = environment.get(variable, "")
        if moved.startswith("/"):
            folders.append(_folder(host, purpose, moved, variable, judged.user, mounts))
        elif home is not None:
            folders.append(_folder(host, purpose, join(home, usual), None, judged.user, mounts))
    return tuple(folders)


def _folder(
    host: Host, purpose: str, path: str, set_by: str | None, user: Value[User], mounts: Value[str]
) -> UserFolder:
    nearest, stat = _nearest(host, path)

    def read_only(text: str) -> bool:
        return _is_read_only(text, nearest)

    return UserFolder(
        purpose=purpose,
        path=path,
        set_by=set_by,
        nearest=nearest,
        stat=stat,
        writable=_writable(stat, user),
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


def _writable(stat: Value[Stat], user: Value[User]) -> Value[bool]:
    """May this user create something in the folder, by its mode and its ACL? Root may."""
    if isinstance(stat, Unknown):
        return stat
    if isinstance(user, Unknown):
        return user
    allowed = stat.value.kind == "dir" and access(stat.value, user.value, wanted=CREATE).allowed
    return Known(allowed, stat.source)


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
