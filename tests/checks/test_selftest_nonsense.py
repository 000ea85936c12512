"""Children that say what no measurement can be: it is refused as a whole, and nothing passes by it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from amdcheck.host.protocol import SelfTest, SelfTestResult
from amdcheck.model.value import Known, Value
from tests.compose import compose
from tests.compose.composed import ComposedMachine
from tests.judge import judge

ROME, MILAN = "epyc7302p-cpu-only", "epyc7763-cpu-nps4"
Document = dict[str, Any]


class Changed(ComposedMachine):
    """A machine one of whose children says something else."""

    def __init__(self, machine: str, child: str, change: Callable[[str], str]) -> None:
        whole = compose(machine)
        super().__init__(whole.host.capture, whole.plan)
        self._child, self._change = child, change

    def selftest(self, test: SelfTest) -> Value[SelfTestResult]:
        answer = super().selftest(test)
        assert isinstance(answer, Known)
        if test.name != self._child:
            return answer
        result = replace(answer.value.result, stdout=self._change(answer.value.result.stdout))
        return Known(replace(answer.value, result=result), answer.source)


def document(change: Callable[[Document], Any]) -> Callable[[str], str]:
    def changed(stdout: str) -> str:
        said = json.loads(stdout)
        change(said)
        return json.dumps(said)

    return changed


def twice(name: str, entries: str) -> Callable[[Document], Any]:
    """A wrong entry before the right one of the same name, which would hide it."""

    def change(said: Document) -> None:
        wrong = copy.deepcopy(next(entry for entry in said[entries] if entry["name"] == name))
        wrong["result"]["wrong"] = 3
        said[entries].insert(0, wrong)

    return change


def each_point(**values: Any) -> Callable[[Document], Any]:
    return lambda said: [point.update(values) for point in said["chase"]["result"]["points"]]


def each_reading(**values: Any) -> Callable[[Document], Any]:
    return lambda said: [point["reading"].update(values) for point in said["chase"]["result"]["points"]]


def each_product(**values: Any) -> Callable[[Document], Any]:
    return lambda said: [product["result"].update(values) for product in said["products"]]


def imul(**values: Any) -> Callable[[Document], Any]:
    return lambda said: said["clock"]["result"]["imul"].update(values)


def all_allocators(held: int, aligned: int) -> Callable[[Document], Any]:
    counts = [{"bytes": 64, "held": held, "aligned": aligned}]
    return lambda said: said["allocator"]["result"].update(malloc=counts, posix_memalign=counts, aligned_alloc=counts)


@pytest.mark.parametrize(
    ("check", "child", "change"),
    [
        ("isa", "cpu.isa", twice("fma", "kernels")),
        ("isa", "cpu.isa", lambda said: said["kernels"][0]["result"].update(registers=1 << 70)),
        ("latency", "cpu.memory", lambda said: said["triad"]["result"]["nodes"][0].update(node=1 << 70)),
        ("latency", "cpu.memory", lambda said: said["nodes_busy"].update({str(1 << 70): [0]})),
        ("gemm-fp32", "cpu.compute", twice("fma", "products")),
        ("gemm-fp32", "cpu.compute", each_product(ceiling_operations=0)),
        ("gemm-fp32", "cpu.compute", each_product(operations=10**400)),
        ("clock", "cpu.compute", lambda said: said["clock"]["result"].update(cycles=0)),
        ("clock", "cpu.compute", imul(cpu_share=-1)),
        ("clock", "cpu.compute", imul(cycle_s=1e-320)),
        ("latency", "cpu.memory", each_point(hops=0)),
        ("latency", "cpu.memory", each_point(hops=-4096)),
        ("latency", "cpu.memory", each_point(bytes=0)),
        ("latency", "cpu.memory", each_point(lost=-1)),
        ("latency", "cpu.memory", each_point(bytes=4096)),  # all the same size
        ("latency", "cpu.memory", each_reading(median_s=1e300)),
        ("latency", "cpu.memory", lambda said: said["chase"]["result"].update(planted=-1)),
        ("cache-cliff", "cpu.memory", each_point(lost=-1)),
        ("false-sharing", "cpu.memory", lambda said: said["sharing"]["result"].update(increments=-1)),
        ("alignment", "cpu.alignment", all_allocators(held=0, aligned=0)),
        ("alignment", "cpu.alignment", all_allocators(held=-3, aligned=-3)),
        ("scaling", "cpu.cores", lambda said: [run.update(cpu=0) for run in said["together"]]),
        ("scaling", "cpu.cores", lambda said: [run.update(cpu=1000 + run["cpu"]) for run in said["together"]]),
        ("neighbour", "cpu.cores", lambda said: said["alone"][0]["result"].update(product_median_s=0)),
        ("neighbour", "cpu.cores", lambda said: said["alone"].extend(said["alone"] * 3000)),
    ],
)
def test_what_no_measurement_can_be_is_refused(check: str, child: str, change: Callable[[Document], Any]) -> None:
    found = judge(f"selftest.cpu.{check}", Changed(ROME, child, document(change)))
    assert {(f.status, f.outcome) for f in found if f.status not in ("skip", "manual")} == {("unknown", "failed")}


@pytest.mark.parametrize("part", ["triad", "matrix"])
def test_a_node_or_a_pair_that_is_told_twice_is_refused(part: str) -> None:
    def change(said: Document) -> None:
        rows = said[part]["result"]["nodes" if part == "triad" else "cells"]
        rows.append(copy.deepcopy(rows[0]))

    found = judge("selftest.cpu.triad", Changed(MILAN, "cpu.memory", document(change)))
    assert {(f.status, f.outcome) for f in found} == {("unknown", "failed")}


def test_a_document_that_is_nested_too_deeply_is_refused() -> None:
    def deeper(stdout: str) -> str:
        return stdout.strip()[:-1] + ', "x": ' + "[" * 200_000 + "]" * 200_000 + "}"

    (found, *_) = judge("selftest.cpu.isa", Changed(ROME, "cpu.isa", deeper))
    assert (found.status, found.outcome) == ("unknown", "failed")


def test_steal_that_nobody_tells_is_no_metric() -> None:
    def unread(said: Document) -> None:
        for run in (*said["alone"], *said["together"]):
            run["result"]["stolen_s"] = None
        said["stolen_looks"], said["stolen_since_boot"] = [], None

    (found,) = judge("selftest.cpu.scaling", Changed(ROME, "cpu.cores", document(unread)))
    assert found.status == "pass"
    assert "stolen" not in {metric.name for metric in found.metrics}
