"""selftest.cpu.isa on recorded children: healthy EPYC generations, and each way in which a machine can fail."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from amdcheck.facts.selftests import IsaSelfTest
from amdcheck.host.live import LiveHost
from amdcheck.host.protocol import CommandResult, Host, SelfTest, SelfTestResult
from amdcheck.host.recording import RecordingHost, merge
from amdcheck.host.snapshot import SnapshotHost
from amdcheck.knowledge.isa import isa_table
from amdcheck.knowledge.remedies import remedies, remedy
from amdcheck.model.expectations import Expectations
from amdcheck.model.finding import Finding
from amdcheck.model.value import Known, Unknown, Value
from tests.judge import judge, read_fact
from tests.memory_host import memory_host

ID = "selftest.cpu.isa"
Document = dict[str, Any]

MILAN = ("sse2", "avx2", "fma")
GENOA = (*MILAN, "avx512f", "avx512_vnni", "avx512_bf16")
TURIN = (*MILAN, "avx_vnni", *GENOA[3:])
ALL_STATE = 0x2E7


def cpuinfo(flags: Iterable[str]) -> str:
    return (
        "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\n"
        f"model name\t: AMD EPYC 9654 96-Core Processor\nstepping\t: 1\nflags\t\t: fpu lm {' '.join(flags)}\n\n"
    )


def flags_of(keys: Iterable[str]) -> list[str]:
    return sorted({flag for key in keys for flag in isa_table().isa[key].flags})


def leaves_of(keys: Iterable[str], *, datapath: int) -> dict[str, list[int]]:
    """The CPUID leaves of a processor that has these instruction sets and no others."""
    leaves = {leaf: [0, 0, 0, 0] for leaf in ("0x0.0", "0x1.0", "0x7.0", "0x7.1", "0x80000001.0", "0x8000001a.0")}
    bits = [bit for key in keys for bit in isa_table().isa[key].cpuid]
    bits += [row.cpuid for row in isa_table().datapath if row.bits == datapath]
    for bit in bits:
        leaves[bit.leaf][("eax", "ebx", "ecx", "edx").index(bit.register)] |= 1 << bit.bit
    return leaves


def right(name: str) -> Document:
    """A kernel that computed every word right and noticed every planted bit."""
    result = {
        "registers": 14,
        "lanes": 8,
        "compared": 1000,
        "wrong": 0,
        "wrong_lanes": [],
        "first_wrong": [],
        "planted": 112,
        "noticed": 112,
        "cpus": [3],
    }
    return {"name": name, "ended": "returned", "detail": None, "result": result}


def ended(name: str, how: str, detail: str | None = None) -> Document:
    return {"name": name, "ended": how, "detail": detail, "result": None}


def document(kernels: Iterable[Document], leaves: Mapping[str, list[int]], *, xcr0: int | None = ALL_STATE) -> Document:
    cpuid = {"ended": "returned", "detail": None, "result": {"leaves": leaves, "xcr0": xcr0}}
    return {"test": "cpu.isa", "lacks": None, "kernels": list(kernels), "cpuid": cpuid}


def answer(params: Iterable[str], stdout: str, **how: Any) -> SelfTestResult:
    fields: dict[str, Any] = {
        "argv": ("python", "-I", "-m", "amdcheck.selftest", "cpu.isa", *params),
        "rc": 0,
        "stdout": stdout,
        "stderr": "",
        "duration_s": 0.1,
        "timed_out": False,
        "truncated": False,
        "stuck": (),
        **how,
    }
    return SelfTestResult(name="cpu.isa", params=tuple(params), python=None, result=CommandResult(**fields))


def machine(
    offered: Iterable[str],
    said: Document | str | None,
    *,
    files: Mapping[str, str] | None = None,
    how: Mapping[str, Any] | None = None,
) -> SnapshotHost:
    """A recorded machine whose kernel offers these rows of the table, and what its child printed."""
    offered = tuple(key for key in isa_table().isa if key in set(offered))
    stdout = said if isinstance(said, str) else json.dumps(said) + "\n"
    return memory_host(
        {
            "/proc/cpuinfo": cpuinfo(flags_of(offered)),
            "/proc/cmdline": "BOOT_IMAGE=/vmlinuz root=/dev/sda1 quiet\n",
            "/proc/sys/kernel/osrelease": "6.8.0-45-generic\n",
            **(files or {}),
        },
        selftests=() if said is None else (answer(offered, stdout, **(how or {})),),
    )


def brief(findings: Iterable[Finding]) -> dict[str, str]:
    """Status and outcome by subject."""
    return {finding.subject.id: f"{finding.status} {finding.outcome}" for finding in findings}


def only(findings: Iterable[Finding], subject: str) -> Finding:
    (finding,) = [f for f in findings if f.subject.id == subject]
    return finding


def values(finding: Finding) -> list[str | None]:
    return [item.value for item in finding.evidence]


NOT_THERE = "skip not-applicable"


def test_a_healthy_milan_passes_what_it_has_and_has_no_avx512() -> None:
    findings = judge(ID, machine(MILAN, document(map(right, MILAN), leaves_of(MILAN, datapath=256))))
    assert brief(findings) == {
        **dict.fromkeys(MILAN, "pass ok"),
        **dict.fromkeys(("avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16"), NOT_THERE),
    }
    fma = only(findings, "fma")
    assert values(fma) == ["1000 of 1000 words right", "112 of 112 planted bits noticed", "256-bit data path"]
    assert not any(item.volatile for item in fma.evidence)
    assert only(findings, "avx512f").message == "the processor has no AVX-512F"
    assert only(findings, "avx512f").evidence[0].value == "0x7.0 EBX bit 16 clear"


def test_a_healthy_genoa_and_turin_pass_all_they_have() -> None:
    genoa = judge(ID, machine(GENOA, document(map(right, GENOA), leaves_of(GENOA, datapath=256))))
    assert brief(genoa) == {**dict.fromkeys(GENOA, "pass ok"), "avx_vnni": NOT_THERE}
    turin = judge(ID, machine(TURIN, document(map(right, TURIN), leaves_of(TURIN, datapath=512))))
    assert brief(turin) == dict.fromkeys(TURIN, "pass ok")
    assert values(only(turin, "avx512f"))[-1] == "512-bit data path"


def test_a_wrong_lane_of_a_genoa_is_a_fail_that_names_lane_and_cpu() -> None:
    wrong = right("avx512f")
    wrong["result"].update(
        lanes=16,
        wrong=64,
        wrong_lanes=[5],
        first_wrong=[{"register": 2, "lane": 5, "got": "0x4b000001", "want": "0x4b000000"}],
    )
    kernels = [wrong if name == "avx512f" else right(name) for name in GENOA]
    findings = judge(ID, machine(GENOA, document(kernels, leaves_of(GENOA, datapath=256))))
    finding = only(findings, "avx512f")
    assert (finding.status, finding.id) == ("fail", f"{ID}/wrong-result")
    assert finding.message == "AVX-512F computes wrong, in lane 5 of 16"
    assert finding.actual == "64 of 1000 words wrong"
    assert "register 2 lane 5: 0x4b000001 instead of 0x4b000000" in values(finding)
    assert "ran on CPU 3" in values(finding)
    assert finding.remedy is not None
    assert (finding.remedy.action, finding.remedy.owner) == ("isolate", "node")
    assert brief(findings)["avx512_vnni"] == "pass ok"


def test_a_unit_that_is_wrong_in_every_lane_is_told_so() -> None:
    wrong = right("avx2")
    wrong["result"].update(wrong=1000, wrong_lanes=list(range(8)))
    kernels = [right("sse2"), wrong, right("fma")]
    finding = only(judge(ID, machine(MILAN, document(kernels, leaves_of(MILAN, datapath=256)))), "avx2")
    assert finding.message == "AVX2 computes wrong, in every lane"


def test_a_virtual_machine_that_announces_avx512_and_cannot_run_it_fails_and_the_rest_is_judged() -> None:
    kernels = [ended(n, "SIGILL") if n.startswith("avx512") else right(n) for n in GENOA]
    findings = judge(ID, machine(GENOA, document(kernels, leaves_of(GENOA, datapath=256))))
    assert brief(findings) == {
        **dict.fromkeys(MILAN, "pass ok"),
        **dict.fromkeys(GENOA[3:], "fail illegal-instruction"),
        "avx_vnni": NOT_THERE,
    }
    finding = only(findings, "avx512_vnni")
    assert values(finding)[:2] == ["SIGILL", "avx512f avx512_vnni"]
    assert values(finding)[2] == "0x7.0 EBX bit 16 set, 0x7.0 ECX bit 11 set"


def test_a_planted_bit_that_goes_unnoticed_is_a_fail_of_the_self_test() -> None:
    blind = right("fma")
    blind["result"].update(noticed=111)
    kernels = [right("sse2"), right("avx2"), blind]
    finding = only(judge(ID, machine(MILAN, document(kernels, leaves_of(MILAN, datapath=256)))), "fma")
    assert (finding.status, finding.id) == ("fail", f"{ID}/not-noticed")
    assert finding.actual == "111 of 112"


@pytest.mark.parametrize("nothing", [{"compared": 0}, {"planted": 0, "noticed": 0}])
def test_a_kernel_that_compared_or_planted_nothing_does_not_pass(nothing: dict[str, int]) -> None:
    empty = right("sse2")
    empty["result"].update(nothing)
    kernels = [empty, right("avx2"), right("fma")]
    finding = only(judge(ID, machine(MILAN, document(kernels, leaves_of(MILAN, datapath=256)))), "sse2")
    assert (finding.status, finding.outcome) == ("fail", "not-noticed")


def test_a_genoa_booted_with_clearcpuid_is_told_what_masks_avx512() -> None:
    said = document(map(right, MILAN), leaves_of(GENOA, datapath=256))
    host = machine(MILAN, said, files={"/proc/cmdline": "root=/dev/sda1 clearcpuid=avx512f quiet\n"})
    findings = judge(ID, host)
    assert brief(findings) == {
        **dict.fromkeys(MILAN, "pass ok"),
        **dict.fromkeys(GENOA[3:], "warn masked"),
        "avx_vnni": NOT_THERE,
    }
    finding = only(findings, "avx512f")
    assert finding.message == (
        "the processor has AVX-512F, but the kernel command line masks it with clearcpuid=avx512f"
    )
    assert values(finding) == ["0x7.0 EBX bit 16 set", "0x2e7", "clearcpuid=avx512f"]


def test_a_guest_whose_hypervisor_does_not_enable_the_avx512_registers_is_told_so() -> None:
    said = document(map(right, MILAN), leaves_of(GENOA, datapath=256), xcr0=0x7)
    finding = only(judge(ID, machine(MILAN, said)), "avx512_bf16")
    assert (finding.status, finding.outcome) == ("warn", "masked")
    assert finding.message == (
        "the processor has AVX512-BF16, but its registers are not enabled in XCR0, by the kernel or the hypervisor"
    )
    assert values(finding)[1:] == ["0x7", "no word that masks instruction sets"]


def test_a_machine_without_xsave_has_lost_avx2_too() -> None:
    said = document([right("sse2")], leaves_of(MILAN, datapath=256), xcr0=None)
    finding = only(judge(ID, machine(("sse2",), said)), "avx2")
    assert (finding.status, finding.outcome) == ("warn", "masked")
    assert values(finding)[1] == "XSAVE is off"


def test_a_flag_that_the_kernel_has_cleared_for_no_visible_reason_is_masked_all_the_same() -> None:
    said = document(map(right, MILAN), leaves_of(GENOA, datapath=256))
    finding = only(judge(ID, machine(MILAN, said)), "avx512f")
    assert finding.message == "the processor has AVX-512F, but the kernel has cleared it"


def test_a_turin_under_an_old_kernel_is_not_masked_but_unnamed() -> None:
    said = document(map(right, GENOA), leaves_of(TURIN, datapath=512))
    host = machine(GENOA, said, files={"/proc/sys/kernel/osrelease": "5.4.0-150-generic\n"})
    finding = only(judge(ID, host), "avx_vnni")
    assert (finding.status, finding.outcome) == ("skip", "not-applicable")
    assert finding.message.startswith("this kernel is older than the name of AVX-VNNI")
    assert values(finding)[0] == "5.4"


def test_a_guest_that_was_migrated_to_a_lesser_host_is_a_warning() -> None:
    said = document(map(right, GENOA), leaves_of(MILAN, datapath=256))
    findings = judge(ID, machine(GENOA, said))
    assert brief(findings)["avx512f"] == "warn not-in-cpuid"
    assert "0x7.0 EBX bit 16 clear" in values(only(findings, "avx512f"))


def test_a_hardened_kernel_costs_the_comparison_and_not_the_results() -> None:
    said = document(map(right, MILAN), {})
    said["cpuid"] = {"ended": "denied", "detail": "[Errno 13] Permission denied", "result": None}
    findings = judge(ID, machine(MILAN, said))
    assert brief(findings) == {
        "host": "unknown cpuid-unread",
        **dict.fromkeys(MILAN, "pass ok"),
        **dict.fromkeys(("avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16"), NOT_THERE),
    }
    reason = "the kernel does not offer AVX-512F; whether the processor has it could not be read"
    assert only(findings, "avx512f").message == reason
    assert [only(findings, subject).evidence[0].note for subject in ("host", "avx512f")] == [
        "denied: [Errno 13] Permission denied"
    ] * 2
    assert values(only(findings, "fma")) == ["1000 of 1000 words right", "112 of 112 planted bits noticed"]


@pytest.mark.parametrize(
    ("end", "outcome", "shown"),
    [
        (ended("fma", "SIGSEGV"), "died", "SIGSEGV"),
        (ended("fma", "SIGKILL"), "died", "SIGKILL"),
        (ended("fma", "memory", "out of memory"), "died", "memory: out of memory"),
        (ended("fma", "timeout", "not finished within 2 s"), "timeout", "timeout: not finished within 2 s"),
    ],
)
def test_a_kernel_that_ends_without_an_answer_is_unknown_and_named(end: Document, outcome: str, shown: str) -> None:
    said = document([right("sse2"), right("avx2"), end], leaves_of(MILAN, datapath=256))
    findings = judge(ID, machine(MILAN, said))
    finding = only(findings, "fma")
    assert (finding.status, finding.outcome, values(finding)) == ("unknown", outcome, [shown])
    assert brief(findings)["avx2"] == "pass ok"


def test_an_instruction_set_newer_than_the_compiler_is_skipped() -> None:
    old = ended("fma", "not-built", "the compiler that built amdcheck does not know this instruction set")
    said = document([right("sse2"), right("avx2"), old], leaves_of(MILAN, datapath=256))
    finding = only(judge(ID, machine(MILAN, said)), "fma")
    assert (finding.status, finding.outcome) == ("unknown", "absent")
    assert "does not know this instruction set" in finding.message


def test_an_instruction_set_that_the_document_forgets_is_unknown() -> None:
    said = document([right("sse2"), right("avx2")], leaves_of(MILAN, datapath=256))
    finding = only(judge(ID, machine(MILAN, said)), "fma")
    assert (finding.status, finding.outcome) == ("unknown", "failed")


def test_a_pure_python_installation_is_undetermined_and_still_sees_what_is_masked() -> None:
    said = document([], leaves_of(GENOA, datapath=256))
    said["lacks"] = "amdcheck was installed without its native kernels for x86_64"
    host = machine(MILAN, said, files={"/proc/cmdline": "clearcpuid=avx512f\n"})
    findings = judge(ID, host)
    assert brief(findings) == {
        "host": "unknown absent",
        **dict.fromkeys(GENOA[3:], "warn masked"),
        "avx_vnni": NOT_THERE,
    }
    assert values(only(findings, "host")) == ["not run: sse2, avx2, fma"]


@pytest.mark.parametrize(
    ("stdout", "how", "outcome", "note"),
    [
        ("", {"rc": None, "timed_out": True, "duration_s": 20.4}, "timeout", "the child was ended after 20 s"),
        (
            "",
            {"rc": None, "timed_out": True, "duration_s": 21.0, "stuck": ("pid 812 (amdgpu_ring)",)},
            "timeout",
            "still there: pid 812 (amdgpu_ring)",
        ),
        ("", {"rc": -9}, "failed", "the child was killed by SIGKILL"),
        ("", {"rc": 1, "stderr": "Traceback ...\nImportError: no"}, "failed", "the child left with 1: ImportError: no"),
        ("not json\n", {}, "failed", "malformed"),
        ('{"test": "cpu.isa"}\n', {}, "failed", "missing required field"),
    ],
)
def test_a_child_that_ends_badly_is_one_unknown(stdout: str, how: dict[str, Any], outcome: str, note: str) -> None:
    (finding,) = judge(ID, machine(MILAN, stdout, how=how))
    assert (finding.status, finding.id, finding.subject.id) == ("unknown", f"{ID}/{outcome}", "host")
    assert note in (finding.evidence[0].note or "")


def test_a_recording_without_the_self_test_is_not_recorded() -> None:
    (finding,) = judge(ID, machine(MILAN, None))
    assert (finding.status, finding.id) == ("unknown", f"{ID}/not-recorded")


def test_a_machine_whose_flags_cannot_be_read_is_unknown() -> None:
    host = memory_host({}, outcomes={"/proc/cpuinfo": "denied"})
    (finding,) = judge(ID, host)
    assert (finding.status, finding.id) == ("unknown", f"{ID}/denied")


def test_an_arm_machine_is_skipped_with_the_reason() -> None:
    text = "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd4f\nFeatures\t: fp asimd\n\n"
    (finding,) = judge(ID, memory_host({"/proc/cpuinfo": text}))
    assert finding.status == "skip"
    assert "aarch64" in finding.message


class Substitute(LiveHost):
    """This machine, with the kernel of one instruction set taken for another's: a really broken one."""

    def __init__(self, name: str, hook: str) -> None:
        super().__init__()
        self.name, self.hook = name, hook

    def selftest(self, test: SelfTest) -> Value[SelfTestResult]:
        params = tuple(self.hook if name == self.name else name for name in test.params)
        found = super().selftest(SelfTest(name=test.name, params=params, timeout_s=test.timeout_s))
        assert isinstance(found, Known)
        result = found.value.result
        stdout = result.stdout.replace(f'"{self.hook}"', f'"{self.name}"')
        fields = {key: getattr(result, key) for key in result.__struct_fields__}
        again = CommandResult(**{**fields, "stdout": stdout})
        return Known(SelfTestResult(name=test.name, params=test.params, python=None, result=again), found.source)


