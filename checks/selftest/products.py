"""What gemm-fp32, gemm-int8 and gemm-bf16 have in common: how a matrix product is judged."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from amdcheck.api import (
    HOST,
    Evidence,
    Finding,
    Metric,
    Subject,
    Unknown,
    failed,
    passed,
    shown,
    skipped,
    undetermined,
    warned,
)
from amdcheck.facts.cpu_compute import ComputeSelfTest, Product
from amdcheck.knowledge.isa import isa_table
from amdcheck.knowledge.remedies import remedy
from amdcheck.knowledge.selftests import limit

from . import not_measured


def judged(check: str, names: Sequence[str], test: ComputeSelfTest) -> Iterator[Finding]:
    """One finding for each of these instruction sets."""
    nothing = nothing_to_judge(check, test)
    if nothing is not None:
        yield nothing
        return
    offered = test.offered.or_none() or ()
    for name in names:
        subject = Subject(kind="cpu", id=name)
        if name in offered:
            yield _one(check, name, subject, test)
        else:
            yield skipped(check, subject, f"the kernel does not offer {isa_table().isa[name].name}")


def nothing_to_judge(check: str, test: ComputeSelfTest) -> Finding | None:
    """Why no product can be judged: nothing was measured, or it is not known which should have been."""
    nothing = not_measured(check, test)
    if nothing is None and isinstance(test.offered, Unknown):
        message = "which instruction sets the kernel offers could not be read"
        return undetermined(check, HOST, message, because=test.offered)
    return nothing


def _one(check: str, name: str, subject: Subject, test: ComputeSelfTest) -> Finding:
    source, title = f"{test.source} {name}", isa_table().isa[name].name
    run = (test.products.or_none() or {}).get(name)
    if run is None:
        because = Unknown("failed", source, "the self-test's document says nothing of it")
        return undetermined(check, subject, f"the matrix product by {title} was not run", because=because)
    if run.result is None:
        message = f"the matrix product by {title} ended without an answer: {run.why}"
        if run.ended == "denied":
            return undetermined(check, subject, message, because=run.unknown(source))
        outcome = {"not-built": "absent", "timeout": "timeout"}.get(run.ended, "died")
        seen = shown(source, run.why)
        return undetermined(check, subject, message, seen, outcome=outcome, remedy=remedy(f"{check}/{outcome}"))
    return _computed(check, title, subject, source, test, run.result, test.per_cycle.get(name))


def _computed(
    check: str,
    title: str,
    subject: Subject,
    source: str,
    test: ComputeSelfTest,
    product: Product,
    per_cycle: float | None,
) -> Finding:
    words = shown(source, f"{product.compared - product.wrong} of {product.compared} words right", volatile=True)
    planted = shown(source, f"{product.noticed} of {product.planted} planted errors noticed", note="negative control")
    where = shown(source, f"CPU {test.cpu}", volatile=True)
    if product.wrong:
        return failed(
            f"{check}/wrong-result",
            subject,
            f"matrix products by {title} come out wrong on CPU {test.cpu}",
            words,
            *(
                shown(
                    source,
                    f"{w.got} instead of {w.want} in row {w.row}, column {w.column}",
                    note=f"product of {' x '.join(map(str, w.shape))}",
                    volatile=True,
                )
                for w in product.first_wrong
            ),
            expected="every word exact",
            actual=f"{product.wrong} of {product.compared} words wrong",
            remedy=remedy(f"{check}/wrong-result"),
        )
    if not product.notices:
        return failed(
            f"{check}/not-noticed",
            subject,
            f"errors planted in the matrix product by {title} went unnoticed, so that its right answers prove nothing",
            words,
            planted,
            where,
            expected="every planted error noticed",
            actual=f"{product.noticed} of {product.planted}",
            remedy=remedy(f"{check}/not-noticed"),
        )
    seen = (words, planted, where, *_rates(source, product), *_shared(source, test, product))
    slow = _slow(test, product, per_cycle)
    if slow is not None:
        outcome, message = slow
        return warned(
            f"{check}/{outcome}",
            subject,
            f"{title}: {message}",
            *seen,
            metrics=_metrics(test, product),
            remedy=remedy(f"{check}/{outcome}"),
        )
    return passed(check, subject, f"matrix products by {title} are exact", *seen, metrics=_metrics(test, product))


def _slow(test: ComputeSelfTest, product: Product, per_cycle: float | None) -> tuple[str, str] | None:
    """The outcome and the words of a rate that is plainly too low.

    A disturbed reading says nothing about hardware; nor does one of a core that its other thread shared, but a ceiling
    that was shared is too low, and a product below it is further below the true one. A ceiling stands for itself.
    """
    is_clear = not product.reading.disturbed and not product.ceiling.disturbed and not test.is_shared(product.reading)
    if is_clear and product.efficiency < limit("product-of-ceiling").value:
        return "below-ceiling", "products in the caches run far below what this core's own ports take"
    if product.ceiling.disturbed:
        return None
    measured = None if test.is_shared(product.ceiling) else product.ceiling_per_cycle
    if per_cycle is not None and measured is not None and measured < limit("ports-of-table").value * per_cycle:
        return "below-table", "this core takes far fewer multiply-adds a cycle than its series is built for"
    return None


def _rates(source: str, product: Product) -> tuple[Evidence, ...]:
    """The rates, or that they were disturbed and are not judged."""
    readings = {"product": product.reading, "ceiling": product.ceiling}
    disturbed = tuple(
        shown(source, f"disturbed, not judged: {reading.disturbance}", note=f"rate of the {name}", volatile=True)
        for name, reading in readings.items()
        if reading.disturbed
    )
    told = f"{product.rate / 1e9:.1f} of {product.ceiling_rate / 1e9:.1f} billion operations a second"
    size = " x ".join(map(str, product.shape))
    return disturbed or (shown(source, told, note=f"product of {size}, of the ceiling beside it", volatile=True),)


def _shared(source: str, test: ComputeSelfTest, product: Product) -> Iterator[Evidence]:
    """Which rates are lower than this core's own, since its other thread was at work, here or for another guest."""
    for name, reading in (("product", product.reading), ("ceiling", product.ceiling)):
        if test.is_shared(reading):
            begun = f"{reading.issued:.1f} instructions a cycle, and {test.most_issued:.1f} at most"
            told = f"beside the {name} the core began {begun}"
            yield shown(
                source, told, note="as while its other thread works: perhaps lower than this core's own", volatile=True
            )


