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
    live: bool,
    lost: Sequence[Lost],
    style: ExitStyle,
    fail_on_warn: bool,
) -> Summary:
    """Judge the machine. `required[i]` says whether an unknown `findings[i]` makes it undetermined.

    `amd_present`: there was an AMD CPU or GPU to judge. `cpu_host`: an AMD CPU, no AMD GPU,
    and none expected. `whole`: all checks of the level ran, so that the verdict is the machine's. `live`: the machine
    is at hand, and can be asked again.
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
    unseen = {entry.check for entry in lost}
    advisory = [
        f for f, r in standing if f.status == "unknown" and not r and not (f.outcome == "denied" and f.check in unseen)
    ]
    if verdict == "undetermined" and not blocking:
        why = "nothing was judged" if amd_present else "no AMD CPU and no AMD GPU to judge"
    return Summary(
        verdict=verdict,
        exit_code=verdict_exit(verdict, style, fail_on_warn=fail_on_warn),
        counts=counts,
        headline="".join(
            (
                "CPU host, no AMD GPU: " if cpu_host else "",
                "" if whole else f"{counted(_checks(findings), 'check')} alone: ",
                _judgement(verdict, why, counts, advisory=len(advisory)),
                _left_out(findings, counts, root_only=len(unseen), live=live),
            )
        ),
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


def _judgement(verdict: Verdict, why: str, counts: Counts, *, advisory: int) -> str:
    """The verdict in words, and what it rests on; "ready" is not said without what could not be determined."""
    words = verdict.replace("-", " ").upper()
    if advisory and verdict in ("ready", "ready-with-warnings"):
        words += f", {advisory} undetermined (advisory)"
    if verdict == "ready":
        why = f"{counted(counts.pass_, 'finding')} passed"
    return f"{words}: {why}" if why else words


def _left_out(findings: Sequence[Finding], counts: Counts, *, root_only: int, live: bool) -> str:
    """What the verdict leaves out: what is waived, what only root may read, self-tests of what is in use."""
    told = f" ({counts.waived} waived)" if counts.waived else ""
    if root_only:
        told += f" ({counted(root_only, 'check')} {'needs' if root_only == 1 else 'need'} root: sudo amdcheck all)"
    skips = (f for f in findings if f.status == "skip" and f.outcome == "busy")
    busy = {f.check for f in skips if f.check.startswith("selftest.")}
    if busy:
        devices = sorted({"GPU" if check.startswith("selftest.gpu.") else "CPU" for check in busy})
        told += f"; {counted(len(busy), 'self-test')} not run: {'s and '.join(devices)}s in use"
        told += " (--allow-busy)" if live else ""
    return told


def _ascii_line(text: str) -> str:
    """At most REASON_LIMIT bytes of printable ASCII."""
    line = text.encode("ascii", "replace").decode()
    line = "".join(c if " " <= c <= "~" else "?" for c in line)
    return line if len(line) <= REASON_LIMIT else line[: REASON_LIMIT - 3] + "..."
