"""Writing what was asked for: whole or not at all, and a loss is said."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path
from typing import BinaryIO

from amdcheck.cli.ending import Ending
from amdcheck.model.text import printable


def to_stdout(content: str | bytes) -> None:
    """Write to standard output and flush it. Raises Ending."""
    data = content if isinstance(content, bytes) else content.encode()
    if sys.stdout is None:
        raise Ending("report-lost", "standard output is closed")
    try:
        sys.stdout.flush()
        _write(sys.stdout.buffer, data)
        sys.stdout.buffer.flush()
    except OSError as error:
        _drop_stdout()
        if error.errno == errno.EPIPE:
            raise Ending("report-lost") from error  # the reader closed the pipe: it knows
        raise Ending("report-lost", f"cannot write to standard output: {error.strerror}") from error


def _write(stream: BinaryIO, data: bytes) -> None:
    """Write all of it: under PYTHONUNBUFFERED the stream is a raw file, which takes what fits and says how much."""
    rest = memoryview(data)
    while rest:
        taken = stream.write(rest)
        if not taken:
            raise BlockingIOError(errno.EAGAIN, "it takes no more")
        rest = rest[taken:]


def _drop_stdout() -> None:
    """Let what is still buffered go nowhere, or the interpreter would try it again on its way out."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def to_file(path: Path, content: str | bytes, *, private: bool = False) -> None:
    """Write a file whole; a private one is readable by its owner alone. Raises Ending."""
    from amdcheck.host.files import write_whole

    try:
        write_whole(path, content if isinstance(content, bytes) else content.encode(), private=private)
    except OSError as error:
        raise Ending("report-lost", f"cannot write {printable(str(path))}: {error.strerror}") from error


def check_writable(path: Path) -> None:
    """Say before a long run that its report could not be written. Raises Ending."""
    shown = printable(str(path))
    if path.is_dir():
        raise Ending("report-lost", f"cannot write {shown}: it is a folder")
    if path.exists() and not path.is_file():
        return  # a device or a pipe: writing will tell
    if not path.parent.is_dir():
        raise Ending("report-lost", f"cannot write {shown}: there is no folder {printable(str(path.parent))}")
    if not os.access(path.parent, os.W_OK | os.X_OK):
        raise Ending("report-lost", f"cannot write {shown}: no permission to write to {printable(str(path.parent))}")


def tell(message: str) -> None:
    """One line for the person, on standard error; nobody reads it when that is closed."""
    try:
        print(f"amdcheck: {printable(message)}", file=sys.stderr, flush=True)
    except (OSError, AttributeError):
        return
