"""The report for people: the verdict, findings grouped with the worst first, and last what to do first."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from rich.console import Console
from rich.style import Style
from rich.text import Text

from amdcheck.model.finding import Evidence, Finding, Step, Subject
from amdcheck.model.report import CpuSummary, GpuSummary, HostSummary, Lost, Report, Verdict
from amdcheck.model.text import counted
from amdcheck.report.fold import Case, Entry, alike, fold
from amdcheck.report.text import command_line, inert, spelled
from amdcheck.report.view import View
from amdcheck.report.worst import worst

T = TypeVar("T")

NARROWEST = 24  # columns; below that nothing is readable and the terminal may wrap as it likes
_SHOWN = 8  # subjects, cases and commands of one finding that are told before "and N more"
_REASONS = 12  # why checks were skipped
_LONGEST = 300  # characters of one value or message; the rest with --verbose
_LABEL = 8

# A number stays with its unit. The wrapping takes every blank that there is for a place to break at, U+00A0 as well.
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=(?:[KMGT]i?B|kB|[kMG]?Hz|[munµ]?s|G?FLOPS?|TFLOPS?)\b)")
_UNBREAKABLE = "\ue000"

# How a finding stands, worst first: glyph, word, colour. Waived findings stand for nothing, whatever they are.
_MARKS: Mapping[str, tuple[str, str, str]] = {
    "fail": ("✗", "FAIL", "bold red"),
    "unknown": ("?", "UNKNOWN", "bold magenta"),
    "warn": ("!", "WARN", "yellow"),
    "manual": ("○", "MANUAL", "bold blue"),
    "waived": ("~", "WAIVED", "dim"),
    "pass": ("✓", "PASS", "green"),
    "skip": ("-", "SKIP", "dim"),
}
_RANK = {standing: rank for rank, standing in enumerate(_MARKS)}

# Bright yellow and green, which bold ones are on many terminals, are hard to read on white.
_VERDICT_MARKS: Mapping[Verdict, tuple[str, str]] = {
    "ready": ("✓", "green"),
    "ready-with-warnings": ("!", "yellow"),
    "not-ready": ("✗", "bold red"),
    "undetermined": ("?", "bold magenta"),
}
_NOUNS: Mapping[str, tuple[str, str]] = {
    "gpu": ("GPU", "GPUs"),
    "cpu": ("CPU", "CPUs"),
    "isa": ("instruction set", "instruction sets"),
    "pci": ("PCI device", "PCI devices"),
    "numa": ("NUMA node", "NUMA nodes"),
    "process": ("process", "processes"),
}
_PRIVILEGES = {"root": "root", "render": "the group render", "user": "this user"}


def render(report: Report, view: View) -> str:
    """The report as lines of at most `view.width` columns; commands and web addresses alone are never broken."""
    page = _Page(view)
    if view.detail != "quiet":
        _header(page, report)
        _groups(page, report)
        _unseen(page, report)
        _tally(page, report)
    glyph, style = _VERDICT_MARKS[report.summary.verdict]
    page.paragraph(page.span(report.summary.headline, style), first=page.span(f"{glyph} ", style))
    if page.view.detail != "quiet":
        _start_with(page, report)
    return page.text()


class _Page:
    """Lines under construction. Every string that comes in is made printable, none is parsed as markup."""

    def __init__(self, view: View) -> None:
        self.view = view
        self._width = max(view.width, NARROWEST)
        self._lines: list[Text] = []
        self._console = Console(
            file=io.StringIO(),
            width=self._width,
            color_system="standard" if view.colour else None,
            force_terminal=view.colour,
            no_color=not view.colour,
            markup=False,
            emoji=False,
            highlight=False,
            legacy_windows=False,
            _environ={},
        )

    def blank(self) -> None:
        if self._lines and self._lines[-1].plain:
            self._lines.append(Text())

    def paragraph(self, *parts: str | Text, first: str | Text = "", indent: int | None = None) -> None:
        """Words wrapped to the width behind `first`; later lines set in by `indent`, else by the width of `first`."""
        head, body = self._text(first), Text()
        for part in parts:
            body.append_text(self._text(part))
        if indent is None:
            indent = head.cell_len
        else:
            head, body = Text(), Text().append_text(head).append_text(body)
        for number, line in enumerate(self._wrapped(body, self._width - head.cell_len, self._width - indent)):
            line.rstrip()
            self._lines.append(Text().append_text(Text(" " * indent) if number else head).append_text(line))

    def _wrapped(self, body: Text, first: int, later: int) -> Iterable[Text]:
        """The lines of a text, the first of which may have another width than the later ones."""
        least = NARROWEST // 2
        line = body.wrap(self._console, max(first, least), overflow="fold")[0]
        rest = body[len(line) :]
        rest = rest[len(rest) - len(rest.plain.lstrip(" ")) :]
        return line, *(rest.wrap(self._console, max(later, least), overflow="fold") if rest.plain else ())

    def _text(self, words: str | Text) -> Text:
        return words if isinstance(words, Text) else self.span(words)

    def unbroken(self, text: str, *, indent: int, style: str) -> None:
        """One line as it is, however long: it is there to be copied."""
        self._lines.append(Text(" " * indent).append_text(self.span(text, style)))

    def span(self, text: str, style: str = "") -> Text:
        # Leading and trailing blanks of ours are kept: only what printable() changes is changed.
        words = _BEFORE_UNIT.sub(_UNBREAKABLE, spelled(text, ascii=self.view.ascii))
        return Text(words, style=Style.parse(style) if style else "")

    def some(self, items: Sequence[T]) -> Sequence[T]:
        """The first few, or all when everything is wanted."""
        return items if self.view.detail == "verbose" else items[:_SHOWN]

    def short(self, text: str) -> str:
        """The text, cut where it is longer than anybody reads unless everything is wanted."""
        if self.view.detail == "verbose" or len(text) <= _LONGEST:
            return text
        return f"{text[:_LONGEST]}… ({len(text) - _LONGEST} more characters)"

    def text(self) -> str:
        for line in self._lines:
            self._console.print(line, soft_wrap=True)
        file = self._console.file
        assert isinstance(file, io.StringIO)
        text = file.getvalue().replace(_UNBREAKABLE, " ")
        return inert("\n".join(line.rstrip() for line in text.splitlines()) + "\n")


# --- the machine --------------------------------------------------------------------------------------------------


def _header(page: _Page, report: Report) -> None:
    run, host = report.run, report.host
    source = "" if run.source == "live" else f", read from a {run.source}"
    where = host.name or host.node or "unnamed host"
    glyph, style = _VERDICT_MARKS[report.summary.verdict]
    words = report.summary.verdict.replace("-", " ").upper()
    scope, speaks_of_a_part, _ = report.summary.headline.partition(words)  # "CPU host, no AMD GPU: 3 checks alone: "
    page.paragraph(
        page.span(f"{glyph} {scope if speaks_of_a_part else ''}{words}  ", style),
        page.span(where, "bold"),
        page.span(f" · {report.tool.name} {report.tool.version} · level {run.level}{source}", "dim"),
    )
    for label, words in _machine(host):
        page.paragraph(words, first=page.span(f"{label:<{_LABEL}}", "dim"))


def _machine(host: HostSummary) -> Iterable[tuple[str, str]]:
    cpu = host.cpu
    yield (
        "CPU",
        _listed(
            _times(cpu.sockets, cpu.model) or cpu.vendor or "not determined",
            *(counted(n, noun) for n, noun in _parts(cpu) if n),
            _size(host.memory_mib),
        ),
    )
    if not host.gpus:
        yield "GPU", "no AMD GPU seen"
    for count, sample in _alike(host.gpus):
        yield (
            "GPU",
            _listed(_times(count, sample.product or "AMD GPU"), sample.gfx, _size(sample.vram_mib), _modes(sample)),
        )
    yield (
        "Stack",
        _listed(
            _driver(host),
            *(f"ROCm {r.version or '(version not determined)'} in {r.root}" for r in host.rocm),
            *(f"MIOpen {m.version}" for m in host.miopen if m.version),
        ),
    )
    virtual = f"virtual machine ({host.virtualization})" if host.virtualization else ""
    contained = f"container ({host.container})" if host.container else ""
    system = _listed(host.os, host.kernel, virtual, contained)
    if system:
        yield "System", system


def _alike(gpus: Sequence[GpuSummary]) -> Iterable[tuple[int, GpuSummary]]:
    """GPUs of the same kind and mode, counted."""
    kinds: dict[tuple[object, ...], list[GpuSummary]] = {}
    for gpu in gpus:
        kinds.setdefault((gpu.product, gpu.gfx, _size(gpu.vram_mib), _modes(gpu)), []).append(gpu)
    return [(len(group), group[0]) for group in kinds.values()]


def _driver(host: HostSummary) -> str:
    driver = host.driver
    if driver.kind is None:
        return "amdgpu not determined"
    if driver.kind == "absent":
        return "amdgpu not loaded"
    return " ".join(filter(None, ("amdgpu", driver.version, f"({driver.kind})")))


def _modes(gpu: GpuSummary) -> str:
    return "/".join(filter(None, (gpu.compute_partition, gpu.memory_partition)))


def _times(count: int | None, name: str | None) -> str:
    return "" if not name else f"{count} × {name}" if count else name


def _parts(cpu: CpuSummary) -> tuple[tuple[int | None, str], ...]:
    return (cpu.cores, "core"), (cpu.threads, "thread"), (cpu.numa_nodes, "NUMA node")


def _size(mib: int | None) -> str:
    if not mib:
        return ""
    gib = mib / 1024
    return f"{gib / 1024:.1f} TiB" if gib >= 1000 else f"{gib:.0f} GiB" if gib >= 1 else f"{mib} MiB"


def _listed(*words: str | None) -> str:
    return ", ".join(word for word in words if word)


# --- the findings -------------------------------------------------------------------------------------------------


def _standing(finding: Finding) -> str:
    return "waived" if finding.waived else finding.status


def _groups(page: _Page, report: Report) -> None:
    """Groups with the worst findings first; inside a group the same. Skips are told after all groups."""
    groups: dict[str, list[Finding]] = {}
    for finding in report.findings:
        if finding.status != "skip" or page.view.detail == "verbose":
            groups.setdefault(finding.check.partition(".")[0], []).append(finding)
    first = worst(report)
    by_worst = sorted(groups.items(), key=lambda group: min(_place(f, first) for f in group[1]))
    calm = False
    for name, findings in by_worst:
        passes = all(_standing(f) == "pass" for f in findings)
        if not (calm and passes and page.view.detail == "normal"):  # groups of passes alone need no air between
            page.blank()
        calm = passes
        _group(page, name, findings, first=first, privileged=_is_privileged(report))
    skips = [f for f in report.findings if f.status == "skip"]
    if skips and page.view.detail == "normal":
        page.blank()
        _skips(page, skips)


def _skips(page: _Page, skips: Sequence[Finding]) -> None:
    """Why checks were skipped, the reason of most first, and which.

    Reasons that differ in their last word are told in one: "the processor has no AVX-512F, AVX512-VNNI".
    """
    reasons: dict[str, list[Finding]] = {}
    for finding in skips:
        reasons.setdefault(_but_its_last_word(finding), []).append(finding)
    page.paragraph(page.span(f"Skipped {len(skips)}:", "dim"))
    by_most = sorted(reasons.items(), key=lambda reason: -len(reason[1]))
    for words, findings in by_most[:_REASONS]:
        lasts = dict.fromkeys(f.message.removeprefix(words).rstrip(".") for f in findings)
        told = page.short(f"{words}{_few(tuple(lasts))}")
        page.paragraph(page.span(f"{told}: {_skip_names(findings)}", "dim"), first="  ", indent=4)
    if more := sum(len(findings) for _, findings in by_most[_REASONS:]):
        page.paragraph(page.span(f"and {more} more, all with --verbose", "dim"), first="  ")


def _but_its_last_word(finding: Finding) -> str:
    """The message up to its last word, the blank before it included; all of a message of one word."""
    words, blank, _ = finding.message.rpartition(" ")
    return words + blank or finding.message.rstrip(".")


def _skip_names(skips: Sequence[Finding]) -> str:
    """The checks that were skipped; with the subjects where it was not the whole host."""
    by_check: dict[str, list[str]] = {}
    for finding in skips:
        ids = by_check.setdefault(finding.check, [])
        if finding.subject.kind != "host":
            ids.append(finding.subject.id)
    names = [f"{check} ({_few(ids)})" if ids else check for check, ids in by_check.items()]
    return _few(names)


def _few(words: Sequence[str]) -> str:
    more = f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
    return ", ".join(words[:_SHOWN]) + more


def _place(finding: Finding, first: Finding | None) -> tuple[int, bool]:
    """Where a finding stands: the worst first, and among equals the one that the verdict names."""
    return _RANK[_standing(finding)], first is None or finding.id != first.id


def _is_privileged(report: Report) -> bool:
    """Would the reader, who is where the run was, need no sudo?"""
    return report.run.privileged and report.run.source == "live"


def _group(page: _Page, name: str, findings: Sequence[Finding], *, first: Finding | None, privileged: bool) -> None:
    verbose = page.view.detail == "verbose"
    told = [f for f in findings if verbose or _standing(f) != "pass"]
    passes = [f for f in findings if _standing(f) == "pass"]
    if told:
        page.paragraph(page.span(name, "bold"))
    folded = fold(told)
    entries = sorted(folded if verbose else alike(folded), key=lambda e: _place(e.first, first))
    for number, entry in enumerate(entries):
        if number and (entry.first.remedy or entries[number - 1].first.remedy):
            page.blank()  # what asks for work stands alone
        _entry(page, entry, privileged=privileged)
    if passes and not verbose:
        glyph, _, style = _MARKS["pass"]
        head = page.span(f"{glyph} ", style)
        if not told:
            head.append_text(page.span(f"{name:<{_LABEL}} "))
        page.paragraph(_pass_names(passes), first=head)


def _pass_names(passes: Sequence[Finding]) -> str:
    """The checks that passed, without their group; with how many subjects where it was more than one."""
    by_check: dict[str, list[Subject]] = {}
    for finding in passes:
        by_check.setdefault(finding.check.partition(".")[2], []).append(finding.subject)
    return ", ".join(
        name if len(subjects) == 1 else f"{name} ({_how_many(subjects, len(subjects))})"
        for name, subjects in by_check.items()
    )


def _entry(page: _Page, entry: Entry, *, privileged: bool) -> None:
    first = entry.first
    glyph, word, style = _MARKS[_standing(first)]
    ids = tuple(dict.fromkeys(f.id for f in entry.findings))
    page.paragraph(
        page.span(f"{word} ", style),
        page.span(", ".join(ids), "bold"),
        page.span(f"  {first.title}" if first.title and len(ids) == 1 else "", "dim"),
        first=page.span(f"{glyph} ", style),
    )
    cases = page.some(entry.cases)
    for case in cases:
        _case(page, case)
    if len(cases) < len(entry.cases):
        more = len(entry.cases) - len(cases)
        page.paragraph(page.span(f"and {more} more like these, all with --verbose", "dim"), first="  ")
    if first.waived:
        page.paragraph(f"waived until {first.waived.until.isoformat()}: {first.waived.reason}", first="  ")
        return
    if first.remedy is None:
        return
    page.paragraph("To do: ", page.span(first.remedy.action, "bold"), f" (owner: {first.remedy.owner})", first="  ")
    for number, steps in enumerate(entry.steps, start=1):
        head = f"    {number}. " if len(entry.steps) > 1 else "    "
        _step(page, steps, head=head, indent=len(head), privileged=privileged)
    if first.remedy.reference and "://" in first.remedy.reference:
        page.unbroken(f"see {first.remedy.reference}", indent=4, style="dim")
    elif first.remedy.reference:
        page.paragraph(page.span(f"see {first.remedy.reference}", "dim"), first="    ")


def _case(page: _Page, case: Case) -> None:
    sample = case.sample
    if sample.subject.kind != "host":
        page.paragraph(page.span(_subjects(page.some(case.subjects), len(case.subjects)), "cyan"), first="  ")
    if sample.message:
        page.paragraph(page.short(sample.message), first="  ")
    if sample.expected or sample.actual:
        found = f"found {sample.actual}" if sample.actual else ""
        wanted = f"expected {sample.expected}" if sample.expected else ""
        page.paragraph(", ".join(filter(None, (found, wanted))), first="    ")
    for item in sample.evidence:
        _evidence(page, item)
    if page.view.detail == "verbose":
        _metrics(page, case)


def _evidence(page: _Page, item: Evidence) -> None:
    if item.value is None:
        told = (page.span(f"{item.source}  ", "dim"), page.span(f"not read: {item.note or 'no reason given'}"))
    else:
        told = (page.span(f"{item.source} = ", "dim"), page.span(page.short(item.value)))
    note = f"  ({item.note})" if item.note and item.value is not None else ""
    page.paragraph(*told, page.span(note, "dim"), first="    ", indent=6)


def _metrics(page: _Page, case: Case) -> None:
    """What was measured, by name; of several subjects the numbers in their order, one where they are equal."""
    values: dict[tuple[str, str], list[str]] = {}
    for metric in (metric for finding in case.findings for metric in finding.metrics):
        values.setdefault((metric.name, metric.unit), []).append(f"{metric.value:.12g}")
    for (name, unit), numbers in values.items():
        told = numbers[0] if len(set(numbers)) == 1 else ", ".join(numbers)
        words = told if unit == "1" else f"{told} {unit}"
        page.paragraph(page.span(f"metric {name} = ", "dim"), page.span(words), first="    ", indent=6)


def _step(page: _Page, steps: Sequence[Step], *, head: str, indent: int, privileged: bool) -> None:
    """One step for one or many subjects: its words once where they are the same, and each exact command."""
    commands = tuple(dict.fromkeys(filter(None, (command_line(step, privileged=privileged) for step in steps))))
    for text in dict.fromkeys(step.text for step in steps):
        needs = [
            word for word, needed in (("root", steps[0].root and not commands), ("a reboot", steps[0].reboot)) if needed
        ]
        why = page.span(f" (needs {' and '.join(needs)})" if needs else "", "dim")
        page.paragraph(page.span(head), page.span(text), why, indent=indent)
        head = " " * indent
    for command in page.some(commands):
        page.unbroken(f"$ {command}", indent=indent, style="cyan")
    if more := len(commands) - len(page.some(commands)):
        page.paragraph(page.span(f"and {more} more, all with --verbose", "dim"), first=" " * indent)


def _subjects(shown: Sequence[Subject], total: int) -> str:
    if total == 1:
        return f"{_noun(_kind(shown[0]))[0]} {_short_id(shown[0])}"
    more = f" and {total - len(shown)} more" if total > len(shown) else ""
    return f"{_how_many(shown, total)}: {', '.join(map(_short_id, shown))}{more}"


def _short_id(subject: Subject) -> str:
    """The id behind its noun: NUMA node 1, whose folder is called node1."""
    return subject.id.removeprefix("node") if subject.kind == "numa" else subject.id


def _how_many(subjects: Sequence[Subject], total: int) -> str:
    kinds = {_kind(s) for s in subjects}
    kind = kinds.pop() if len(kinds) == 1 else "subject"
    return f"{total} {_noun(kind)[1]}"


def _kind(subject: Subject) -> str:
    """What a person calls it: a CPU has a number and a socket says that it is one; the rest are instruction sets."""
    is_cpu = subject.id.isdecimal() or subject.id.startswith("socket ")
    return "isa" if subject.kind == "cpu" and not is_cpu else subject.kind


def _noun(kind: str) -> tuple[str, str]:
    return _NOUNS.get(kind, (kind, f"{kind}s"))


# --- what the run did not see, and the sum ------------------------------------------------------------------------


def _unseen(page: _Page, report: Report) -> None:
    page.blank()
    run = report.run
    for needs in ("root", "render", "user"):
        lost = [item for item in run.lost if item.needs == needs]
        if lost:
            head = f"Not {'seen' if run.source == 'live' else 'recorded'} without {_PRIVILEGES[needs]}: "
            page.paragraph(_lost(lost, verbose=page.view.detail == "verbose"), first=head, indent=2)
    if run.source == "live" and any(item.needs == "root" for item in run.lost):
        page.unbroken("$ sudo amdcheck all", indent=2, style="cyan")
    if run.deadline_hit:
        page.paragraph(page.span("The deadline ended the run before every check had its turn.", "yellow"))
    if run.not_selected and page.view.detail == "verbose":
        head = f"Not asked for {len(run.not_selected)}: "
        page.paragraph(page.span(", ".join(run.not_selected), "dim"), first=page.span(head, "dim"), indent=2)


def _start_with(page: _Page, report: Report) -> None:
    """The first step of what the verdict names and its first command, for a reader who sees the end alone."""
    first = worst(report)
    if first is None or first.remedy is None or not first.remedy.steps:
        return
    steps = first.remedy.steps
    command = next((number for number, step in enumerate(steps) if step.argv), 0)
    for number in sorted({0, command}):
        head = f"Step {number + 1}: " if number else "Start with: "
        _step(page, steps[number : number + 1], head=f"  {head}", indent=4, privileged=_is_privileged(report))


def _lost(lost: Sequence[Lost], *, verbose: bool) -> str:
    if verbose:
        return ", ".join(f"{item.check} ({item.source})" for item in lost)
    return ", ".join(dict.fromkeys(item.check for item in lost))


def _tally(page: _Page, report: Report) -> None:
    counts = report.summary.counts
    numbers = {
        "fail": counts.fail,
        "unknown": counts.unknown,
        "warn": counts.warn,
        "manual": counts.manual,
        "waived": counts.waived,
        "pass": counts.pass_,
        "skip": counts.skip,
    }
    page.blank()
    page.paragraph(
        page.span(", ".join(f"{number} {word}" for word, number in numbers.items() if number) or "no findings", "dim"),
        page.span(f" in {report.run.duration_s:.1f} s", "dim"),
    )
