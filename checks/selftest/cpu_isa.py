"""selftest.cpu.isa: what the kernel offers computes right."""

from __future__ import annotations

from collections.abc import Iterator

from amdcheck.api import (
    HOST,
    Evidence,
    Finding,
    Known,
    Subject,
    Unknown,
    check,
    evidence,
    failed,
    passed,
    shown,
    skipped,
    undetermined,
    warned,
)
from amdcheck.facts.selftests import IsaSelfTest, KernelResult, KernelRun, on_x86
from amdcheck.knowledge.isa import InstructionSet, isa_table
from amdcheck.knowledge.remedies import remedy

ID = "selftest.cpu.isa"


@check(ID, title="Instruction sets compute exactly", level="standard", applies=on_x86)
def isa(test: IsaSelfTest) -> Iterator[Finding]:
    """Runs what inference on the CPU is built on, for every instruction set that the kernel offers.

    Looks at: SSE2, AVX2, FMA, AVX-VNNI, AVX-512F, AVX512-VNNI and AVX512-BF16, each where /proc/cpuinfo names it. A
    small native kernel computes register tiles, the inner loop of a matrix product, with operands whose right answer is
    exact, and every word is compared with an answer computed one integer at a time. Then one wrong bit after the other
    is planted in the kernel's vector registers, in every lane of every register: each must be noticed, or a pass would
    mean nothing. Each kernel runs in a process of its own, so that an illegal instruction in one does not hide the
    others. Beside it the raw CPUID instruction says what the processor has, which the kernel may not offer.

    Why: a core that computes wrong corrupts every answer of the models on it, silently. A hypervisor that announces an
    instruction set that it does not run kills the server with SIGILL, often only after the model was loaded. An
    instruction set that the kernel masks halves the throughput or worse, and nothing says so.

    What to do: take a machine that computes wrong out of service. Ask for a CPU model of the virtual machine that
    matches its host. Remove clearcpuid= and noxsave from the kernel command line where nobody needs them.

    One finding for each instruction set. An installation without the native kernels is undetermined, and says so.

    Source: AMD64 Architecture Programmer's Manual volume 3 (publication 24594); Linux kernel-parameters.txt.
    """
    if isinstance(test.offered, Unknown):
        yield undetermined(ID, HOST, "which instruction sets the kernel offers could not be read", because=test.offered)
        return
    if isinstance(test.runs, Unknown):
        yield undetermined(ID, HOST, "the self-test of the instruction sets did not run", because=test.runs)
        return
    if test.lacks is not None:
        not_run = shown(test.source, f"not run: {', '.join(test.offered.value)}")
        yield undetermined(ID, HOST, test.lacks, not_run, outcome="absent", remedy=remedy(f"{ID}/absent"))
    if isinstance(test.cpuid, Unknown):
        yield undetermined(
            ID,
            HOST,
            "what the processor says of itself could not be read, so nothing is said of what the kernel may mask",
            because=test.cpuid,
            outcome="cpuid-unread",
            remedy=remedy(f"{ID}/cpuid-unread"),
        )
    for key, row in isa_table().isa.items():
        subject = Subject(kind="cpu", id=key)
        if key not in test.offered.value:
            yield _not_offered(test, row, subject)
        elif test.lacks is None:
            yield _ran(test, row, subject, test.runs.value.get(key))


def _ran(test: IsaSelfTest, row: InstructionSet, subject: Subject, run: KernelRun | None) -> Finding:
    """The finding of an instruction set that the kernel offers."""
    source = f"{test.source} {subject.id}"
    if run is None:
        because = Unknown("failed", source, "the self-test's document says nothing of it")
        return undetermined(ID, subject, f"{row.name} was not run", because=because)
    if run.ended == "not-built":
        message = f"{row.name} was not run: {run.detail}"
        return undetermined(
            ID, subject, message, shown(source, run.why), outcome="absent", remedy=remedy(f"{ID}/absent")
        )
    if run.ended == "SIGILL":
        return failed(
            f"{ID}/illegal-instruction",
            subject,
            f"the kernel offers {row.name}, and running it ends in SIGILL",
            shown(source, run.why),
            shown("/proc/cpuinfo", " ".join(row.flags), note="flags"),
            *_cpuid(test, row),
            expected="runs",
            actual="SIGILL",
            remedy=remedy(f"{ID}/illegal-instruction"),
        )
    if run.result is None:
        outcome = "timeout" if run.ended == "timeout" else "died"
        return undetermined(
            ID,
            subject,
            f"the kernel for {row.name} ended without an answer: {run.why}",
            shown(source, run.why),
            outcome=outcome,
            remedy=remedy(f"{ID}/{outcome}"),
        )
    return _computed(test, row, subject, run.result)


