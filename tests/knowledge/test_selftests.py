"""What self-tests hold figures against: each limit names the checks that use it, and none of them is left out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from amdcheck.engine.injection import FactStore
from amdcheck.engine.registry import all_checks
from amdcheck.knowledge import selftests
from amdcheck.knowledge.selftests import Limit, limits
from amdcheck.model.expectations import Expectations
from tests.compose import compose

CHECKS = tuple(id for id in all_checks() if id.startswith("selftest."))
FOLDER = Path(__file__).parents[2] / "checks" / "selftest"
# Zen 5 with a table to hold against; a guest, whose clocks are each other's; slices and nodes that have siblings.
HOSTS = (
    compose("epyc9575fx2-cpu"),
    compose("mi300x-1vf-kvm", "eighth-of-the-cache"),
    compose("epyc7763-cpu-nps4"),
    compose("epyc7763-cpu-nps4", "slice-held-down", "node-at-half-bandwidth"),
)


@pytest.mark.parametrize("name", limits())
def test_a_limit_names_the_checks_that_use_it(name: str) -> None:
    assert limits()[name].checks
    assert set(limits()[name].checks) <= set(CHECKS)


@pytest.mark.parametrize("id", CHECKS)
def test_a_limit_that_a_check_asks_for_names_it(id: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it asks itself or a fact does. What a fact tells the child to look at again is no judgement."""
    supplied = [FactStore(host.host, Expectations(level="deep")).supply(all_checks()[id].parameters) for host in HOSTS]
    asked: set[str] = set()

    class Asked(dict[str, Limit]):
        def __getitem__(self, name: str) -> Limit:
            asked.add(name)
            return super().__getitem__(name)

    table = selftests._Table(limit=Asked(limits()))
    monkeypatch.setattr(selftests, "_table", lambda: table)
    for facts in supplied:
        list(all_checks()[id].function(**facts))
    assert asked == {name for name in asked if id in limits()[name].checks}


def test_a_limit_that_stands_in_a_check_names_it() -> None:
    for path in FOLDER.glob("cpu_*.py"):
        text = path.read_text()
        (id,) = re.findall(r'^ID = "(.*)"$', text, re.MULTILINE)
        for name in re.findall(r"limit\(.([a-z0-9-]+).\)", text):
            assert id in limits()[name].checks, (id, name)
