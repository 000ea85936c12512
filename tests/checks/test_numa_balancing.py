"""numa.balancing: a bit mask, and a file that need not exist."""

from __future__ import annotations

import pytest

from amdcheck.facts.memory import NUMA_BALANCING
from tests.checks.saying import only, sources, summary, values
from tests.facts.small_machine import machine, without
from tests.judge import judge
from tests.memory_host import memory_host


@pytest.mark.parametrize("value", ["1", "3", "5"])
def test_bit_one_is_a_warning_also_beside_tiering(value: str) -> None:
    finding = only(judge("numa.balancing", memory_host(machine(sockets=2) | {NUMA_BALANCING: f"{value}\n"})))
    assert summary(finding) == ("numa.balancing/on", "warn", "host host")
    assert (finding.expected, finding.actual) == ("0", value)
    assert (values(finding), sources(finding)) == ([value], [NUMA_BALANCING])
    assert finding.remedy is not None
    assert finding.remedy.steps[0].argv == ("sysctl", "-w", "kernel.numa_balancing=0")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("0", "Automatic NUMA balancing between nodes is off."),
        ("2", "Automatic NUMA balancing between nodes is off (it moves pages between memory tiers only)."),
    ],
)
def test_off_and_tiering_alone_pass(value: str, message: str) -> None:
    finding = only(judge("numa.balancing", memory_host(machine(sockets=2) | {NUMA_BALANCING: f"{value}\n"})))
    assert summary(finding) == ("numa.balancing/ok", "pass", "host host")
    assert (finding.message, values(finding)) == (message, [value])


def test_one_node_has_nothing_to_balance() -> None:
    finding = only(judge("numa.balancing", memory_host(machine() | {NUMA_BALANCING: "1\n"})))
    assert summary(finding) == ("numa.balancing/not-applicable", "skip", "host host")
    assert values(finding) == ["0"]


def test_a_kernel_without_the_feature_passes_on_the_listing_that_was_read() -> None:
    finding = only(judge("numa.balancing", memory_host(without(machine(sockets=2), "numa_balancing"))))
    assert summary(finding) == ("numa.balancing/ok", "pass", "host host")
    assert (values(finding), sources(finding)) == (["does not name numa_balancing"], ["/proc/sys/kernel"])


@pytest.mark.parametrize(
    ("outcome", "id"), [("denied", "numa.balancing/denied"), ("timeout", "numa.balancing/timeout")]
)
def test_unreadable_is_unknown(outcome: str, id: str) -> None:
    files = without(machine(sockets=2), "numa_balancing")
    host = memory_host(files, outcomes={NUMA_BALANCING: outcome})  # type: ignore[dict-item]
    assert summary(only(judge("numa.balancing", host))) == (id, "unknown", "host host")


def test_a_tree_without_proc_sys_is_unknown_and_no_pass() -> None:
    files = {p: t for p, t in machine(sockets=2).items() if not p.startswith("/proc/")}
    finding = only(judge("numa.balancing", memory_host(files)))
    assert summary(finding) == ("numa.balancing/absent", "unknown", "host host")
    assert sources(finding) == [NUMA_BALANCING]


def test_garbage_is_unknown() -> None:
    finding = only(judge("numa.balancing", memory_host(machine(sockets=2) | {NUMA_BALANCING: "on\n"})))
    assert summary(finding) == ("numa.balancing/failed", "unknown", "host host")
