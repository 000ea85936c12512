"""selftest.cpu.memory-pattern: does memory hold what is written into it?"""

from __future__ import annotations

from collections.abc import Iterator

from amdcheck.api import (
    HOST,
    Evidence,
    Finding,
    Metric,
    Unknown,
    check,
    failed,
    passed,
    shown,
    undetermined,
)
from amdcheck.facts.cpu_pattern import PatternRun, Patterns, PatternSelfTest, WrongWord
from amdcheck.facts.selftests import on_x86
from amdcheck.knowledge.remedies import remedy

from . import not_measured

ID = "selftest.cpu.memory-pattern"
_SHOWN = 8


@check(ID, title="Memory holds patterns", level="deep", applies=on_x86)
def memory_pattern(test: PatternSelfTest) -> Iterator[Finding]:
    """Writes patterns into a part of the memory and compares every word that comes back, with all idle cores at once.

    Looks at: checkerboards, walking ones and walking zeros, each word's own place, and random words, each pattern
    with its inversion, in blocks larger than the caches, 128 MiB and more; with less room nothing is tested. Wrong bits
    are planted in every pattern and must be noticed. It takes at most a quarter of what the machine, its control groups
    and limits have left, and some seconds; should memory run out all the same, the kernel ends this test first. What
    was tested is in the evidence: a sample, chosen by the kernel, not all of the memory. For that there is memtest86+,
    and the BIOS's own memory test.

    Why: weights stay in memory for weeks. ECC corrects single bits and reports them; what it miscorrects, and what
    goes wrong between core and memory, is silent, and turns into answers that are slightly wrong for everybody.

    wrong-result names offset, bits, NUMA node and CPU. The same bits at many places point to a line or a lane, one
    place to a cell; on one CPU alone it is the core, not the memory.

    Source: A. J. van de Goor, Testing Semiconductor Memories (the patterns); Linux Documentation/admin-guide/ras.rst.
    """
    nothing = not_measured(ID, test)
    yield nothing if nothing is not None else _judged(test)


def _judged(test: PatternSelfTest) -> Finding:
    done = [(run, run.result) for run in test.workers if run.result is not None]
    died = [run for run in test.workers if run.result is None]
    compared, wrong = (sum(getattr(result, name) for _, result in done) for name in ("compared", "wrong"))
    planted, noticed = (sum(getattr(result, name) for _, result in done) for name in ("planted", "noticed"))
    words = shown(test.source, f"{compared - wrong} of {compared} words right", volatile=True)
    control = shown(test.source, f"{noticed} of {planted} planted bits noticed", note="negative control", volatile=True)
    if wrong:
        bad = [(run, word) for run, result in done for word in result.first_wrong]
        cpus = ", ".join(str(run.cpu) for run, result in done if result.wrong)
        return failed(
            f"{ID}/wrong-result",
            HOST,
            f"memory did not hold what CPU {cpus} wrote into it",
            words,
            *(_told(test, run, word) for run, word in bad[:_SHOWN]),
            expected="every word as it was written",
            actual=f"{wrong} of {compared} words wrong",
            remedy=remedy(f"{ID}/wrong-result"),
        )
    if not done and died and all(run.ended == "memory" for run in died):
        because = Unknown("failed", test.source, died[0].why)
        return undetermined(
            ID, HOST, "there was no memory that could be tested without harm to others", because=because
        )
    if died or not done:
        return undetermined(
            ID,
            HOST,
            "not every worker gave an answer",
            *(shown(test.source, f"CPU {run.cpu}: {run.why}", volatile=True) for run in died[:_SHOWN]),
            words,
            outcome="died",
            remedy=remedy(f"{ID}/died"),
        )
    if not all(result.notices for _, result in done):
        return failed(
            f"{ID}/not-noticed",
            HOST,
            "bits that were planted in the patterns went unnoticed, so that right words prove nothing",
            words,
            control,
            expected="every planted bit noticed",
            actual=f"{noticed} of {planted}",
            remedy=remedy(f"{ID}/not-noticed"),
        )
    seen = (words, control, *_where(test, done))
    return passed(ID, HOST, "the memory that was tested held every pattern", *seen, metrics=_metrics(test, done))


def _told(test: PatternSelfTest, run: PatternRun, word: WrongWord) -> Evidence:
    bits = int(word.got, 16) ^ int(word.want, 16)
    node = "an unknown node" if word.node is None else f"node {word.node}"
    return shown(
        test.source,
        f"{word.got} instead of {word.want}, bits {bits:#x}, offset {word.offset:#x} of CPU {run.cpu}'s memory, {node}",
        note=word.pattern,
        volatile=True,
    )


def _where(test: PatternSelfTest, done: list[tuple[PatternRun, Patterns]]) -> tuple[Evidence, ...]:
    """How much of which nodes was tested."""
    nodes = sorted({node for _, result in done for node in result.nodes})
    told = ", ".join(map(str, nodes)) or "unknown"
    tested = sum(result.bytes for _, result in done) / (1 << 30)
    amount = f"{tested:.2f} of the {test.room_kib / (1 << 20):.2f} GiB that it might take, {_passes(done)} passes"
    return (
        shown(test.source, amount, note="tested", volatile=True),
        shown(test.source, f"nodes {told}", note=f"memory of {len(done)} workers", volatile=True),
    )


def _passes(done: list[tuple[PatternRun, Patterns]]) -> int:
    """That each word has had at least."""
    return min(result.passes for _, result in done)


def _metrics(test: PatternSelfTest, done: list[tuple[PatternRun, Patterns]]) -> tuple[Metric, ...]:
    tested = sum(result.bytes for _, result in done)
    return (
        Metric(name="tested", value=round(tested / (1 << 30), 3), unit="GiB", volatile=True),
        Metric(name="allowed", value=round(test.room_kib / (1 << 20), 3), unit="GiB", volatile=True),
        Metric(name="passes", value=_passes(done), unit="1", volatile=False),
    )
