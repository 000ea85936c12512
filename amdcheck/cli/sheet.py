"""Plain text for screens: wrapped to the reader's width, in the reader's alphabet."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Sequence

from amdcheck.report.text import inert, spelled
from amdcheck.report.view import View

_ITEM = re.compile(r"( *)(?:[-*]|(\d+)\.) ")  # the mark of an item of a list


class Sheet:
    """Lines under construction. Colours are left to reports: these pages are read as they are, or piped."""

    def __init__(self, view: View) -> None:
        self._ascii = view.ascii
        self._width = max(view.width, 30)
        self._lines: list[str] = []

    def line(self, text: str = "") -> None:
        """One line that is never broken."""
        self._lines.append(spelled(text, ascii=self._ascii).rstrip())

    def words(self, text: str, *, first: str = "", hang: int | None = None) -> None:
        """Words wrapped to the width, `first` before them, later lines set in by as much or by `hang`."""
        first = spelled(first, ascii=self._ascii)
        self._lines += textwrap.wrap(
            spelled(text, ascii=self._ascii),
            self._width,
            initial_indent=first,
            subsequent_indent=" " * (len(first) if hang is None else hang),
            break_on_hyphens=False,
            break_long_words=False,  # addresses and paths are there to be copied
        ) or [first.rstrip()]

    def page(self, text: str) -> None:
        """A docstring: its paragraphs and the items of its lists wrapped anew, lines that are set in kept."""
        numbers: dict[str, int] = {}
        for number, block in enumerate(text.split("\n\n")):
            if number:
                self.line()
            for mark, words in _pieces(block.splitlines(), numbers):
                if mark is None:
                    self.line(words)
                else:
                    self.words(words, first=mark)

    def table(self, rows: Sequence[Sequence[str]]) -> None:
        """Columns as wide as their widest cell; the last one is wrapped."""
        if not rows:
            return
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
        for row in rows:
            cells = (f"{cell:<{width}}  " for cell, width in zip(row, widths, strict=False))
            self.words(row[-1], first="".join(cells))

    def text(self) -> str:
        return inert("\n".join(self._lines) + "\n")


def _item(line: str, numbers: dict[str, int], *, inside: bool) -> re.Match[str] | None:
    """The mark that a line begins with; never `inside` a paragraph of words, and a number only in order."""
    item = None if inside else _ITEM.match(line)
    if item is None or item[2] is None:
        return item
    if int(item[2]) not in (1, numbers.get(item[1], 0) + 1):
        return None
    numbers[item[1]] = int(item[2])
    return item


def _pieces(lines: Sequence[str], numbers: dict[str, int]) -> Iterator[tuple[str | None, str]]:
    """What a block is made of: paragraphs and items of a list, joined behind their mark; None: a line as it is.

    `numbers` holds the last number of the lists set in by each indent, for a list may be of several blocks.
    """
    mark, words = "", list[str]()
    for line in lines:
        item = _item(line, numbers, inside=bool(words) and not mark)
        continues = line.startswith(" " * len(mark)) if mark else not line[:1].isspace()
        if words and continues and item is None and not line.startswith("| "):
            words.append(line.strip())
            continue
        if words:
            yield mark, " ".join(words)
            words = []
        mark = item[0] if item else ""
        if item is None and (line[:1].isspace() or line.startswith("| ")):
            yield None, line
        else:
            words = [line[len(mark) :]]
    if words:
        yield mark, " ".join(words)
