"""What a finding cannot be: a pass of nothing read, a fault without a remedy, a string that breaks a screen."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from amdcheck.model.finding import (
    HOST,
    Evidence,
    Metric,
    Remedy,
    Step,
    evidence,
    failed,
    passed,
    shown,
    skipped,
    undetermined,
)
from amdcheck.model.text import LIMIT, printable
from amdcheck.model.value import Known, Reason, Unknown

READ = shown("/proc/cpuinfo", "avx2")
FIX = Remedy(action="configure", owner="node", steps=(), reference=None)
CHECK = "cpu.isa"


@pytest.mark.parametrize("proof", [(), (evidence(Unknown("denied", "/proc/cpuinfo")),), (shown("/proc/cpuinfo", ""),)])
def test_a_pass_without_a_value_that_was_read_is_refused(proof: tuple[Evidence, ...]) -> None:
    with pytest.raises(ValueError, match="a pass needs evidence"):
        passed(CHECK, HOST, "All is well.", *proof)


def test_a_pass_may_show_what_was_not_read_beside_what_was() -> None:
    finding = passed(CHECK, HOST, "All is well.", evidence(Unknown("absent", "/x")), READ)
    assert (finding.id, finding.outcome, finding.remedy) == ("cpu.isa/ok", "ok", None)


@pytest.mark.parametrize("status", ["warn", "fail", "unknown", "manual"])
def test_what_leaves_something_to_do_needs_a_remedy(status: str) -> None:
    good = failed(f"{CHECK}/missing", HOST, "It is missing.", READ, remedy=FIX)
    with pytest.raises(ValueError, match="needs remedy"):
        replace(good, status=status, remedy=None)


@pytest.mark.parametrize("finding", [passed(CHECK, HOST, "Well.", READ), skipped(CHECK, HOST, "No CPU.")])
def test_a_pass_or_a_skip_has_no_remedy(finding: object) -> None:
    with pytest.raises(ValueError, match="has no remedy"):
        replace(finding, remedy=FIX)  # type: ignore[type-var]


def test_a_finding_belongs_to_its_check() -> None:
    with pytest.raises(ValueError, match="does not belong"):
        replace(passed(CHECK, HOST, "Well.", READ), check="cpu.cache")


@pytest.mark.parametrize("reason", ["absent", "denied", "failed", "timeout", "not-recorded"])
def test_every_reason_for_an_unknown_has_a_way_to_the_evidence(reason: Reason) -> None:
    finding = undetermined(CHECK, HOST, "Not read.", because=Unknown(reason, "/proc/cpuinfo", "why"))
    assert (finding.id, finding.status) == (f"{CHECK}/{reason}", "unknown")
    assert finding.evidence[0].value is None
    assert finding.evidence[0].note == f"{reason}: why"
    assert finding.remedy is not None
    assert "/proc/cpuinfo" in finding.remedy.steps[0].text


def test_an_unknown_without_a_reason_is_refused() -> None:
    with pytest.raises(ValueError, match="needs `because`"):
        undetermined(CHECK, HOST, "Not read.", outcome="odd")


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_metric_is_finite(value: float) -> None:
    with pytest.raises(ValueError, match="rate is not finite"):
        Metric(name="rate", value=value, unit="GB/s", volatile=True)


NASTY = "a\x1b[31mb\u202ec\nd\udc80"
SHOWN = r"a\x1b[31mb\u202ec\nd\x80"


def test_every_string_of_a_finding_is_printable() -> None:
    step = Step(text=NASTY, argv=(NASTY,), root=False, reboot=False)
    fix = replace(FIX, steps=(step,), reference=NASTY)
    finding = failed(f"{CHECK}/missing", HOST, NASTY, shown(NASTY, NASTY, note=NASTY), remedy=fix, actual=NASTY)
    assert (finding.message, finding.actual) == (SHOWN, SHOWN)
    read = finding.evidence[0]
    assert (read.source, read.value, read.note) == (SHOWN, SHOWN, SHOWN)
    assert finding.remedy is not None
    assert (finding.remedy.reference, finding.remedy.steps[0].text) == (SHOWN, SHOWN)
    assert finding.remedy.steps[0].argv == (SHOWN,)


def test_evidence_of_a_known_value_is_its_text() -> None:
    assert evidence(Known(8, "/sys/x"), note="width") == shown("/sys/x", "8", note="width")


@given(st.text(alphabet=st.characters(), max_size=60))
def test_printable_text_is_one_line_that_can_be_written_anywhere(text: str) -> None:
    safe = printable(text)
    safe.encode("utf-8")
    assert not safe or len(safe.splitlines()) == 1
    assert printable(safe) == safe


def test_printable_text_is_bounded() -> None:
    assert len(printable("x" * 10_000)) == LIMIT
    assert printable("y" * 20, limit=5) == "yyyy…"
