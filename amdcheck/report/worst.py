"""The finding that the verdict rests on: what to see to first."""

from __future__ import annotations

from amdcheck.model.finding import Finding
from amdcheck.model.report import Report


def worst(report: Report) -> Finding | None:
    """The finding that the summary's reason names; None where the verdict rests on no single one."""
    reason = report.summary.reason
    named = [f for f in report.findings if f.remedy is not None and f.waived is None and f.id in reason]
    return next((f for f in named if f"{f.id} on {f.subject.id}" in reason), named[0] if named else None)
