"""What the self-tests of this machine gave. Each runs in a child process that the host starts, and is recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

import msgspec
from msgspec import Meta, Struct

from amdcheck.facts.cpu import Cpu, nominal_hz
from amdcheck.facts.platform import Platform
from amdcheck.facts.readings import SHOWN, Amount, Number, Seconds
from amdcheck.facts.registry import fact
from amdcheck.host.asked import ALLOW_BUSY, LEAST, asked_for
from amdcheck.host.processes import signal_name
from amdcheck.host.protocol import Host, SelfTest, SelfTestResult
from amdcheck.knowledge.isa import InstructionSet, isa_table
from amdcheck.knowledge.selftests import limit
from amdcheck.model.expectations import Expectations
from amdcheck.model.value import Known, Reason, Unknown, Value

D = TypeVar("D")
T = TypeVar("T")

# Of a child of ours: more than the deadlines of all steps inside it together, so that one slow step after the other is
# told as such. This ends a child that is stuck as a whole.
TIMEOUT_S = 40.0
NUMPY_TIMEOUT_S = 20.0  # of a judged interpreter, which has no deadlines inside
_NOT_AT_QUICK = "self-tests run at level standard and deep"


class Step(Struct, frozen=True, kw_only=True):
    """How one step of a self-test ended, in a process of its own.

    `ended`: returned, timeout, memory, denied, failed, not-built, the signal that killed it, as SIGILL, or why it was
    not asked for on this machine: not-offered, one-node, not-asked, no-pair, busy.
    """

    ended: str
    detail: str | None

    def __post_init__(self) -> None:
        if (self.ended == "returned") != (getattr(self, "result", None) is not None):
            raise ValueError("a step has a result when it returned, and only then")

    @property
    def why(self) -> str:
        """The end in words, for a step that did not return."""
        return self.ended if self.detail is None else f"{self.ended}: {self.detail}"

    def unknown(self, source: str) -> Unknown:
        """What a step that did not return leaves to be said."""
        same: dict[str, Reason] = {"timeout": "timeout", "denied": "denied"}
        reason = same.get(self.ended, "failed")
        return Unknown(reason, source, self.detail if reason == self.ended else self.why)


class Compared(Struct, frozen=True, kw_only=True):
    """How many answers were compared and were wrong, and how many errors were planted and noticed."""

    compared: Number
    wrong: Number
    planted: Number
    noticed: Number

    def __post_init__(self) -> None:
        if self.wrong > self.compared or self.noticed > self.planted:
            raise ValueError("more is wrong or noticed than there is")

    @property
    def notices(self) -> bool:
        """Whether something was compared, and every planted error was noticed: else right answers prove nothing."""
        return self.compared > 0 and 0 < self.planted == self.noticed


class WrongWord(Struct, frozen=True, kw_only=True):
    """One place of a register tile whose answer was wrong: got and want are the bits of the first wrong answer."""

    register: Number
    lane: Number
    got: str
    want: str


class KernelResult(Compared, frozen=True, kw_only=True):
    """What a kernel computed: words compared and wrong, bits planted and noticed, and the CPUs it ran on."""

    registers: Number
    lanes: Number
    wrong_lanes: tuple[Number, ...]
    first_wrong: Annotated[tuple[WrongWord, ...], SHOWN]
    cpus: tuple[Number, ...]


class KernelRun(Step, frozen=True, kw_only=True):
    """One kernel of selftest.cpu.isa."""

    name: str
    result: KernelResult | None


class RawCpuid(Struct, frozen=True, kw_only=True):
    """The raw leaves by "leaf.subleaf" as EAX, EBX, ECX, EDX, and the lower half of XCR0 (None: XSAVE is off)."""

    leaves: dict[str, tuple[Number, Number, Number, Number]]
    xcr0: Number | None


class _CpuidStep(Step, frozen=True, kw_only=True):
    result: RawCpuid | None


class _IsaDocument(Struct, frozen=True, kw_only=True):
    lacks: str | None
    kernels: tuple[KernelRun, ...]
    cpuid: _CpuidStep


@fact
class IsaSelfTest(Struct, frozen=True, kw_only=True):
    """selftest.cpu.isa: the instruction sets that the kernel offers were run, and CPUID was read beside them."""

    source: str
    offered: Value[tuple[str, ...]]  # rows of the table whose flags the kernel offers
    runs: Value[dict[str, KernelRun]]  # by row
    lacks: str | None  # why no kernel ran, though the child did: this installation has no native library
    cpuid: Value[RawCpuid]
    masking: Value[tuple[str, ...]]  # words of the kernel command line that take instruction sets away
    kernel: Value[tuple[int, int]]  # release of the Linux kernel, as (6, 8)

    @classmethod
    def read(cls, host: Host, cpu: Cpu, platform: Platform, expect: Expectations) -> IsaSelfTest:
        offered = cpu.flags.parse(offered_sets)
        params = offered.value if isinstance(offered, Known) else ()
        test = SelfTest(name="cpu.isa", params=params, timeout_s=TIMEOUT_S)
        document = document_of(host, test, expect, _IsaDocument)
        return cls(
            source=f"selftest {test.name}",
            offered=offered,
            runs=document.parse(_by_name),
            lacks=document.value.lacks if isinstance(document, Known) else None,
            cpuid=step_of(document, lambda d: (d.cpuid, d.cpuid.result)),
            masking=platform.command_line.parse(isa_table().masking_words),
            kernel=platform.release,
        )

    def too_old_to_name(self, row: InstructionSet) -> bool:
        """Whether this Linux kernel is older than the name of the instruction set."""
        return row.is_unnamed_by(self.kernel.or_none())


def _by_name(document: _IsaDocument) -> dict[str, KernelRun]:
    return distinct({run.name: run for run in document.kernels}, document.kernels)


def distinct(by_name: dict[T, D], every: Sequence[D]) -> dict[T, D]:
    """All of them by what names each. Raises ValueError for one that was told twice: the other would be hidden."""
    if len(by_name) < len(every):
        raise ValueError("a name was told twice")
    return by_name


def offered_sets(flags: tuple[str, ...]) -> tuple[str, ...]:
    """The rows of isa.toml whose self-tests may run where the kernel offers these flags."""
    return tuple(key for key, row in isa_table().isa.items() if set(row.flags) <= set(flags))


def on_x86(cpu: Cpu) -> str | None:
    """Predicate: None on x86 or where the architecture could not be read, else the reason to skip."""
    architecture = cpu.architecture.or_none()
    if architecture in (None, "x86_64"):
        return None
    return f"the native kernels are for x86-64; this is {architecture}"


class Count(Struct, frozen=True, kw_only=True):
    """Of `held` buffers of one size that were held at once, how many began on a 64-byte line."""

    bytes: Amount
    held: Amount
    aligned: Number

    def __post_init__(self) -> None:
        if self.aligned > self.held:
            raise ValueError("more buffers are aligned than were held")


Counts = Annotated[tuple[Count, ...], Meta(min_length=1)]  # of one function, the smallest buffers first


def all_aligned(counts: tuple[Count, ...]) -> bool:
    """Whether every buffer of every size began on a line."""
    return all(count.aligned == count.held for count in counts)


class Allocator(Struct, frozen=True, kw_only=True):
    """The C allocator of our own process: glibc 2.36, jemalloc ..."""

    name: str
    malloc: Counts
    posix_memalign: Counts
    aligned_alloc: Counts


class Load(Struct, frozen=True, kw_only=True):
    """Seconds that one load takes, `offset` bytes behind a line."""

    offset: Number
    seconds: Seconds


class Loads(Struct, frozen=True, kw_only=True):
    """What loads of `width` bytes take from the first-level cache, by offset; the aligned one first."""

    width: Number
    by_offset: Annotated[tuple[Load, ...], Meta(min_length=2)]

    def __post_init__(self) -> None:
        if self.by_offset[0].offset != 0:
            raise ValueError("the first loads are not the aligned ones")

    @property
    def costs(self) -> dict[int, float]:
        """How much longer than an aligned load one takes, by offset."""
        aligned, *others = self.by_offset
        return {load.offset: load.seconds / aligned.seconds for load in others}


class _AllocatorStep(Step, frozen=True, kw_only=True):
    result: Allocator | None


class _LoadsStep(Step, frozen=True, kw_only=True):
    result: Loads | None


class _AlignmentDocument(Struct, frozen=True, kw_only=True):
    allocator: _AllocatorStep
    loads: _LoadsStep


class NumpyArrays(Struct, frozen=True, kw_only=True):
    """Arrays by numpy.empty, over-allocated and sliced, and over memory of posix_memalign; and of how many
    numpy.ascontiguousarray returned the same object."""

    empty: Counts
    sliced: Counts
    allocated: Counts
    contiguous_tried: Number
    contiguous_same: Number


class Numpy(Struct, frozen=True, kw_only=True):
    """The numpy of the judged interpreter; `lacks` says why it could not be imported, and nothing was measured."""

    python: str
    lacks: str | None
    numpy: str | None
    handler: str | None  # its allocator (NEP 49)
    measured: NumpyArrays | None

    def __post_init__(self) -> None:
        if (self.lacks is None) == (self.measured is None):
            raise ValueError("either something is lacking, or arrays were measured")


@fact
class AlignmentSelfTest(Struct, frozen=True, kw_only=True):
    """selftest.cpu.alignment: what the C allocator and the judged interpreter's numpy give for 64 bytes."""

    source: str
    allocator: Value[Allocator]
    loads: Value[Loads]
    python: str | None  # the interpreter that is judged; None: there is none
    numpy_source: str
    numpy: Value[Numpy]

    @classmethod
    def read(cls, host: Host, cpu: Cpu, expect: Expectations) -> AlignmentSelfTest:
        test = SelfTest(name="cpu.alignment", params=(str(_widest_load(cpu)),), timeout_s=TIMEOUT_S)
        document = document_of(host, test, expect, _AlignmentDocument)
        numpy_test = SelfTest(name="numpy_alignment", python=expect.python, timeout_s=NUMPY_TIMEOUT_S)
        return cls(
            source=_source(test),
            allocator=step_of(document, lambda d: (d.allocator, d.allocator.result)),
            loads=step_of(document, lambda d: (d.loads, d.loads.result)),
            python=expect.python,
            numpy_source=_source(numpy_test),
            numpy=_no_python(numpy_test) if expect.python is None else document_of(host, numpy_test, expect, Numpy),
        )


