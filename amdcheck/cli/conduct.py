"""Every way for a command line to end, each with its exit code and one clear sentence."""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from types import FrameType

from typer.exceptions import TyperException

from amdcheck.cli.ending import Ending
from amdcheck.cli.exit_style import exit_style
from amdcheck.cli.output import stdout_lost, tell, to_stdout
from amdcheck.engine.exits import Event, ExitStyle, event_exit
from amdcheck.engine.lock import NoLock
from amdcheck.model.errors import InputError
from amdcheck.model.text import printable
from amdcheck.report.text import inert

DEBUG = "AMDCHECK_DEBUG"
_SIGNALS: dict[int, Event] = {signal.SIGINT: "sigint", signal.SIGTERM: "sigterm", signal.SIGHUP: "sighup"}
_UNWIND_SECONDS = 3.0
_LIMITS = (errno.EAGAIN, errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class Signalled(BaseException):
    """A signal asks for the end: everything is unwound, so that children are ended, and then the run ends."""

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
    signals = _Signals(style)
    try:
        try:
            signals.listen()
            _occupy_standard_descriptors()
            _refuse_what_is_no_text(words)
            return _call(words, style)
        finally:
            signals.hush()
    except Signalled as ended:
        return _end(ended.event, f"ended by {ended.event.upper()}", style)
    except InputError as error:
        return _end("usage", str(error), style)
    except Ending as ending:
        return _end(ending.event, ending.message, style, answered=ending.answered)
    except NoLock as error:
        return _end("prevented", str(error), style)
    except MemoryError:
        return _end("prevented", _limited("no memory left"), style)
    except OSError as error:
        if error.errno in _LIMITS:
            return _end("prevented", _limited(error.strerror or str(error)), style)
        return _bug(error, style)
    except Exception as error:
        return _bug(error, style)


def _call(words: list[str], style: ExitStyle) -> int:
    """Parse, then do. What is wrong with the words is told here."""
    from amdcheck.cli.app import parse

    try:
        call = parse(words, style)
    except TyperException as error:
        return _end("usage", _usage(error), style)
    except SystemExit as error:  # typer leaves like that when the help's reader has gone
        raise Ending("report-lost") from error
    except OSError as error:
        if error.errno in _LIMITS:
            raise
        raise stdout_lost(error) from error
    return call if isinstance(call, int) else call()


def _usage(error: TyperException) -> str:
    """The parser's complaint in one line, and where to look."""
    context = getattr(error, "ctx", None)
    command = "amdcheck" if context is None else context.command_path
    told = " ".join(error.format_message().replace("Value error, ", "").split())  # pydantic's own words
    return f"{told} ({command} --help shows what there is)"


def _end(event: Event, message: str, style: ExitStyle, *, answered: bool = False) -> int:
    """Say it to the person, and to the caller that reads one line from standard output."""
    if message:
        tell(message)
        if style != "gate" and not answered:
            from amdcheck.report.lines import event_line

            try:
                to_stdout(event_line(style, message))
            except Ending:
                return event_exit("report-lost", style)
    return event_exit(event, style)


def _bug(error: Exception, style: ExitStyle) -> int:
    if os.environ.get(DEBUG):
        import traceback

        print(inert("".join(traceback.format_exception(error))), file=sys.stderr)
    hint = "" if os.environ.get(DEBUG) else f" ({DEBUG}=1 shows where)"
    return _end("bug", f"bug: {type(error).__name__}: {error}{hint}", style)


def _limited(why: str) -> str:
    return f"cannot run within its resource limits: {why} (ulimit -a shows them; a service or cgroup may set them)"


def _refuse_what_is_no_text(words: list[str]) -> None:
    """Bytes that are no UTF-8 can be in no id, and in no path that a report could name. Raises InputError."""
    for word in words:
        try:
            word.encode()
        except UnicodeEncodeError:
            raise InputError(f"'{printable(word)}' is not UTF-8 text") from None


class _Signals:
    """The first signal raises Signalled. Further ones do not disturb the unwinding, unless that takes too long.

    A signal that the caller has ignored (a job in the background of a script) stays ignored.
    """

    def __init__(self, style: ExitStyle) -> None:
        self._style = style
        self._ends: float | None = None  # when unwinding should be over

    def listen(self) -> None:
        """Answer signals from now on, and those that came while they were blocked."""
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._on_signal)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)

    def hush(self) -> None:
        """How this ends is settled."""
        if self._ends is None:
            self._ends = time.monotonic() + _UNWIND_SECONDS

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._ends is None:
            self.hush()
            raise Signalled(number)
        if time.monotonic() > self._ends:
            os._exit(event_exit(_SIGNALS[number], self._style))


def _occupy_standard_descriptors() -> None:
    """A file opened later must not become standard output because the caller had closed it."""
    while True:
        try:
            descriptor = os.open(os.devnull, os.O_RDWR)
        except OSError as error:
            if error.errno in _LIMITS:
                raise
            message = f"{os.devnull} cannot be opened: {error.strerror}; nothing runs without it"
            raise Ending("prevented", message) from error
        if descriptor > 2:
            os.close(descriptor)
            return
