"""This boot's kernel log, where it may be read."""

from __future__ import annotations

from msgspec import Struct

from amdcheck.facts.registry import fact
from amdcheck.host.protocol import Host
from amdcheck.model.value import Value


@fact
class KernelLog(Struct, frozen=True, kw_only=True):
    """Lines about GPUs and their bus only, bounded in number and length; `gone` are BDFs that the log says
    fell off the bus or failed to come up."""

    lines: Value[tuple[str, ...]]
    gone: tuple[str, ...]

    @classmethod
    def read(cls, host: Host) -> KernelLog:
        raise NotImplementedError