def _widest_load(cpu: Cpu) -> int:
    flags = cpu.flags.or_none() or ()
    return 64 if "avx512f" in flags else 32 if "avx" in flags else 16


def _no_python(test: SelfTest) -> Unknown:
    return Unknown("absent", _source(test), "no interpreter to judge")


def _source(test: SelfTest) -> str:
    where = "" if test.python is None else f" ({test.python})"
    return " ".join(("selftest", test.name, *asked_for(test.params))) + where


class GroupDocument(Struct, frozen=True, kw_only=True):
    """Base of what the child of a group prints: why it measured nothing, if so."""

    lacks: str | None  # this installation has no native library
    busy: str | None  # every CPU is in use


class Group(Struct, frozen=True, kw_only=True):
    """Base of the fact of a group of self-tests, which one child runs."""

    source: str
    unread: Unknown | None  # the child gave no document at all
    lacks: str | None
    busy: str | None


def allowing_busy(expect: Expectations) -> tuple[str, ...]:
    """The word by which a self-test's child may use CPUs that are in use, if so."""
    return (ALLOW_BUSY,) if expect.allow_busy else ()


def look_below(name: str, rate: float) -> str:
    """The word by which a self-test's child looks again at a rate that is below this one."""
    return f"{LEAST}{name}={rate:.6g}"


