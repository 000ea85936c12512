"""selftest.cpu.gemm-fp32: single-precision matrix products are exact, and held against the core's own ports."""

from __future__ import annotations

from collections.abc import Iterator

from amdcheck.api import Finding, check
from amdcheck.facts.cpu_compute import FP32, ComputeSelfTest
from amdcheck.facts.selftests import on_x86

from .products import judged

ID = "selftest.cpu.gemm-fp32"


@check(ID, title="FP32 matrix products", level="standard", applies=on_x86)
def gemm_fp32(test: ComputeSelfTest) -> Iterator[Finding]:
    """Multiplies FP32 matrices by AVX2 with FMA and by AVX-512F, as a BLAS does, and compares every element.

    Looks at: products of several shapes, also such that end inside a register tile or a cache block, by packed panels
    and blocks that fit the caches. The operands are integers and powers of two, so that every sum is exact in any
    order. Then wrong bits are planted in the kernel's accumulators, which the comparison must notice. The rate of a
    256 x 256 x 256 product is taken from slices of less than a millisecond, and held against the same multiply-adds on
    registers alone, measured in the same moment: no nominal clock is needed. The ceiling itself is held against what
    the EPYC series issues in a cycle: 32 operations from Zen 2 to Zen 4, which run 512 bits in two halves, 64 on Zen 5.

    Why: dense layers, attention and convolutions in FP32 are this loop. A core that computes wrong corrupts every
    answer. One that comes near its ceiling and still serves slowly has a software problem: the wrong BLAS kernel,
    memory, threads.

    below-ceiling: the product reaches less than 0.4 of its ceiling; alone on a core 0.78 to 0.98 were measured. The
    loop lives in the first two caches, which do not give what they should: see that the prefetchers are not switched
    off in the BIOS. below-table: the ports give less than the series has. In a virtual machine somebody else computes
    on this core all the time; on bare metal look for a sibling thread that is busy. A rate beside which the core began
    fewer instructions a cycle than beside others is neither judged nor a metric: then its other thread was at work.

    Source: ceilings measured beside; issue widths from AMD's software optimization guides by way of the EPYC table.
    """
    yield from judged(ID, FP32, test)
