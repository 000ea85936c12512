"""What the operator asked for and expects: from the command line and the policy."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Level = Literal["quick", "standard", "deep"]
LEVELS: tuple[Level, ...] = ("quick", "standard", "deep")


class Expectations(Struct, frozen=True, kw_only=True):
    """Injected like a fact; facts that would spend something (open a device, start a tool) ask `level` first."""

    level: Level = "standard"
    gpus: int | None = None
    gfx: str | None = None
    rocm: str | None = None
    rocm_root: str | None = None
    python: str | None = None
    service: str | None = None
    pid: int | None = None
    allow_busy: bool = False
