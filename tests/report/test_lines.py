"""One line for monitoring and for node-problem-detector."""

from __future__ import annotations

import re

import pytest

from amdcheck.report.lines import LineStyle, event_line, verdict_line
from tests.report import samples

WORDS = {"ready": "OK", "narrow_links": "CRITICAL", "no_amd": "UNKNOWN", "hostile": "CRITICAL"}


@pytest.mark.parametrize(("name", "word"), WORDS.items())
def test_nagios_line_says_its_word_and_has_one_bar(name: str, word: str) -> None:
    line = verdict_line("nagios", samples.SAMPLES[name]())
    assert line.startswith(f"AMDCHECK {word}: ")
    assert line.count("|") == 1
    assert line.count("\n") == 1
    assert line.endswith("\n")


def test_nagios_performance_data_of_three_narrow_links() -> None:
    line = verdict_line("nagios", samples.narrow_links())
    assert line.split(" | ")[1] == (
        "fail=3;;0;0 unknown=1;;;0 warn=1;0;;0 manual=1;;;0 waived=1;;;0 pass=9;;;0 skip=1;;;0 time=4.250s;;;0\n"
    )


def test_nagios_performance_data_is_what_the_plugin_guidelines_parse() -> None:
    data = verdict_line("nagios", samples.ready()).split(" | ")[1]
    for word in data.split():
        assert re.fullmatch(r"[a-z]+=[0-9.]+(s)?;[0-9]*;[0-9]*;[0-9]*", word), word


@pytest.mark.parametrize("name", samples.SAMPLES)
def test_npd_line_is_at_most_80_bytes_of_ascii(name: str) -> None:
    line = verdict_line("npd", samples.SAMPLES[name]())
    assert len(line.encode("ascii")) <= 80
    assert line.count("\n") == 1
    assert line.strip()


def test_npd_line_of_a_fail_names_the_worst_finding() -> None:
    line = verdict_line("npd", samples.narrow_links())
    assert line == "pci.link-width/degraded: NOT READY, 3 fail, 1 unknown, 1 warn\n"


@pytest.mark.parametrize("style", ["nagios", "npd"])
def test_a_run_without_a_verdict_says_why(style: LineStyle) -> None:
    line = event_line(style, "policy.toml: no such file")
    assert "policy.toml: no such file" in line
    assert "OK" not in line


@pytest.mark.parametrize("style", ["nagios", "npd"])
def test_hostile_headline_is_one_inert_line(style: LineStyle) -> None:
    line = verdict_line(style, samples.hostile())
    assert not line.lstrip().startswith("::")
    assert "\x1b" not in line
    assert "##vso[" not in line