@pytest.mark.parametrize(
    ("hook", "expected"),
    [
        ("hook-illegal", "fail illegal-instruction"),
        ("hook-wrong", "fail wrong-result"),
        ("hook-blind", "fail not-noticed"),
        ("hook-stray", "unknown died"),
        ("hook-endless", "unknown timeout"),
    ],
)
def test_a_kernel_of_this_machine_that_is_really_broken_is_found_and_the_others_pass(hook: str, expected: str) -> None:
    findings = judge(ID, Substitute("avx2", hook))
    told = brief(findings)
    assert told.pop("avx2") == expected
    assert told.pop("sse2") == "pass ok"
    assert set(told.values()) <= {"pass ok", NOT_THERE}


def test_this_machine_gives_the_same_findings_from_its_own_recording() -> None:
    recording = RecordingHost(LiveHost())
    live = judge(ID, recording)
    assert brief(live)["sse2"] == "pass ok"
    replay = SnapshotHost(merge([recording.take()], memory_host({}).capture.manifest))
    assert judge(ID, replay) == live


def test_at_level_quick_no_child_is_started() -> None:
    class NoChildren(LiveHost):
        def selftest(self, test: SelfTest) -> Value[SelfTestResult]:
            raise AssertionError("a self-test was started")

    host: Host = NoChildren()
    fact = read_fact(IsaSelfTest, host, Expectations(level="quick"))
    assert isinstance(fact.runs, Unknown)
    assert fact.runs.reason == "not-recorded"
    (finding,) = judge(ID, host, Expectations(level="quick"))
    assert (finding.id, finding.status, finding.subject.id) == (f"{ID}/not-recorded", "unknown", "host")


def test_a_kernel_that_did_not_end_sends_to_the_quota_of_the_own_control_group() -> None:
    step = remedy(f"{ID}/timeout").steps[1]
    assert step.argv is not None
    assert all(name in step.argv[2] for name in ("/proc/self/cgroup", "cpu.max", "cpu.stat"))


def test_every_outcome_that_needs_a_remedy_has_one() -> None:
    own = {
        "absent",
        "wrong-result",
        "illegal-instruction",
        "not-noticed",
        "masked",
        "not-in-cpuid",
        "cpuid-unread",
        "died",
        "timeout",
    }
    assert {key.partition("/")[2] for key in remedies("selftest") if key.startswith(f"{ID}/")} == own
