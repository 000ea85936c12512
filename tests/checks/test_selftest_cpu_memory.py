"""The memory self-tests on composed machines: what each finding says, and what none may be said of."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from amdcheck.host.capture import Capture
from amdcheck.host.snapshot import SnapshotHost
from amdcheck.knowledge.remedies import remedies
from amdcheck.model.expectations import Expectations
from amdcheck.model.finding import Finding
from tests.compose import compose
from tests.judge import judge

TRIAD, LATENCY, CLIFF = "selftest.cpu.triad", "selftest.cpu.latency", "selftest.cpu.cache-cliff"
SHARING, PATTERN = "selftest.cpu.false-sharing", "selftest.cpu.memory-pattern"
NPS4, TWO_SOCKETS, ONE_NODE, GUEST = (
    "epyc7763-cpu-nps4",
    "epyc9654x2-cpu",
    "epyc7302p-cpu-only",
    "mi300x-1vf-kvm",
)
DEEP = Expectations(level="deep")
Document = dict[str, Any]


def healthy(check: str, machine: str, expect: Expectations | None = None) -> list[Finding]:
    return judge(check, compose(machine).host, expect)


def faulty(check: str, machine: str, fault: str, expect: Expectations | None = None) -> list[Finding]:
    return judge(check, compose(machine, fault).host, expect)


def changed(
    check: str, machine: str, change: Callable[[Document], None], expect: Expectations | None = None
) -> list[Finding]:
    """The findings on a machine whose child printed its document with a change."""
    child = "cpu.pattern" if check == PATTERN else "cpu.memory"
    capture: Capture = compose(machine).capture(expect)
    tests = []
    for test in capture.selftests:
        if test.name == child:
            said = json.loads(test.result.stdout)
            change(said)
            result = msgspec.structs.replace(test.result, stdout=json.dumps(said) + "\n")
            test = msgspec.structs.replace(test, result=result)
        tests.append(test)
    return judge(check, SnapshotHost(msgspec.structs.replace(capture, selftests=tuple(tests))), expect)


def brief(findings: list[Finding]) -> dict[str, str]:
    return {finding.subject.id: f"{finding.status} {finding.outcome}" for finding in findings}


def only(findings: list[Finding], subject: str = "host") -> Finding:
    (finding,) = [f for f in findings if f.subject.id == subject]
    return finding


def values(finding: Finding) -> list[str | None]:
    return [item.value for item in finding.evidence]


def metric(finding: Finding, name: str) -> float:
    (found,) = [m.value for m in finding.metrics if m.name == name]
    return found


# ---- Triad ----


def test_the_four_nodes_of_a_healthy_milan_are_exact_and_each_other_s_like() -> None:
    findings = healthy(TRIAD, NPS4)
    assert brief(findings) == {**{f"node{n}": "pass ok" for n in range(4)}, "host": "pass ok"}
    node = only(findings, "node1")
    assert values(node)[:3] == [
        "67108864 of 67108864 elements right",
        "128 of 128 planted errors noticed",
        "CPUs 16-31",
    ]
    assert (metric(node, "triad-streaming"), metric(node, "streaming-of-plain")) == (41.0, 1.33)
    assert metric(node, "of-peak") == 80.08  # of two channels of DDR4-3200
    assert metric(only(findings), "node0-from-node3") == 18.0
    assert all(item.volatile for item in node.evidence)


def test_a_node_whose_sums_are_wrong_is_a_fail_that_names_it_and_the_others_pass() -> None:
    findings = faulty(TRIAD, NPS4, "triad-wrong")
    node = only(findings, "node2")
    assert (node.status, node.id, node.message) == (
        "fail",
        f"{TRIAD}/wrong-result",
        "the triad came out wrong on node 2",
    )
    assert node.actual == "3 of 67108864 elements wrong"
    assert "element 77 on CPU 32" in values(node)
    assert node.remedy is not None
    assert (node.remedy.action, node.remedy.owner) == ("isolate", "node")
    assert brief(findings)["node3"] == "pass ok"


def test_a_node_at_half_of_its_siblings_is_told_by_how_much() -> None:
    findings = faulty(TRIAD, NPS4, "node-at-half-bandwidth")
    assert brief(findings) == {
        "node0": "pass ok",
        "node1": "warn slow-node",
        "node2": "pass ok",
        "node3": "pass ok",
        "host": "pass ok",
    }
    assert only(findings, "node1").actual == "50 % of their median"


def test_a_node_that_was_not_measured_is_skipped_and_named() -> None:
    def without(said: Document) -> None:
        said["triad"]["result"]["nodes"] = said["triad"]["result"]["nodes"][:2]

    findings = changed(TRIAD, NPS4, without)
    assert brief(findings)["node2"] == brief(findings)["node3"] == "skip busy"
    assert only(findings, "node3").message == "none of the node's cores is idle, allowed and within the quota"


def test_a_node_whose_cpus_others_use_is_neither_called_slow_nor_compared_and_says_so() -> None:
    findings = faulty(TRIAD, NPS4, "node-in-service")
    assert brief(findings) == {**{f"node{n}": "pass ok" for n in range(4)}, "host": "pass ok"}
    node = only(findings, "node1")
    (used,) = [item for item in node.evidence if item.value == "other programs used CPUs 95"]
    assert used.note == "and may have used its memory, not judged"
    assert node.metrics == ()
    host = only(findings)
    assert "7 pairs of nodes in use, not judged" in values(host)
    assert len(host.metrics) == 9

    def change(said: Document) -> None:
        """Of two nodes one is slow, and the other in use: there is nothing to hold it against."""
        slow(said)
        said["nodes_busy"] = {"0": [1], "2": [33], "3": [49]}

    assert brief(changed(TRIAD, NPS4, change))["node1"] == "pass ok"


@pytest.mark.parametrize("used", [0, 1])
def test_memory_of_another_node_is_not_nearer_because_the_own_one_is_in_use(used: int) -> None:
    def change(said: Document) -> None:
        said["nodes_busy"] = {str(used): [7]}
        for cell in said["matrix"]["result"]["cells"]:
            if (cell["cpu_node"], cell["memory_node"]) == (0, 1):
                for name in ("best_s", "median_s"):
                    cell["result"]["reading"][name] /= 4

    assert only(changed(TRIAD, TWO_SOCKETS, change)).status == "pass"


def slow(said: Document, **change: Any) -> None:
    """The second node at half of the others', with a change."""
    for kind in ("plain", "streaming"):
        for name in ("best_s", "median_s"):
            said["triad"]["result"]["nodes"][1][kind][name] *= 2
    said["triad"]["result"]["nodes"][1] |= change


