"""Facts for people: each value with its source, what is not known with its reason."""

from __future__ import annotations

from amdcheck.cli.facts import facts_text
from amdcheck.cli.sheet import Sheet
from amdcheck.report.view import View


def text(facts: dict[str, object], width: int = 100) -> list[str]:
    return facts_text(facts, Sheet(View(width=width))).splitlines()


def known(value: object, source: str = "/proc/cpuinfo") -> dict[str, object]:
    return {"outcome": "known", "value": value, "source": source}


def test_value_stands_with_its_source() -> None:
    assert text({"Cpu": {"vendor": known("AuthenticAMD")}}) == ["Cpu", "  vendor: AuthenticAMD  [/proc/cpuinfo]"]


def test_what_is_not_known_stands_with_its_reason() -> None:
    unknown = {"outcome": "unknown", "reason": "denied", "source": "/dev/kmsg", "detail": "Operation not permitted"}
    assert text({"KernelLog": {"lines": unknown}}) == [
        "KernelLog",
        "  lines: not known, denied (Operation not permitted)  [/dev/kmsg]",
    ]


def test_numbers_are_ranges_and_nothing_is_none() -> None:
    facts: dict[str, object] = {
        "Cpu": {"online": known([0, 1, 2, 3, 8, 10, 11]), "offline": known([]), "even": [], "hive": None, "up": True}
    }
    assert text(facts)[1:] == [
        "  online: 0-3,8,10-11  [/proc/cpuinfo]",
        "  offline: none  [/proc/cpuinfo]",
        "  even: none",
        "  hive: none",
        "  up: yes",
    ]


def test_records_inside_records_are_set_in() -> None:
    facts: dict[str, object] = {"Gpus": {"devices": [{"bdf": "0000:03:00.0", "gfx": known("gfx942", "/sys/x")}]}}
    assert text(facts) == [
        "Gpus",
        "  devices:",
        "    0:",
        "      bdf: 0000:03:00.0",
        "      gfx: gfx942  [/sys/x]",
    ]


def test_records_of_plain_values_are_a_line_each() -> None:
    caches = [{"level": 3, "cpus": [0, 1, 2]}, {"level": 3, "cpus": [3, 4, 5]}]
    assert text({"Cpu": {"caches": caches}}) == [
        "Cpu",
        "  caches:",
        "    - level 3, cpus 0-2",
        "    - level 3, cpus 3-5",
    ]


def test_facts_are_blocks_with_air_between() -> None:
    assert text({"A": {"x": 1}, "B": {"broken": "ValueError: y"}}) == [
        "A",
        "  x: 1",
        "",
        "B",
        "  broken: ValueError: y",
    ]


def test_hostile_value_is_printable() -> None:
    lines = text({"Platform": {"hostname": known("a\x1b[31m\nb\udc80")}})
    assert lines == ["Platform", "  hostname: a\\x1b[31m\\nb\\x80  [/proc/cpuinfo]"]


def test_entries_by_number_with_one_value_are_one_line() -> None:
    facts: dict[str, object] = {"Cpu": {"package_of": {str(n): n // 4 % 2 for n in range(16)}}}
    assert text(facts)[1:] == ["  package_of:", "    0-3,8-11: 0", "    4-7,12-15: 1"]


def cache(cpu: int, kib: int) -> dict[str, object]:
    return {"level": 1, "size_kib": known(kib, f"/sys/cpu{cpu}/size"), "cpus": [cpu], "source": f"/sys/cpu{cpu}"}


def test_entries_that_differ_in_their_place_alone_are_told_once() -> None:
    facts: dict[str, object] = {"Cpu": {"caches": [*(cache(n, 32) for n in range(6)), cache(6, 16), cache(7, 32)]}}
    lines = text(facts)
    assert [line for line in lines if line.startswith("    ") and line[4].isdecimal()] == [
        "    0:",
        "    1-5: the same as 0 but for its place",
        "    6:",
        "    7:",
    ]
    assert sum("size_kib: 16" in line for line in lines) == 1
