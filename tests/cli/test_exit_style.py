"""The exit style is found before anything is parsed."""

from __future__ import annotations

import pytest

from amdcheck.cli.exit_style import exit_style
from amdcheck.model.errors import InputError
from tests.cli.command import answered


@pytest.mark.parametrize(
    ("line", "variable", "style"),
    [
        ("all", None, "gate"),
        ("all", "nagios", "nagios"),
        ("all", "", "gate"),
        ("all --exit-style npd", "nagios", "npd"),
        ("all --exit-style=npd", "nagios", "npd"),
        ("--exit-style npd all", None, "npd"),
        ("run --exit-style npd gpu.*", None, "npd"),
        ("all --exit-style npd --exit-style gate", None, "gate"),
        ("run -- --exit-style npd", None, "gate"),
        ("run -- --exit-style=npd", "nagios", "nagios"),
        ("all --exit-style", "nagios", "nagios"),
        ("all --exit-style gate", "bogus", "gate"),
    ],
)
def test_option_before_the_dashes_wins_over_the_environment(line: str, variable: str | None, style: str) -> None:
    environment = {} if variable is None else {"AMDCHECK_EXIT_STYLE": variable}
    assert exit_style(line.split(), environment) == style


def test_unknown_style_names_itself_and_the_right_ones() -> None:
    with pytest.raises(InputError, match=r"^--exit-style: 'icinga' is no exit style; there are gate, nagios, npd$"):
        exit_style(["all", "--exit-style", "icinga"], {})


def test_unknown_style_in_the_environment_names_the_variable() -> None:
    with pytest.raises(InputError, match=r"^AMDCHECK_EXIT_STYLE: 'x' is no exit style"):
        exit_style(["all"], {"AMDCHECK_EXIT_STYLE": "x"})


@pytest.mark.parametrize("words", [("--exit-style", "icinga", "all"), ("all", "--exit-style=icinga")])
def test_unknown_style_is_a_usage_error_under_gate(words: tuple[str, ...]) -> None:
    result = answered("ready", *words, env={"AMDCHECK_EXIT_STYLE": "nagios"})
    assert result.returncode == 2
    assert result.stdout == ""


@pytest.mark.parametrize(
    "words", [("--exit-style", "nagios", "all"), ("all", "--exit-style", "nagios"), ("all", "--exit-style=nagios")]
)
def test_style_may_stand_before_or_behind_the_command(words: tuple[str, ...]) -> None:
    result = answered("narrow_links", *words)
    assert result.returncode == 2
    assert result.stdout.startswith("AMDCHECK CRITICAL: ")


def test_style_without_its_value_is_a_usage_error_under_the_style_of_the_environment() -> None:
    result = answered("ready", "all", "--exit-style", env={"AMDCHECK_EXIT_STYLE": "nagios"})
    assert result.returncode == 3
    assert "--exit-style" in result.stderr


@pytest.mark.parametrize("command", ["list", "schema"])
def test_every_command_takes_the_style(command: str) -> None:
    assert answered("ready", command, "--exit-style", "npd").returncode == 0
