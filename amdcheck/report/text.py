"""Strings on their way to a screen or a log: printable, in the reader's alphabet, inert for log readers."""

from __future__ import annotations

import re
import shlex

from amdcheck.model.finding import Step
from amdcheck.model.text import printable

# What our own texts use beyond ASCII, spelled for readers that have nothing else.
_SPELLED = str.maketrans(
    {
        "×": "x", "·": "-", "•": "-", "–": "-", "—": "-", "−": "-", "…": "...", "→": "->", "≥": ">=", "≤": "<=",
        "≠": "!=", "±": "+-", "µ": "u", "μ": "u", "°": " deg ", "‘": "'", "’": "'", "“": '"', "”": '"', "\u00a0": " ",
        "✓": "+", "✗": "x", "○": "o", "®": "(R)", "™": "(TM)",
    }
)  # fmt: skip

_MEANS_MORE = re.compile(r'["$`\\]')  # in double quotes

# Runners of pipelines read lines that begin with `::` (leading blanks ignored) and `##[` or `##word[` anywhere
# as commands to themselves.
_COMMAND_LINE = re.compile(r"^((?:\s|\x1b\[[0-9;]*m)*:)(?=(?:\x1b\[[0-9;]*m)*:)", re.MULTILINE)
_COMMAND_WORD = re.compile(r"##(?=\w*\[)")


def spelled(text: str, *, ascii: bool) -> str:
    """One printable line; with `ascii` nothing beyond it, other characters as their escapes."""
    safe = printable(text)
    if not ascii or safe.isascii():
        return safe
    return safe.translate(_SPELLED).encode("ascii", "backslashreplace").decode("ascii")


def inert(text: str) -> str:
    """The same lines, none of them a command to the runner of a pipeline whose log they end up in."""
    return _COMMAND_WORD.sub("# #", _COMMAND_LINE.sub(r"\1 ", text))


def command_line(step: Step, *, privileged: bool) -> str | None:
    """The step's command as a shell reads it, with sudo where the reader needs it."""
    if not step.argv:
        return None
    argv = step.argv if privileged or not step.root or step.argv[0] == "sudo" else ("sudo", *step.argv)
    return " ".join(_quoted(word) for word in argv)


def _quoted(word: str) -> str:
    """The word for a shell; one that holds single quotes in double ones, for `'"'"'` is hard to read and to copy.

    But for `!`, which an interactive shell reads in double quotes, too.
    """
    if "'" in word and "!" not in word:
        return '"' + _MEANS_MORE.sub(r"\\\g<0>", word) + '"'
    return shlex.quote(word)


def clipped(text: str, *, limit: int) -> str:
    """ASCII text of at most `limit` bytes, cut with three dots."""
    text = spelled(text, ascii=True)
    return text if len(text) <= limit else text[: limit - 3] + "..."