def test_a_slow_node_that_was_disturbed_is_not_called_slow() -> None:
    def change(said: Document) -> None:
        slow(said)
        said["triad"]["result"]["nodes"][1]["streaming"]["cpu_share"] = 0.6

    node = only(changed(TRIAD, NPS4, change), "node1")
    assert (node.status, node.metrics) == ("pass", ())
    assert node.message == "the triad is exact on node 1"
    assert any((value or "").startswith("disturbed, not judged: 60 % of a CPU") for value in values(node))


def test_a_node_of_which_every_rate_was_disturbed_passes_for_its_sums_alone() -> None:
    def change(said: Document) -> None:
        for kind in ("plain", "streaming"):
            said["triad"]["result"]["nodes"][1][kind]["cpu_share"] = 0.6

    findings = changed(TRIAD, NPS4, change)
    node = only(findings, "node1")
    assert (node.status, node.message, node.metrics) == (
        "pass",
        "the sums of the triad are exact on node 1; its rate was disturbed and is not judged",
        (),
    )
    assert only(findings, "node0").message == "the triad is exact on node 0"


def test_a_node_with_fewer_idle_cores_is_not_held_against_the_others() -> None:
    assert brief(changed(TRIAD, NPS4, lambda said: slow(said, cpus=[16, 17])))["node1"] == "pass ok"


def test_a_node_whose_memory_lies_elsewhere_is_not_judged_and_says_so() -> None:
    node = only(changed(TRIAD, NPS4, lambda said: slow(said, placed=[3])), "node1")
    assert node.status == "pass"
    assert "arrays on node 3" in values(node)


