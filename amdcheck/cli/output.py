"""Writing what was asked for: whole or not at all, and a loss is said."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import suppress
from pathlib import Path

from amdcheck.cli.ending import Ending
from amdcheck.host.files import write_all, write_whole
from amdcheck.model.errors import InputError
from amdcheck.model.text import printable
from amdcheck.report.text import inert

_WRITE_SECONDS = 20.0


def to_stdout(content: str | bytes) -> None:
    """Write to standard output and flush it. Raises Ending."""
    data = content if isinstance(content, bytes) else content.encode()
    if sys.stdout is None:
        raise Ending("report-lost", "standard output is closed")
    try:
        sys.stdout.flush()
        write_all(sys.stdout.fileno(), data)
    except OSError as error:
        raise stdout_lost(error) from error


def stdout_lost(error: OSError) -> Ending:
    """The ending when standard output does not take what is written to it.

    What is still buffered goes nowhere, or the interpreter would try it again on its way out.
    """
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    if error.errno == errno.EPIPE:
        return Ending("report-lost")  # the reader closed the pipe: it knows
    return Ending("report-lost", f"cannot write to standard output: {error.strerror}")


def to_file(path: Path, content: str | bytes, *, private: bool = False) -> None:
    """Write a file whole; a private one is readable by its owner alone. Raises Ending."""
    from amdcheck.host.apart import apart

    data = content if isinstance(content, bytes) else content.encode()

    def write() -> None:
        write_whole(path, data, private=private)

    try:
        if str(path).startswith(("/dev/", "/proc/")):  # perhaps a name for a file that only this process has open
            write()
        else:
            apart(write, seconds=_WRITE_SECONDS)
    except OSError as error:
        raise Ending("report-lost", f"cannot write {printable(str(path))}: {error.strerror}") from error


def check_writable(path: Path, *, fresh: bool = False) -> None:
    """Say before a long run that its report could not be written. Raises Ending.

    A file that must be `fresh` may not be there yet; raises InputError for one that is.
    """
    from amdcheck.host.apart import apart

    shown = printable(str(path))

    def check() -> None:
        if fresh and os.path.lexists(path):
            raise InputError(f"{shown} exists; a recording is not overwritten, choose another name")
        why_not = _why_not_writable(path)
        if why_not is not None:
            raise OSError(0, why_not)

    try:
        apart(check)
    except OSError as error:
        raise Ending("report-lost", f"cannot write {shown}: {error.strerror}") from error


def _why_not_writable(path: Path) -> str | None:
    if path.is_dir():
        return "it is a folder"
    if path.exists() and not path.is_file():
        return None  # a device or a pipe: writing will tell
    if not path.parent.is_dir():
        return f"there is no folder {printable(str(path.parent))}"
    if not os.access(path.parent, os.W_OK | os.X_OK):
        return f"no permission to write to {printable(str(path.parent))}"
    return None


def tell(message: str) -> None:
    """One line for the person, on standard error; nobody reads it when that is closed."""
    if sys.stderr is None:
        return  # print would take standard output instead
    with suppress(OSError):
        print(inert(f"amdcheck: {printable(message)}"), file=sys.stderr, flush=True)