def _metrics(test: ComputeSelfTest, product: Product) -> tuple[Metric, ...]:
    """Nothing of what was disturbed or shared. `clock` stood beside the product, `ceiling-clock` beside the ceiling."""

    def metric(name: str, value: float, unit: str) -> Metric:
        return Metric(name=name, value=round(value, 3), unit=unit, volatile=True)

    found: list[Metric] = []
    has_rate, has_ceiling = (
        not reading.disturbed and not test.is_shared(reading) for reading in (product.reading, product.ceiling)
    )
    if has_rate:
        found.append(metric("rate", product.rate / 1e9, "Gop/s"))
        if product.reading.cycle_s is not None:
            found.append(metric("clock", 1 / product.reading.cycle_s / 1e9, "GHz"))
    if has_ceiling:
        found.append(metric("ceiling", product.ceiling_rate / 1e9, "Gop/s"))
        if product.ceiling.cycle_s is not None and product.ceiling_per_cycle is not None:
            found.append(metric("ceiling-clock", 1 / product.ceiling.cycle_s / 1e9, "GHz"))
            found.append(metric("ceiling-per-cycle", product.ceiling_per_cycle, "op/cycle"))
    if has_rate and has_ceiling:
        found.append(metric("of-ceiling", product.efficiency, "1"))
    return tuple(found)
