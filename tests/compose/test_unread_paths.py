"""A path that does not answer in time: nothing fails for it, and no required check that it decides falls silent."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from amdcheck.engine.injection import FactStore
from amdcheck.engine.registry import all_checks
from amdcheck.model.expectations import Expectations
from amdcheck.model.finding import Finding
from amdcheck.model.value import Unknown
from tests.compose import compose
from tests.compose.composed import ComposedMachine

MACHINES = ["mi210-8gpu-2hive-epyc7763x2", "mi300x-8gpu-spx-epyc9654x2"]
QUICK = Expectations(level="quick")
# What numbers its likes: one GPU of eight, one node of many stands for all of them.
_NUMBERED = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]|(?<=[A-Za-z_/])\d+")
_ASKED = ("read", "read_bytes", "entries", "link", "resolve", "stat")


class Listening(ComposedMachine):
    """The machine, one path of which does not answer; `heard` are all that were asked for."""

    def __init__(self, machine: ComposedMachine, silent: str | None = None) -> None:
        super().__init__(machine.capture, machine._plan)
        self.heard: dict[str, None] = {}
        for name in _ASKED:
            setattr(self, name, self._unless_silent(getattr(self, name), silent))

    def _unless_silent(self, ask: Callable[..., Any], silent: str | None) -> Callable[..., Any]:
        def answer(path: str, **how: Any) -> Any:
            self.heard[path] = None
            return Unknown("timeout", path) if path == silent else ask(path, **how)

        return answer


@functools.cache
def machine(name: str) -> ComposedMachine:
    return compose(name).host


def judge(host: Listening) -> list[Finding]:
    """What the checks of level quick say that apply."""
    facts = FactStore(host, QUICK)
    found: list[Finding] = []
    for check in all_checks().values():
        if check.level == "quick" and not (check.applies and check.applies(**facts.supply(check.applies_parameters))):
            found += check.function(**facts.supply(check.parameters))
    return found


def judged(name: str, silent: str | None = None) -> list[Finding]:
    return judge(Listening(machine(name), silent))


@functools.cache
def healthy(name: str) -> tuple[Finding, ...]:
    return tuple(judged(name))


@functools.cache
def paths(name: str) -> tuple[str, ...]:
    """Everything that a run asks for, of each kind the third: the third GPU's every attribute, for example."""
    host = Listening(machine(name))
    judge(host)
    kinds: dict[str, list[str]] = {}
    for path in host.heard:
        kinds.setdefault(_NUMBERED.sub("#", path), []).append(path)
    return tuple(sorted(alike[min(2, len(alike) - 1)] for alike in kinds.values()))


def is_required(finding: Finding) -> bool:
    return all_checks()[finding.check].required


def said(found: Sequence[Finding], *statuses: str) -> set[tuple[str, str]]:
    return {(f.check, f.subject.id) for f in found if f.status in statuses and is_required(f)}


PARTS: dict[str, tuple[str, ...]] = {
    "bus": ("/sys/bus/pci/",),
    "compute driver": ("/sys/class/kfd/",),
    "processors": ("/sys/devices/",),
    "modules": ("/sys/module/", "/lib/modules/", "/var/lib/dkms/"),
    "devices": ("/dev/",),
}


@pytest.mark.parametrize("part", [*PARTS, "rest"])
@pytest.mark.parametrize("name", MACHINES)
def test_a_path_that_does_not_answer_neither_fails_nor_silences_a_required_check(name: str, part: str) -> None:
    known = tuple(start for starts in PARTS.values() for start in starts)
    chosen = [p for p in paths(name) if (p.startswith(PARTS[part]) if part in PARTS else not p.startswith(known))]
    assert chosen
    for path in chosen:
        found = judged(name, path)
        assert [(path, f.id, f.subject.id) for f in found if f.status == "fail"] == []
        lost = said(healthy(name), "pass") - said(found, "pass")
        assert not lost or said(found, "unknown", "warn"), f"{path}: no word of {sorted(lost)}"


@pytest.mark.parametrize(
    ("path", "check"),
    [
        ("/dev/kfd", "gpu.device-access"),
        ("/dev/dri/renderD130", "gpu.device-access"),
        ("/proc/cpuinfo", "cpu.vendor"),
        ("/proc/sys/kernel/numa_balancing", "numa.balancing"),
        ("/sys/bus/pci/devices/0000:47:00.0", "pci.link-width"),
        ("/sys/bus/pci/devices/0000:47:00.0/driver", "gpu.present"),
        ("/sys/bus/pci/devices/0000:47:00.0/vendor", "gpu.present"),
        ("/sys/class/kfd/kfd/topology/nodes", "gpu.topology"),
        ("/sys/class/kfd/kfd/topology/nodes/4/io_links", "gpu.topology"),
        ("/sys/class/kfd/kfd/topology/nodes/4/io_links/3/properties", "gpu.topology"),
        ("/sys/class/kfd/kfd/topology/nodes/4/properties", "gpu.topology"),
        ("/sys/devices/system/cpu/cpu0/cache/index2/level", "cpu.cache"),
        ("/sys/devices/system/node/node1/meminfo", "numa.layout"),
        ("/sys/module/amdgpu/initstate", "gpu.driver-loaded"),
        ("/sys/module/amdgpu/version", "gpu.driver-version"),
    ],
)
def test_no_machine_is_ready_while_what_decides_is_unread(path: str, check: str) -> None:
    """Of a required check what decides has no second source: the verdict stays open."""
    found = judged("mi300x-8gpu-spx-epyc9654x2", path)
    assert check in {check for check, _ in said(found, "unknown")}
    assert said(found, "fail") == set()
