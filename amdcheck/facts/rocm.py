"""ROCm installations: every layout since 5.x, side by side, Python wheels included."""

from __future__ import annotations

from msgspec import Struct

from amdcheck.facts.registry import fact
from amdcheck.host.protocol import Host
from amdcheck.model.expectations import Expectations
from amdcheck.model.finding import Subject
from amdcheck.model.value import Value


class RocmRoot(Struct, frozen=True, kw_only=True):
    """One installation; `root` has all links followed, `links` are the other names it was found under."""

    root: str
    links: tuple[str, ...]
    version: Value[str]  # 6.3.3, 7.14.0
    layout: str  # legacy, core, wheel
    found_by: str  # the file or package that named it

    @property
    def subject(self) -> Subject:
        return Subject(kind="path", id=self.root)


@fact
class RocmInstalls(Struct, frozen=True, kw_only=True):
    """`searched` is the listing of /opt; unknown there means that an installation may have been missed."""

    searched: Value[tuple[str, ...]]
    roots: tuple[RocmRoot, ...]

    @classmethod
    def read(cls, host: Host, expect: Expectations) -> RocmInstalls:
        raise NotImplementedError
