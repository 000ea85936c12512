"""What LiveHost asks libraries: udev's database, psutil, and who we are."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from amdcheck.host.paths import UDEV_SOURCE, encodable
from amdcheck.host.protocol import Host, Identity, SystemAnswers, UdevDevice
from amdcheck.model.value import Known, Unknown, Value

T = TypeVar("T")

_UDEV_DATABASE = "/run/udev/data"
_GROUPS = ("render", "video")  # who may open /dev/kfd and /dev/dri


def udev_records(nodes: Sequence[str]) -> Value[tuple[UdevDevice, ...]]:
    """pyudev's records of device nodes; `absent` where udev does not run (a container) or its library is missing."""
    if not os.path.isdir(_UDEV_DATABASE):
        return Unknown("absent", UDEV_SOURCE, f"no {_UDEV_DATABASE}")
    try:
        import pyudev  # type: ignore[import-untyped]

        context = pyudev.Context()
    except (ImportError, OSError) as error:
        return Unknown("absent", UDEV_SOURCE, f"libudev: {error}")
    records = []
    for node in nodes:
        try:
            device: Any = pyudev.Devices.from_device_file(context, node)
            if device.is_initialized:
                records.append(_udev_record(node, device))
        except (pyudev.DeviceNotFoundError, OSError, ValueError):
            continue
    return Known(tuple(records), UDEV_SOURCE)


def _udev_record(node: str, device: Any) -> UdevDevice:
    return UdevDevice(
        node=node,
        properties={encodable(name): encodable(value) for name, value in sorted(device.properties.items())},
        tags=tuple(sorted(map(encodable, device.tags))),
    )


def system_answers() -> SystemAnswers:
    """psutil's answers; None where it cannot tell, for it raises on machines whose /proc lacks something."""
    import psutil

    memory = _or_none(psutil.virtual_memory)
    return SystemAnswers(
        logical_cpus=_or_none(psutil.cpu_count),
        physical_cores=_or_none(lambda: psutil.cpu_count(logical=False)),
        memory_bytes=None if memory is None else memory.total,
        available_bytes=None if memory is None else memory.available,
        load_1m=_or_none(lambda: psutil.getloadavg()[0]),
        boot_time=_or_none(psutil.boot_time),
    )


def _or_none(ask: Callable[[], T]) -> T | None:
    try:
        return ask()
    except (OSError, RuntimeError, ValueError, LookupError):
        return None


def our_identity(host: Host) -> Identity:
    """From the process itself and the local files; a name service may not answer for a long time."""
    uid = os.geteuid()
    return Identity(
        uid=uid,
        user=_name_of(host.read("/etc/passwd").or_none() or "", uid),
        groups=tuple(sorted({os.getegid(), *os.getgroups()})),
        group_names=_named_groups(host.read("/etc/group").or_none() or ""),
        node_name=encodable(os.environ.get("SLURMD_NODENAME") or os.environ.get("NODE_NAME") or "") or None,
    )


def _name_of(passwd: str, uid: int) -> str | None:
    for line in passwd.splitlines():
        fields = line.split(":")
        if len(fields) >= 3 and fields[2] == str(uid):
            return fields[0]
    return None


def _named_groups(group: str) -> dict[str, int]:
    found = {}
    for line in group.splitlines():
        fields = line.split(":")
        if len(fields) >= 3 and fields[0] in _GROUPS and fields[2].isdecimal():
            found[fields[0]] = int(fields[2])
    return found
