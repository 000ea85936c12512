"""What tests say of findings."""

from __future__ import annotations

from amdcheck.model.finding import Finding


def only(findings: list[Finding]) -> Finding:
    """The one finding there is."""
    assert [f.id for f in findings] == [findings[0].id]
    return findings[0]


def summary(finding: Finding) -> tuple[str, str, str]:
    """What is asserted of every finding: id, status, subject."""
    return finding.id, finding.status, f"{finding.subject.kind} {finding.subject.id}"


def values(finding: Finding) -> list[str | None]:
    """The values of its evidence, in order."""
    return [evidence.value for evidence in finding.evidence]


def sources(finding: Finding) -> list[str]:
    return [evidence.source for evidence in finding.evidence]
