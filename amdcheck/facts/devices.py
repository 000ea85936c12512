"""The device nodes that compute needs, and whether the user who will open them may.

ROCm opens /dev/kfd and the render node (/dev/dri/renderD128 ...) of every GPU, all read-write.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from amdcheck.facts.gpus import Gpus
from amdcheck.facts.judged_user import JudgedUser, User, group_names
from amdcheck.facts.registry import fact
from amdcheck.host.protocol import Host, OpenOutcome, Stat
from amdcheck.model.expectations import Expectations
from amdcheck.model.value import Known, Unknown, Value

KFD_DEVICE = "/dev/kfd"
DRI = "/dev/dri"


class DeviceNode(Struct, frozen=True, kw_only=True):
    """One device node. `opened` is None at level quick, where nothing is opened."""

    path: str
    gpu: str | None  # BDF of the GPU behind a render node
    stat: Value[Stat]
    group: str | None  # the group's name on this host
    opened: Value[OpenOutcome] | None
    seat: bool  # udev's uaccess tag: logind gives it to whoever sits at the machine

    def answer_to(self, user: User) -> Value[OpenOutcome] | None:
        """What opening it gave this user: known of the one who runs amdcheck alone, in whose cgroup it was opened."""
        return self.opened if user.is_reader else None

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
    """/dev/kfd and the render nodes of the judged GPUs; empty where there is no GPU to judge.

    `unclaimed` are render nodes in /dev/dri that are known to belong to none of these GPUs. Who may not search one of
    `folders` reaches no node in it.
    """

    user: Value[User]
    nodes: tuple[DeviceNode, ...]
    unclaimed: Value[tuple[str, ...]]
    folders: dict[str, Value[Stat]]  # /dev and /dev/dri

    @classmethod
    def read(cls, host: Host, gpus: Gpus, judged: JudgedUser, expect: Expectations) -> DeviceNodes:
        wanted = [(KFD_DEVICE, None), *((path, gpu.bdf) for gpu in gpus.devices for path in gpu.render_nodes)]
        claimed = frozenset(path for path, _ in wanted)

        def others(names: tuple[str, ...]) -> tuple[str, ...]:
            paths = (f"{DRI}/{name}" for name in names if name.startswith("renderD"))
            return tuple(path for path in paths if path not in claimed)

        if not gpus.devices:
            return cls(user=judged.user, nodes=(), unclaimed=Known((), DRI), folders={})
        names = group_names(host)
        stats = {path: host.stat(path) for path, _ in wanted}
        seats = _seats(host, [path for path, stat in stats.items() if isinstance(stat, Known) and stat.value.acl])
        return cls(
            user=judged.user,
            nodes=tuple(_node(host, path, bdf, stats[path], names, path in seats, expect) for path, bdf in wanted),
            unclaimed=host.entries(DRI).parse(others),
            folders={folder: host.stat(folder) for folder in ("/dev", DRI)},
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


def _seats(host: Host, paths: Sequence[str]) -> frozenset[str]:
    """Those of these nodes that udev tags uaccess."""
    devices = host.udev(paths).or_none() if paths else ()
    return frozenset(device.node for device in devices or () if "uaccess" in device.tags)
