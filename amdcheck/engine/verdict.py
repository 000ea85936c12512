"""From findings to a verdict, a headline and the line that a scheduler shows as the reason."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from amdcheck.engine.exits import ExitStyle, verdict_exit
from amdcheck.model.finding import Finding
from amdcheck.model.report import Counts, Lost, Summary, Verdict
from amdcheck.model.text import counted, printable

REASON_LIMIT = 200  # bytes, ASCII
_MESSAGE_LIMIT = 160  # characters of a finding's message in the headline; the finding itself has all of it

# What is told first among findings of one status: the cause before what follows from it.
_FIRST = ("amdcheck.host", "gpu.present", "gpu.driver-loaded")


def summarize(
    findings: Sequence[Finding],
    required: Sequence[bool],
    *,
    amd_present: bool,
    cpu_host: bool,
    whole: bool,
    lost: Sequence[Lost],
    style: ExitStyle,
    fail_on_warn: bool,
) -> Summary:
    """Judge the machine. `required[i]` says whether an unknown `findings[i]` makes it undetermined.

    `amd_present`: there was an AMD CPU or GPU to judge. `cpu_host`: an AMD CPU, no AMD GPU,
    and none expected. `whole`: all checks of the level ran, so that the verdict is the machine's.
    """
    standing = [(f, r) for f, r in zip(findings, required, strict=True) if f.waived is None]
    fails = [f for f, _ in standing if f.status == "fail"]
    blocking = [f for f, r in standing if f.status == "unknown" and r]
    warns = [f for f, _ in standing if f.status == "warn"]
    verdict: Verdict
    if fails:
        verdict, worst = "not-ready", fails
    elif blocking or not amd_present or not any(f.status in ("pass", "warn") for f in findings):
        verdict, worst = "undetermined", blocking
    elif warns:
        verdict, worst = "ready-with-warnings", warns
    else:
        verdict, worst = "ready", []
    counts = _count(findings)
    why = _why(worst)
    if verdict == "undetermined" and not blocking:
        why = "nothing was judged" if amd_present else "no AMD CPU and no AMD GPU to judge"
    return Summary(
        verdict=verdict,
        exit_code=verdict_exit(verdict, style, fail_on_warn=fail_on_warn),
        counts=counts,
        headline=_headline(verdict, why, counts, lost, cpu_host=cpu_host, checks=None if whole else _checks(findings)),
        drain=any(f.remedy is not None and f.remedy.owner == "node" for f in fails),
        reason=_ascii_line(f"amdcheck: {verdict}: {why}" if why else f"amdcheck: {verdict}"),
    )


def _count(findings: Iterable[Finding]) -> Counts:
    numbers = dict.fromkeys(("pass", "warn", "fail", "unknown", "skip", "manual", "waived"), 0)
    for finding in findings:
        numbers["waived" if finding.waived is not None else finding.status] += 1
    return Counts(
        pass_=numbers["pass"],
        warn=numbers["warn"],
        fail=numbers["fail"],
        unknown=numbers["unknown"],
        skip=numbers["skip"],
        manual=numbers["manual"],
        waived=numbers["waived"],
    )


def _why(worst: Sequence[Finding]) -> str:
    """The worst finding in words, and how many more there are."""
    if not worst:
        return ""
    first = min(worst, key=lambda f: _FIRST.index(f.check) if f.check in _FIRST else len(_FIRST))
    where = "" if first.subject.kind == "host" else f" on {first.subject.id}"
    more = f" (and {len(worst) - 1} more)" if len(worst) > 1 else ""
    return f"{first.id}{where}: {printable(first.message, limit=_MESSAGE_LIMIT).rstrip('.')}{more}"


def _checks(findings: Iterable[Finding]) -> int:
    return len({finding.check for finding in findings})


def _headline(
    verdict: Verdict, why: str, counts: Counts, lost: Sequence[Lost], *, cpu_host: bool, checks: int | None
) -> str:
    parts = ["CPU host, no AMD GPU: " if cpu_host else ""]
    if checks is not None:
        parts.append(f"{counted(checks, 'check')} alone: ")
    parts.append(verdict.replace("-", " ").upper())
    if why:
        parts.append(f": {why}")
    elif verdict == "ready":
        parts.append(f": {counted(counts.pass_, 'finding')} passed")
    if counts.waived:
        parts.append(f" ({counts.waived} waived)")
    unseen = len({entry.check for entry in lost})
    if unseen:
        parts.append(f" ({counted(unseen, 'check')} {'needs' if unseen == 1 else 'need'} root: sudo amdcheck all)")
    return "".join(parts)


def _ascii_line(text: str) -> str:
    """At most REASON_LIMIT bytes of printable ASCII."""
    line = text.encode("ascii", "replace").decode()
    line = "".join(c if " " <= c <= "~" else "?" for c in line)
    return line if len(line) <= REASON_LIMIT else line[: REASON_LIMIT - 3] + "..."
