"""Clock and matrix products of one core: exactness fails, rates only warn, and a disturbed reading judges nothing."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from amdcheck.engine.registry import all_checks
from amdcheck.facts.cpu_compute import FULL_RANGE, ComputeSelfTest, Product, ProductRun
from amdcheck.facts.cpu_cores import CoresSelfTest
from amdcheck.host.asked import LEAST, asked_for
from amdcheck.host.protocol import SelfTest, SelfTestResult
from amdcheck.host.snapshot import SnapshotHost
from amdcheck.knowledge.selftests import limit
from amdcheck.model.expectations import Expectations
from amdcheck.model.finding import Finding
from amdcheck.model.value import Known, Value
from tests.compose import compose
from tests.compose.composed import ComposedMachine
from tests.judge import judge, read_fact

PRODUCTS = ("selftest.cpu.gemm-fp32", "selftest.cpu.gemm-int8", "selftest.cpu.gemm-bf16")
TURIN, MILAN = "epyc9575fx2-cpu", "epyc7763-cpu-nps4"


def by_subject(check: str, machine: str, *faults: str) -> dict[str, Finding]:
    return {f.subject.id: f for f in judge(check, compose(machine, *faults).host)}


def metrics(finding: Finding) -> dict[str, float]:
    return {metric.name: metric.value for metric in finding.metrics}


def with_product(test: ComputeSelfTest, name: str, product: Product) -> Value[dict[str, ProductRun]]:
    """Its products, with another result of one."""
    runs = test.products.or_none() or {}
    return Known({**runs, name: replace(runs[name], result=product)}, test.source)


def judged_with(test: ComputeSelfTest) -> list[Finding]:
    """What is said of FP32 where the self-test gave this on a Milan."""
    return list(all_checks()["selftest.cpu.gemm-fp32"].function(test=test))


def test_zen_5_issues_twice_what_256_bits_hold() -> None:
    found = by_subject("selftest.cpu.gemm-fp32", TURIN)
    assert {name: f.id for name, f in found.items()} == dict.fromkeys(("fma", "avx512f"), f"{PRODUCTS[0]}/ok")
    assert metrics(found["fma"])["ceiling-per-cycle"] == pytest.approx(32)
    assert metrics(found["avx512f"])["ceiling-per-cycle"] == pytest.approx(64)
    assert metrics(found["avx512f"])["of-ceiling"] == pytest.approx(0.9)
    assert all(metric.volatile for f in found.values() for metric in f.metrics)


def test_operations_a_cycle_are_by_the_clock_beside_the_ceiling() -> None:
    """The clock rose from the ceiling's slices to the product's."""
    test = read_fact(ComputeSelfTest, compose(MILAN).host)
    product = (test.products.or_none() or {})["fma"].result
    assert product is not None
    faster = replace(product, reading=replace(product.reading, cycle_s=1 / 3.5e9))
    (finding, _) = judged_with(replace(test, products=with_product(test, "fma", faster)))
    told = metrics(finding)
    assert (told["clock"], told["ceiling-clock"]) == (3.5, 2.85)
    assert told["ceiling"] / told["ceiling-clock"] == pytest.approx(told["ceiling-per-cycle"], rel=1e-3)


@pytest.mark.parametrize("check", PRODUCTS)
def test_the_page_says_how_far_below_its_ceiling_a_product_is_slow(check: str) -> None:
    page = " ".join(all_checks()[check].page.split())
    assert f"below-ceiling: the product reaches less than {limit('product-of-ceiling').value:g} of its ceiling" in page


@pytest.mark.parametrize("check", PRODUCTS)
def test_zen_3_has_avx2_alone(check: str) -> None:
    found = by_subject(check, MILAN)
    assert {name for name, f in found.items() if f.status == "pass"} == {
        "selftest.cpu.gemm-fp32": {"fma"},
        "selftest.cpu.gemm-int8": {"avx2"},
        "selftest.cpu.gemm-bf16": set(),
    }[check]
    assert {f.status for f in found.values()} <= {"pass", "skip"}


def test_a_wrong_word_is_shown_with_its_place_and_bits() -> None:
    finding = by_subject("selftest.cpu.gemm-fp32", TURIN, "products-wrong")["fma"]
    assert (finding.id, finding.status) == ("selftest.cpu.gemm-fp32/wrong-result", "fail")
    assert finding.actual == "3 of 1400000 words wrong"
    assert "0x42280000 instead of 0x42280001 in row 3, column 5" in [e.value for e in finding.evidence]
    assert finding.remedy is not None
    assert finding.remedy.owner == "node"


@pytest.mark.parametrize("check", PRODUCTS)
def test_what_else_runs_on_the_cpu_is_told_and_no_rate_is_judged(check: str) -> None:
    """A fifth of the ports, but only because something else had the CPU."""
    for finding in by_subject(check, TURIN, "cpu-disturbed", "products-below-ceiling").values():
        assert (finding.id, finding.status) == (f"{check}/ok", "pass")
        told = [e for e in finding.evidence if "disturbed, not judged: 50 % of a CPU" in (e.value or "")]
        assert [e.volatile for e in told] == [True, True]
        assert finding.metrics == ()


@pytest.mark.parametrize(
    ("disturbed", "left"),
    [("reading", {"ceiling", "ceiling-clock", "ceiling-per-cycle"}), ("ceiling", {"rate", "clock"})],
)
def test_the_rate_that_was_not_disturbed_is_told(disturbed: str, left: set[str]) -> None:
    test = read_fact(ComputeSelfTest, compose(MILAN).host)
    product = (test.products.or_none() or {})["fma"].result
    assert product is not None
    quiet = product.reading if disturbed == "reading" else product.ceiling
    one = replace(product, **{disturbed: replace(quiet, cpu_share=0.5)})
    changed = replace(test, products=with_product(test, "fma", one))
    (finding, _) = judged_with(changed)
    assert set(metrics(finding)) == left


def with_shared(test: ComputeSelfTest, **changed: float | None) -> ComputeSelfTest:
    """With other instructions begun a cycle beside the FP32 product of 256 bits, or its ceiling."""
    product = (test.products.or_none() or {})["fma"].result
    assert product is not None
    readings = {name: replace(getattr(product, name), issued=issued) for name, issued in changed.items()}
    return replace(test, products=with_product(test, "fma", replace(product, **readings)))


BELOW_CEILING, BELOW_TABLE, RIGHT = ("selftest.cpu.gemm-fp32/" + end for end in ("below-ceiling", "below-table", "ok"))


@pytest.mark.parametrize(
    ("fault", "shared", "says", "left"),
    [
        ("products-below-ceiling", "reading", RIGHT, {"ceiling", "ceiling-clock", "ceiling-per-cycle"}),
        ("products-below-ceiling", "ceiling", BELOW_CEILING, {"rate", "clock"}),
        ("half-the-ports", "reading", BELOW_TABLE, {"ceiling", "ceiling-clock", "ceiling-per-cycle"}),
        ("half-the-ports", "ceiling", RIGHT, {"rate", "clock"}),
    ],
)
def test_what_the_core_s_other_thread_took_part_of_makes_no_core_slow(
    fault: str, shared: str, says: str, left: set[str]
) -> None:
    """A ceiling that was shared is too low: a product below it is below the true one. The rest stands for itself."""
    test = with_shared(read_fact(ComputeSelfTest, compose(TURIN, fault).host), **{shared: 2.9})
    finding = judged_with(test)[0]
    assert finding.id == says
    told = [e for e in finding.evidence if (e.note or "").startswith("as while its other thread works")]
    name = "product" if shared == "reading" else "ceiling"
    assert [(e.value, e.volatile) for e in told] == [
        (f"beside the {name} the core began 2.9 instructions a cycle, and 5.9 at most", True)
    ]
    assert set(metrics(finding)) == left


def test_a_core_that_begins_nearly_as_much_is_alone() -> None:
    test = with_shared(read_fact(ComputeSelfTest, compose(TURIN, "products-below-ceiling").host), reading=5.4)
    assert judged_with(test)[0].id == BELOW_CEILING


@pytest.mark.parametrize(
    ("disturbed", "says"), [("reading", "selftest.cpu.gemm-fp32/below-table"), ("ceiling", "selftest.cpu.gemm-fp32/ok")]
)
def test_a_ceiling_below_the_table_is_told_whatever_disturbed_the_product(disturbed: str, says: str) -> None:
    test = read_fact(ComputeSelfTest, compose(TURIN, "half-the-ports").host)
    product = (test.products.or_none() or {})["fma"].result
    assert product is not None
    one = replace(product, **{disturbed: replace(getattr(product, disturbed), cpu_share=0.5)})
    assert judged_with(replace(test, products=with_product(test, "fma", one)))[0].id == says


def test_recordings_of_before_the_front_end_was_looked_at_are_judged() -> None:
    test = read_fact(ComputeSelfTest, compose(TURIN, "products-below-ceiling").host)
    assert judged_with(with_shared(test, reading=None, ceiling=None))[0].id == BELOW_CEILING


@pytest.mark.parametrize("check", [*PRODUCTS, "selftest.cpu.clock", "selftest.cpu.int8-exact"])
def test_busy_cpus_are_left_alone(check: str) -> None:
    (finding,) = judge(check, compose(TURIN, "every-cpu-in-use").host)
    assert (finding.id, finding.status, finding.subject.id) == (f"{check}/busy", "skip", "host")


def test_the_clock_is_held_against_the_firmware_s_nominal_one() -> None:
    (finding,) = judge("selftest.cpu.clock", compose(TURIN).host)
    assert (finding.id, finding.status) == ("selftest.cpu.clock/ok", "pass")
    assert finding.message.endswith("it is not below nominal")
    assert metrics(finding) == {"clock": 3.7}
    assert [e.source for e in finding.evidence if e.value == "3.30 GHz"] == [
        "/sys/devices/system/cpu/cpu0/acpi_cppc/nominal_freq"
    ]


def test_a_guest_has_no_nominal_clock_and_says_so() -> None:
    (finding,) = judge("selftest.cpu.clock", compose("mi300x-1vf-kvm").host)
    assert (finding.id, finding.status) == ("selftest.cpu.clock/ok", "pass")
    assert finding.message == (
        "both chains agree on the clock under load; no nominal clock is known to hold it against"
    )


def test_full_bytes_without_vnni_are_left_to_the_operator() -> None:
    (finding,) = judge("selftest.cpu.int8-exact", compose(MILAN).host)
    assert (finding.id, finding.status) == ("selftest.cpu.int8-exact/saturates", "manual")
    assert "saturates" in [e.value for e in finding.evidence]


def test_full_bytes_with_vnni_are_exact() -> None:
    (finding,) = judge("selftest.cpu.int8-exact", compose(TURIN).host)
    assert (finding.id, finding.status) == ("selftest.cpu.int8-exact/ok", "pass")
    assert finding.message == "sums of full bytes are exact by AVX512-VNNI, which runtimes take here"
    assert {e.source for e in finding.evidence} == {"selftest cpu.compute avx512_vnni"}
    assert "25 of 25 planted errors noticed" in [e.value for e in finding.evidence]


def test_saturation_is_tried_only_where_it_decides() -> None:
    tried = {machine: read_fact(ComputeSelfTest, compose(machine).host).products for machine in (TURIN, MILAN)}
    assert {m: FULL_RANGE in (runs.or_none() or ()) for m, runs in tried.items()} == {TURIN: False, MILAN: True}


def int8_with(machine: str, product: str, **changes: int) -> Finding:
    """What is said of full bytes where this product's result has these values."""
    test = read_fact(ComputeSelfTest, compose(machine).host)
    result = (test.products.or_none() or {})[product].result
    assert result is not None
    changed = replace(test, products=with_product(test, product, replace(result, **changes)))
    (finding,) = all_checks()["selftest.cpu.int8-exact"].function(test=changed)
    return finding