def _computed(test: IsaSelfTest, row: InstructionSet, subject: Subject, result: KernelResult) -> Finding:
    """The finding of a kernel that ran to its end."""
    source = f"{test.source} {subject.id}"
    words = shown(source, f"{result.compared - result.wrong} of {result.compared} words right", note=row.computes)
    planted = shown(source, f"{result.noticed} of {result.planted} planted bits noticed", note="negative control")
    if result.wrong:
        return failed(
            f"{ID}/wrong-result",
            subject,
            f"{row.name} computes wrong, in {_lanes(result)}",
            words,
            *(
                shown(source, f"register {w.register} lane {w.lane}: {w.got} instead of {w.want}", volatile=True)
                for w in result.first_wrong
            ),
            shown(source, f"ran on CPU {', '.join(map(str, result.cpus)) or 'unknown'}", volatile=True),
            expected="every word exact",
            actual=f"{result.wrong} of {result.compared} words wrong",
            remedy=remedy(f"{ID}/wrong-result"),
        )
    if not result.notices:
        return failed(
            f"{ID}/not-noticed",
            subject,
            f"errors planted in the kernel for {row.name} went unnoticed, so that its right answers prove nothing",
            words,
            planted,
            expected="every planted bit noticed",
            actual=f"{result.noticed} of {result.planted}",
            remedy=remedy(f"{ID}/not-noticed"),
        )
    if isinstance(test.cpuid, Known) and not row.in_processor(test.cpuid.value.leaves):
        return warned(
            f"{ID}/not-in-cpuid",
            subject,
            f"the kernel offers {row.name} and it runs, but the processor's own CPUID does not announce it",
            words,
            planted,
            *_cpuid(test, row),
            remedy=remedy(f"{ID}/not-in-cpuid"),
        )
    return passed(ID, subject, f"{row.name} computes exactly", words, planted, *_datapath(test, row))


def _not_offered(test: IsaSelfTest, row: InstructionSet, subject: Subject) -> Finding:
    """The finding of an instruction set that the kernel does not offer: is it missing, unnamed or masked?"""
    if isinstance(test.cpuid, Unknown):
        reason = f"the kernel does not offer {row.name}; whether the processor has it could not be read"
        return skipped(ID, subject, reason, evidence(test.cpuid))
    cpuid = test.cpuid.value
    if not row.in_processor(cpuid.leaves):
        return skipped(ID, subject, f"the processor has no {row.name}", *_cpuid(test, row))
    if test.too_old_to_name(row):
        reason = f"this kernel is older than the name of {row.name}; programs that ask CPUID use it all the same"
        return skipped(ID, subject, reason, evidence(test.kernel.parse(_dotted)), *_cpuid(test, row))
    masks = test.masking.or_none() or ()
    if masks:
        how = f"the kernel command line masks it with {' '.join(masks)}"
    elif not row.enabled(cpuid.xcr0):
        how = "its registers are not enabled in XCR0, by the kernel or the hypervisor"
    else:
        how = "the kernel has cleared it"
    xcr0 = "XSAVE is off" if cpuid.xcr0 is None else f"{cpuid.xcr0:#x}"
    return warned(
        f"{ID}/masked",
        subject,
        f"the processor has {row.name}, but {how}",
        *_cpuid(test, row),
        shown(test.cpuid.source, xcr0, note=f"XCR0; {row.name} needs {row.xcr0:#x}"),
        evidence(test.masking.parse(_masks)),
        remedy=remedy(f"{ID}/masked"),
    )


def _masks(words: tuple[str, ...]) -> str:
    return " ".join(words) or "no word that masks instruction sets"


def _dotted(release: tuple[int, int]) -> str:
    return f"{release[0]}.{release[1]}"


def _lanes(result: KernelResult) -> str:
    """Which lanes, when it is some of them: the same lane in every register is a broken unit."""
    if len(result.wrong_lanes) == result.lanes:
        return "every lane"
    return f"lane {', '.join(map(str, result.wrong_lanes))} of {result.lanes}"


def _cpuid(test: IsaSelfTest, row: InstructionSet) -> tuple[Evidence, ...]:
    """What CPUID says of each bit that the row needs."""
    if isinstance(test.cpuid, Unknown):
        return (evidence(test.cpuid),)
    leaves = test.cpuid.value.leaves
    bits = (f"{b.leaf} {b.register.upper()} bit {b.bit} {'set' if b.is_set(leaves) else 'clear'}" for b in row.cpuid)
    return (shown(test.cpuid.source, ", ".join(bits), note="CPUID"),)


def _datapath(test: IsaSelfTest, row: InstructionSet) -> tuple[Evidence, ...]:
    """How wide the units are that run it, where the processor says: Zen 4 runs 512 bits in two halves."""
    if isinstance(test.cpuid, Unknown):
        return ()
    bits = isa_table().datapath_bits(test.cpuid.value.leaves)
    return () if bits is None else (shown(test.cpuid.source, f"{bits}-bit data path", note="CPUID Fn8000_001A"),)
