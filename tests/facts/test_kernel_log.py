"""Lines of the kernel log: whose they are, what they say, who is gone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amdcheck.facts.kernel_log import KernelLog
from amdcheck.facts.presence import GpuSigns
from amdcheck.knowledge.kernel_log import log_patterns, matches
from amdcheck.model.expectations import Expectations
from amdcheck.model.value import Known, Unknown
from tests.corpus import CORPUS, needs_corpus
from tests.gpu_hosts import Machine, cpu_host, gpu_host
from tests.judge import read_fact

NEW_PROBE = "amdgpu 0000:22:00.0: probe with driver amdgpu failed with error -12"
OLD_PROBE = "amdgpu: probe of 0000:22:00.0 failed with error -12"
STARTED = "[drm] Initialized amdgpu 3.57.0 20150101 for 0000:22:00.0 on minor 1"


def log_of(text: str, machine: Machine | None = None) -> KernelLog:
    machine = machine or gpu_host("mi210", 2)
    machine.files["/dev/kmsg"] = text
    return read_fact(KernelLog, machine.host())


def kmsg(*messages: str) -> str:
    return "".join(f"6,{n},{n}000000,-;{message}\n SUBSYSTEM=pci\n" for n, message in enumerate(messages))


@pytest.mark.parametrize("line", [NEW_PROBE, OLD_PROBE])
def test_a_probe_that_failed_names_the_gpu_in_both_wordings(line: str) -> None:
    log = log_of(kmsg("Linux version 6.8.0", line))
    assert log.gone == {"0000:22:00.0": line}
    assert log.about("0000:22:00.0", "probe-failed") == line


def test_a_gpu_that_came_up_later_is_not_gone() -> None:
    assert log_of(kmsg(NEW_PROBE, STARTED)).gone == {}
    assert log_of(kmsg(STARTED, NEW_PROBE)).gone == {"0000:22:00.0": NEW_PROBE}


def test_only_lines_about_gpus_and_the_ports_above_them_are_kept() -> None:
    log = log_of(
        kmsg(
            "usb 1-1: new high-speed USB device",
            "pcieport 0000:1f:01.1: AER: Uncorrected (Fatal) error message received",
            "pcieport 0000:80:01.1: AER: Uncorrected (Fatal) error message received",
            "kfd kfd: amdgpu: added device 1002:740f",
        )
    )
    assert log.lines.or_none() == (
        "pcieport 0000:1f:01.1: AER: Uncorrected (Fatal) error message received",
        "kfd kfd: amdgpu: added device 1002:740f",
    )
    assert [event.pattern for event in log.events] == ["aer-uncorrected"]


def test_a_recorded_text_counts_from_its_last_boot() -> None:
    machine = gpu_host("mi210", 2)
    machine.files["/var/log/dmesg"] = (
        f"[    0.000000] Linux version 6.1.0\n[   12.000001] {NEW_PROBE}\n"
        "[    0.000000] Linux version 6.1.0\n[    9.000000] amdgpu 0000:12:00.0: amdgpu: SMU is initialized\n"
    )
    log = read_fact(KernelLog, machine.host())
    assert log.lines == Known(("amdgpu 0000:12:00.0: amdgpu: SMU is initialized",), "/var/log/dmesg")
    assert (log.gone, log.named) == ({}, ("0000:12:00.0",))


def test_a_live_machine_never_takes_an_old_file_for_its_log() -> None:
    machine = cpu_host()
    machine.files["/var/log/dmesg"] = f"[ 1.000000] {NEW_PROBE}\n"
    machine.outcomes["/dev/kmsg"] = "denied"
    host = machine.host()
    host.source = "live"
    log = read_fact(KernelLog, host)
    assert isinstance(log.lines, Unknown)
    assert (log.lines.reason, log.gone) == ("denied", {})


def test_a_flooded_log_keeps_its_first_and_last_lines() -> None:
    lines = [f"amdgpu 0000:12:00.0: amdgpu: line {number}" for number in range(9000)]
    log = log_of(kmsg(*lines))
    kept = log.lines.or_none() or ()
    assert len(kept) == 2000
    assert (kept[0], kept[-1]) == (lines[0], lines[-1])


@given(st.text(max_size=400))
def test_any_text_is_a_log(text: str) -> None:
    assert isinstance(log_of(text, cpu_host()).lines, Known)


def test_a_gpu_that_the_log_names_and_the_bus_lost_is_a_sign() -> None:
    machine = gpu_host("mi210", 2)
    machine.files["/dev/kmsg"] = kmsg("amdgpu 0000:22:00.0: amdgpu: SMU is initialized", "amdgpu 0000:12:00.0: ready")
    machine.take_off_bus("0000:22:00.0")
    signs = read_fact(GpuSigns, machine.host(), Expectations())
    assert signs.gone == ("0000:22:00.0",)
    assert "0000:22:00.0" in str(signs.signs[-1].value)


def test_every_pattern_has_a_hint_that_its_matches_hold() -> None:
    assert len({row.id for row in log_patterns()}) == len(log_patterns())
    assert all(row.hints for row in log_patterns())


@needs_corpus
@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("dmesg-mi300x-aca-ue-hive", {"uncorrectable"}),
        ("dmesg-gfx11-mes-remove-queue-mode2", {"ring-timeout", "ring-reset-failed", "gpu-reset"}),
    ],
)
def test_recorded_logs_are_understood(name: str, found: set[str]) -> None:
    text = (CORPUS / "text" / f"{name}.txt").read_text()
    assert {row.id for line in text.splitlines() for row in matches(line)} == found