def test_wrong_sums_by_vnni_are_a_fail_however_it_stands_with_avx2() -> None:
    finding = int8_with(TURIN, "avx512_vnni", wrong=7)
    assert (finding.id, finding.status) == ("selftest.cpu.int8-exact/wrong-result", "fail")
    assert finding.actual == "7 of 1400000 sums wrong"


@pytest.mark.parametrize("nothing", [{"compared": 0}, {"planted": 0, "noticed": 0}, {"noticed": 24}])
def test_right_sums_by_vnni_that_prove_nothing_are_unknown(nothing: dict[str, int]) -> None:
    finding = int8_with(TURIN, "avx512_vnni", **nothing)
    assert (finding.id, finding.status) == ("selftest.cpu.int8-exact/failed", "unknown")


def test_avx2_that_does_not_saturate_has_shown_nothing() -> None:
    """The operands must make it: that every sum is right is no proof that full bytes are."""
    finding = int8_with(MILAN, FULL_RANGE, wrong=0)
    assert (finding.id, finding.status) == ("selftest.cpu.int8-exact/failed", "unknown")
    assert [e.note for e in finding.evidence] == ["failed: none of 1400000 sums left 16 bits, as many must"]


@pytest.mark.parametrize("check", PRODUCTS)
def test_nothing_is_started_at_quick(check: str) -> None:
    findings = judge(check, compose("epyc7302p-cpu-only").host, Expectations(level="quick"))
    assert [f.id for f in findings] == [f"{check}/not-recorded"]