def test_a_node_without_room_for_arrays_larger_than_its_caches_is_exact_and_has_no_rate() -> None:
    def change(said: Document) -> None:
        nothing = {"array_kib": 1024, "no_room_kib": 65536, "plain": None, "streaming": None}
        said["triad"]["result"]["nodes"][1] |= nothing

    findings = changed(TRIAD, NPS4, change)
    node = only(findings, "node1")
    assert (node.status, node.message, node.metrics) == ("pass", "the triad is exact on node 1", ())
    assert values(node)[-1] == ("not measured: there was no room for arrays of 64 MiB, smaller ones lie in caches")
    assert brief(findings)["node0"] == "pass ok"


def test_a_container_that_may_not_bind_memory_gets_its_nodes_and_is_told_what_is_unknown() -> None:
    findings = faulty(TRIAD, NPS4, "memory-binding-refused")
    assert brief(findings) == {**{f"node{n}": "pass ok" for n in range(4)}, "host": "unknown denied"}
    assert only(findings).evidence[0].note == "denied: the kernel refused to take memory from node 0"


def test_a_worker_that_met_unreadable_memory_is_named_with_its_signal() -> None:
    node = only(faulty(TRIAD, NPS4, "triad-worker-killed"), "node3")
    assert (node.status, node.outcome, values(node)[0]) == ("unknown", "died", "CPU 63: SIGBUS")


def test_a_step_that_was_killed_is_unknown_and_the_others_are_judged() -> None:
    def change(said: Document) -> None:
        said["triad"] = {"ended": "SIGILL", "detail": None, "result": None}

    (finding,) = changed(TRIAD, ONE_NODE, change)[:1]
    assert (finding.status, finding.outcome, finding.evidence[0].note) == ("unknown", "failed", "failed: SIGILL")
    assert only(changed(LATENCY, ONE_NODE, change)).status == "pass"


@pytest.mark.parametrize("nothing", [{"compared": 0}, {"planted": 0, "noticed": 0}])
def test_a_node_that_compared_or_planted_nothing_does_not_pass(nothing: dict[str, int]) -> None:
    def change(said: Document) -> None:
        said["triad"]["result"]["nodes"][0] |= nothing

    assert brief(changed(TRIAD, ONE_NODE, change))["node0"] == "fail not-noticed"


def test_nodes_that_the_firmware_swapped_are_told_pair_by_pair() -> None:
    finding = only(faulty(TRIAD, "mi300x-8gpu-spx-epyc9654x2", "nodes-swapped"))
    assert finding.id == f"{TRIAD}/remote-faster"
    assert "node 1 is nearer to node 0 than its own memory" in finding.message


def test_pairs_that_were_disturbed_are_not_judged() -> None:
    def change(said: Document) -> None:
        for cell in said["matrix"]["result"]["cells"]:
            if cell["cpu_node"] != cell["memory_node"]:
                cell["result"]["reading"] |= {"best_s": 0.001, "cpu_share": 0.4}
        said["matrix"]["result"]["cells"][1]["result"]["reading"] |= {"best_s": 0.05, "cpu_share": 1.0}

    finding = only(changed(TRIAD, TWO_SOCKETS, change))
    assert (finding.status, values(finding)[1]) == ("pass", "11 pairs disturbed, not judged")
    assert [m.name for m in finding.metrics] == [
        "node0-from-node0",
        "node0-from-node1",
        *(f"node{n}-from-node{n}" for n in (1, 2, 3)),
    ]


@pytest.mark.parametrize(
    ("disturb", "told"),
    [
        (lambda said: [c["result"]["reading"].update(cpu_share=0.1) for c in _cells(said)], "unknown disturbed"),
        (lambda said: said.update(nodes_busy={str(n): [0] for n in range(4)}), "skip busy"),
        (lambda said: said["matrix"]["result"].update(cells=_cells(said)[:1]), "skip busy"),
    ],
)
def test_where_no_pair_is_fit_to_be_judged_none_passes(disturb: Callable[[Document], Any], told: str) -> None:
    assert brief(changed(TRIAD, TWO_SOCKETS, disturb))["host"] == told


def _cells(said: Document) -> list[Document]:
    cells: list[Document] = said["matrix"]["result"]["cells"]
    return cells


