"""The child of the compute self-tests, run for real: what it says of this processor, and of kernels that misbehave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable

import msgspec
import pytest

from amdcheck.facts.cpu_compute import Product
from amdcheck.knowledge.selftests import limit
from amdcheck.selftest import cpu_compute, reading
from amdcheck.selftest.isolate import Record
from amdcheck.selftest.library import Gemm, Library
from amdcheck.selftest.reading import PAUSES_S, Reading
from tests.selftest.conftest import offered_flags

OFFERED = [
    name for name in ("fma", "avx2", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16") if name in offered_flags()
]
needs_avx2 = pytest.mark.skipif("avx2" not in offered_flags(), reason="the ceiling beside it is AVX2's")
CPU = min(os.sched_getaffinity(0))


def child(*params: str) -> Record:
    done = subprocess.run(
        [sys.executable, "-I", "-m", "amdcheck.selftest", "cpu.compute", *params], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    said: Record = json.loads(done.stdout)
    return said


def gemm(library: Library, name: str) -> Gemm:
    found = library.find_gemm(name)
    assert found is not None
    return found


def judged(library: Library, name: str) -> Product:
    """In this process."""
    judged = cpu_compute.judge(library, gemm(library, name), CPU, least_per_cycle=0.0, until=time.monotonic())
    return msgspec.convert(msgspec.to_builtins(judged), Product)


@pytest.mark.skipif(not OFFERED, reason="no instruction set here has a matrix product")
def test_every_product_that_this_processor_offers_is_exact_and_its_control_noticed() -> None:
    said = child(*OFFERED, "allow-busy")
    assert [product["name"] for product in said["products"]] == OFFERED
    for product in said["products"]:
        assert (product["ended"], product["detail"]) == ("returned", None), product["name"]
        result = msgspec.convert(product["result"], Product)
        assert (result.wrong, result.first_wrong) == (0, ()), product["name"]
        assert result.noticed == result.planted == 25
        assert result.compared > 400_000  # the odd shapes, and the timed one a few times
        assert 0 < result.reading.best_s < 0.1
        assert 0 < result.ceiling.cpu_share <= 1
    assert said["cpu"] in os.sched_getaffinity(0)


def test_both_chains_tell_a_clock_of_this_century() -> None:
    clock = child("allow-busy")["clock"]["result"]
    for chain in ("imul", "add"):
        assert 0.2e9 < clock["cycles"] / clock[chain]["best_s"] < 8e9
    assert clock["twice"]["best_s"] > 1.5 * clock["imul"]["best_s"]


@pytest.mark.skipif("avx2" not in offered_flags(), reason="the processor has no AVX2")
def test_full_bytes_saturate_by_avx2_and_seven_bits_do_not(library: Library) -> None:
    assert judged(library, "avx2-full-range").wrong > 1000
    assert judged(library, "avx2").wrong == 0


@needs_avx2
def test_a_wrong_lane_is_told_by_place_and_bits(library: Library) -> None:
    product = judged(library, "hook-wrong")
    first = product.first_wrong[0]
    assert (first.shape, first.row, first.column) == ((1, 1, 1), 0, 0)
    assert int(first.got, 16) ^ int(first.want, 16) == 4
    assert 0 < product.wrong < product.compared
    assert all(word.column % 16 == 0 for word in product.first_wrong)


@needs_avx2
def test_a_control_that_does_nothing_is_not_taken_for_one(library: Library) -> None:
    product = judged(library, "hook-blind")
    assert (product.wrong, product.planted, product.noticed) == (0, 25, 0)


def test_an_illegal_instruction_ends_its_own_step_alone() -> None:
    said = child("hook-illegal", "no-such-kernel", *OFFERED[:1], "allow-busy")
    ends = {product["name"]: product["ended"] for product in said["products"]}
    assert ends["hook-illegal"] == "SIGILL"
    assert ends["no-such-kernel"] == "not-built"
    assert all(ends[name] == "returned" for name in OFFERED[:1])


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PAUSES_S", len(PAUSES_S) * (0.0,))


def readings(monkeypatch: pytest.MonkeyPatch, seconds: tuple[float, float, float], slow: dict[int, float]) -> list[int]:
    """Let readings take these seconds in turn, or so many times as long, by number; the list grows with each."""
    taken = list[int]()

    def told(piece: Callable[[], float], **_: object) -> Reading:
        piece()
        best_s = seconds[len(taken) % 3] * slow.get(len(taken), 1.0)
        taken.append(len(taken))
        return {
            "best_s": best_s,
            "median_s": best_s,
            "slices": 3,
            "attempts": 1,
            "cpu_share": 1.0,
            "involuntary": 0,
            "stolen_s": None,
            "cycle_s": 1e-9,
            "issued": 5.0,
        }

    monkeypatch.setattr(cpu_compute, "read", told)
    return taken


@needs_avx2
@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize(
    ("slow", "least_per_cycle", "looked"),
    [
        ({}, 0.0, 1),
        ({1: 5.0, 4: 5.0}, 0.0, 3),  # far below the ceiling, twice
        (dict.fromkeys(range(1, 18, 3), 5.0), 0.0, len(PAUSES_S)),  # and always
        ({}, 9.0, 1),
        ({0: 2.0}, 9.0, 1),  # the ceiling behind it is the better one
        ({0: 2.0, 2: 2.0}, 9.0, 2),  # half of the ports, once
        ({}, 11.0, len(PAUSES_S)),  # and always
        # Somebody comes and halves the ports as well: that acquits no product which is slow.
        ({1: 2.8, 3: 2.0, 4: 2.8, 5: 2.0}, 0.0, 3),
    ],
)
def test_a_rate_that_would_be_a_finding_is_looked_at_again(
    slow: dict[int, float], least_per_cycle: float, looked: int, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = gemm(library, "avx2")
    ceiling_s = cpu_compute.PORTS * kernel.ports_operations / 1e10  # ten operations a cycle
    taken = readings(monkeypatch, (ceiling_s, 2 * 256**3 / 0.8e10, ceiling_s), slow)
    raised = list[int]()
    monkeypatch.setattr(cpu_compute, "raise_clock", lambda: raised.append(len(taken)))
    until = time.monotonic() + 60
    told = cpu_compute.judge(library, kernel, CPU, least_per_cycle=least_per_cycle, until=until)
    product = msgspec.convert(msgspec.to_builtins(told), Product)
    assert len(taken) == 3 * looked
    assert raised == list(range(0, 3 * looked, 3))
    assert (product.efficiency > limit("product-of-ceiling").value) is (looked < len(PAUSES_S) or not slow)
    assert (product.wrong, product.noticed) == (0, 25)


@pytest.mark.usefixtures("no_pauses")
@pytest.mark.parametrize(
    ("slow", "least_hz", "looked"),
    [
        ({}, 0.0, 1),
        ({}, 14_000.0, 1),
        ({0: 2.0, 1: 2.0, 2: 2.0}, 14_000.0, 2),  # below nominal, once
        ({}, 16_000.0, len(PAUSES_S)),  # and always
        ({1: 1.2}, 0.0, 2),  # the chains do not agree, once
        ({1: 0.8}, 0.0, 2),
        ({2: 0.5}, 0.0, 2),  # the control does not show, once
    ],
)
def test_a_clock_that_would_be_a_finding_is_looked_at_again(
    slow: dict[int, float], least_hz: float, looked: int, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert 300 * cpu_compute.CHAIN == 15_000  # of a second
    taken = readings(monkeypatch, (1.0, 1.0, 2.0), slow)
    raised = list[int]()  # a governor lowers the clock while we wait
    monkeypatch.setattr(cpu_compute, "raise_clock", lambda: raised.append(len(taken)))
    cpu_compute.clock(library, CPU, least_hz=least_hz, until=time.monotonic() + 60)
    assert len(taken) == 3 * looked
    assert raised == list(range(0, 3 * looked, 3))
