"""Each named fault yields the finding that it should, on the right subject, and nothing else changes for the worse."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path

import pytest

from amdcheck.engine.injection import FactStore
from amdcheck.engine.registry import all_checks
from amdcheck.engine.run import RunRequest, run
from amdcheck.host.capture_file import encode
from amdcheck.knowledge.remedies import remedies
from amdcheck.model.expectations import LEVELS, Expectations, Level
from amdcheck.model.finding import HOST, Finding, skipped
from tests.compose import ComposedHost, Fault, compose, fault, fault_names

CASES = [(name, machine) for name in fault_names() for machine in fault(name).machines]


def findings(host: ComposedHost, expect: Expectations, named: frozenset[str] = frozenset()) -> list[Finding]:
    """What all checks up to the level and the named ones say, in this process; each fact is read once."""
    facts = FactStore(host.host, expect)
    found: list[Finding] = []
    for check in all_checks().values():
        if LEVELS.index(check.level) > LEVELS.index(expect.level) and check.id not in named:
            continue
        reason = check.applies(**facts.supply(check.applies_parameters)) if check.applies else None
        found += [skipped(check.id, HOST, reason)] if reason else check.function(**facts.supply(check.parameters))
    return found


def key(finding: Finding) -> tuple[str, str, str]:
    return finding.id, finding.subject.kind, finding.subject.id


def bad(found: list[Finding]) -> set[tuple[str, str, str]]:
    return {key(f) for f in found if f.status not in ("pass", "skip")}


@functools.cache
def bad_when_healthy(machine: str, level: Level) -> frozenset[tuple[str, str, str]]:
    return frozenset(bad(findings(compose(machine), Expectations(level=level))))


def missing(found: Iterator[Finding] | list[Finding], host: ComposedHost, one: Fault) -> list[str]:
    """The expected findings that are not there."""
    there = list(found)
    return [f"{e.status} {e.id} {e.subject}" for e in one.expect if not any(e.matches(f, host.plan) for f in there)]


@pytest.mark.parametrize(("name", "machine"), CASES, ids=[f"{name}-{machine}" for name, machine in CASES])
def test_fault_is_found_and_nothing_else_is(name: str, machine: str) -> None:
    """No further warning, failure or unknown but those the fault names, and no pass of what it made wrong."""
    one, host = fault(name), compose(machine, name)
    named = frozenset(e.id.partition("/")[0] for e in one.expect)
    found = findings(host, one.expectations, named)
    assert missing(found, host, one) == []
    others = [f for f in found if f.id not in one.also and not any(e.matches(f, host.plan) for e in one.expect)]
    assert bad(others) - bad_when_healthy(machine, one.level) == set()
    wrong = {(e.id.partition("/")[0], *e.subject_id(host.plan)) for e in one.expect}
    assert [key(f) for f in others if f.status == "pass" and (f.check, f.subject.kind, f.subject.id) in wrong] == []


def built_in() -> set[str]:
    return {check.id for check in all_checks().values() if check.origin.startswith("amdcheck.checks.")}


def test_every_check_has_a_healthy_and_a_faulty_case() -> None:
    """A check without a faulty case could pass on anything, one without a healthy case could pass on nothing."""
    faulty = {e.id.partition("/")[0] for name in fault_names() for e in fault(name).expect}
    assert faulty == built_in()
    healthy = [  # Zen 5 besides, for what Zen 3 does not have
        finding
        for machine in ("mi210-8gpu-2hive-epyc7763x2", "epyc9575fx2-cpu")
        for finding in findings(compose(machine), Expectations(level="deep"))
    ]
    assert {f.check for f in healthy if f.status == "pass"} == built_in()


def test_every_outcome_that_has_a_remedy_has_a_fault() -> None:
    groups = {check.partition(".")[0] for check in built_in()}
    with_remedy = {id for group in groups for id in remedies(group)}
    assert with_remedy - {e.id for name in fault_names() for e in fault(name).expect} == set()


@pytest.mark.parametrize(
    ("name", "machine", "verdict"),
    [
        ("gpus-off-the-bus", "mi210-8gpu-2hive-epyc7763x2", "not-ready"),
        ("one-gpu-missing", "mi300x-8gpu-spx-epyc9654x2", "not-ready"),
        ("one-card-missing", "mi210-8gpu-2hive-epyc7763x2", "ready-with-warnings"),
        ("link-width-x8", "mi210-8gpu-2hive-epyc7763x2", "not-ready"),
        ("no-render-group", "w7900-2gpu-epyc9354", "not-ready"),
        ("numa-balancing-on", "epyc7763-cpu-nps4", "ready-with-warnings"),
        ("cpu-computes-wrong", "epyc9575fx2-cpu", "not-ready"),
        ("kfd-alone-lists-gpus", "w7900-2gpu-epyc9354", "not-ready"),
        ("kfd-nodes-denied", "w7900-2gpu-epyc9354", "undetermined"),
        ("dri-folder-closed", "w7900-2gpu-epyc9354", "not-ready"),
        ("smi-hangs", "mi210-8gpu-2hive-epyc7763x2", "ready"),
    ],
)
def test_whole_run_gives_the_verdict(name: str, machine: str, verdict: str, tmp_path: Path) -> None:
    """The same faults through supervisor, worker and verdict, from a capture file."""
    one, host = fault(name), compose(machine, name)
    path = tmp_path / "host.amdcheck.json.xz"
    path.write_bytes(encode(host.capture()))
    report = run(RunRequest(host=path, expect_gpus=one.expect_gpus)).report
    assert missing(list(report.findings), host, one) == []
    assert report.summary.verdict == verdict


def test_memory_that_a_container_may_not_bind_leaves_it_ready(tmp_path: Path) -> None:
    """Runtimes refuse set_mempolicy in containers; on a whole machine nothing should."""
    path = tmp_path / "host.amdcheck.json.xz"
    path.write_bytes(encode(compose("epyc7763-cpu-nps4", "memory-binding-refused").capture()))
    verdicts = [
        run(RunRequest(host=path, profile=name)).report.summary.verdict for name in ("node-cpu", "container-cpu")
    ]
    assert verdicts == ["undetermined", "ready"]