@pytest.mark.parametrize(
    ("counts", "outcome"),
    [({"wrong": 3}, "wrong-result"), ({"noticed": 3}, "not-noticed"), ({"compared": 0}, "not-noticed")],
)
def test_sums_that_go_wrong_between_two_nodes_are_a_fail_that_names_them(counts: dict[str, int], outcome: str) -> None:
    finding = only(changed(TRIAD, TWO_SOCKETS, lambda said: _cells(said)[5]["result"].update(counts)))
    assert (finding.status, finding.outcome) == ("fail", outcome)
    assert "CPUs of node" in finding.message
    assert finding.metrics == ()


def test_nodes_without_free_memory_cost_the_matrix_alone() -> None:
    def change(said: Document) -> None:
        said["matrix"] = {"ended": "memory", "detail": "no 96 MiB of free memory on each node", "result": None}

    finding = only(changed(TRIAD, TWO_SOCKETS, change))
    assert (finding.status, finding.outcome) == ("unknown", "failed")
    assert finding.evidence[0].note == "failed: memory: no 96 MiB of free memory on each node"


def test_a_sum_that_went_wrong_is_told_beside_a_process_that_died() -> None:
    def change(said: Document) -> None:
        first, second, *_ = said["matrix"]["result"]["cells"]
        first["result"] |= {"wrong": 5}
        second |= {"ended": "SIGBUS", "detail": None, "result": None}

    finding = only(changed(TRIAD, TWO_SOCKETS, change))
    assert (finding.status, finding.outcome, finding.actual) == ("fail", "wrong-result", "5 wrong")


@pytest.mark.parametrize("kinds", [("plain", "streaming"), ("streaming",)])
def test_a_node_that_moved_too_little_to_tell_a_rate_does_not_pass(kinds: tuple[str, ...]) -> None:
    def change(said: Document) -> None:
        said["triad"]["result"]["nodes"][1] |= dict.fromkeys(kinds, None)

    findings = changed(TRIAD, NPS4, change)
    assert brief(findings)["node1"] == "unknown timeout"
    assert brief(findings)["node0"] == "pass ok"
    node = only(findings, "node1")
    assert "too little was moved in time" in values(node)
    assert node.remedy is not None
    assert node.remedy.steps[0].argv == ("amdcheck", "run", TRIAD)  # nothing is to be read by hand
    assert "67108864 of 67108864 elements right" in values(node)

    def in_use(said: Document) -> None:
        change(said)
        said["nodes_busy"] = {"1": [16]}

    assert brief(changed(TRIAD, NPS4, in_use))["node1"] == "pass ok"


def test_a_machine_without_avx2_is_skipped() -> None:
    def change(said: Document) -> None:
        said["triad"] = {"ended": "not-offered", "detail": "the kernel does not offer AVX2 and FMA", "result": None}

    assert brief(changed(TRIAD, ONE_NODE, change)) == {"host": "skip not-applicable"}


# ---- Latency ----


def test_a_healthy_rome_shows_its_latencies_and_what_small_pages_cost() -> None:
    finding = only(healthy(LATENCY, ONE_NODE))
    assert finding.status == "pass"
    assert metric(finding, "latency-16-kib-huge-pages") == 1.2
    assert metric(finding, "small-pages-cost") == 1.32
    assert "128 of 128 MiB" in values(finding)


@pytest.mark.parametrize(("smallest", "is_told"), [(4, True), (32, True), (64, False), (256, False)])
def test_cycles_of_the_first_level_have_one_name_and_are_told_of_it_alone(smallest: int, is_told: bool) -> None:
    """At level deep the smallest size is 4 KiB; where nobody told the first level's, it lies in the second."""

    def change(said: Document) -> None:
        said["chase"]["result"]["points"][0]["bytes"] = smallest << 10

    finding = only(changed(LATENCY, ONE_NODE, change))
    assert [m.value for m in finding.metrics if "cycles" in m.name] == ([4.08] if is_told else [])
    assert ("first-level-cycles" in {m.name for m in finding.metrics}) == is_told


