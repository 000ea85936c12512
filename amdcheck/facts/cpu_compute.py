"""What one core computes: its clock, and matrix products in FP32, INT8 and BF16 against its own ceiling."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from amdcheck.facts.cpu import Cpu, nominal_hz
from amdcheck.facts.readings import SHOWN, Amount, Number, Reading
from amdcheck.facts.registry import fact
from amdcheck.facts.selftests import (
    TIMEOUT_S,
    Compared,
    Group,
    GroupDocument,
    Step,
    allowing_busy,
    distinct,
    document_of,
    least_clock,
    look_below,
    offered_sets,
    step_of,
)
from amdcheck.host.protocol import Host, SelfTest
from amdcheck.knowledge.epyc import Series
from amdcheck.knowledge.selftests import limit
from amdcheck.model.expectations import Expectations
from amdcheck.model.value import Known, Unknown, Value

# AVX2's INT8 product with operands over all of 0..255, where it saturates; run where there is no better path.
FULL_RANGE = "avx2-full-range"
# Instruction sets that have a matrix product, by rows of isa.toml.
FP32 = ("fma", "avx512f")
EXACT = ("avx512_vnni", "avx_vnni")  # their sums of full bytes are 32 bits wide; the one that runtimes take first
INT8 = ("avx2", "avx_vnni", "avx512_vnni")
BF16 = ("avx512_bf16",)


class Clock(Struct, frozen=True, kw_only=True):
    """Two readings of `cycles` cycles each, by chains of dependent imul (three cycles) and add (one cycle).

    `twice` is the negative control: a chain of twice as many cycles, which looks like a core at half its clock.
    """

    cycles: Amount
    imul: Reading
    add: Reading
    twice: Reading

    @property
    def hz(self) -> float:
        """The clock by the multiplications, which no processor is known to shorten."""
        return self.imul.rate(self.cycles)

    @property
    def hz_by_add(self) -> float:
        return self.add.rate(self.cycles)

    @property
    def notices(self) -> bool:
        """Whether the control shows as a lower clock, by more than what two readings may differ."""
        return self.twice.best_s > self.imul.best_s * (1 + limit("clock-chains").value)


class WrongElement(Struct, frozen=True, kw_only=True):
    """One wrong word of a product of shape m, n, k: got and want are its bits."""

    shape: tuple[Number, Number, Number]
    row: Number
    column: Number
    got: str
    want: str


class Product(Compared, frozen=True, kw_only=True):
    """A matrix product of one instruction set.

    `operations` in one slice of `reading`, a product of `shape`; `ceiling_operations` in one of `ceiling`, the same
    multiply-adds on registers alone. `compared` words of products of several shapes, `planted` errors that the
    comparison should notice.
    """

    shape: tuple[Number, Number, Number]
    operations: Amount
    reading: Reading
    ceiling_operations: Amount
    ceiling: Reading
    first_wrong: Annotated[tuple[WrongElement, ...], SHOWN]

    @property
    def rate(self) -> float:
        """Operations a second, an addition and a multiplication each counted as one."""
        return self.reading.rate(self.operations)

    @property
    def ceiling_rate(self) -> float:
        return self.ceiling.rate(self.ceiling_operations)

    @property
    def ceiling_per_cycle(self) -> float | None:
        """Operations a cycle; None where no clock was taken beside it."""
        return self.ceiling.per_cycle(self.ceiling_operations)

    @property
    def efficiency(self) -> float:
        return self.rate / self.ceiling_rate


class ProductRun(Step, frozen=True, kw_only=True):
    name: str
    result: Product | None


class _ClockStep(Step, frozen=True, kw_only=True):
    result: Clock | None


class _Document(GroupDocument, frozen=True, kw_only=True):
    cpu: Number | None
    clock: _ClockStep
    products: tuple[ProductRun, ...]


@fact
class ComputeSelfTest(Group, frozen=True, kw_only=True):
    """selftest cpu.compute: one CPU that was idle, its clock and its matrix products."""

    offered: Value[tuple[str, ...]]  # rows of isa.toml whose flags the kernel offers
    cpu: Number | None
    clock: Value[Clock]
    products: Value[dict[str, ProductRun]]  # by name
    nominal_hz: Value[float]  # what the firmware calls the processor's nominal clock
    per_cycle: dict[str, float]  # operations a cycle that the processor's series is built for, by instruction set

    @property
    def most_issued(self) -> float | None:
        """The most instructions that the core began in a cycle beside any of these readings; None: nobody looked."""
        products = [run.result for run in (self.products.or_none() or {}).values() if run.result is not None]
        told = (reading.issued for product in products for reading in (product.reading, product.ceiling))
        return max((issued for issued in told if issued is not None), default=None)

    def is_shared(self, reading: Reading) -> bool:
        """Whether the core began far fewer beside this reading, as it does while its other thread works."""
        most = self.most_issued
        return most is not None and reading.issued is not None and reading.issued < limit("issued-alone").value * most

    @classmethod
    def read(cls, host: Host, cpu: Cpu, expect: Expectations) -> ComputeSelfTest:
        offered = cpu.flags.parse(offered_sets)
        wanted = [name for name in (*FP32, *INT8, *BF16) if name in (offered.or_none() or ())]
        full_range = (FULL_RANGE,) if "avx2" in wanted and not set(EXACT) & set(wanted) else ()
        per_cycle = _issue_widths(cpu.series)
        of_table = limit("ports-of-table").value
        ports = (look_below(name, of_table * per_cycle[name]) for name in wanted if name in per_cycle)
        hints = (*allowing_busy(expect), *least_clock(host), *ports)
        params = (*wanted, *full_range, *hints)
        test = SelfTest(name="cpu.compute", params=params, timeout_s=TIMEOUT_S)
        document = document_of(host, test, expect, _Document)
        known = document.value if isinstance(document, Known) else None
        chosen = known.cpu if known is not None else None
        return cls(
            source=f"selftest {test.name}",
            unread=document if isinstance(document, Unknown) else None,
            offered=offered,
            lacks=known.lacks if known else None,
            busy=known.busy if known else None,
            cpu=chosen,
            clock=step_of(document, lambda d: (d.clock, d.clock.result)),
            products=document.parse(_by_name),
            nominal_hz=nominal_hz(host, chosen or 0),
            per_cycle=per_cycle,
        )


def _issue_widths(series: Series | None) -> dict[str, float]:
    """Operations a cycle by instruction set; at 256 bits as many as two pipes of that width can give."""
    if series is None:
        return {}
    fp32, int8 = series.fp32_flop_cycle, series.int8_vnni_ops_cycle
    widths = {
        "fma": None if fp32 is None else min(fp32, limit("issue-fma-256").value),
        "avx512f": fp32,
        "avx_vnni": None if int8 is None else min(int8, limit("issue-vnni-256").value),
        "avx512_vnni": int8,
        "avx512_bf16": series.bf16_flop_cycle,
    }
    return {name: float(width) for name, width in widths.items() if width}


def _by_name(document: _Document) -> dict[str, ProductRun]:
    return distinct({run.name: run for run in document.products}, document.products)
