"""The same finding on many subjects becomes one entry."""

from __future__ import annotations

import msgspec

from amdcheck.model.finding import HOST, Finding, Subject, passed, shown
from amdcheck.report.fold import alike, fold
from tests.report import samples
from tests.report.samples import gpu, narrow_link


def test_one_fault_on_three_gpus_is_one_entry_told_once() -> None:
    (entry,) = fold([narrow_link(gpu(i)) for i in (1, 2, 3)])
    (case,) = entry.cases
    assert [s.id for s in case.subjects] == ["0000:01:00.0", "0000:02:00.0", "0000:03:00.0"]
    assert case.sample.evidence[0].source == "/sys/bus/pci/devices/<gpu>/current_link_width"
    assert case.sample.evidence[0].value == "8"


def test_each_gpu_keeps_its_own_command() -> None:
    (entry,) = fold([narrow_link(gpu(1)), narrow_link(gpu(2))])
    assert [len(steps) for steps in entry.steps] == [1, 2, 1]
    assert [step.argv for step in entry.steps[1]] == [
        ("lspci", "-vvs", "0000:01:00.0"),
        ("lspci", "-vvs", "0000:02:00.0"),
    ]


def test_other_values_are_told_apart_in_the_same_entry() -> None:
    other = msgspec.structs.replace(narrow_link(gpu(2)), actual="x4")
    (entry,) = fold([narrow_link(gpu(1)), other])
    assert [(case.subjects[0].id, case.sample.actual) for case in entry.cases] == [
        ("0000:01:00.0", "x8"),
        ("0000:02:00.0", "x4"),
    ]


def test_a_single_subject_keeps_its_real_path() -> None:
    (entry,) = fold([narrow_link(gpu(1))])
    assert entry.cases[0].sample == narrow_link(gpu(1))


def test_waived_and_standing_findings_are_different_entries() -> None:
    waived = samples.waived_acs()
    standing = msgspec.structs.replace(waived, waived=None)
    assert len(fold([waived, standing])) == 2


def test_short_ids_are_not_replaced_in_words_where_they_stand_by_chance() -> None:
    nodes = [Subject(kind="numa", id=str(i)) for i in (0, 1)]
    findings = [passed("numa.layout", n, "10 GiB free", shown("/sys/x", "10")) for n in nodes]
    (entry,) = fold(findings)
    (case,) = entry.cases
    assert case.sample.message == "10 GiB free"


def test_order_is_that_of_the_first_finding() -> None:
    first = passed("cpu.isa", HOST, "a", shown("x", "y"))
    entries = fold([first, narrow_link(gpu(1)), narrow_link(gpu(2))])
    assert [entry.first.id for entry in entries] == ["cpu.isa/ok", "pci.link-width/degraded"]


def test_evidence_from_numbered_paths_is_told_once() -> None:
    def of_node(node: int) -> Finding:
        source = f"/sys/class/kfd/kfd/topology/nodes/{node}/properties"
        return passed("memory.managed-mode", gpu(node), "It migrates.", shown(source, "gfx90a"))

    (entry,) = fold([of_node(2), of_node(3), of_node(4)])
    (case,) = entry.cases
    assert len(case.subjects) == 3
    assert case.sample.evidence[0].source == "/sys/class/kfd/kfd/topology/nodes/<n>/properties"
    assert case.sample.evidence[0].value == "gfx90a"


def test_checks_that_say_something_else_or_of_another_subject_stay_apart() -> None:
    one = narrow_link(gpu(1))
    same = msgspec.structs.replace(one, id="pci.link-speed/degraded", check="pci.link-speed")
    others = [
        msgspec.structs.replace(same, message="Something else."),
        msgspec.structs.replace(same, subject=gpu(2)),
        msgspec.structs.replace(same, id="pci.link-speed/lost"),
        msgspec.structs.replace(same, actual="x4"),
    ]
    assert [len(alike(fold([one, other]))) for other in others] == [2, 2, 2, 2]
    (together,) = alike(fold([one, same]))
    assert [f.id for f in together.findings] == ["pci.link-width/degraded", "pci.link-speed/degraded"]
    assert [len(steps) for steps in together.steps] == [1, 1, 1]
