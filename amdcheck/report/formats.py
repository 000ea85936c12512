"""The formats that a report can be written in, by name. Each is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Literal, get_args

from amdcheck.model.report import Report
from amdcheck.report.view import View

FormatName = Literal["console", "json"]
FORMATS: tuple[FormatName, ...] = get_args(FormatName)

Render = Callable[[Report, View], str]

_RENDERERS: Mapping[FormatName, str] = {
    "console": "amdcheck.report.console",
    "json": "amdcheck.report.json",
}


def render(format: FormatName, report: Report, view: View) -> str:
    """The whole report as text that ends with a line feed; every module of a format has such a `render`."""
    renderer: Render = import_module(_RENDERERS[format]).render
    return renderer(report, view)
