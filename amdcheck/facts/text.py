"""What the texts of sysfs, procfs and device tree have in common."""

from __future__ import annotations


def stripped(text: str) -> str:
    """Without blanks, line ends and the zero bytes that some drivers put at the end."""
    return text.strip("\0 \t\r\n")


def unsigned(text: str) -> int:
    """A decimal number of at most 64 bits. Raises ValueError for anything else."""
    text = stripped(text)
    if not text.isascii() or not text.isdigit() or len(text) > 20:
        raise ValueError(f"not a number: {text[:40]!r}")
    return int(text)
