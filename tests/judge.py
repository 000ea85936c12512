"""Run one check or read one fact on a host, in this process: for tests of checks and facts."""

from __future__ import annotations

from typing import TypeVar

from msgspec import Struct

from amdcheck.engine.injection import FactStore
from amdcheck.engine.registry import all_checks
from amdcheck.host.protocol import Host
from amdcheck.model.expectations import Expectations
from amdcheck.model.finding import HOST, Finding, skipped

F = TypeVar("F", bound=Struct)


def judge(check_id: str, host: Host, expect: Expectations | None = None) -> list[Finding]:
    """The findings of one check on `host`; exceptions of its code reach the test."""
    check = all_checks()[check_id]
    facts = FactStore(host, expect or Expectations())
    if check.applies is not None:
        reason = check.applies(**facts.supply(check.applies_parameters))
        if reason is not None:
            return [skipped(check.id, HOST, reason)]
    return list(check.function(**facts.supply(check.parameters)))


def read_fact(kind: type[F], host: Host, expect: Expectations | None = None) -> F:
    """One fact of `host`, with the facts it needs."""
    return FactStore(host, expect or Expectations()).get(kind)
