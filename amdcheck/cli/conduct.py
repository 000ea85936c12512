"""Every way for a command line to end, each with its exit code and one clear sentence."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

from typer.exceptions import TyperException

from amdcheck.cli.ending import Ending
from amdcheck.cli.exit_style import exit_style
from amdcheck.cli.output import tell, to_stdout
from amdcheck.engine.exits import Event, ExitStyle, event_exit
from amdcheck.model.errors import InputError

DEBUG = "AMDCHECK_DEBUG"
_SIGNALS: dict[int, Event] = {signal.SIGINT: "sigint", signal.SIGTERM: "sigterm"}


class Signalled(BaseException):
    """SIGINT or SIGTERM: everything is unwound, so that children are ended, and then the run ends."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.event: Event = _SIGNALS[number]


def conduct() -> int:
    """Run this process's command line. Returns its exit code, whatever happens."""
    words = sys.argv[1:]
    try:
        style = exit_style(words, os.environ)
    except InputError as error:
        return _end("usage", str(error), "gate")
    try:
        _occupy_standard_descriptors()
        with _signals_raise():
            return _call(words, style)
    except Signalled as ended:
        return _end(ended.event, f"ended by {ended.event.upper()}", style)
    except Ending as ending:
        return _end(ending.event, ending.message, style)
    except Exception as error:
        return _bug(error, style)


def _call(words: list[str], style: ExitStyle) -> int:
    """Parse, then do. What is wrong with the words is told here."""
    from amdcheck.cli.app import parse

    try:
        call = parse(words, style)
    except TyperException as error:
        return _end("usage", _usage(error), style)
    except (OSError, SystemExit) as error:  # typer leaves like that when the help's reader has gone
        raise Ending("report-lost") from error
    if isinstance(call, int):
        return call
    try:
        return call()
    except InputError as error:
        return _end("usage", str(error), style)


def _usage(error: TyperException) -> str:
    """The parser's complaint in one line, and where to look."""
    context = getattr(error, "ctx", None)
    command = "amdcheck" if context is None else context.command_path
    told = " ".join(error.format_message().replace("Value error, ", "").split())  # pydantic's own words
    return f"{told} ({command} --help shows what there is)"


def _end(event: Event, message: str, style: ExitStyle) -> int:
    """Say it to the person, and to the caller that reads one line from standard output."""
    if message:
        tell(message)
        if style != "gate":
            from amdcheck.report.lines import event_line

            try:
                to_stdout(event_line(style, message))
            except Ending:
                return event_exit("report-lost", style)
    return event_exit(event, style)


def _bug(error: Exception, style: ExitStyle) -> int:
    if os.environ.get(DEBUG):
        import traceback

        traceback.print_exception(error)
    hint = "" if os.environ.get(DEBUG) else f" ({DEBUG}=1 shows where)"
    return _end("bug", f"bug: {type(error).__name__}: {error}{hint}", style)


@contextmanager
def _signals_raise() -> Iterator[None]:
    """The first SIGINT or SIGTERM raises Signalled; a second one ends the process at once.

    A signal that the caller has ignored (a job in the background of a script) stays ignored.
    """

    def on_signal(number: int, frame: FrameType | None) -> None:
        for known in _SIGNALS:
            signal.signal(known, signal.SIG_DFL)
        raise Signalled(number)

    before = {number: signal.getsignal(number) for number in _SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, on_signal)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _occupy_standard_descriptors() -> None:
    """A file opened later must not become standard output because the caller had closed it."""
    while True:
        try:
            descriptor = os.open(os.devnull, os.O_RDWR)
        except OSError as error:
            raise Ending("bug", f"{os.devnull} cannot be opened: {error.strerror}; nothing runs without it") from error
        if descriptor > 2:
            os.close(descriptor)
            return
