"""May the service's user open the device nodes that compute needs."""

from __future__ import annotations

from collections.abc import Iterator
from posixpath import dirname

from amdcheck.api import (
    Evidence,
    Finding,
    Known,
    Subject,
    Unknown,
    check,
    evidence,
    failed,
    has_amd_gpu,
    passed,
    shown,
    skipped,
    undetermined,
    warned,
)
from amdcheck.facts.devices import DRI, KFD_DEVICE, DeviceNode, DeviceNodes
from amdcheck.facts.driver import Driver
from amdcheck.facts.gpus import Gpu, Gpus
from amdcheck.facts.judged_user import SEARCH, User, access
from amdcheck.facts.pci import DEVICES
from amdcheck.facts.platform import Platform
from amdcheck.knowledge.remedies import remedy

ID = "gpu.device-access"
KFD = Subject(kind="path", id=KFD_DEVICE)

# What the kernel's answer to open(2) says of a GPU's node.
ERRNO = {
    "EACCES": ("blocked", "its mode allows it, a security module refuses it"),
    "EPERM": ("cgroup", "the device cgroup refuses it"),
    "ENODEV": ("stale-device", "no driver answers behind it"),
    "ENXIO": ("stale-device", "no device answers behind it"),
    "ENOENT": ("no-device", "it is gone"),
}


@check(ID, title="Access to the GPU devices", level="quick", applies=has_amd_gpu)
def device_access(gpus: Gpus, devices: DeviceNodes, driver: Driver, platform: Platform) -> Iterator[Finding]:
    """Whether the user who will serve may open /dev/kfd and the render node of every GPU.

    ROCm opens /dev/kfd and one /dev/dri/renderD node for each GPU or partition, read and write. Judged is the user of
    --service or --pid, else whoever runs amdcheck. At level quick by mode, owner, group and ACL alone, of the nodes
    and of the folders /dev and /dev/dri on the way to them: nothing is opened and no GPU wakes. From level standard
    each node is opened and closed once, and the kernel's answer decoded: EACCES is the mode (or a security module,
    when the mode would allow it), EPERM the device cgroup of a container or service, ENODEV and ENXIO a node without
    a driver behind it. That answer is given to whoever runs amdcheck: another user is judged by mode and owner at
    every level. Names of groups differ between distributions (render, video), so numbers are compared, never names.

    Without access a program sees no GPU, and many frameworks then serve from the CPU without a word. A right that
    comes from sitting at the machine (udev's uaccess tag) ends with the session: no service should rest on it.

    Source: acl(5), path_resolution(7); Linux kfd_chardev.c and the devices cgroup; ROCm installation guide.
    """
    if driver.loaded.or_none() is False:
        yield skipped(ID, KFD, "The driver is not loaded, so there are no nodes; gpu.driver-loaded says why.")
        return
    if isinstance(devices.user, Unknown):
        yield undetermined(ID, KFD, "Whose rights to judge could not be found out.", because=devices.user)
        return
    user = devices.user.value
    kfd = [node for node in devices.nodes if node.gpu is None]
    yield _judge(KFD, kfd, devices, user, platform)
    for gpu in gpus.devices:
        nodes = [node for node in devices.nodes if node.gpu == gpu.bdf]
        if gpu.hidden:
            yield skipped(ID, gpu.subject, f"The device cgroup keeps this GPU from {platform.confined}.")
        elif not gpu.is_undriven:  # else gpu.present says so, and there is no node to open
            yield _judge(gpu.subject, nodes, devices, user, platform) if nodes else _nameless(gpu, devices, platform)


def _nameless(gpu: Gpu, devices: DeviceNodes, platform: Platform) -> Finding:
    """The driver names no render node for a GPU. Where it drives it, and no node is there that could be it, it has
    none."""
    unclaimed = devices.unclaimed
    none = unclaimed.or_none() == () or (isinstance(unclaimed, Unknown) and unclaimed.reason == "absent")
    if gpu.driver.or_none() != "amdgpu" or not none:
        why = unclaimed if isinstance(unclaimed, Unknown) else Unknown("absent", f"{DEVICES}/{gpu.bdf}/drm")
        return undetermined(ID, gpu.subject, "Which render node the GPU has could not be found out.", because=why)
    outcome = "not-passed" if platform.container else "no-device"
    return failed(
        f"{ID}/{outcome}",
        gpu.subject,
        f"amdgpu drives {gpu.label}, and there is no render node for it.",
        evidence(gpu.driver),
        shown(DRI, "no render node of this GPU"),
        expected="a render node",
        actual="none",
        remedy=remedy(f"{ID}/{outcome}"),
    )


