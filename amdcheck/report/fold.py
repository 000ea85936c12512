"""The same finding on many subjects is one entry: eight GPUs with one fault are one thing to read.

So is one cause that many checks tell in the same words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from amdcheck.model.finding import Evidence, Finding, Remedy, Step, Subject

_NUMBER = re.compile(r"(\d+)")
_SHORTEST = 4  # an id such as "0" stands in many strings by chance


@dataclass(frozen=True)
class Case:
    """What is said of some subjects in the same words; `sample` is the finding, its subject's id replaced."""

    findings: tuple[Finding, ...]
    sample: Finding

    @property
    def subjects(self) -> tuple[Subject, ...]:
        return tuple(f.subject for f in self.findings)


@dataclass(frozen=True)
class Entry:
    """All findings with one id, status and waiver, in their order. `steps` holds every step, equal ones once.

    Of several checks (see `alike`) the cases are those of the first one.
    """

    findings: tuple[Finding, ...]
    cases: tuple[Case, ...]
    steps: tuple[tuple[Step, ...], ...]

    @property
    def first(self) -> Finding:
        return self.findings[0]

    @property
    def subjects(self) -> tuple[Subject, ...]:
        return tuple(f.subject for f in self.findings)


def fold(findings: Iterable[Finding]) -> tuple[Entry, ...]:
    """Entries in the order of their first finding."""
    by_id: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        by_id.setdefault((finding.id, finding.status, finding.waived), []).append(finding)
    return tuple(_entry(group) for group in by_id.values())


def alike(entries: Iterable[Entry]) -> tuple[Entry, ...]:
    """Entries in which several checks say the same of the same subjects and ask for the same, as one."""
    causes: dict[tuple[object, ...], list[Entry]] = {}
    for entry in entries:
        causes.setdefault(_cause(entry), []).append(entry)
    return tuple(same[0] if len(same) == 1 else _together(same) for same in causes.values())


def _cause(entry: Entry) -> tuple[object, ...]:
    first = entry.first
    asked = first.remedy and (first.remedy.action, first.remedy.owner, first.remedy.reference)
    told = tuple((f.subject, f.message, f.expected, f.actual) for f in entry.findings)
    return first.outcome, first.status, first.waived, asked, told


def _together(same: Sequence[Entry]) -> Entry:
    """One entry; of steps that differ in their words alone, the first."""
    findings = tuple(finding for entry in same for finding in entry.findings)
    steps = _steps([f.remedy for f in findings if f.remedy is not None])
    by_command = ({step.argv: step for step in reversed(position)} for position in steps)
    return Entry(
        findings=findings,
        cases=same[0].cases,
        steps=tuple(tuple(reversed(position.values())) for position in by_command),
    )


def _entry(findings: Sequence[Finding]) -> Entry:
    cases: dict[tuple[object, ...], list[Finding]] = {}
    for finding in findings:
        cases.setdefault(_words(finding), []).append(finding)
    return Entry(
        findings=tuple(findings),
        cases=tuple(
            Case(
                findings=tuple(group),
                sample=group[0] if len(group) == 1 else _sample([_generic(f) for f in group]),
            )
            for group in cases.values()
        ),
        steps=_steps([f.remedy for f in findings if f.remedy is not None]),
    )


def _steps(remedies: Sequence[Remedy]) -> tuple[tuple[Step, ...], ...]:
    """The steps by position; where subjects need different words or commands, each distinct one in turn."""
    length = max((len(r.steps) for r in remedies), default=0)
    return tuple(
        tuple(dict.fromkeys(r.steps[position] for r in remedies if position < len(r.steps)))
        for position in range(length)
    )


def _words(finding: Finding) -> tuple[object, ...]:
    """What must be equal for two findings to be told in one breath."""
    generic = _generic(finding)
    return (
        generic.message,
        generic.expected,
        generic.actual,
        tuple((_NUMBER.sub("#", e.source), e.value, e.note) for e in generic.evidence),
    )


def _sample(alike: Sequence[Finding]) -> Finding:
    """The first of findings in the same words; numbers that differ in their evidence's sources become <n>.

    A KFD node or a CPU has its number in the path: /sys/class/kfd/kfd/topology/nodes/<n>/properties.
    """
    columns = zip(*(f.evidence for f in alike), strict=True)
    return replace(alike[0], evidence=tuple(replace(c[0], source=_common([e.source for e in c])) for c in columns))


def _common(sources: Sequence[str]) -> str:
    """Texts that differ in their numbers alone, as one."""
    parts = zip(*(_NUMBER.split(source) for source in sources), strict=True)
    return "".join(words[0] if len(set(words)) == 1 else "<n>" for words in parts)


def _generic(finding: Finding) -> Finding:
    """The finding with its subject's id replaced by the kind of subject, for example <gpu>."""
    subject = finding.subject
    if subject.kind == "host" or len(subject.id) < _SHORTEST:
        return finding

    def put(text: str | None) -> str | None:
        return text if text is None else text.replace(subject.id, f"<{subject.kind}>")

    return replace(
        finding,
        message=put(finding.message),
        expected=put(finding.expected),
        actual=put(finding.actual),
        evidence=tuple(_generic_evidence(e, put(e.source), put(e.value), put(e.note)) for e in finding.evidence),
    )


def _generic_evidence(item: Evidence, source: str | None, value: str | None, note: str | None) -> Evidence:
    return Evidence(source=source or item.source, value=value, volatile=item.volatile, note=note)