def least_clock(host: Host) -> tuple[str, ...]:
    """The word for a clock below nominal, by the first CPU: the parts of one machine are alike."""
    nominal = nominal_hz(host, 0).or_none()
    return () if nominal is None else (look_below("clock", limit("clock-of-nominal").value * nominal),)


def step_of(document: Value[D], pick: Callable[[D], tuple[Step, T | None]]) -> Value[T]:
    """The result of one step of a document, or how the step ended instead."""
    if isinstance(document, Unknown):
        return document
    step, result = pick(document.value)
    if result is not None:
        return Known(result, document.source)
    return step.unknown(document.source)


def document_of(host: Host, test: SelfTest, expect: Expectations, kind: type[D], *, source: str = "") -> Value[D]:
    """The document that the child printed, as `kind`; or how the child ended instead. At level quick none is started.

    `source` names what is asked, where that is clearer than the self-test with its parameters.
    """
    source = source or _source(test)
    if expect.level == "quick":
        return Unknown("not-recorded", source, _NOT_AT_QUICK)
    answer = host.selftest(test)
    if isinstance(answer, Unknown):
        return Unknown(answer.reason, source, answer.detail)

    def decode(text: str) -> D:
        """The document is the last line: a judged interpreter may greet on stdout before it."""
        last = text.strip().rpartition("\n")[2].encode("utf-8", "replace")
        try:
            return msgspec.json.decode(last, type=kind)
        except RecursionError as error:
            raise ValueError("the document is nested too deeply") from error

    return _ended_well(answer.value, source).parse(decode)


def _ended_well(answer: SelfTestResult, source: str) -> Value[str]:
    result = answer.result
    if result.timed_out or result.rc is None:
        stuck = f"; still there: {', '.join(result.stuck)}" if result.stuck else ""
        return Unknown("timeout", source, f"the child was ended after {result.duration_s:.0f} s{stuck}")
    if result.truncated:
        return Unknown("failed", source, "the child printed more than is read of it")
    if result.rc < 0:
        return Unknown("failed", source, f"the child was killed by {signal_name(-result.rc)}")
    if result.rc != 0:
        last = result.stderr.strip().rpartition("\n")[2]
        return Unknown("failed", source, f"the child left with {result.rc}: {last[:200]}")
    return Known(result.stdout, source)
