"""Facts go from worker to supervisor as msgpack: what arrives must be what was read."""

from __future__ import annotations

import msgspec
import pytest
from msgspec import Struct

from amdcheck.engine.injection import FactStore
from amdcheck.engine.registry import all_checks
from amdcheck.facts.registry import all_facts
from amdcheck.model.expectations import Expectations
from tests.compose import compose
from tests.memory_host import memory_host

MACHINES = ("mi210-8gpu-2hive-epyc7763x2", "mi300x-8gpu-cpx-epyc9654x2", "mi300x-1vf-kvm", "epyc7302p-cpu-only")


def ours() -> dict[str, type[Struct]]:
    all_checks()
    return {name: kind for name, kind in all_facts().items() if kind.__module__.startswith("amdcheck.")}


@pytest.mark.parametrize("machine", MACHINES)
def test_every_fact_arrives_as_it_was_read(machine: str) -> None:
    composed = compose(machine)
    facts = FactStore(composed.host, Expectations())
    for kind in ours().values():
        value = facts.get(kind)
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=kind) == value


def test_facts_of_a_machine_that_says_nothing_arrive() -> None:
    facts = FactStore(memory_host({}, complete=False), Expectations())
    for kind in ours().values():
        value = facts.get(kind)
        assert msgspec.msgpack.decode(msgspec.msgpack.encode(value), type=kind) == value