def _judge(subject: Subject, nodes: list[DeviceNode], devices: DeviceNodes, user: User, platform: Platform) -> Finding:
    found = [finding for node in nodes if (finding := _problem(subject, node, devices, user, platform)) is not None]
    # A certain failure says more than what could not be read.
    found.sort(key=lambda finding: ("fail", "unknown", "warn").index(finding.status))
    if found:
        return found[0]
    how = "opened" if all(_opened(node, user) for node in nodes) else "by mode and owner"
    more = f" and {len(nodes) - 1} more" if len(nodes) > 1 else ""
    seen = [_seen(node, user) for node in nodes]
    return passed(ID, subject, f"{user.label} may use {nodes[0].path}{more} ({how}).", *seen)


def _problem(
    subject: Subject, node: DeviceNode, devices: DeviceNodes, user: User, platform: Platform
) -> Finding | None:
    closed = _closed_folder(node, devices, user)
    if closed is not None:
        return _fail(subject, node, user, "folder-closed", f"{closed.source} may not be searched", closed)
    if isinstance(node.stat, Unknown):
        if node.stat.reason == "absent":
            return _fail(subject, node, user, "not-passed" if platform.container else "no-device", "it does not exist")
        return undetermined(ID, subject, f"{node.path} could not be looked at.", because=node.stat)
    rights = access(node.stat.value, user)
    if not rights.allowed:
        return _fail(subject, node, user, *_how_to_allow(node, platform))
    opened = node.answer_to(user)
    if isinstance(opened, Known) and opened.value.errno is not None:
        why = ("open-failed", f"opening it ends in {opened.value.errno}")
        return _fail(subject, node, user, *ERRNO.get(opened.value.errno, why))
    if isinstance(opened, Unknown) and opened.reason != "not-recorded":
        return undetermined(ID, subject, f"Opening {node.path} did not end as it should.", because=opened)
    if rights.by == "acl-user" and node.seat:
        message = f"{user.label} may open {node.path} only while logged in at the machine."
        fix = remedy(f"{ID}/session-only", user=user.user or "", group=node.group or "render")
        return warned(f"{ID}/session-only", subject, message, _seen(node, user), remedy=fix)
    return None


def _closed_folder(node: DeviceNode, devices: DeviceNodes, user: User) -> Evidence | None:
    """The folder on the way to the node that the user may not search, and its rights where they were read."""
    for folder, stat in devices.folders.items():
        on_the_way = node.path.startswith(f"{folder}/")
        if on_the_way and isinstance(stat, Known) and not access(stat.value, user, wanted=SEARCH).allowed:
            return shown(folder, f"dir {stat.value.mode:04o} uid {stat.value.uid} gid {stat.value.gid}")
    # stat(2) of the node is denied for no other reason
    denied = isinstance(node.stat, Unknown) and node.stat.reason == "denied"
    return evidence(Unknown("denied", dirname(node.path))) if denied and user.is_reader else None


def _how_to_allow(node: DeviceNode, platform: Platform) -> tuple[str, str]:
    """Outcome and reason when the mode, owner and ACL do not let the user in."""
    stat = node.stat.or_none()
    group_has_it = stat is not None and stat.gid != 0 and stat.mode >> 3 & 6 == 6
    if not group_has_it:
        return "udev-rule", "no group but root's has read and write on it"
    if platform.container:
        return "container-group", "the container's process is not in its group"
    return "not-in-group", "the user is not in its group"


def _fail(subject: Subject, node: DeviceNode, user: User, outcome: str, reason: str, *why: Evidence) -> Finding:
    stat = node.stat.or_none()
    fix = remedy(
        f"{ID}/{outcome}",
        user=user.user or "",
        group=node.group or "",
        gid=stat.gid if stat is not None else "",
        path=node.path,
    )
    message = f"{user.label} cannot open {node.path}: {reason}."
    expected = f"read and write for {user.label}"
    seen = (_seen(node, user), *why, _who(user))
    return failed(f"{ID}/{outcome}", subject, message, *seen, expected=expected, remedy=fix)


def _opened(node: DeviceNode, user: User) -> bool:
    opened = node.answer_to(user)
    return isinstance(opened, Known) and opened.value.errno is None


def _seen(node: DeviceNode, user: User) -> Evidence:
    if isinstance(node.stat, Unknown):
        return evidence(node.stat)
    opened = node.answer_to(user)
    note = None
    if isinstance(opened, Known):
        note = f"open gives {opened.value.errno}" if opened.value.errno else "opened and closed"
    elif isinstance(opened, Unknown):
        note = f"not opened ({opened.reason})"
    return shown(node.path, node.rights, note=note)


def _who(user: User) -> Evidence:
    return shown("judged user", f"{user.label} (uid {user.uid}), groups {' '.join(map(str, user.groups[:64]))}")