@pytest.mark.parametrize(
    ("point", "missing"),
    [
        (0, {"latency-16-kib-huge-pages", "first-level-cycles"}),
        (1, {"latency-256-kib-huge-pages"}),
        (-2, {"latency-128-mib-huge-pages", "small-pages-cost"}),
        (-1, {"latency-128-mib-small-pages", "small-pages-cost"}),
    ],
)
def test_a_walk_that_was_disturbed_is_shown_and_no_metric(point: int, missing: set[str]) -> None:
    whole = only(healthy(LATENCY, ONE_NODE))

    def change(said: Document) -> None:
        said["chase"]["result"]["points"][point]["reading"]["cpu_share"] = 0.6

    finding = only(changed(LATENCY, ONE_NODE, change))
    assert {m.name for m in whole.metrics} - {m.name for m in finding.metrics} == missing
    assert sum("disturbed: 60 % of a CPU" in (value or "") for value in values(finding)) == 1


def test_a_machine_with_huge_pages_switched_off_is_told_how_to_have_them() -> None:
    finding = only(faulty(LATENCY, TWO_SOCKETS, "no-huge-pages"))
    assert (finding.status, finding.outcome) == ("warn", "no-huge-pages")
    assert (finding.evidence[-1].source, finding.evidence[-1].value) == (
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "never",
    )
    assert finding.remedy is not None
    assert finding.remedy.steps[0].argv is not None
    assert "madvise" in finding.remedy.steps[0].argv[-1]


def test_a_process_that_was_forbidden_huge_pages_is_told_so() -> None:
    def change(said: Document) -> None:
        said["chase"]["result"] |= {"huge_kib": 0, "allowed_huge": False}

    finding = only(changed(LATENCY, ONE_NODE, change))
    assert (finding.outcome, finding.evidence[-1].value) == ("no-huge-pages", "THP_enabled: 0")


@pytest.mark.parametrize(("share", "outcome"), [(0.4, "no-huge-pages"), (0.6, "ok")])
def test_hardly_any_huge_pages_are_less_than_half_of_what_was_asked_for(share: float, outcome: str) -> None:
    def change(said: Document) -> None:
        walked = said["chase"]["result"]
        walked |= {"huge_kib": int(share * walked["memory_kib"]), "allowed_huge": False}

    assert only(changed(LATENCY, ONE_NODE, change)).outcome == outcome


@pytest.mark.parametrize("given", [0, None])
def test_memory_that_is_fragmented_or_not_shown_is_no_fault(given: int | None) -> None:
    def change(said: Document) -> None:
        said["chase"]["result"]["huge_kib"] = given

    finding = only(changed(LATENCY, ONE_NODE, change))
    assert finding.status == "pass"
    assert values(finding)[-1] == (None if given is None else "0 of 128 MiB")


def test_walks_that_end_elsewhere_are_a_fail_that_names_the_size() -> None:
    finding = only(faulty(LATENCY, ONE_NODE, "walks-lost"))
    assert (finding.status, finding.actual) == ("fail", "4 walks ended elsewhere")
    assert "2 walks through 128 MiB" in values(finding)


# ---- The last level's share ----


def test_a_slice_that_is_there_passes_with_its_measured_share() -> None:
    finding = only(healthy(CLIFF, TWO_SOCKETS))
    assert (finding.status, metric(finding, "last-level-share")) == ("pass", 32.0)


def test_a_guest_with_an_eighth_of_its_slice_is_told_what_to_plan_with() -> None:
    finding = only(faulty(CLIFF, GUEST, "eighth-of-the-cache"))
    assert (finding.status, finding.id, finding.actual) == (
        "warn",
        f"{CLIFF}/smaller",
        "at least 4 MiB, less than 8 MiB",
    )
    assert finding.message == (
        "32 MiB are named as third-level cache, and at least 4 MiB, less than 8 MiB are there; "
        "a virtual machine is shown its host's cache"
    )
    assert metric(finding, "last-level-share") == 4.0
    assert finding.remedy is not None
    assert "last-level-share" in finding.remedy.steps[0].text


def test_bare_metal_with_less_than_named_is_not_taken_for_a_guest() -> None:
    finding = only(faulty(CLIFF, "epyc9575fx2-cpu", "eighth-of-the-cache-on-bare-metal"))
    assert (finding.outcome, finding.message.rpartition("; ")[2]) == (
        "smaller",
        "what shares this cache, or partitions it, has the rest",
    )


