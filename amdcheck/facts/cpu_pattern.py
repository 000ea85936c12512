"""Patterns that were written into a part of the memory and read back, word by word."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from amdcheck.facts.readings import PER_CPU, SHOWN, Amount, Number
from amdcheck.facts.registry import fact
from amdcheck.facts.selftests import Compared, Group, GroupDocument, Step, allowing_busy, document_of
from amdcheck.host.protocol import Host, SelfTest
from amdcheck.model.expectations import Expectations
from amdcheck.model.value import Known, Unknown

TIMEOUT_S = 60.0  # the workers have half of it


_Bits = Annotated[str, Meta(pattern="^0x[0-9a-f]{16}$")]


class WrongWord(Struct, frozen=True, kw_only=True):
    """A word that did not hold its pattern: its offset in bytes in the worker's memory, its bits, its NUMA node."""

    pattern: str
    offset: Number
    got: _Bits
    want: _Bits
    node: Number | None


class Patterns(Compared, frozen=True, kw_only=True):
    """What one worker tested: `bytes`, each in so many `passes`; words `compared` and `wrong`, bits planted."""

    bytes: Amount
    passes: Amount
    first_wrong: Annotated[tuple[WrongWord, ...], SHOWN]
    nodes: tuple[Number, ...]  # that its memory lies on, empty where the kernel does not say


class PatternRun(Step, frozen=True, kw_only=True):
    """How the worker on one CPU ended."""

    cpu: Number
    result: Patterns | None


class _Document(GroupDocument, frozen=True, kw_only=True):
    room_kib: Number
    workers: Annotated[tuple[PatternRun, ...], PER_CPU]


@fact
class PatternSelfTest(Group, frozen=True, kw_only=True):
    """selftest cpu.pattern: workers on idle cores; `room_kib` is the memory that they might take without harm."""

    room_kib: Number
    workers: tuple[PatternRun, ...]

    @classmethod
    def read(cls, host: Host, expect: Expectations) -> PatternSelfTest:
        test = SelfTest(name="cpu.pattern", params=allowing_busy(expect), timeout_s=TIMEOUT_S)
        source = f"selftest {test.name}"
        document = document_of(host, test, expect, _Document, source=source)
        known = document.value if isinstance(document, Known) else None
        return cls(
            source=source,
            unread=document if isinstance(document, Unknown) else None,
            lacks=known.lacks if known else None,
            busy=known.busy if known else None,
            room_kib=known.room_kib if known else 0,
            workers=known.workers if known else (),
        )
