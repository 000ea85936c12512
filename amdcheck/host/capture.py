"""The capture: everything a run read of a machine, as one document (schema amdcheck.capture/1)."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Literal, Union

from msgspec import Meta, Struct, field

from amdcheck.host.asked import asked_for
from amdcheck.host.processes import Stuck
from amdcheck.host.protocol import (
    CommandResult,
    Identity,
    OpenOutcome,
    SelfTestResult,
    Stat,
    SystemAnswers,
    UdevDevice,
)
from amdcheck.model.expectations import Expectations, Level
from amdcheck.model.value import Reason

SCHEMA: Literal["amdcheck.capture/1"] = "amdcheck.capture/1"

Outcome = Literal["absent", "denied", "failed", "timeout"]
# The questions a host answers, as the capture names them.
Operation = Literal[
    "read", "entries", "link", "resolve", "stat", "open", "udev", "system", "identity", "run", "selftest"
]


class Base64(Struct, frozen=True):
    """Bytes that are no UTF-8 text."""

    base64: str


Text = Union[str, Base64]


class Manifest(Struct, frozen=True, kw_only=True):
    """What was recorded, when, by whom, and what a replay must know to ask the same questions."""

    created: Annotated[datetime, Meta(tz=True)]  # RFC 3339, UTC
    amdcheck: str  # the version that recorded
    source: Literal["live", "capture", "tree"]
    redacted: bool
    level: Level
    expectations: Expectations | None  # the options of the recording run: a replay's defaults
    identity: Identity | None
    system: SystemAnswers | None


class Device(Struct, frozen=True, kw_only=True):
    """What was asked of one path besides its text: stat, opening it, its udev record. None: not asked or no answer."""

    path: str
    stat: Stat | None = None
    open: OpenOutcome | None = None
    udev: UdevDevice | None = None


class Hang(Struct, frozen=True, kw_only=True):
    """Something that blocked past its deadline, and the processes that could not be ended because of it.

    `what` is a path, "command LINE", "selftest LINE", or what else was being done; empty when nobody knows.
    """

    what: Annotated[str, Meta(max_length=8192)]
    stuck: Annotated[tuple[Stuck, ...], Meta(max_length=256)]


class Unfinished(Struct, kw_only=True):
    """What the recording run could not do. A replay leaves it undone too, for nothing of it is recorded.

    A check that was slow is not among them: what it judges by is recorded, so a replay judges again.
    """

    hangs: Annotated[list[Hang], Meta(max_length=256)] = []
    broken: dict[str, str] = {}  # facts whose code did not end, by name: why
    not_run: dict[str, str] = {}  # checks that were not begun, by id: why

    def add(self, later: Unfinished) -> None:
        """Take over what was not done later; a replay may have told a part of it already."""
        self.hangs += [hang for hang in later.hangs if hang not in self.hangs]
        self.broken |= later.broken
        self.not_run |= later.not_run


class Capture(Struct, frozen=True, kw_only=True):
    """The document. A path may be recorded as it was asked for, through links, or at its real place.

    Members with a default are additions to the published format and may be missing.
    """

    schema: Literal["amdcheck.capture/1"]
    manifest: Manifest
    files: dict[str, Text]
    links: dict[str, str]
    dirs: dict[str, tuple[str, ...]]  # complete listings: a name that is not in one is absent
    outcomes: dict[str, Outcome]  # true of every question asked of that path, and of what lies below it
    commands: tuple[CommandResult, ...]
    devices: tuple[Device, ...]
    selftests: tuple[SelfTestResult, ...]
    real_paths: bool = False  # every path above is a real one and `links` holds every link: a whole, composed host
    resolved: dict[str, str] = {}  # path -> real path, as it was asked for
    # Answers to one question alone, for example a folder that can be listed but not read as a file. Keys are paths;
    # for `run` and `selftest` the words quoted for a shell; for what is no path, and for the udev database as a whole,
    # the empty string.
    unanswered: dict[Operation, dict[str, Reason]] = {}
    cut: tuple[str, ...] = ()  # files whose recorded text ends at the limit it was read with
    unfinished: Unfinished = field(default_factory=Unfinished)


def to_text(content: str | bytes) -> Text:
    """The content as the capture holds it: text when it is valid UTF-8, else base64."""
    if isinstance(content, str):
        return content
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError:
        return Base64(base64.b64encode(content).decode("ascii"))


def text_bytes(text: Text) -> bytes:
    """The bytes behind a text. Raises ValueError for base64 that is none."""
    return text.encode("utf-8") if isinstance(text, str) else base64.b64decode(text.base64, validate=True)


def command_key(argv: Sequence[str]) -> str:
    """The words of a command as one line that a shell would split into the same words; the `source` of its answer."""
    import shlex

    return shlex.join(argv)


def selftest_key(name: str, params: Sequence[str], python: str | None) -> str:
    """What a self-test is asked for, and the interpreter when that is not our own, as one line."""
    asked = (name, *asked_for(params))
    return command_key(asked if python is None else (*asked, f"python={python}"))
