"""selftest.cpu.int8-exact: whether products of full bytes are exact by the instructions that runtimes use here."""

from __future__ import annotations

from collections.abc import Iterator

from amdcheck.api import HOST, Finding, Unknown, check, manual, passed, shown, skipped, undetermined
from amdcheck.facts.cpu_compute import FULL_RANGE, ComputeSelfTest
from amdcheck.facts.selftests import on_x86
from amdcheck.knowledge.isa import isa_table
from amdcheck.knowledge.remedies import remedy

from . import not_measured

ID = "selftest.cpu.int8-exact"
EXACT = ("avx512_vnni", "avx_vnni")  # the instruction sets whose byte products sum in 32 bits, the widest first


@check(ID, title="INT8 over the full range", level="standard", applies=on_x86)
def int8_exact(test: ComputeSelfTest) -> Iterator[Finding]:
    """Says whether a model quantized to eight full bits gives right sums on this processor.

    Looks at: a matrix product of unsigned bytes over all of 0 to 255 with signed bytes, by AVX2's instructions, every
    sum compared; and whether the processor has VNNI, whose products are judged by selftest.cpu.gemm-int8.

    Why: before VNNI, a runtime multiplies bytes with vpmaddubsw, which adds two products in sixteen bits and saturates
    there: 255 x 127 twice is 64,770, and it returns 32,767. The model runs at full speed and its answers drift, and
    nothing says so. That is how the instruction is defined, on every processor without VNNI: all of EPYC 7001, 7002
    and 7003. With VNNI (EPYC 9004 and later) runtimes use vpdpbusd, which sums in 32 bits.

    What to do where it saturates: quantize weights to seven bits. ONNX Runtime's quantize_static and quantize_dynamic
    take reduce_range=True, OpenVINO's NNCF the preset for CPUs without VNNI, PyTorch's x86 backend does it by itself.
    Then compare the model's accuracy with FP32 on real inputs. The report cannot see the models, so this is left to
    you; it does not change the verdict.

    Source: AMD64 Architecture Programmer's Manual volume 4, VPMADDUBSW; oneDNN developer guide, Nuances of int8
    Computations; measured by this self-test.
    """
    nothing = not_measured(ID, test)
    if nothing is not None:
        yield nothing
        return
    if isinstance(test.offered, Unknown):
        yield undetermined(ID, HOST, "which instruction sets the kernel offers could not be read", because=test.offered)
        return
    offered = test.offered.value
    run = (test.products.or_none() or {}).get(FULL_RANGE)
    if "avx2" not in offered:
        yield skipped(ID, HOST, "the kernel does not offer AVX2, so that runtimes multiply bytes without it")
        return
    source = f"{test.source} {FULL_RANGE}"
    if run is None or run.result is None:
        why = "the self-test's document says nothing of it" if run is None else run.why
        yield undetermined(
            ID, HOST, "the product over the full range was not run", because=Unknown("failed", source, why)
        )
        return
    wrong = run.result.wrong
    seen = shown(source, "saturates" if wrong else "every sum right", note="AVX2, bytes over all of 0 to 255")
    counted = shown(source, f"{wrong} of {run.result.compared} sums wrong", volatile=True)
    by = next((name for name in EXACT if name in offered), None)
    if by is not None:
        instruction = shown(test.source, isa_table().isa[by].name, note="offered by the kernel")
        yield passed(
            ID,
            HOST,
            f"runtimes multiply bytes by {isa_table().isa[by].name}, whose sums are 32 bits wide",
            instruction,
            seen,
            counted,
        )
    elif wrong:
        yield manual(
            f"{ID}/saturates",
            HOST,
            "Sums of full bytes saturate here without a word: this processor has no VNNI. Serve INT8 models whose "
            "weights were quantized to seven bits.",
            seen,
            counted,
            remedy=remedy(f"{ID}/saturates"),
        )
    else:
        yield passed(ID, HOST, "sums of full bytes are exact by AVX2", seen, counted)
