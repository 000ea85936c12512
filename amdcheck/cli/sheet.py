"""Plain text for screens: wrapped to the reader's width, in the reader's alphabet."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from amdcheck.report.text import spelled
from amdcheck.report.view import View


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
        """A docstring: its paragraphs wrapped anew, lines that are set in or listed kept as they are."""
        for number, block in enumerate(text.split("\n\n")):
            if number:
                self.line()
            lines = block.splitlines()
            if any(line[:1].isspace() or line.startswith(("- ", "* ", "| ")) for line in lines):
                for line in lines:
                    self.line(line)
            else:
                self.words(" ".join(lines))

    def table(self, rows: Sequence[Sequence[str]]) -> None:
        """Columns as wide as their widest cell; the last one is free."""
        if not rows:
            return
        widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
        for row in rows:
            cells = (f"{cell:<{width}}" for cell, width in zip(row, widths, strict=False))
            self.line("  ".join((*cells, row[-1])))

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"
