"""How a report is to be shown: decided by the command line, obeyed by the formats."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Detail = Literal["quiet", "normal", "verbose"]


class View(Struct, frozen=True, kw_only=True):
    """What the reader's screen can do, and how much is wanted. The defaults suit a file."""

    width: int = 100  # columns
    colour: bool = False
    ascii: bool = False  # the reader's locale or terminal has nothing beyond ASCII
    detail: Detail = "normal"