def test_a_share_of_half_is_room_for_a_walk_that_misses_now_and_then() -> None:
    def change(said: Document) -> None:
        for point in said["chase"]["result"]["points"]:
            if point["bytes"] == 32 << 20:
                point["reading"] |= {"best_s": 4.5e-4, "median_s": 4.5e-4}

    finding = only(changed(CLIFF, TWO_SOCKETS, change))
    assert (finding.status, metric(finding, "last-level-share")) == ("pass", 16.0)


def test_a_cache_that_others_used_meanwhile_is_not_judged_unless_it_is_all_there() -> None:
    assert only(faulty(CLIFF, "epyc9575fx2-cpu", "cache-in-use")).outcome == "disturbed"

    def change(said: Document) -> None:
        said["sharers_busy"] = [1]

    finding = only(changed(CLIFF, "epyc9575fx2-cpu", change))
    assert (finding.status, finding.metrics) == ("pass", ())


def test_a_guest_without_any_l3_in_its_share_is_told_less_than_the_smallest_size() -> None:
    def change(said: Document) -> None:
        for point in said["chase"]["result"]["points"]:
            if point["bytes"] > 1 << 20:
                point["reading"] |= {"best_s": 4.6e-4, "median_s": 4.6e-4}

    assert only(changed(CLIFF, GUEST, change)).actual == "less than 2 MiB"


def test_a_share_of_which_all_that_was_walked_is_there_is_less_than_memory() -> None:
    """With little room no size between a quarter of the slice and memory is walked."""

    def change(said: Document) -> None:
        points = said["chase"]["result"]["points"]
        points[:] = [point for point in points if point["bytes"] < 16 << 20 or point["bytes"] > 32 << 20]

    assert only(changed(CLIFF, TWO_SOCKETS, change)).actual == "at least 8 MiB, less than 128 MiB"


def test_several_slices_that_are_shown_as_one_are_not_judged() -> None:
    """Larger than what was walked: all of it might be in the cache."""

    def change(said: Document) -> None:
        points = said["chase"]["result"]["points"]
        points[:] = [point for point in points if point["bytes"] < 16 << 20 or point["pages"] == "small"]

    finding = only(changed(CLIFF, TWO_SOCKETS, change))
    assert finding.status == "skip"
    assert finding.message.startswith("one slice of 32 MiB is named, and no more than 8 MiB was walked; ")


def test_a_walk_that_lack_of_memory_cut_short_leaves_the_slice_unknown() -> None:
    def change(said: Document) -> None:
        walked = said["chase"]["result"]
        walked["points"] = [p for p in walked["points"] if p["bytes"] < 32 << 20 or p["pages"] == "small"]
        walked |= {"memory_kib": 16384, "huge_kib": 16384}

    finding = only(changed(CLIFF, TWO_SOCKETS, change))
    assert (finding.status, finding.outcome) == ("unknown", "failed")
    assert finding.evidence[-1].note == "failed: there was no memory for 128 MiB without harm to others"


# ---- False sharing ----


def test_two_healthy_cores_show_what_one_line_costs() -> None:
    finding = only(healthy(SHARING, ONE_NODE))
    assert finding.status == "pass"
    assert values(finding)[:2] == ["18 of 18 counts right", "6 of 6 wrong counts noticed"]
    assert metric(finding, "cost-of-sharing") == 5.51


def test_additions_that_get_lost_are_a_fail() -> None:
    finding = only(faulty(SHARING, ONE_NODE, "additions-lost"))
    assert (finding.status, finding.actual) == ("fail", "1 of 18 counts wrong")
    assert finding.message == "atomic additions of CPU 0 and 1 were lost or made twice"


def test_two_cpus_that_behave_like_one_core_are_told_by_their_factor() -> None:
    finding = only(faulty(SHARING, GUEST, "two-threads-shown-as-cores"))
    assert (finding.status, finding.outcome, finding.actual) == ("warn", "not-shown", "1.0 times")


