"""memory.managed-mode: what hipMallocManaged gives on each kind of GPU."""

from __future__ import annotations

import pytest

from amdcheck.facts.hmm import NORETRY
from amdcheck.model.finding import Finding
from tests.checks.saying import only, sources, summary, values
from tests.corpus import CORPUS, needs_corpus
from tests.facts.recorded import host_of
from tests.facts.small_machine import (
    KFD,
    MI100,
    MI210,
    MI300A,
    MI300X,
    NO_SVM,
    W7900,
    driver_link,
    gpu,
    machine,
)
from tests.judge import judge
from tests.memory_host import memory_host

CHECK = "memory.managed-mode"
GPU = "gpu 0000:03:00.0"
CONFIG = "/boot/config-6.8.0-60-generic"


def mode(files: dict[str, str], *, driver: bool = True) -> list[Finding]:
    return judge(CHECK, memory_host(machine() | files, links=driver_link() if driver else None))


@pytest.mark.parametrize("card", [MI210, MI300X])
def test_each_process_chooses_on_cdna2_and_cdna3(card: dict[str, int]) -> None:
    finding = only(mode(gpu(**card)))
    assert summary(finding) == (f"{CHECK}/ok", "pass", GPU)
    assert finding.actual == "pinned host memory, migrating with HSA_XNACK=1"
    assert values(finding)[1:] == ["0x2c77a280", "-1"]
    assert sources(finding)[1:] == [f"{KFD}/nodes/2/properties", NORETRY]


def test_mi300a_has_one_memory() -> None:
    finding = only(mode(gpu(**MI300A)))
    assert summary(finding) == (f"{CHECK}/ok", "pass", GPU)
    assert finding.actual == "one memory"


@pytest.mark.parametrize("noretry", ["-1", "1"])
def test_mi100_pins_unless_booted_otherwise(noretry: str) -> None:
    finding = only(mode(gpu(**MI100) | {NORETRY: f"{noretry}\n"}))
    assert summary(finding) == (f"{CHECK}/ok", "pass", GPU)
    assert finding.actual == "pinned host memory"
    assert values(finding) == ["gfx908", noretry]


def test_w7900_never_migrates_whatever_is_set() -> None:
    finding = only(mode(gpu(**W7900, capability=None) | {NORETRY: "0\n"}))
    assert summary(finding) == (f"{CHECK}/ok", "pass", GPU)
    assert finding.message.endswith("gfx1100 has no XNACK.")
    assert values(finding) == ["gfx1100"]


@pytest.mark.parametrize("card", [MI100, MI210, MI300X])
def test_noretry_0_forces_xnack_on_every_process(card: dict[str, int]) -> None:
    finding = only(mode(gpu(**card) | {NORETRY: "0\n"}))
    assert summary(finding) == (f"{CHECK}/retry-forced", "warn", GPU)
    assert (finding.expected, finding.actual) == (f"{NORETRY} -1", "0")
    assert "0" in values(finding)


def test_a_driver_without_shared_virtual_memory_is_warned_with_the_configuration() -> None:
    config = "CONFIG_HSA_AMD=y\n# CONFIG_HSA_AMD_SVM is not set\nCONFIG_DEVICE_PRIVATE=y\nCONFIG_HMM_MIRROR=y\n"
    finding = only(mode(gpu(**MI210, capability=NO_SVM) | {CONFIG: config}))
    assert summary(finding) == (f"{CHECK}/no-svm", "warn", GPU)
    assert values(finding)[1] == "0x2477a280"
    assert values(finding)[2] == "CONFIG_HSA_AMD_SVM=n CONFIG_DEVICE_PRIVATE=y CONFIG_HMM_MIRROR=y"
    assert sources(finding)[2] == CONFIG


def test_capability_with_bit_31_of_newer_kernels_is_unsigned() -> None:
    finding = only(mode(gpu(**MI300X, capability=0xAC77A280)))
    assert summary(finding) == (f"{CHECK}/ok", "pass", GPU)
    assert values(finding)[1] == "0xac77a280"


def test_without_the_capability_the_configuration_decides() -> None:
    config = "CONFIG_HSA_AMD_SVM=y\nCONFIG_DEVICE_PRIVATE=y\nCONFIG_HMM_MIRROR=y\n"
    finding = only(mode(gpu(**MI210, capability=None) | {CONFIG: config}))
    assert summary(finding) == (f"{CHECK}/ok", "pass", GPU)
    assert sources(finding)[1] == CONFIG


def test_with_neither_it_is_unknown() -> None:
    finding = only(mode(gpu(**MI210, capability=None)))
    assert summary(finding) == (f"{CHECK}/absent", "unknown", GPU)
    assert finding.evidence[-1].note == "absent: no capability"


def test_unreadable_noretry_is_unknown() -> None:
    files = machine() | {p: t for p, t in gpu(**MI210).items() if p != NORETRY}
    host = memory_host(files, links=driver_link(), outcomes={NORETRY: "denied"})
    assert summary(only(judge(CHECK, host))) == (f"{CHECK}/denied", "unknown", GPU)


def test_a_virtual_function_of_mi210_has_no_xnack() -> None:
    finding = only(mode(gpu(**{**MI210, "device": 0x7410})))
    assert summary(finding) == (f"{CHECK}/ok", "pass", GPU)
    assert finding.message.endswith("gfx90a as a virtual function has no XNACK.")


def test_a_target_newer_than_the_table_is_warned() -> None:
    finding = only(mode(gpu(device=0x7FFF, class_code=0x120000, target=130000)))
    assert summary(finding) == (f"{CHECK}/not-in-table", "warn", GPU)
    assert values(finding) == ["gfx1300"]


def test_a_gpu_without_a_driver_is_skipped() -> None:
    files = {p: t for p, t in gpu(**MI210).items() if not p.startswith(KFD) and p != NORETRY}
    assert summary(only(mode(files, driver=False))) == (f"{CHECK}/not-applicable", "skip", GPU)


def test_two_gpus_are_two_subjects() -> None:
    files = gpu(**MI210) | gpu(**W7900, bus=0x43, node=3)
    host = memory_host(machine() | files, links=driver_link() | driver_link(0x43))
    assert [summary(f) for f in judge(CHECK, host)] == [
        (f"{CHECK}/ok", "pass", GPU),
        (f"{CHECK}/ok", "pass", "gpu 0000:43:00.0"),
    ]


def test_a_machine_without_a_gpu_is_skipped() -> None:
    assert summary(only(judge(CHECK, memory_host(machine())))) == (f"{CHECK}/not-applicable", "skip", "host host")


@needs_corpus
def test_recorded_mi210_topology_has_the_bit_and_lacks_the_parameter() -> None:
    findings = judge(CHECK, host_of(CORPUS / "kfd" / "mi210-8gpu-2hive-epyc64x2.tar.xz"))
    assert len(findings) == 8
    assert {(f.id, f.status, sources(f)[-1]) for f in findings} == {(f"{CHECK}/not-recorded", "unknown", NORETRY)}
