"""selftest.cpu.int8-exact: whether products of full bytes are exact by the instructions that runtimes use here."""

from __future__ import annotations

from collections.abc import Iterator

from amdcheck.api import HOST, Finding, Unknown, check, failed, manual, passed, shown, skipped, undetermined
from amdcheck.facts.cpu_compute import EXACT, FULL_RANGE, ComputeSelfTest, Product
from amdcheck.facts.selftests import on_x86
from amdcheck.knowledge.isa import isa_table
from amdcheck.knowledge.remedies import remedy

from .products import nothing_to_judge

ID = "selftest.cpu.int8-exact"


@check(ID, title="INT8 over the full range", level="standard", applies=on_x86)
def int8_exact(test: ComputeSelfTest) -> Iterator[Finding]:
    """Says whether a model quantized to eight full bits gives right sums on this processor.

    Looks at: a matrix product of unsigned bytes over all of 0 to 255 with signed bytes, every sum compared, by the
    instructions that runtimes take here: AVX512-VNNI or AVX-VNNI where the kernel offers them, else AVX2's. With VNNI
    the product is that of selftest.cpu.gemm-int8, and wrong sums are a fail. By AVX2 some sums must be wrong, or the
    operands have not shown what they are made to show.

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
    nothing = nothing_to_judge(ID, test)
    if nothing is not None:
        yield nothing
        return
    offered = test.offered.or_none() or ()
    by = next((name for name in (*EXACT, "avx2") if name in offered), None)
    if by is None:
        yield skipped(ID, HOST, "the kernel does not offer AVX2, so that runtimes multiply bytes without it")
        return
    name = by if by in EXACT else FULL_RANGE
    source = f"{test.source} {name}"
    run = (test.products.or_none() or {}).get(name)
    if run is None or run.result is None:
        why = "the self-test's document says nothing of it" if run is None else run.why
        message = f"the product over the full range by {isa_table().isa[by].name} was not run"
        yield undetermined(ID, HOST, message, because=Unknown("failed", source, why))
    elif by in EXACT:
        yield _with_vnni(source, isa_table().isa[by].name, run.result)
    else:
        yield _without_vnni(source, run.result)


def _with_vnni(source: str, title: str, product: Product) -> Finding:
    counted = shown(source, f"{product.compared - product.wrong} of {product.compared} sums right", volatile=True)
    planted = shown(source, f"{product.noticed} of {product.planted} planted errors noticed", note="negative control")
    if product.wrong:
        return failed(
            f"{ID}/wrong-result",
            HOST,
            f"sums of full bytes come out wrong by {title}, which adds in 32 bits and has no reason to",
            counted,
            expected="every sum exact",
            actual=f"{product.wrong} of {product.compared} sums wrong",
            remedy=remedy(f"{ID}/wrong-result"),
        )
    if not product.notices:
        because = Unknown("failed", source, "errors that were planted went unnoticed, or nothing was compared")
        return undetermined(ID, HOST, f"right sums by {title} prove nothing here", planted, because=because)
    return passed(ID, HOST, f"sums of full bytes are exact by {title}, which runtimes take here", planted, counted)


def _without_vnni(source: str, product: Product) -> Finding:
    if not product.wrong:
        because = Unknown("failed", source, f"none of {product.compared} sums left 16 bits, as many must")
        return undetermined(ID, HOST, "whether sums of full bytes saturate was not shown", because=because)
    return manual(
        f"{ID}/saturates",
        HOST,
        "Sums of full bytes saturate here without a word: the kernel offers no VNNI. Serve INT8 models whose weights "
        "were quantized to seven bits.",
        shown(source, "saturates", note="AVX2, bytes over all of 0 to 255"),
        shown(source, f"{product.wrong} of {product.compared} sums wrong", volatile=True),
        remedy=remedy(f"{ID}/saturates"),
    )
