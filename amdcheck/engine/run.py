"""One run from request to report: what `all`, `run` and `capture` call."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from msgspec import Struct

from amdcheck.engine.exits import ExitStyle
from amdcheck.model.expectations import Level
from amdcheck.model.report import Report


class RunRequest(Struct, frozen=True, kw_only=True):
    """The options of `all` and `run`, one shared record."""

    select: tuple[str, ...] = ("*",)
    level: Level = "standard"
    skip: tuple[str, ...] = ()
    host: Path | None = None
    policy: Path | None = None
    profile: str | None = None
    expect_gpus: int | None = None
    service: str | None = None
    pid: int | None = None
    python: str | None = None
    rocm: str | None = None
    fail_on: Literal["fail", "warn"] = "fail"
    require_all: bool = False
    allow_busy: bool = False
    exit_style: ExitStyle = "gate"
    checks_dir: Path | None = None
    deadline_s: float | None = None  # None: the level's default
    capture: bool = False  # also record everything that was read


class Progress(Struct, frozen=True, kw_only=True):
    """One step of a run for the terminal: check `done` of `total` starts."""

    done: int
    total: int
    check: str


class AlreadyRunning(Exception):
    """Another run holds the lock; `finding` is amdcheck.run/already-running or .../previous-stuck."""


class RunResult(Struct, frozen=True, kw_only=True):
    report: Report
    capture: bytes | None  # the finished capture file (xz), when it was asked for


def run(request: RunRequest, *, on_progress: Callable[[Progress], None] | None = None) -> RunResult:
    """Run the selected checks and judge the machine.

    Raises InputError for anything wrong with the request (an id or glob that matches no check, a policy or host that
    cannot be read), AlreadyRunning when another run holds the lock.
    """
    raise NotImplementedError
