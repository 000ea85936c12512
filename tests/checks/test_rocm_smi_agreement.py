"""rocm.smi-agreement: vendor tools that agree, differ, are slow, silent, missing or hang."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest

from amdcheck.facts.smi import ASKED_FOR_LINKS
from amdcheck.host.protocol import CommandResult
from amdcheck.host.snapshot import SnapshotHost
from amdcheck.knowledge.remedies import remedy
from amdcheck.model.expectations import Expectations
from amdcheck.model.finding import Finding
from amdcheck.model.value import Reason
from tests.checks.saying import sources, summary, values
from tests.compose import compose, machine_names
from tests.gpu_hosts import Machine, gpu_host
from tests.judge import judge
from tests.memory_host import memory_host

STANDARD = Expectations(level="standard")
DRIVER = ("rocm-smi", "--showdriverversion", "--json")
TOPOLOGY = ("rocm-smi", "--showtopo", "--json")
STATIC = ("amd-smi", "static", "--json")
VERSION = ("amd-smi", "version", "--json")


def ran(
    argv: tuple[str, ...],
    stdout: object = "",
    *,
    stderr: str = "",
    seconds: float = 0.2,
    hung: bool = False,
    rc: int = 0,
) -> CommandResult:
    text = stdout if isinstance(stdout, str) else json.dumps(stdout)
    return CommandResult(
        argv=argv,
        rc=None if hung else rc,
        stdout=text,
        stderr=stderr,
        duration_s=seconds,
        timed_out=hung,
        truncated=False,
        stuck=("pid 4711 (amdgpu_dm)",) if hung else (),
    )


def cards(numa: Iterable[int], *, xgmi: Iterable[tuple[int, int]] = ()) -> dict[str, dict[str, str]]:
    """rocm-smi --showtopo --json: a card for each NUMA node given, XGMI between the pairs named, else PCIe."""
    nodes, joined = list(numa), set(xgmi)
    answer = {
        f"card{index}": {"(Topology) Numa Node": "0", "(Topology) Numa Affinity": str(node)}
        for index, node in enumerate(nodes)
    }
    pairs = [(a, b) for a in range(len(nodes)) for b in range(a + 1, len(nodes))]
    if pairs:
        answer["system"] = {
            f"(Topology) Link type between DRM devices {a} and {b}": "XGMI" if (a, b) in joined else "PCIE"
            for a, b in pairs
        }
    return answer


ALL_OF_TWO = [(0, 1)]


def machine() -> Machine:
    """Two MI210 joined by XGMI, on NUMA node 0, with the driver of ROCm 6.3."""
    found = gpu_host("mi210", 2, hives=(2,))
    found.files |= {"/sys/module/amdgpu/version": "6.10.5\n", "/proc/sys/kernel/osrelease": "6.8.0-60-generic\n"}
    for bdf in found.bdfs:
        found.set(bdf, numa_node="0")
    return found


def host(on: Machine, *commands: CommandResult, missing: tuple[str, ...] = ("amd-smi",)) -> SnapshotHost:
    """The machine with these answers; the tools that are missing are not there at all."""
    gone: dict[str, Reason] = {" ".join(q): "absent" for q in (DRIVER, TOPOLOGY, STATIC, VERSION) if q[0] in missing}
    return memory_host(
        on.files, links=on.links, stats=on.stats, empty_dirs=on.empty_dirs, commands=commands, unanswered={"run": gone}
    )


def judged(on: Machine, *commands: CommandResult, missing: tuple[str, ...] = ("amd-smi",)) -> list[Finding]:
    """The findings about the tools that are there."""
    findings = judge("rocm.smi-agreement", host(on, *commands, missing=missing), STANDARD)
    return [finding for finding in findings if finding.subject.id not in missing]


def healthy() -> tuple[CommandResult, CommandResult]:
    return ran(DRIVER, {"system": {"Driver version": "6.10.5"}}), ran(TOPOLOGY, cards([0, 0], xgmi=ALL_OF_TWO))


@pytest.mark.parametrize("name", [name for name in machine_names() if "cpu" not in name])
def test_tools_of_composed_machines_agree(name: str) -> None:
    findings = judge("rocm.smi-agreement", compose(name).host, STANDARD)
    assert {finding.status for finding in findings} <= {"pass", "skip"}
    assert any(finding.status == "pass" for finding in findings)


def test_agreement_shows_both_sides_of_everything_compared() -> None:
    (finding,) = judged(machine(), *healthy())
    assert summary(finding) == ("rocm.smi-agreement/ok", "pass", "package rocm-smi")
    assert values(finding) == ["driver 6.10.5", "6.10.5", "2 GPUs", "2 devices", "1 XGMI pairs", "1 XGMI pairs",
                               "NUMA nodes 0 0", "0 0"]  # fmt: skip


def test_tool_that_is_not_installed_is_skipped() -> None:
    findings = judge("rocm.smi-agreement", host(machine(), missing=("rocm-smi", "amd-smi")), STANDARD)
    assert [summary(finding) for finding in findings] == [
        ("rocm.smi-agreement/not-applicable", "skip", "package rocm-smi"),
        ("rocm.smi-agreement/not-applicable", "skip", "package amd-smi"),
    ]


def test_empty_output_with_exit_code_0_is_no_agreement() -> None:
    silent = [ran(argv, "", stderr="WARNING: No JSON data to report\n") for argv in (DRIVER, TOPOLOGY)]
    (finding,) = judged(machine(), *silent)
    assert summary(finding) == ("rocm.smi-agreement/no-answer", "unknown", "package rocm-smi")
    assert values(finding) == ["exit code 0, nothing on stdout"]
    assert finding.evidence[0].note == "WARNING: No JSON data to report"


def first_command(finding: Finding) -> tuple[str, ...] | None:
    assert finding.remedy is not None
    return finding.remedy.steps[0].argv


def test_remedy_asks_the_tool_that_did_not_answer() -> None:
    (rocm,) = judged(machine(), *[ran(argv) for argv in (DRIVER, TOPOLOGY)])
    (amd,) = judged(machine(), *[ran(argv) for argv in (STATIC, VERSION)], missing=("rocm-smi",))
    assert {f.id for f in (rocm, amd)} == {"rocm.smi-agreement/no-answer"}
    assert first_command(rocm) == ("rocm-smi", "--showdriverversion")
    assert first_command(amd) == ("amd-smi", "static")


def test_remedy_asks_the_tool_of_whose_answer_nothing_could_be_compared() -> None:
    said = [{"tool": "AMDSMI Tool", "version": "25.4.2", "rocm_version": "N/A", "amdgpu_version": "N/A"}]
    (amd,) = judged(machine(), *[ran(argv, said) for argv in (STATIC, VERSION)], missing=("rocm-smi",))
    assert amd.id == "rocm.smi-agreement/nothing-compared"
    assert first_command(amd) == ("amd-smi", "static")


def test_remedy_asks_the_tool_whose_links_differ_for_its_topology() -> None:
    (finding,) = judged(machine(), healthy()[0], ran(TOPOLOGY, cards([0, 0])))
    assert finding.id == "rocm.smi-agreement/link-types"
    assert first_command(finding) == ("rocm-smi", "--showtopo")
    of_amd = remedy("rocm.smi-agreement/link-types", tool="amd-smi", topology=ASKED_FOR_LINKS["amd-smi"])
    assert of_amd.steps[0].argv == ("amd-smi", "topology")


def test_silence_on_one_question_spoils_the_agreement_on_the_other() -> None:
    driver, _ = healthy()
    (finding,) = judged(machine(), driver, ran(TOPOLOGY))
    assert summary(finding)[:2] == ("rocm.smi-agreement/no-answer", "unknown")
    assert sources(finding) == ["rocm-smi --showtopo --json"]


def test_other_driver_version_names_both() -> None:
    _, topology = healthy()
    (finding,) = judged(machine(), ran(DRIVER, {"system": {"Driver version": "6.8.5"}}), topology)
    assert summary(finding) == ("rocm.smi-agreement/driver-version", "warn", "package rocm-smi")
    assert values(finding) == ["driver 6.8.5", "6.10.5"]


@pytest.mark.parametrize("printed", ["6.8.0-60-generic", "Linuxversion6.8.0-60-generic(buildd@lcy02)(gcc)", "Linuxver"])
def test_in_tree_driver_is_the_kernel_release_in_the_words_of_each_tool(printed: str) -> None:
    on = machine()
    del on.files["/sys/module/amdgpu/version"]
    on.files["/sys/module/amdgpu/taint"] = "\n"
    (finding,) = judged(on, ran(DRIVER, {"system": {"Driver version": printed}}), healthy()[1])
    assert summary(finding)[:2] == ("rocm.smi-agreement/ok", "pass")


def test_in_tree_text_of_another_kernel_differs() -> None:
    on = machine()
    del on.files["/sys/module/amdgpu/version"]
    on.files["/sys/module/amdgpu/taint"] = "\n"
    text = "Linuxversion6.19.11(nixbld@localhost)(gcc(GCC)15.2.0)"
    (finding,) = judged(on, ran(DRIVER, {"system": {"Driver version": text}}), healthy()[1])
    assert summary(finding)[:2] == ("rocm.smi-agreement/driver-version", "warn")
    assert values(finding) == ["driver in-tree, kernel 6.19.11", "6.8.0-60-generic"]


def test_tool_that_misses_a_gpu_warns() -> None:
    (finding,) = judged(machine(), healthy()[0], ran(TOPOLOGY, cards([0])))
    assert summary(finding) == ("rocm.smi-agreement/gpus-missing", "warn", "package rocm-smi")
    assert values(finding) == ["1 GPU", "2 devices"]


def test_tool_that_lists_more_than_the_bus_warns() -> None:
    (finding,) = judged(machine(), healthy()[0], ran(TOPOLOGY, cards([0, 0, 0], xgmi=[(0, 1), (0, 2), (1, 2)])))
    assert summary(finding)[:2] == ("rocm.smi-agreement/gpus-unknown", "warn")


def test_tool_that_counts_partitions_agrees() -> None:
    on = gpu_host("mi300x", 2, hives=(2,), partitions=8)
    on.files["/sys/module/amdgpu/version"] = "6.16.13\n"
    pairs = [(a, b) for a in range(16) for b in range(a + 1, 16)]
    driver = ran(DRIVER, {"system": {"Driver version": "6.16.13"}})
    for topology in (cards([0] * 16, xgmi=pairs), cards([0, 0], xgmi=ALL_OF_TWO)):
        findings = judged(on, driver, ran(TOPOLOGY, topology))
        assert {finding.id for finding in findings} <= {"rocm.smi-agreement/ok", "rocm.smi-agreement/numa-nodes"}
    (finding,) = [f for f in judged(on, driver, ran(TOPOLOGY, cards([0] * 15))) if "gpus" in f.id]
    assert summary(finding)[:2] == ("rocm.smi-agreement/gpus-missing", "warn")


def test_addresses_tell_which_gpu_is_missing() -> None:
    on = machine()
    entries = [{"gpu": 0, "bus": {"bdf": on.bdfs[0]}, "driver": {"name": "amdgpu", "version": "6.10.5"}}]
    answers = ran(STATIC, {"gpu_data": entries}), ran(VERSION, [{"tool": "AMDSMI Tool", "version": "26.2.0"}])
    (finding,) = judged(on, *answers, missing=("rocm-smi",))
    assert summary(finding) == ("rocm.smi-agreement/gpus-missing", "warn", "package amd-smi")
    assert on.bdfs[1] in finding.message


def test_link_types_that_differ_from_the_topology_warn() -> None:
    (finding,) = judged(machine(), healthy()[0], ran(TOPOLOGY, cards([0, 0])))
    assert summary(finding) == ("rocm.smi-agreement/link-types", "warn", "package rocm-smi")
    assert values(finding) == ["0 XGMI pairs", "1 XGMI pairs"]


def test_numa_nodes_that_differ_from_sysfs_warn() -> None:
    (finding,) = judged(machine(), healthy()[0], ran(TOPOLOGY, cards([0, 1], xgmi=ALL_OF_TWO)))
    assert summary(finding) == ("rocm.smi-agreement/numa-nodes", "warn", "package rocm-smi")
    assert values(finding) == ["NUMA nodes 0 1", "0 0"]


def test_numa_node_of_minus_one_in_the_words_of_older_tools() -> None:
    on = machine()
    for bdf in on.bdfs:
        on.set(bdf, numa_node="-1")
    (finding,) = judged(on, healthy()[0], ran(TOPOLOGY, cards([4294967295, -1], xgmi=ALL_OF_TWO)))
    assert summary(finding)[:2] == ("rocm.smi-agreement/ok", "pass")


def test_slow_tool_is_a_finding_beside_its_agreement() -> None:
    driver, topology = healthy()
    slow = ran(TOPOLOGY, topology.stdout, seconds=6.25)
    first, second = judged(machine(), driver, slow)
    assert summary(first) == ("rocm.smi-agreement/slow", "warn", "package rocm-smi")
    assert [(m.name, m.value, m.unit) for m in first.metrics] == [("duration", 6.25, "s")]
    assert first.evidence[0].volatile
    assert summary(second)[:2] == ("rocm.smi-agreement/ok", "pass")


def test_tool_that_hangs_is_unknown_and_names_what_is_left() -> None:
    hung = [ran(argv, seconds=10.0, hung=True) for argv in (DRIVER, TOPOLOGY)]
    (finding,) = judged(machine(), *hung)
    assert summary(finding) == ("rocm.smi-agreement/timeout", "unknown", "package rocm-smi")
    assert "pid 4711 (amdgpu_dm)" in values(finding)


def test_tool_that_prints_garbage_is_unknown() -> None:
    (finding,) = judged(machine(), ran(DRIVER, "Segmentation fault"), ran(TOPOLOGY, "\x00\x01"))
    assert summary(finding)[:2] == ("rocm.smi-agreement/failed", "unknown")


def test_answer_without_anything_to_compare_is_unknown() -> None:
    answers = ran(STATIC, [{"gpu": "N/A"}]), ran(VERSION, [{"tool": "AMDSMI Tool", "version": "26.2.0"}])
    findings = judged(machine(), *answers, missing=("rocm-smi",))
    assert [finding.status for finding in findings] == ["unknown"]


def test_tool_of_another_release_in_an_installation_warns() -> None:
    on = machine()
    on.files |= {"/opt/rocm-6.3.3/.info/version": "6.3.3\n", "/opt/rocm-6.3.3/bin/amd-smi": "x"}
    entries = [{"gpu": i, "bus": {"bdf": bdf}} for i, bdf in enumerate(on.bdfs)]
    tool = "/opt/rocm-6.3.3/bin/amd-smi"
    answers = [
        ran((tool, "static", "--json"), entries),
        ran((tool, "version", "--json"), [{"tool": "AMDSMI Tool", "rocm_version": "6.1.2"}]),
    ]
    (finding,) = judged(on, *answers, missing=("rocm-smi",))
    assert summary(finding) == ("rocm.smi-agreement/rocm-version", "warn", "package amd-smi")
    assert values(finding) == ["ROCm 6.1.2", "6.3.3"]


def test_recording_without_the_tools_answers_is_unknown() -> None:
    findings = judge("rocm.smi-agreement", machine().host(), STANDARD)
    assert {finding.id for finding in findings} == {"rocm.smi-agreement/not-recorded"}
