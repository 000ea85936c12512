"""The JSON report: complete, ordered, in UTC, always encodable."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import jsonschema
import msgspec
import pytest

from amdcheck.cli.schema import Document, schema_text
from amdcheck.model.report import Report
from amdcheck.report import json as json_format
from amdcheck.report.view import View
from tests.report import samples
from tests.schemas import committed_schema, schema

CONTRACT_KEYS = {
    "": "schema tool run host policy summary findings",
    "tool": "name version tables_date",
    "run": "id started duration_s level source privileged lost not_selected deadline_hit",
    "host": "id name node boot_id uptime_s os kernel virtualization container bios cpu memory_mib driver rocm miopen "
    "gpus",
    "policy": "profile file expect date",
    "summary": "verdict exit_code counts headline drain reason",
}
FINDING_KEYS = "id check subject status title message expected actual evidence remedy waived duration_ms metrics"


def document(report: Report) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(json_format.render(report, View()))
    return loaded


@pytest.mark.parametrize("name", samples.SAMPLES)
def test_every_sample_satisfies_the_committed_schema(name: str) -> None:
    jsonschema.Draft202012Validator(schema("report")).validate(document(samples.SAMPLES[name]()))


@pytest.mark.parametrize("name", ["report", "capture"])
def test_committed_schema_is_what_the_code_generates(name: Document) -> None:
    assert committed_schema(name) == schema_text(name)


def test_schema_requires_every_key_of_every_report_record() -> None:
    for name, record in schema("report")["$defs"].items():
        if "properties" in record:
            assert record["required"] == list(record["properties"]), name


def test_schema_rejects_a_report_without_a_key() -> None:
    incomplete = document(samples.ready())
    del incomplete["summary"]["drain"]
    with pytest.raises(jsonschema.ValidationError, match="drain"):
        jsonschema.Draft202012Validator(schema("report")).validate(incomplete)


@pytest.mark.parametrize(("where", "keys"), CONTRACT_KEYS.items())
def test_keys_stand_in_the_order_of_the_contract(where: str, keys: str) -> None:
    report = document(samples.narrow_links())
    assert list(report[where] if where else report) == keys.split()


def test_finding_keys_stand_in_the_order_of_the_contract() -> None:
    findings = document(samples.narrow_links())["findings"]
    assert {" ".join(finding) for finding in findings} == {FINDING_KEYS}


def test_what_is_unknown_is_null_not_left_out() -> None:
    host = document(samples.no_amd())["host"]
    assert host["cpu"]["vendor"] is None
    assert host["bios"] == {"vendor": None, "version": None, "date": None}


def test_start_given_in_another_zone_is_written_in_utc() -> None:
    report = samples.ready()
    there = datetime(2026, 11, 30, 14, 0, tzinfo=timezone(timedelta(hours=2)))
    report = msgspec.structs.replace(report, run=msgspec.structs.replace(report.run, started=there))
    assert document(report)["run"]["started"] == "2026-11-30T12:00:00Z"


def test_lone_surrogate_in_a_host_name_is_escaped_and_the_report_survives() -> None:
    report = samples.report(*samples.passes(), machine=samples.host(name="node\udc80"))
    assert document(report)["host"]["name"] == "node\\x80"


def test_report_read_back_is_the_report_written() -> None:
    report = samples.narrow_links()
    assert msgspec.json.decode(json_format.render(report, View()), type=Report) == report


def test_equal_reports_are_equal_byte_for_byte() -> None:
    first, second = (json_format.render(samples.narrow_links(), View()) for _ in range(2))
    assert first == second
    assert first.endswith("}\n")
