"""selftest.cpu.gemm-bf16: products of bfloat16 are exact, and held against the core's own ports."""

from __future__ import annotations

from collections.abc import Iterator

from amdcheck.api import Finding, check
from amdcheck.facts.cpu_compute import BF16, ComputeSelfTest
from amdcheck.facts.selftests import on_x86

from .products import judged

ID = "selftest.cpu.gemm-bf16"


@check(ID, title="BF16 matrix products", level="standard", applies=on_x86)
def gemm_bf16(test: ComputeSelfTest) -> Iterator[Finding]:
    """Multiplies bfloat16 matrices into FP32 sums by AVX512-BF16 (vdpbf16ps), which Zen 4 was the first EPYC to have.

    Looks at: products of several shapes with integers of eight bits, which bfloat16 holds exactly, scaled by powers of
    two; every sum is compared bit by bit, and wrong bits planted in the accumulators must be noticed. The rate is held
    against the same instruction on registers alone.

    Why: language models ship their weights in bfloat16. With the instruction a core of Zen 4 or Zen 5 does twice the
    work of FP32 from half the memory traffic; other processors may do less. Without it a runtime that was told to use
    bfloat16 converts on the fly and is several times slower than plain FP32: where this check is skipped, do not ask
    for bfloat16.

    below-ceiling: the product reaches less than 0.4 of its ceiling; alone on a core 0.78 to 0.98 were measured. The
    loop runs in the first two caches, which do not give what they should: see that prefetchers are not switched off.
    below-table: fewer products a cycle than the series issues: another thread shares the core all the time. What it
    took for a while, told by fewer instructions begun a cycle than beside other rates, is neither judged
    nor a metric.

    Source: ceilings measured beside; AMD64 Architecture Programmer's Manual volume 4; measured: a ResNet50 whose
    bfloat16 hint met no such instruction ran at 0.26 of its FP32 rate.
    """
    yield from judged(ID, BF16, test)
