"""The exit codes of the contract, one table, three styles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from amdcheck.model.report import Verdict

ExitStyle = Literal["gate", "nagios", "npd"]
STYLES: tuple[ExitStyle, ...] = ("gate", "nagios", "npd")

# prevented: something around it, such as resource limits, keeps amdcheck from running
Event = Literal["usage", "report-lost", "bug", "locked", "prevented", "sigint", "sigterm", "sighup"]

_VERDICTS: Mapping[Verdict, Mapping[ExitStyle, int]] = {
    "ready": {"gate": 0, "nagios": 0, "npd": 0},
    "ready-with-warnings": {"gate": 0, "nagios": 1, "npd": 0},
    "not-ready": {"gate": 1, "nagios": 2, "npd": 1},
    "undetermined": {"gate": 3, "nagios": 3, "npd": 2},
}
_EVENTS: Mapping[Event, Mapping[ExitStyle, int]] = {
    "usage": {"gate": 2, "nagios": 3, "npd": 2},
    "report-lost": {"gate": 74, "nagios": 3, "npd": 2},
    "bug": {"gate": 70, "nagios": 3, "npd": 2},
    "locked": {"gate": 3, "nagios": 3, "npd": 2},
    "prevented": {"gate": 3, "nagios": 3, "npd": 2},
    "sigint": {"gate": 130, "nagios": 3, "npd": 2},
    "sigterm": {"gate": 143, "nagios": 3, "npd": 2},
    "sighup": {"gate": 129, "nagios": 3, "npd": 2},
}


def verdict_exit(verdict: Verdict, style: ExitStyle, *, fail_on_warn: bool) -> int:
    """The exit code of a finished run; `--fail-on warn` turns warnings into 1 under the gate style."""
    if fail_on_warn and style == "gate" and verdict == "ready-with-warnings":
        return 1
    return _VERDICTS[verdict][style]


def event_exit(event: Event, style: ExitStyle) -> int:
    """The exit code when there is no verdict."""
    return _EVENTS[event][style]
