"""`schema`: the JSON Schema of each document, made from the records that write it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from amdcheck.cli.output import to_stdout

Document = Literal["report", "capture", "policy"]


def show_schema(document: Document) -> int:
    """Write the schema; the same text lies in amdcheck/report/schemas."""
    to_stdout(schema_text(document))
    return 0


def schema_text(document: Document) -> str:
    """The schema as it is committed: indented, with a line feed at the end."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **msgspec.json.schema(_RECORDS[document]())}
    return msgspec.json.format(msgspec.json.encode(schema), indent=2).decode() + "\n"


def _report() -> type[Any]:
    from amdcheck.model.report import Report

    return Report


def _capture() -> type[Any]:
    from amdcheck.host.capture import Capture

    return Capture


def _policy() -> type[Any]:
    from amdcheck.engine.policy import Policy

    return Policy


_RECORDS: Mapping[Document, Callable[[], type[Any]]] = {"report": _report, "capture": _capture, "policy": _policy}
