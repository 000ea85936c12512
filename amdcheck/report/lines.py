"""One line for callers that read nothing else: monitoring plugins and node-problem-detector."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from amdcheck.model.report import Report, Verdict
from amdcheck.report.text import clipped, inert, spelled
from amdcheck.report.worst import worst

LineStyle = Literal["nagios", "npd"]

NPD_LIMIT = 80  # bytes that node-problem-detector keeps of a plugin's output

_NAGIOS_WORDS: Mapping[Verdict, str] = {
    "ready": "OK",
    "ready-with-warnings": "WARNING",
    "not-ready": "CRITICAL",
    "undetermined": "UNKNOWN",
}


def verdict_line(style: LineStyle, report: Report) -> str:
    """The verdict as the one line that callers of this style read, with its line feed."""
    summary = report.summary
    if style == "npd":
        return _npd(_worst_first(report))
    return _nagios(_NAGIOS_WORDS[summary.verdict], summary.headline, _performance(report))


def event_line(style: LineStyle, message: str) -> str:
    """The same for a run that ended without a verdict."""
    return _npd(message) if style == "npd" else _nagios("UNKNOWN", message, "")


def _nagios(word: str, message: str, performance: str) -> str:
    # The first bar divides what is read from what is measured.
    text = spelled(message, ascii=False).replace("|", "/")
    return inert(f"AMDCHECK {word}: {text}{performance}") + "\n"


def _worst_first(report: Report) -> str:
    """What 80 bytes have room for: the worst finding's id, the verdict, and how many more there are. No addresses."""
    first, counts = worst(report), report.summary.counts
    if first is None:
        return report.summary.headline
    numbers = {"fail": counts.fail, "unknown": counts.unknown, "warn": counts.warn}
    told = ", ".join(f"{number} {status}" for status, number in numbers.items() if number)
    return f"{first.id}: {report.summary.verdict.replace('-', ' ').upper()}, {told}"


def _npd(message: str) -> str:
    return clipped(inert(spelled(message, ascii=True)), limit=NPD_LIMIT - 1) + "\n"


def _performance(report: Report) -> str:
    """Performance data: label=value[unit];warn;crit;min for each status, and how long the run took."""
    counts = report.summary.counts
    data = (
        f"fail={counts.fail};;0;0",
        f"unknown={counts.unknown};;;0",
        f"warn={counts.warn};0;;0",
        f"manual={counts.manual};;;0",
        f"waived={counts.waived};;;0",
        f"pass={counts.pass_};;;0",
        f"skip={counts.skip};;;0",
        f"time={report.run.duration_s:.3f}s;;;0",
    )
    return " | " + " ".join(data)
