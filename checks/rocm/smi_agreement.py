"""Do rocm-smi and amd-smi say what the kernel's files say."""

from __future__ import annotations

from collections.abc import Iterator

from amdcheck.api import (
    Finding,
    Known,
    Metric,
    Unknown,
    check,
    has_amd_gpu,
    passed,
    shown,
    skipped,
    undetermined,
    warned,
)
from amdcheck.facts.driver import Driver
from amdcheck.facts.gpus import Gpus
from amdcheck.facts.kfd import Kfd
from amdcheck.facts.platform import Platform
from amdcheck.facts.smi import ASKED_FOR_LINKS, SmiRun, SmiTool, SmiTools
from amdcheck.facts.smi_comparison import comparisons
from amdcheck.knowledge.remedies import remedy
from amdcheck.knowledge.smi import table

ID = "rocm.smi-agreement"


@check(ID, title="Vendor tools agree with the kernel", level="standard", required=False, applies=has_amd_gpu)
def smi_agreement(smi: SmiTools, driver: Driver, platform: Platform, gpus: Gpus, kfd: Kfd) -> Iterator[Finding]:
    """Whether rocm-smi and amd-smi agree with the kernel's files, and answer in time.

    Asks rocm-smi for --showdriverversion and --showtopo, amd-smi for static and version, as JSON and side by side, and
    compares with sysfs and the KFD topology: driver version, number of GPUs (devices or partitions, whichever the tool
    counts), how many pairs are joined by XGMI, the NUMA node of each GPU, and the ROCm release the tool belongs to.
    The kernel's files decide, so that a difference warns and never fails; this check finds tools of another
    installation, containers that see other devices, and drivers that hang: a tool slower than five seconds is a
    finding, one that never answers unknown.

    Exit codes prove nothing: rocm-smi leaves with 0 and prints nothing when no driver is loaded, so silence is never
    taken for agreement. For the kernel's own driver rocm-smi prints the kernel release, amd-smi the text of
    /proc/version without blanks. --showtopo tells no PCIe width in any version: that is pci.link-width.

    Source: outputs of rocm-smi 3.9 to 6.2 and amd-smi 23.4 to 26.2.
    """
    for tool in smi.tools:
        yield from _judge(tool, driver, platform, gpus, kfd)


def _judge(tool: SmiTool, driver: Driver, platform: Platform, gpus: Gpus, kfd: Kfd) -> Iterator[Finding]:
    if all(isinstance(run.output, Unknown) and run.output.reason == "absent" for run in tool.runs):
        yield skipped(ID, tool.subject, f"{tool.name} is not installed.")
        return
    yield from _slow(tool)
    unanswered = list(_unanswered(tool))
    yield from unanswered
    compared = comparisons(tool, driver, platform, gpus, kfd)
    for item in compared:
        if not item.agrees:
            yield warned(
                f"{ID}/{item.outcome}",
                tool.subject,
                item.difference,
                *item.read,
                remedy=remedy(f"{ID}/{item.outcome}", tool=tool.name, topology=ASKED_FOR_LINKS[tool.name]),
            )
    if unanswered or not all(item.agrees for item in compared):
        return
    if compared:
        read = [part for item in compared for part in item.read]
        yield passed(ID, tool.subject, f"{tool.name} and the kernel's files agree.", *read)
    else:
        said = [shown(run.source, "an answer with nothing to compare") for run in tool.runs]
        yield undetermined(
            ID,
            tool.subject,
            f"{tool.name} answered, but said nothing that can be compared.",
            *said,
            outcome="nothing-compared",
            remedy=remedy(f"{ID}/nothing-compared", tool=tool.name, question=tool.runs[0].argv[1]),
        )


def _slow(tool: SmiTool) -> Iterator[Finding]:
    limit = table().limits.slow_s
    for run in sorted(tool.runs, key=lambda run: run.duration_s or 0.0, reverse=True)[:1]:
        timed_out = isinstance(run.output, Unknown) and run.output.reason == "timeout"
        if run.duration_s is not None and run.duration_s > limit and not timed_out:
            yield warned(
                f"{ID}/slow",
                tool.subject,
                f"{tool.name} took longer than {limit:g} s to answer.",
                shown(run.source, f"{run.duration_s:.1f} s", volatile=True),
                remedy=remedy(f"{ID}/slow"),
                expected=f"an answer within {limit:g} s",
                metrics=(Metric(name="duration", value=run.duration_s, unit="s", volatile=True),),
            )


def _unanswered(tool: SmiTool) -> Iterator[Finding]:
    """One finding for each way in which questions stayed without an answer."""
    seen = set()
    for run in tool.runs:
        if isinstance(run.output, Known):
            continue
        outcome = "no-answer" if run.silent and run.output.reason == "failed" else run.output.reason
        if outcome not in seen:
            seen.add(outcome)
            yield _no_answer(tool, run, run.output, outcome)


def _no_answer(tool: SmiTool, run: SmiRun, why: Unknown, outcome: str) -> Finding:
    left = tuple(shown(run.source, pid, note="left behind, cannot be ended", volatile=True) for pid in run.stuck)
    if outcome == "no-answer":
        said = shown(run.source, f"exit code {run.rc}, nothing on stdout", note=run.complaint or None)
        message = f"{tool.name} left without saying anything; that is no agreement."
        fix = remedy(f"{ID}/no-answer", tool=tool.name, question=run.argv[1])
        return undetermined(ID, tool.subject, message, said, *left, outcome=outcome, remedy=fix)
    message = {
        "timeout": f"{tool.name} did not answer in time and was ended.",
        "denied": f"{tool.name} may not be used by this user.",
        "absent": f"{tool.name} is only partly there.",
    }.get(outcome, f"{tool.name} could not be understood.")
    return undetermined(ID, tool.subject, message, *left, because=why)
