"""selftest.cpu.gemm-int8: products of 8-bit integers are exact, and held against the core's own ports."""

from __future__ import annotations

from collections.abc import Iterator

from amdcheck.api import Finding, check
from amdcheck.facts.cpu_compute import INT8, ComputeSelfTest
from amdcheck.facts.selftests import on_x86

from .products import judged

ID = "selftest.cpu.gemm-int8"


@check(ID, title="INT8 matrix products", level="standard", applies=on_x86)
def gemm_int8(test: ComputeSelfTest) -> Iterator[Finding]:
    """Multiplies matrices of unsigned by signed bytes into 32-bit sums, the product that quantized models are made of.

    Looks at: three ways, each where the kernel offers it. AVX2 (vpmaddubsw, vpmaddwd) with weights of seven bits,
    within which it is exact; AVX-VNNI and AVX512-VNNI (vpdpbusd) with all eight bits. Every sum is compared, wrong bits
    planted in the accumulators must be noticed, and the rate is held against the same instructions on registers alone.

    Why: INT8 is where a server CPU earns its keep: four products to a lane instead of one. Zen 4 and Zen 5 have
    AVX512-VNNI, Zen 5 also AVX-VNNI; Zen 2 and Zen 3 have neither, take three instructions to do the work of one, and
    lose most of the advantage. Which of them a runtime picks is its affair; that the processor does them right is
    shown here. Whether eight full bits are safe on this machine says selftest.cpu.int8-exact.

    below-ceiling: the product reaches less than 0.4 of its ceiling; alone on a core 0.78 to 0.98 were measured. The
    loop runs in the first two caches, which do not give what they should: see that prefetchers are not switched off.
    below-table: vpdpbusd is issued at less than the series' width: another thread shares the core all the time. What it
    took for a while, told by fewer instructions begun a cycle than beside other rates, is neither judged
    nor a metric.

    Source: ceilings measured beside; AMD64 Architecture Programmer's Manual volume 4 for the instructions.
    """
    yield from judged(ID, INT8, test)
