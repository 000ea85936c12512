"""selftest.cpu.scaling and .neighbour on children that say what no named fault says, and on what is no fault."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from amdcheck.host.protocol import Host, SelfTest, SelfTestResult
from amdcheck.model.finding import Finding
from amdcheck.model.value import Known, Value
from tests.compose import compose
from tests.compose.composed import ComposedMachine
from tests.judge import judge

SCALING, NEIGHBOUR = "selftest.cpu.scaling", "selftest.cpu.neighbour"
Document = dict[str, Any]
ROME = "epyc7302p-cpu-only"  # one socket, 16 cores in slices of two, SMT
GUEST = "mi300x-1vf-kvm"


class Changed(ComposedMachine):
    """A composed machine whose child of cpu.cores says something else."""

    def __init__(self, machine: str, change: Callable[[Document], None]) -> None:
        whole = compose(machine)
        super().__init__(whole.host.capture, whole.plan)
        self._change = change

    def selftest(self, test: SelfTest) -> Value[SelfTestResult]:
        answer = super().selftest(test)
        assert isinstance(answer, Known)
        document = json.loads(answer.value.result.stdout)
        if test.name == "cpu.cores":
            self._change(document)
        result = replace(answer.value.result, stdout=json.dumps(document))
        return Known(replace(answer.value, result=result), answer.source)


def told(found: list[Finding]) -> list[tuple[str, str, str]]:
    return [(f.id, f.subject.id, f.status) for f in found]


def each(document: Document, **values: float) -> None:
    """Every process measured these values."""
    for run in (*document["alone"], *document["together"]):
        run["result"] |= values


def slower(factor: float) -> Callable[[Document], None]:
    """All together take so much longer for everything, their chains too."""

    def change(document: Document) -> None:
        for run in document["together"]:
            for name in ("product_best_s", "product_median_s", "chain_best_s", "ports_best_s"):
                run["result"][name] *= factor

    return change


def test_a_machine_of_equal_cores_scales_and_shows_what_it_measured() -> None:
    (whole,) = judge(SCALING, compose(ROME).host)
    assert (whole.id, whole.status, whole.message) == (
        f"{SCALING}/ok",
        "pass",
        "the cores do together about what they do alone",
    )
    assert [(e.value, e.volatile) for e in whole.evidence] == [
        ("100 % of as many cores alone, per cycle", True),
        ("32 CPUs on 16 cores at once", True),
        ("2: 100 %, 4: 100 %, 8: 100 %, 16: 100 %, 32: 100 %", True),
        ("3.40 GHz", True),
        ("3.00 GHz", True),
        ("0-31", False),
    ]
    assert {(m.name, m.value, m.unit, m.volatile) for m in whole.metrics} == {
        ("efficiency", 100.0, "%", True),
        *((f"efficiency-on-{cpus}", 100.0, "%", True) for cpus in (2, 4, 8, 16)),
        ("clock-together", 3.4, "GHz", True),
        ("stolen", 0.0, "%", True),
    }


def test_what_does_not_scale_is_told_from_where_on() -> None:
    """Eight of the sixteen cores are given; a wave in which somebody else was at work says nothing."""

    def half(document: Document) -> None:
        document["waves"][0] |= {"per_cycle": document["waves"][0]["per_cycle"] / 2, "cpu_share": 0.6}
        document["waves"][3]["per_cycle"] /= 2
        for run in document["together"]:
            run["result"]["product_median_s"] *= 2

    (whole,) = judge(SCALING, Changed(ROME, half))
    assert told([whole]) == [(f"{SCALING}/low", "host", "warn")]
    assert whole.message == (
        "16 CPUs at once do far less than alone, cycle for cycle, as if they were threads of fewer cores than they "
        "look like"
    )
    assert whole.evidence[2].value == "4: 100 %, 8: 100 %, 16: 50 %, 32: 50 %"


def test_a_few_cpus_are_measured_alone_and_each_is_told() -> None:
    found = judge(NEIGHBOUR, compose(ROME).host)
    assert told(found) == [(f"{NEIGHBOUR}/ok", cpu, "pass") for cpu in ("0", "4", "8", "12")]
    assert [e.value for e in found[0].evidence] == ["75 % of the ports' rate", "3.40 GHz", "3.00 GHz", "3.00 GHz"]


def test_boost_of_one_core_alone_is_not_mistaken_for_bad_scaling() -> None:
    """All cores at work run a third slower than one of them: the clock says so, and cycle for cycle nothing is lost."""

    (whole,) = judge(SCALING, Changed(ROME, slower(1.2)))
    assert told([whole]) == [(f"{SCALING}/ok", "host", "pass")]


def test_a_clock_below_nominal_when_all_are_at_work_is_told_with_both() -> None:
    """Which no core alone shows: each of them has its boost clock."""
    (whole,) = judge(SCALING, compose("epyc9575fx2-cpu", "cores-throttled-together").host)
    assert (whole.id, whole.expected, whole.actual) == (f"{SCALING}/low-clock", "at least 90 % of 3.30 GHz", "2.22 GHz")
    told = {e.note: (e.source, e.value) for e in whole.evidence}
    assert told["clock of all at once"] == ("selftest cpu.cores", "2.22 GHz")
    assert told["nominal clock"][0].endswith("/acpi_cppc/nominal_freq")
    assert {f.outcome for f in judge(NEIGHBOUR, compose("epyc9575fx2-cpu", "cores-throttled-together").host)} == {"ok"}


def test_without_a_nominal_clock_none_is_low_when_all_are_at_work() -> None:
    (whole,) = judge(SCALING, Changed(GUEST, slower(3.0)))
    assert whole.id == f"{SCALING}/ok"
    assert "nominal clock" not in [e.note for e in whole.evidence]


def test_what_others_of_a_group_leave_of_its_quota_is_no_matter_of_idle_cpus() -> None:
    quota = {"path": "/sys/fs/cgroup/x", "cpus": 32.0, "throttled": 0, "throttled_s": 0.0}

    def one_left(document: Document) -> None:
        document |= {"alone": document["alone"][:1], "together": [], "quota": quota}

    (busy,) = judge(SCALING, Changed(ROME, one_left))
    assert told([busy]) == [(f"{SCALING}/busy", "host", "skip")]
    assert busy.message == "only one of the CPUs is idle, or within what others leave of the quota"
    assert ("/sys/fs/cgroup/x", "32 CPUs") in [(e.source, e.value) for e in busy.evidence]


def test_the_share_that_is_shown_is_the_one_that_is_judged() -> None:
    """Of four cores one at 0.7: the median of all is a little lower than that of the other three."""

    def two_slow(document: Document) -> None:
        document["together"] = [run for run in document["together"] if run["cpu"] < 4]
        for run in document["together"][:2]:
            run["result"]["product_median_s"] /= 0.7

    found = [f for f in judge(SCALING, Changed(GUEST, two_slow)) if f.outcome == "slow-core"]
    assert [f.evidence[0].value for f in found] == 2 * ["70 % of the median of the others"]


def test_without_avx2_fma_alone_is_no_product_to_run() -> None:
    """isa.toml has FMA with AVX2, as the kernel is built."""
    whole = compose(ROME)
    cpuinfo = str(whole.tree.files["/proc/cpuinfo"])
    whole.tree.files["/proc/cpuinfo"] = cpuinfo.replace(" avx2 ", " ")
    assert told(judge(SCALING, whole.host)) == [(f"{SCALING}/not-applicable", "host", "skip")]


def test_a_disturbed_cpu_that_is_fast_all_the_same_passes_and_tells_of_it() -> None:
    found = judge(NEIGHBOUR, Changed(ROME, lambda d: each(d, cpu_share=0.5, involuntary=7)))
    assert {f.status for f in found} == {"pass"}
    assert all(any("50 % of its CPU, taken off it 7 times" in (e.value or "") for e in f.evidence) for f in found)
    assert [f.metrics for f in found] == [()] * 4
    assert {f.message for f in found} == {
        "no sign of somebody on the core's other thread, though others ran on the CPU itself, and its clock was "
        "nominal or above"
    }


def test_of_cpus_that_the_hypervisor_takes_only_that_is_measured() -> None:
    (whole,) = judge(SCALING, compose(GUEST, "virtual-cpus-stolen").host)
    assert told([whole]) == [(f"{SCALING}/stolen", "host", "warn")]
    assert [(m.name, m.value) for m in whole.metrics] == [("stolen", 30.0)]


@pytest.mark.parametrize(
    ("fault", "outcome", "now", "ever"),
    [
        ("virtual-cpus-stolen-on-and-off", "stolen", 27, 25.0),
        ("virtual-cpus-stolen-for-a-moment", "disturbed", 27, 0.3),
        ("virtual-cpus-stolen-for-seconds", "disturbed", 33, 0.5),
    ],
)
def test_steal_is_judged_by_what_was_since_boot_too(fault: str, outcome: str, now: int, ever: float) -> None:
    (whole,) = judge(SCALING, compose(GUEST, fault).host)
    assert whole.outcome == outcome
    taken = [(e.value, e.note) for e in whole.evidence if e.source == "/proc/stat"]
    assert taken == [
        (f"{now} % taken by the hypervisor in 3 looks", "steal"),
        (f"{ever:.1f} % of the time with work", "steal since boot"),
    ]


def test_a_recording_that_counts_no_looks_tells_the_steal_of_the_one_it_has() -> None:
    def of_before(document: Document) -> None:
        del document["stolen_looks"], document["stolen_since_boot"]
        for run in document["together"]:
            run["result"] |= {"cpu_share": 0.7, "stolen_s": 0.3 * run["result"]["took_s"]}

    (whole,) = judge(SCALING, Changed(GUEST, of_before))
    assert (whole.outcome, [(m.name, m.value) for m in whole.metrics]) == ("stolen", [("stolen", 30.0)])


@pytest.mark.parametrize("nonsense", [{"noticed": 5}, {"planted": -1}, {"wrong": -1}, {"wrong": 1e9}])
def test_a_child_that_counts_more_than_there_is_proves_nothing(nonsense: dict[str, float]) -> None:
    for check in (SCALING, NEIGHBOUR):
        assert told(judge(check, Changed(ROME, lambda d: each(d, **nonsense)))) == [
            (f"{check}/failed", "host", "unknown")
        ]


@pytest.mark.parametrize("count", ["compared", "planted"])
def test_a_core_of_which_nothing_was_compared_passes_nothing(count: str) -> None:
    nothing = {"planted": 0, "noticed": 0} if count == "planted" else {"compared": 0}
    scaling = judge(SCALING, Changed(ROME, lambda d: each(d, **nothing)))
    assert {f.id for f in scaling if f.status == "fail"} == {f"{SCALING}/not-noticed"}
    assert {f.status for f in judge(NEIGHBOUR, Changed(ROME, lambda d: each(d, **nothing)))} == {"skip"}


def test_one_disturbed_cpu_of_many_is_told_and_a_short_interruption_is_not() -> None:
    def one(share: float) -> Callable[[Document], None]:
        return lambda document: document["together"][3]["result"].update(cpu_share=share)

    assert told(judge(SCALING, Changed(ROME, one(0.85)))) == [(f"{SCALING}/ok", "host", "pass")]
    (whole,) = judge(SCALING, Changed(ROME, one(0.5)))
    assert told([whole]) == [(f"{SCALING}/disturbed", "host", "unknown")]
    assert whole.evidence[0].value == "CPU 3: 50 % of its CPU, taken off it 0 times"


@pytest.mark.parametrize("check", [SCALING, NEIGHBOUR])
def test_on_a_machine_in_use_nothing_is_measured(check: str) -> None:
    why = "every CPU that amdcheck may run on is in use, the least of them CPU 0 98 %"

    def busy(document: Document) -> None:
        document |= {"busy": why, "alone": [], "together": []}

    (found,) = judge(check, Changed(ROME, busy))
    assert told([found]) == [(f"{check}/busy", "host", "skip")]
    assert (found.evidence[0].value, found.evidence[0].volatile) == (why, True)


def test_on_a_machine_in_use_a_quota_is_told_all_the_same() -> None:
    quota = {"path": "/sys/fs/cgroup/x", "cpus": 4.0, "throttled": 0, "throttled_s": 0.0}

    def busy(document: Document) -> None:
        document |= {"busy": "all in use", "alone": [], "together": [], "quota": quota}

    assert told(judge(SCALING, Changed(ROME, busy))) == [(f"{SCALING}/throttled-by-quota", "host", "warn")]


def test_with_one_idle_cpu_scaling_is_busy_and_its_neighbour_is_judged() -> None:
    def one_idle(document: Document) -> None:
        document |= {"alone": document["alone"][:1], "together": []}

    host = Changed(ROME, one_idle)
    assert told(judge(SCALING, host)) == [(f"{SCALING}/busy", "host", "skip")]
    assert told(judge(NEIGHBOUR, host)) == [(f"{NEIGHBOUR}/ok", "0", "pass")]


def test_in_a_guest_with_one_idle_cpu_no_clock_is_there_to_compare_with() -> None:
    def one_idle(document: Document) -> None:
        document |= {"alone": document["alone"][:1], "together": []}

    (found,) = judge(NEIGHBOUR, Changed(GUEST, one_idle))
    assert told([found]) == [(f"{NEIGHBOUR}/busy", "0", "skip")]
    unsure = "; whether its clock is low cannot be said, no other core could be measured"
    assert found.message == f"nobody shared the core{unsure}"

    def and_disturbed(document: Document) -> None:
        one_idle(document)
        each(document, cpu_share=0.5)

    (other,) = judge(NEIGHBOUR, Changed(GUEST, and_disturbed))
    assert other.message == (
        f"no sign of somebody on the core's other thread, though others ran on the CPU itself{unsure}"
    )
    assert ("matrix product", "75 % of the ports' rate") in [(e.note, e.value) for e in found.evidence]


def test_a_quota_of_as_many_cpus_as_there_are_holds_nobody_back() -> None:
    quota = {"path": "/sys/fs/cgroup/x", "cpus": 32.0, "throttled": 0, "throttled_s": 0.0}
    (whole,) = judge(SCALING, Changed(ROME, lambda d: d.update(quota=quota)))
    assert told([whole]) == [(f"{SCALING}/ok", "host", "pass")]
    assert ("/sys/fs/cgroup/x", "32 CPUs") in [(e.source, e.value) for e in whole.evidence]


def test_a_quota_that_held_somebody_back_is_told_however_large_it_is() -> None:
    quota = {"path": "/sys/fs/cgroup/x", "cpus": 32.0, "throttled": 2, "throttled_s": 0.015}
    (whole,) = judge(SCALING, Changed(ROME, lambda d: d.update(quota=quota)))
    assert told([whole]) == [(f"{SCALING}/throttled-by-quota", "host", "warn")]
    assert whole.evidence[1].value == "2 times for 0.015 s during the self-test"


def test_of_three_cores_none_is_called_slow() -> None:
    def three(document: Document) -> None:
        document["together"] = document["together"][:3]
        slow = document["together"][2]["result"]
        for name in ("product_best_s", "product_median_s", "chain_best_s", "ports_best_s"):
            slow[name] *= 2

    assert told(judge(SCALING, Changed(GUEST, three))) == [(f"{SCALING}/ok", "host", "pass")]


def test_a_core_whose_other_thread_was_in_use_is_not_called_slow() -> None:
    """CPU 23 is the other thread of CPU 7: what ran there slows CPU 7, and the core is as good as the others."""

    def busy_sibling(document: Document) -> None:
        document["together"] = [run for run in document["together"] if run["cpu"] != 23]
        document["together"][7]["result"]["product_median_s"] *= 4

    assert told(judge(SCALING, Changed(ROME, busy_sibling))) == [(f"{SCALING}/ok", "host", "pass")]


def test_a_core_that_computes_wrong_alone_and_with_others_is_told_once() -> None:
    (wrong, _) = judge(SCALING, Changed(ROME, lambda d: d["alone"][0]["result"].update(wrong=1)))
    assert told([wrong]) == [(f"{SCALING}/wrong-result", "0", "fail")]
    assert wrong.evidence[0].value == "1 of 3686400 words wrong"
    skipped, *others = judge(NEIGHBOUR, Changed(ROME, lambda d: d["alone"][0]["result"].update(wrong=1)))
    assert told([skipped]) == [(f"{NEIGHBOUR}/not-applicable", "0", "skip")]
    assert {f.status for f in others} == {"pass"}


def test_who_may_run_on_one_cpu_of_many_is_pinned() -> None:
    host = Changed(GUEST, lambda d: d.update(allowed=[0], alone=d["alone"][:1], together=[]))
    (pinned,) = judge(SCALING, host)
    assert told([pinned]) == [(f"{SCALING}/pinned", "host", "warn")]
    assert (pinned.evidence[0].source, pinned.evidence[0].value) == ("sched_getaffinity", "0")


def test_without_the_topology_every_cpu_counts_as_a_core(monkeypatch: pytest.MonkeyPatch) -> None:
    host: Host = Changed(GUEST, lambda d: None)
    monkeypatch.setattr("amdcheck.facts.cpu.Cpu.cores_among", lambda self, cpus: 0)
    (whole,) = judge(SCALING, host)
    assert whole.evidence[1].value == "24 CPUs on 24 cores at once"


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["together"][0]["result"].update(product_best_s=0.0),
        lambda d: d["alone"][0]["result"].update(cpu_share="much"),
        lambda d: d.pop("allowed"),
        lambda d: d.pop("cycles"),
    ],
)
def test_a_document_that_makes_no_sense_is_unknown(change: Callable[[Document], None]) -> None:
    (found,) = judge(SCALING, Changed(ROME, change))
    assert told([found]) == [(f"{SCALING}/failed", "host", "unknown")]


@pytest.mark.parametrize("check", [SCALING, NEIGHBOUR])
def test_without_the_flags_nothing_is_run_and_without_fma_nothing_applies(check: str) -> None:
    whole = compose(ROME)
    cpuinfo = str(whole.tree.files["/proc/cpuinfo"])
    whole.tree.files["/proc/cpuinfo"] = cpuinfo.replace(" fma ", " ").replace(" avx2 ", " ")
    assert told(judge(check, whole.host)) == [(f"{check}/not-applicable", "host", "skip")]
    whole = compose(ROME)
    del whole.tree.files["/proc/cpuinfo"]
    assert told(judge(check, whole.host)) == [(f"{check}/absent", "host", "unknown")]