@pytest.mark.parametrize("check", ["selftest.cpu.int8-exact", "selftest.cpu.gemm-fp32", "selftest.cpu.triad"])
def test_instruction_sets_that_could_not_be_read_are_not_taken_for_missing_ones(check: str) -> None:
    host = compose(TURIN)
    del host.tree.files["/proc/cpuinfo"]
    found = judge(check, host.host)
    assert {f.status for f in found} == {"unknown"}, [(f.id, f.message) for f in found]


def test_a_result_of_a_step_that_did_not_return_is_none() -> None:
    """A recording that contradicts itself is no evidence."""
    with pytest.raises(ValueError, match="when it returned, and only then"):
        ProductRun(name="fma", ended="returned", detail=None, result=None)


@pytest.mark.parametrize(
    ("machine", "least"),
    [
        (MILAN, {"least:clock=2.205e+09", "least:fma=24"}),
        (TURIN, {"least:clock=2.97e+09", "least:fma=24", "least:avx512f=48", "least:avx_vnni=96"}),
    ],
)
def test_the_child_is_told_below_what_it_should_look_again(
    machine: str, least: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the product table and the firmware's nominal clock; a recording answers whatever it was told."""
    host = compose(machine).host
    asked = list[SelfTest]()
    answer = type(host).selftest

    def ask(self: ComposedMachine, test: SelfTest) -> Value[SelfTestResult]:
        asked.append(test)
        return answer(self, test)

    monkeypatch.setattr(type(host), "selftest", ask)
    assert read_fact(ComputeSelfTest, host).unread is None
    assert read_fact(CoresSelfTest, host).unread is None
    compute, cores = ({word for word in test.params if word.startswith(LEAST)} for test in asked)
    assert least <= compute
    assert cores == {word for word in least if word.startswith("least:clock")}
    recorded = SnapshotHost(compose(machine).capture())
    for test in asked:
        told_otherwise = replace(test, params=(*asked_for(test.params), "least:clock=1e9"))
        assert isinstance(recorded.selftest(told_otherwise), Known)