def test_two_cpus_that_did_not_run_together_are_not_judged() -> None:
    def change(said: Document) -> None:
        for distance in said["sharing"]["result"]["distances"]:
            distance["reading"] |= {"best_s": 4e-4, "median_s": 4e-4, "cpu_share": 0.2}

    finding = only(changed(SHARING, ONE_NODE, change))
    assert (finding.status, finding.metrics) == ("pass", ())
    assert values(finding)[-1] == "disturbed, not judged: the two had 20 % of their CPUs"


@pytest.mark.parametrize(("ended", "told"), [("busy", "skip busy"), ("failed", "unknown failed")])
def test_a_pair_that_others_use_or_that_nobody_tells_is_not_told_to_be_none(ended: str, told: str) -> None:
    findings = changed(SHARING, ONE_NODE, lambda said: said["sharing"].update(ended=ended, detail="why", result=None))
    assert brief(findings) == {"host": told}


def test_one_cpu_alone_is_skipped_with_the_reason() -> None:
    def change(said: Document) -> None:
        detail = "it takes two CPUs of different cores that nobody uses"
        said["sharing"] = {"ended": "no-pair", "detail": detail, "result": None}

    finding = only(changed(SHARING, ONE_NODE, change))
    assert (finding.status, finding.message) == ("skip", "it takes two CPUs of different cores that nobody uses")


# ---- Patterns ----


def test_memory_that_holds_every_pattern_passes_and_says_how_much_was_tested() -> None:
    finding = only(healthy(PATTERN, ONE_NODE, DEEP))
    assert (finding.status, finding.message) == ("pass", "the memory that was tested held every pattern")
    assert {m.name: m.value for m in finding.metrics} == {"tested": 4.0, "allowed": 15.75, "passes": 12}
    assert values(finding)[0] == "6442450944 of 6442450944 words right"
    (tested,) = [item for item in finding.evidence if item.note == "tested"]
    assert (tested.value, tested.volatile) == ("4.00 of the 15.75 GiB that it might take, 12 passes", True)


def test_a_bit_that_flips_is_named_by_offset_bits_node_and_cpu() -> None:
    finding = only(faulty(PATTERN, "mi210-8gpu-2hive-epyc7763x2", "memory-forgets", DEEP))
    assert (finding.status, finding.message) == ("fail", "memory did not hold what CPU 5 wrote into it")
    assert values(finding)[1] == (
        "0x0000000000020000 instead of 0x0000010000020000, bits 0x10000000000, offset 0x2a7f0 of CPU 5's memory, node 0"
    )
    assert finding.remedy is not None
    assert finding.remedy.action == "isolate"


def test_a_group_without_room_is_unknown_and_says_how_much_there_was() -> None:
    finding = only(faulty(PATTERN, ONE_NODE, "no-room-for-patterns", DEEP))
    assert (finding.status, finding.outcome) == ("unknown", "failed")
    assert finding.evidence[0].note == "failed: memory: 1 MiB may be taken without harm to others"


def test_bits_that_are_none_are_refused() -> None:
    def change(said: Document) -> None:
        word = {"pattern": "random", "offset": 0, "got": "0xzz", "want": "0x0", "node": None}
        said["workers"][0]["result"] |= {"wrong": 1, "first_wrong": [word]}

    finding = only(changed(PATTERN, ONE_NODE, change, DEEP))
    assert (finding.status, finding.outcome) == ("unknown", "failed")


# ---- All of them ----


@pytest.mark.parametrize("check", [TRIAD, LATENCY, CLIFF, SHARING, PATTERN])
def test_at_level_quick_nothing_is_measured(check: str) -> None:
    finding = only(healthy(check, ONE_NODE, Expectations(level="quick")))
    assert (finding.status, finding.outcome) == ("unknown", "not-recorded")


def test_every_remedy_of_memory_is_one_of_these() -> None:
    exact = {"wrong-result", "not-noticed"}
    own = {
        TRIAD: {*exact, "died", "disturbed", "slow-node", "remote-faster"},
        LATENCY: {*exact, "no-huge-pages"},
        CLIFF: {"smaller", "disturbed"},
        SHARING: {*exact, "not-shown"},
        PATTERN: {*exact, "died"},
    }
    found = {
        check: {id.partition("/")[2] for id in remedies("selftest") if id.startswith(f"{check}/")} for check in own
    }
    assert found == {check: outcomes | {"absent"} for check, outcomes in own.items()}
