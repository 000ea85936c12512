"""What the reader's screen can do."""

from __future__ import annotations

import io
import sys
import threading

import pytest

from amdcheck.cli.terminal import progress_on_stderr, reads_unicode, view_of_stdout
from amdcheck.engine.run import Progress


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_screen(monkeypatch: pytest.MonkeyPatch) -> Screen:
    """Called inside a test: pytest sets the streams anew between a fixture and its test."""
    made = Screen()
    monkeypatch.setattr(sys, "stdout", made)
    monkeypatch.setattr(sys, "stderr", made)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    return made


@pytest.mark.parametrize(
    ("environment", "unicode"),
    [
        ({"LANG": "en_US.UTF-8"}, True),
        ({"LANG": "de_DE.utf8"}, True),
        ({"LANG": "de_DE.UTF-8@euro"}, True),
        ({"LANG": "C.UTF-8"}, True),
        ({"LANG": "C", "LC_CTYPE": "en_US.UTF-8"}, True),
        ({"LANG": "C"}, False),
        ({}, False),
        ({"LANG": "C", "LC_CTYPE": "C.UTF-8"}, False),  # set by Python itself, not by the reader
        ({"LC_CTYPE": "C.UTF-8"}, False),
        ({"LANG": "en_US.UTF-8", "LC_ALL": "C"}, False),
        ({"LANG": "de_DE.ISO-8859-1"}, False),
    ],
)
def test_locale_says_whether_the_reader_has_unicode(environment: dict[str, str], unicode: bool) -> None:
    assert reads_unicode(environment) is unicode


def test_dumb_terminal_has_no_unicode() -> None:
    assert not reads_unicode({"LANG": "en_US.UTF-8"}, dumb=True)


def test_terminal_gets_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    on_screen(monkeypatch)
    assert view_of_stdout(detail="normal", no_color=False).colour


def test_option_takes_colour_away(monkeypatch: pytest.MonkeyPatch) -> None:
    on_screen(monkeypatch)
    assert not view_of_stdout(detail="normal", no_color=True).colour


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb"), ("TERM", "")])
def test_environment_takes_colour_away(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    on_screen(monkeypatch)
    monkeypatch.setenv(name, value)
    assert not view_of_stdout(detail="normal", no_color=False).colour


def test_pipe_gets_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    on_screen(monkeypatch)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    assert not view_of_stdout(detail="normal", no_color=False).colour


def test_width_is_that_of_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "47")
    assert view_of_stdout(detail="normal", no_color=False).width == 47


def test_terminal_sees_how_far_the_run_is_and_keeps_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_screen(monkeypatch)
    with progress_on_stderr(wanted=True) as show:
        assert show is not None
        show(Progress(done=3, total=16, check="pci.link-width"))
        assert "pci.link-width" in screen.getvalue()
        assert "3/16" in screen.getvalue()
        threads = threading.active_count()
    assert screen.getvalue().endswith("\x1b[2K")  # the line is cleared
    assert threads == 1


def test_run_that_wants_no_progress_shows_none(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = on_screen(monkeypatch)
    with progress_on_stderr(wanted=False) as show:
        assert show is None
    assert screen.getvalue() == ""


def test_log_gets_no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    on_screen(monkeypatch)
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    with progress_on_stderr(wanted=True) as show:
        assert show is None
