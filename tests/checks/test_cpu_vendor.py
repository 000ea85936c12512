"""cpu.vendor on AMD's, Hygon's, Intel's and other processors."""

from __future__ import annotations

import pytest

from tests.checks.saying import only, sources, summary, values
from tests.facts.small_machine import DMI, machine
from tests.judge import judge
from tests.memory_host import memory_host

CPUINFO = "/proc/cpuinfo"


def test_epyc_7763_is_amds_and_of_the_7003_series() -> None:
    finding = only(judge("cpu.vendor", memory_host(machine())))
    assert summary(finding) == ("cpu.vendor/ok", "pass", "host host")
    assert finding.message == "The processor is AMD's: AMD EPYC 7763 64-Core Processor (EPYC 7003)."
    assert values(finding) == ["AuthenticAMD", "AMD EPYC 7763 64-Core Processor", "family 25 model 1"]
    assert set(sources(finding)) == {CPUINFO}


@pytest.mark.parametrize(
    ("name", "family", "model", "known"),
    [
        ("AMD EPYC 7551P 32-Core Processor", 23, 1, "EPYC 7001"),
        ("AMD EPYC 7402P 24-Core Processor", 23, 49, "EPYC 7002"),
        ("AMD EPYC 7773X 64-Core Processor", 25, 1, "EPYC 7003X"),
        ("AMD EPYC 7A53 64-Core Processor", 25, 48, "EPYC 7A53"),
        ("AMD EPYC 9654 96-Core Processor", 25, 17, "EPYC 9004"),
        ("AMD EPYC 9754 128-Core Processor", 25, 160, "EPYC 97x4"),
        ("AMD EPYC 8534P 64-Core Processor", 25, 160, "EPYC 8004"),
        ("AMD EPYC 9655 96-Core Processor", 26, 2, "EPYC 9005"),
        ("AMD EPYC 9965 192-Core Processor", 26, 17, "EPYC 9005 with Zen 5c"),
        ("AMD Instinct MI300A Accelerator", 25, 144, "Instinct MI300A"),
        ("AMD EPYC-Milan Processor", 25, 1, "EPYC 7003"),
        ("AMD Ryzen 5 1600 Six-Core Processor", 23, 1, "Zen 1"),
        ("AMD Ryzen 9 9950X 16-Core Processor", 26, 68, "Zen 5"),
    ],
)
def test_series_and_generation(name: str, family: int, model: int, known: str) -> None:
    host = memory_host({CPUINFO: machine(name=name, family=family, model=model)[CPUINFO]})
    assert only(judge("cpu.vendor", host)).message == f"The processor is AMD's: {name} ({known})."


def test_a_guest_says_that_the_hypervisor_shows_it() -> None:
    files = {CPUINFO: machine(flags="lm avx2 fma hypervisor", name="AMD EPYC-Milan Processor")[CPUINFO]}
    finding = only(judge("cpu.vendor", memory_host(files | {f"{DMI}/sys_vendor": "QEMU\n"})))
    assert finding.message == "The processor is AMD's: AMD EPYC-Milan Processor (EPYC 7003), as qemu shows it."


def test_hygon_is_named_honestly_and_skipped() -> None:
    files = machine(vendor="HygonGenuine", family=24, model=0, name="Hygon C86 7185 32-core Processor")
    finding = only(judge("cpu.vendor", memory_host(files)))
    assert summary(finding) == ("cpu.vendor/not-applicable", "skip", "host host")
    assert finding.message.startswith("the processor is by HygonGenuine, not by AMD; Hygon derives")
    assert values(finding)[0] == "HygonGenuine"


def test_intel_host_is_skipped_with_its_name() -> None:
    files = machine(vendor="GenuineIntel", family=6, model=143, name="Intel(R) Xeon(R) Platinum 8480C")
    finding = only(judge("cpu.vendor", memory_host(files)))
    assert summary(finding) == ("cpu.vendor/not-applicable", "skip", "host host")
    assert finding.message == "the processor is by GenuineIntel, not by AMD; AMD GPUs beside it are judged all the same"
    assert values(finding)[1] == "Intel(R) Xeon(R) Platinum 8480C"


def test_arm_host_without_a_vendor_line_is_skipped_by_its_architecture() -> None:
    text = "processor\t: 0\nFeatures\t: fp asimd\nCPU implementer\t: 0x41\nCPU architecture: 8\n"
    finding = only(judge("cpu.vendor", memory_host({CPUINFO: text})))
    assert summary(finding) == ("cpu.vendor/not-applicable", "skip", "host host")
    assert values(finding) == ["aarch64"]


@pytest.mark.parametrize(("outcome", "id"), [("denied", "cpu.vendor/denied"), ("absent", "cpu.vendor/absent")])
def test_unreadable_cpuinfo_is_unknown_and_never_skipped(outcome: str, id: str) -> None:
    finding = only(judge("cpu.vendor", memory_host({}, outcomes={CPUINFO: outcome})))  # type: ignore[dict-item]
    assert summary(finding) == (id, "unknown", "host host")
    assert values(finding) == [None]
