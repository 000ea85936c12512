"""Strings made safe for screens, alphabets and logs."""

from __future__ import annotations

import re
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amdcheck.model.finding import Step
from amdcheck.report.text import clipped, command_line, inert, spelled
from tests.report.samples import HOSTILE

COMMAND = re.compile(r"^\s*::|##(?:\w*)\[")


@pytest.mark.parametrize(
    ("text", "ascii"),
    [
        ("2 × EPYC – 16 GT/s ≥ 8…", "2 x EPYC - 16 GT/s >= 8..."),
        ("Grüße", "Gr\\xfc\\xdfe"),
        ("plain", "plain"),
    ],
)
def test_a_reader_of_ascii_gets_words_not_question_marks(text: str, ascii: str) -> None:
    assert spelled(text, ascii=True) == ascii
    assert spelled(text, ascii=False) == text


@given(st.text())
def test_spelled_text_is_one_ascii_line(text: str) -> None:
    safe = spelled(text, ascii=True)
    assert safe.isascii()
    assert safe.isprintable()


@pytest.mark.parametrize(
    "line", ["::error::x", "  ::error::x", "\t::x", "\x1b[31m::x", "a\n::x", "say ##vso[x", "##[x"]
)
def test_no_line_is_a_command_to_a_pipeline(line: str) -> None:
    plain = re.sub(r"\x1b\[[0-9;]*m", "", inert(line))
    assert not any(COMMAND.search(each) for each in plain.splitlines())


@given(st.text(alphabet=":# [a\n\t", max_size=30))
def test_nothing_made_of_colons_and_hashes_stays_a_command(text: str) -> None:
    assert not any(COMMAND.search(line) for line in inert(text).splitlines())


def test_inert_leaves_ordinary_lines_alone() -> None:
    assert inert("a::b\n0000:03:00.0\n## heading\n") == "a::b\n0000:03:00.0\n## heading\n"


def test_command_gets_sudo_only_where_the_reader_needs_it() -> None:
    step = Step(text="x", argv=("sysctl", "-w", "kernel.numa_balancing=0"), root=True, reboot=False)
    assert command_line(step, privileged=False) == "sudo sysctl -w kernel.numa_balancing=0"
    assert command_line(step, privileged=True) == "sysctl -w kernel.numa_balancing=0"


def test_command_that_has_sudo_gets_no_second_one() -> None:
    step = Step(text="x", argv=("sudo", "amdcheck", "run", "pci.acs"), root=True, reboot=False)
    assert command_line(step, privileged=False) == "sudo amdcheck run pci.acs"


def test_words_of_a_command_are_quoted_for_a_shell() -> None:
    step = Step(text="x", argv=("ls", "a b;$(reboot)"), root=False, reboot=False)
    assert command_line(step, privileged=False) == "ls 'a b;$(reboot)'"


@pytest.mark.parametrize("script", ["grep -E 'a|b' /x", "echo \"$HOME\" 'a'", "a'b`c`", "plain", "", "a\\'b", "hey!'"])
def test_shell_reads_back_the_words_that_were_meant(script: str) -> None:
    step = Step(text="x", argv=("printf", "%s", script), root=False, reboot=False)
    line = command_line(step, privileged=False)
    assert line is not None
    assert subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=True).stdout == script


def test_script_with_single_quotes_stays_readable() -> None:
    step = Step(text="x", argv=("sh", "-c", "dmesg | grep -E 'a|b'"), root=True, reboot=False)
    assert command_line(step, privileged=False) == "sudo sh -c \"dmesg | grep -E 'a|b'\""


def test_step_without_a_command_has_no_line() -> None:
    assert command_line(Step(text="x", argv=None, root=True, reboot=False), privileged=False) is None


def test_clipped_text_keeps_to_its_bytes() -> None:
    assert clipped("é" * 50, limit=20) == "\\xe9\\xe9\\xe9\\xe9\\..."
    assert len(clipped(HOSTILE, limit=40).encode()) == 40
