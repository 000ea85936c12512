"""cpu.isa on bare metal and in guests: what is offered against what the generation has."""

from __future__ import annotations

import pytest

from tests.checks.saying import only, sources, summary, values
from tests.corpus import CORPUS, needs_corpus
from tests.facts.recorded import host_of, tree
from tests.facts.small_machine import DMI, ZEN3, ZEN4, machine
from tests.judge import judge
from tests.memory_host import memory_host

CPUINFO = "/proc/cpuinfo"
GENOA = {"name": "AMD EPYC 9654 96-Core Processor", "family": 25, "model": 17}
QEMU = {f"{DMI}/sys_vendor": "QEMU\n", f"{DMI}/product_name": "Standard PC (Q35 + ICH9, 2009)\n"}

ALL_OF_ZEN4 = "avx2 fma avx512f avx512_vnni avx512_bf16"


def machine_of(name: str, family: int, model: int, flags: str) -> dict[str, str]:
    return machine(name=name, family=family, model=model, flags=flags)


def test_genoa_with_all_it_has_passes() -> None:
    finding = only(judge("cpu.isa", memory_host(machine_of(**GENOA, flags=ZEN4))))  # type: ignore[arg-type]
    assert summary(finding) == ("cpu.isa/ok", "pass", "host host")
    assert (finding.expected, finding.actual) == (ALL_OF_ZEN4, ALL_OF_ZEN4)
    assert values(finding)[0] == "avx2 fma avx512f avx512bw avx512vl avx512dq avx512_vnni avx512_bf16"
    assert sources(finding)[0] == CPUINFO


def test_milan_is_not_expected_to_have_avx512() -> None:
    finding = only(judge("cpu.isa", memory_host(machine())))
    assert summary(finding) == ("cpu.isa/ok", "pass", "host host")
    assert finding.expected == "avx2 fma"


def test_genoa_guest_without_avx512_and_vnni_is_warned_with_the_price() -> None:
    files = machine_of(**GENOA, flags=f"{ZEN3} hypervisor") | QEMU  # type: ignore[arg-type]
    finding = only(judge("cpu.isa", memory_host(files)))
    assert summary(finding) == ("cpu.isa/masked", "warn", "host host")
    assert finding.message.startswith(
        "Withheld by qemu: avx512f avx512_vnni avx512_bf16. Without: 512-bit kernels are not used"
    )
    assert "saturate" in finding.message
    assert (finding.expected, finding.actual) == ("avx2 fma avx512f avx512_vnni avx512_bf16", "avx2 fma")
    assert values(finding)[0] == "avx2 fma"
    assert "QEMU Standard PC (Q35 + ICH9, 2009)" in values(finding)
    assert finding.remedy is not None
    assert "host-passthrough" in finding.remedy.steps[0].text


def test_guest_with_a_generic_cpu_of_an_old_family_is_held_to_what_every_zen_has() -> None:
    """QEMU's qemu64 shows family 15."""
    files = machine_of("QEMU Virtual CPU version 2.5+", 15, 107, "lm sse2 hypervisor") | QEMU
    finding = only(judge("cpu.isa", memory_host(files)))
    assert summary(finding) == ("cpu.isa/masked", "warn", "host host")
    assert (finding.expected, finding.actual) == ("avx2 fma", "none of them")


@needs_corpus
def test_recorded_2700x_guest_lacks_fma() -> None:
    text = (CORPUS / "pycpuinfo" / "ryzen7-fedora29.cat_proc_cpuinfo.txt").read_text(encoding="utf-8")
    finding = only(judge("cpu.isa", memory_host({CPUINFO: text})))
    assert summary(finding) == ("cpu.isa/masked", "warn", "host host")
    assert finding.message.startswith("Withheld by vm-other: fma. ")
    assert values(finding)[0] == "avx2"


@needs_corpus
def test_recorded_opteron_with_fma_and_without_avx2_is_old_and_not_masked() -> None:
    finding = only(judge("cpu.isa", host_of(tree("opteron6328-offline-possible"))))
    assert summary(finding) == ("cpu.isa/before-zen", "warn", "host host")
    assert values(finding)[:2] == ["fma", "AMD Opteron(tm) Processor 6328"]


