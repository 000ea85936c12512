"""This boot's kernel log, where it may be read: /dev/kmsg, in a recorded tree also the text of /var/log/dmesg.

A record of /dev/kmsg is "priority,sequence,microseconds,flags;message", its continuation lines begin with a space.
dmesg prints "[   12.345678] message", journals put a date or "kernel: " before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from msgspec import Struct

from amdcheck.facts.pci import PciTree
from amdcheck.facts.registry import fact
from amdcheck.host.protocol import Host
from amdcheck.knowledge.kernel_log import LINE_LIMIT, log_patterns, matches
from amdcheck.model.value import Known, Unknown, Value

KMSG = "/dev/kmsg"
DMESG = "/var/log/dmesg"

_LOG_LIMIT = 4 << 20  # bytes; the ring buffer of a 384-CPU machine is below 2 MiB
_KEPT = 2000  # lines about GPUs; of more, the first and the last half
_RECORD = re.compile(r"\d{1,10},\d{1,20},\d{1,20},[^;\n]{0,64};")
_STAMP = re.compile(r"^.{0,80}?\[ {0,12}\d{1,12}\.\d{6}\](?:\[[ TC\d]{1,12}\])? ?")
_BDF = re.compile(r"\b[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]\b")
_NAMED = re.compile(r"\bamdgpu ([0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]):")
_DRIVER_WORDS = ("amdgpu", "kfd")
_BUS_WORDS = ("pcieport", "AER", "pciehp", "DPC", "BAR ", "pci ", "AMD-Vi", "vfio")


class LogEvent(Struct, frozen=True, kw_only=True):
    """A line that the table of patterns knows; `bdf` is the device that it names."""

    pattern: str
    bdf: str | None
    line: str


@fact
class KernelLog(Struct, frozen=True, kw_only=True):
    """Lines about GPUs and their bus only, bounded in number and length; `gone` are BDFs that the log says
    fell off the bus, failed to come up or did not come back from a reset, each with the line that says so first;
    `named` all those that the driver has worked with in this boot."""

    lines: Value[tuple[str, ...]]
    events: tuple[LogEvent, ...]
    gone: dict[str, str]
    named: tuple[str, ...]

    @classmethod
    def read(cls, host: Host, pci: PciTree) -> KernelLog:
        log = _log(host)
        if isinstance(log, Unknown):
            return cls(lines=log, events=(), gone={}, named=())
        messages = list(_messages(log.value))
        named = {match[1] for message in messages for match in _NAMED.finditer(message)}
        about_gpus = [m for m in messages if _is_about_gpus(m, named | pci.devices.keys())]
        lines = _bounded(about_gpus)
        return cls(
            lines=Known(tuple(lines), log.source),
            events=tuple(_events(lines)),
            gone=_gone(_events(about_gpus)),
            named=tuple(sorted(named)),
        )

    def about(self, bdf: str, *patterns: str) -> str | None:
        """The last line that names this device and matches one of these patterns."""
        found = [event.line for event in self.events if event.bdf == bdf and event.pattern in patterns]
        return found[-1] if found else None


def _log(host: Host) -> Value[str]:
    """A live machine's own ring buffer; a file may be of an earlier boot, so only a recording's counts."""
    kmsg = host.read(KMSG, limit=_LOG_LIMIT)
    if isinstance(kmsg, Known) or host.source == "live":
        return kmsg
    dmesg = host.read(DMESG, limit=_LOG_LIMIT)
    return dmesg if isinstance(dmesg, Known) else kmsg


def _messages(text: str) -> Iterator[str]:
    """The messages of the last boot in the text, without priority and time."""
    lines = text.splitlines()
    start = max((i for i, line in enumerate(lines) if "Linux version " in line), default=0)
    for line in lines[start:]:
        if line.startswith(" "):
            continue  # continuation of a kmsg record: its subsystem and device, which the message repeats
        line = line[:LINE_LIMIT]
        record = _RECORD.match(line)
        yield line[record.end() :] if record else _STAMP.sub("", line, count=1)


def _is_about_gpus(message: str, devices: Iterable[str]) -> bool:
    if any(word in message for word in _DRIVER_WORDS):
        return True
    if not any(word in message for word in _BUS_WORDS):
        return False
    return not set(_BDF.findall(message)).isdisjoint(devices)


def _bounded(lines: list[str]) -> list[str]:
    return lines if len(lines) <= _KEPT else lines[: _KEPT // 2] + lines[-_KEPT // 2 :]


def _events(lines: Iterable[str]) -> Iterator[LogEvent]:
    for line in lines:
        for pattern in matches(line):
            bdf = _BDF.search(line)
            yield LogEvent(pattern=pattern.id, bdf=bdf[0] if bdf else None, line=line)


def _gone(events: Iterable[LogEvent]) -> dict[str, str]:
    """GPUs lost or never started, unless a later line says that the driver has started or reset them after all."""
    effects = {row.id: row.effect for row in log_patterns()}
    gone: dict[str, str] = {}
    for event in events:
        if event.bdf is None:
            continue
        if effects[event.pattern] == "gone":
            gone.setdefault(event.bdf, event.line)
        elif effects[event.pattern] == "up":
            gone.pop(event.bdf, None)
    return gone
