"""What the reader's screen can do, and the progress shown on it."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TextIO

from amdcheck.engine.run import Progress
from amdcheck.report.view import Detail, View


def is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except ValueError:  # closed
        return False


def view_of_stdout(*, detail: Detail, no_color: bool) -> View:
    """Colour only on a terminal that has it and a reader who wants it; the width of the terminal or of COLUMNS."""
    able = is_terminal(sys.stdout) and os.environ.get("TERM") not in (None, "", "dumb")
    return View(
        width=shutil.get_terminal_size((80, 24)).columns,
        colour=able and not no_color and not os.environ.get("NO_COLOR"),
        ascii=not reads_unicode(os.environ, dumb=is_terminal(sys.stdout) and os.environ.get("TERM") == "dumb"),
        detail=detail,
    )


def reads_unicode(environment: Mapping[str, str], *, dumb: bool = False) -> bool:
    """Whether the reader's locale, as POSIX finds it, is one of UTF-8.

    Python itself sets LC_CTYPE=C.UTF-8 when it starts in the C locale (PEP 538); that says nothing of the reader.
    """
    if dumb:
        return False
    language = environment.get("LANG", "")
    ctype = environment.get("LC_CTYPE", "")
    if ctype in ("C.UTF-8", "C.utf8", "UTF-8") and language in ("", "C", "POSIX"):
        ctype = ""
    locale = environment.get("LC_ALL") or ctype or language
    return locale.lower().replace("-", "").endswith("utf8") or "utf8@" in locale.lower().replace("-", "")


@contextmanager
def progress_on_stderr(*, wanted: bool) -> Iterator[Callable[[Progress], None] | None]:
    """A line on a terminal that says how far the run is; nothing in a log.

    It is drawn when a check starts and not by a clock: a thread beside the supervisor, which forks, could leave a
    worker with a lock that nobody opens.
    """
    if not wanted or not is_terminal(sys.stderr) or os.environ.get("TERM") in (None, "", "dumb"):
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
    from rich.progress import Progress as Bar

    bar = Bar(
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TextColumn("{task.description}", markup=False),
        console=Console(stderr=True, markup=False, highlight=False),
        transient=True,
        auto_refresh=False,
    )
    task = bar.add_task("", total=None)

    def show(step: Progress) -> None:
        bar.update(task, completed=step.done, total=step.total, description=step.check, refresh=True)

    with bar:
        yield show