def test_bare_metal_that_lacks_bf16_without_a_cause_is_missing() -> None:
    flags = ZEN4.replace(" avx512_bf16", "")
    finding = only(judge("cpu.isa", memory_host(machine_of(**GENOA, flags=flags))))  # type: ignore[arg-type]
    assert summary(finding) == ("cpu.isa/missing", "warn", "host host")
    assert finding.message.startswith("Not offered: avx512_bf16. ")


def test_clearcpuid_on_the_command_line_is_named() -> None:
    files = machine_of(**GENOA, flags=ZEN3) | {"/proc/cmdline": "ro clearcpuid=avx512f quiet\n"}  # type: ignore[arg-type]
    finding = only(judge("cpu.isa", memory_host(files)))
    assert summary(finding) == ("cpu.isa/masked", "warn", "host host")
    assert finding.message.startswith("Withheld by clearcpuid=avx512f: avx512f avx512_vnni avx512_bf16.")
    assert "clearcpuid=avx512f" in values(finding)


def test_a_kernel_that_is_older_than_a_flag_is_silent_and_not_at_fault() -> None:
    """Linux 4.18 does not print avx512_bf16, which 5.3 was the first to do."""
    files = machine_of(**GENOA, flags=ZEN4.replace(" avx512_bf16", ""))  # type: ignore[arg-type]
    files["/proc/sys/kernel/osrelease"] = "4.18.0-553.el8_10.x86_64\n"
    finding = only(judge("cpu.isa", memory_host(files)))
    assert summary(finding) == ("cpu.isa/ok", "pass", "host host")
    assert finding.actual == "avx2 fma avx512f avx512_vnni"


def test_cpus_that_differ_in_avx512_fail() -> None:
    files = machine_of(**GENOA, flags=ZEN4)  # type: ignore[arg-type]
    first, rest = files[CPUINFO].split("\n\n", 1)
    files[CPUINFO] = first.replace(" avx512_vnni", "") + "\n\n" + rest
    finding = only(judge("cpu.isa", memory_host(files)))
    assert summary(finding) == ("cpu.isa/uneven", "fail", "host host")
    assert finding.actual == "some CPUs lack avx512_vnni"
    assert values(finding)[0] == "avx512_vnni"


def test_cpus_that_differ_in_what_no_kernel_of_ours_uses_pass() -> None:
    files = machine()
    first, rest = files[CPUINFO].split("\n\n", 1)
    files[CPUINFO] = first + " lwp\n\n" + rest
    assert only(judge("cpu.isa", memory_host(files))).id == "cpu.isa/ok"


@pytest.mark.parametrize(
    ("name", "family", "model", "held_to"),
    [
        ("AMD EPYC 9A75 256-Core Processor", 26, 80, "what every Zen has"),
        ("AMD EPYC 9A75 256-Core Processor", 27, 1, "what every Zen has"),
        ("AMD EPYC 8635P 84-Core Processor", 26, 36, "its generation, Zen 5"),
    ],
)
def test_newer_than_the_table_is_warned_and_still_judged(name: str, family: int, model: int, held_to: str) -> None:
    finding = only(judge("cpu.isa", memory_host(machine_of(name, family, model, f"{ZEN4} avx_vnni"))))
    assert summary(finding) == ("cpu.isa/not-in-table", "warn", "host host")
    assert (
        finding.message == f"{name} (family {family} model {model}) is newer than the tables; it is held to {held_to}."
    )
    findings = judge("cpu.isa", memory_host(machine_of(name, family, model, "lm avx")))
    assert [f.id for f in findings] == ["cpu.isa/not-in-table", "cpu.isa/missing"]


def test_flags_that_cannot_be_read_are_unknown() -> None:
    finding = only(judge("cpu.isa", memory_host({}, outcomes={CPUINFO: "denied"})))
    assert summary(finding) == ("cpu.isa/denied", "unknown", "host host")


def test_a_family_that_cannot_be_read_is_unknown() -> None:
    text = machine()[CPUINFO].replace("cpu family\t: 25\n", "cpu family\t: x\n")
    finding = only(judge("cpu.isa", memory_host({CPUINFO: text})))
    assert summary(finding) == ("cpu.isa/failed", "unknown", "host host")


def test_intel_is_skipped() -> None:
    finding = only(judge("cpu.isa", memory_host(machine(vendor="GenuineIntel"))))
    assert summary(finding) == ("cpu.isa/not-applicable", "skip", "host host")
