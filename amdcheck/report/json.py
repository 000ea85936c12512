"""The report as JSON, schema amdcheck.report/1: every key present, in the order of the schema, times in UTC."""

from __future__ import annotations

from datetime import timezone

import msgspec
from msgspec.structs import replace

from amdcheck.model.report import Report
from amdcheck.model.text import printable
from amdcheck.report.view import View


def render(report: Report, view: View) -> str:
    """One indented JSON document. `view` changes nothing: a machine reads it."""
    run = replace(report.run, started=report.run.started.astimezone(timezone.utc))
    report = replace(report, run=run)
    try:
        text = msgspec.json.encode(report)
    except UnicodeEncodeError:  # a lone surrogate in a field that nobody escaped: say it escaped rather than nothing
        text = msgspec.json.encode(_escaped(msgspec.to_builtins(report)))
    return msgspec.json.format(text, indent=2).decode() + "\n"


def _escaped(value: object) -> object:
    """The same builtins with every string made printable."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {_escaped(key): _escaped(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_escaped(item) for item in value]
    return value
