"""The exit style, found before anything else is parsed, so that every way to end follows it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from amdcheck.engine.exits import STYLES, ExitStyle
from amdcheck.model.errors import InputError
from amdcheck.model.text import printable

OPTION = "--exit-style"
VARIABLE = "AMDCHECK_EXIT_STYLE"


def exit_style(words: Sequence[str], environment: Mapping[str, str]) -> ExitStyle:
    """The style asked for: the last option before `--` wins over the environment; without either it is gate.

    Raises InputError for a style that does not exist. An option without its value is left to the parser.
    """
    asked = environment.get(VARIABLE) or "gate"
    by = VARIABLE
    for asked in _options(words):  # noqa: B007 - the last one wins
        by = OPTION
    for style in STYLES:
        if style == asked:
            return style
    raise InputError(f"{by}: {printable(asked)!r} is no exit style; there are {', '.join(STYLES)}")


def _options(words: Sequence[str]) -> Iterator[str]:
    for position, word in enumerate(words):
        if word == "--":
            return
        if word.startswith(f"{OPTION}="):
            yield word.partition("=")[2]
        elif word == OPTION and position + 1 < len(words):
            yield words[position + 1]
