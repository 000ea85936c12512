"""Strings that came from a host, made safe to show anywhere."""

from __future__ import annotations

import re

LIMIT = 2000
# C0, DEL, C1, line and paragraph separators, bidi marks and overrides, zero-width and BOM, surrogates.
_UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if match[0] in "\n\t\r":
        return {"\n": "\\n", "\t": "\\t", "\r": "\\r"}[match[0]]
    if 0xDC80 <= code <= 0xDCFF:  # surrogateescape: a byte that was not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def printable(text: str, *, limit: int = LIMIT) -> str:
    """One line of valid UTF-8: control, bidi and undecodable characters escaped, at most `limit` characters."""
    safe = _UNSAFE.sub(_escape, text)
    return safe if len(safe) <= limit else safe[: limit - 1] + "…"


def counted(count: int, one: str, many: str | None = None) -> str:
    """The count with its noun: 1 GPU, 8 GPUs; `many` where that is not `one` with an s."""
    return f"{count} {one if count == 1 else many or one + 's'}"
