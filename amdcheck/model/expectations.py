"""What the operator asked for and expects: from the command line and the policy."""

from __future__ import annotations

import re
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


GPUS_LIMIT = 4096  # more than any machine has
PID_LIMIT = 1 << 22  # Linux include/linux/threads.h: PID_MAX_LIMIT


def wrong_expectation(*, gpus: int | None, gfx: str | None, rocm: str | None, pid: int | None = None) -> str | None:
    """What cannot be expected of any machine, as the end of a sentence; None when all of it can be."""
    if gpus is not None and gpus < 0:
        return "expect.gpus must not be negative"
    if gpus is not None and gpus > GPUS_LIMIT:
        return f"expect.gpus is more than {GPUS_LIMIT}, which no machine has"
    if gfx is not None and not re.fullmatch(r"gfx[0-9a-f]{3,5}", gfx):
        return f"expect.gfx {gfx!r} is no target; write it as gfx942"
    if pid is not None and not 0 < pid <= PID_LIMIT:
        return f"{pid} is not the number of a process"
    if rocm is not None:
        from packaging.specifiers import InvalidSpecifier, SpecifierSet

        try:
            SpecifierSet(rocm)
        except InvalidSpecifier:
            return f"expect.rocm {rocm!r} is no version range; write >=6.4,<11"
    return None
