"""A finding: what a check says of one subject, with the evidence it rests on and the remedy."""

from __future__ import annotations

import math
from datetime import date
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct
from msgspec.structs import force_setattr

from amdcheck.model.text import printable
from amdcheck.model.value import Known, Unknown

Status = Literal["pass", "warn", "fail", "unknown", "skip", "manual"]
SubjectKind = Literal[
    "host",
    "cpu",
    "numa",
    "pci",
    "gpu",
    "partition",
    "link",
    "process",
    "package",
    "path",
    "plugin",
]
Action = Literal[
    "monitor",
    "configure",
    "restart",
    "reset",
    "reboot",
    "isolate",
    "replace",
    "investigate",
]
Owner = Literal["node", "user", "setup"]
FindingId = Annotated[str, Meta(pattern=r"^[a-z0-9-]+(\.[a-z0-9-]+)+/[a-z0-9-]+$")]
CheckId = Annotated[str, Meta(pattern=r"^[a-z0-9-]+(\.[a-z0-9-]+)+$")]

# Statuses that leave something to do, so that a finding of theirs must say what.
NEEDS_REMEDY: frozenset[str] = frozenset({"warn", "fail", "unknown", "manual"})

# Outcomes with one meaning for every check (contract: reserved outcomes).
RESERVED_OUTCOMES: dict[str, str] = {
    "ok": "what was looked at is as it should be",
    "denied": "the evidence exists but this user may not read it",
    "absent": "the file or tool that holds the evidence does not exist here",
    "failed": "reading the evidence ended in an error",
    "timeout": "reading the evidence did not end within its deadline",
    "hang": "a read blocked and could not be ended; the path is named",
    "crashed": "the check itself raised an error: a bug in the check",
    "busy": "the CPUs or the GPU are in use, so that the self-test was not run, or not wholly",
    "disturbed": "something else ran during the measurement, so it says nothing about the hardware",
    "unreadable": "the listing that would show the device is missing or cannot be read",
    "not-recorded": "the recording that is replayed does not hold this evidence",
    "not-applicable": "the check does not apply to this machine",
    "not-in-table": "the product, family or release is newer than the tables",
    "no-finding": "the check ended without saying anything: a bug in the check",
}


class _Printable(Struct, frozen=True, kw_only=True):
    """Base that makes every string field safe to show when the record is built."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value: Any = getattr(self, name)
            if isinstance(value, str):
                safe = printable(value)
                if safe is not value:
                    force_setattr(self, name, safe)


class Evidence(_Printable, frozen=True, kw_only=True):
    """One thing that was read: `source` is a path, command or document; `value` None when it could not be read."""

    source: str
    value: str | None
    volatile: bool
    note: str | None


class Step(_Printable, frozen=True, kw_only=True):
    """One step of a remedy; `argv` is the exact command, if there is one."""

    text: str
    argv: tuple[str, ...] | None
    root: bool
    reboot: bool

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.argv is not None:
            force_setattr(self, "argv", tuple(map(printable, self.argv)))


class Remedy(_Printable, frozen=True, kw_only=True):
    """What to do next, who does it, and how."""

    action: Action
    owner: Owner
    steps: tuple[Step, ...]
    reference: str | None


class Waived(_Printable, frozen=True, kw_only=True):
    """Why the policy lets a finding stand, and until when."""

    reason: str
    until: date


class Metric(_Printable, frozen=True, kw_only=True):
    """A measured number with its unit."""

    name: str
    value: float
    unit: str
    volatile: bool

    def __post_init__(self) -> None:
        super().__post_init__()
        if not math.isfinite(self.value):
            raise ValueError(f"metric {self.name} is not finite")


class Subject(_Printable, frozen=True, kw_only=True):
    """What a finding is about, for example kind gpu, id 0000:03:00.0."""

    kind: SubjectKind
    id: str


class Finding(_Printable, frozen=True, kw_only=True):
    """The judgement of one check on one subject. `title` may be left empty: the engine fills in the check's."""

    id: FindingId
    check: CheckId
    subject: Subject
    status: Status
    title: str
    message: str
    expected: str | None
    actual: str | None
    evidence: tuple[Evidence, ...]
    remedy: Remedy | None
    waived: Waived | None
    duration_ms: float | None
    metrics: tuple[Metric, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.id.partition("/")[0] != self.check:
            raise ValueError(f"finding {self.id} does not belong to check {self.check}")
        if self.status == "pass" and not any(e.value for e in self.evidence):
            raise ValueError(f"{self.id}: a pass needs evidence that was read")
        if (self.status in NEEDS_REMEDY) != (self.remedy is not None):
            raise ValueError(f"{self.id}: status {self.status} {'needs' if self.remedy is None else 'has no'} remedy")

    @property
    def outcome(self) -> str:
        """The part of the id behind the slash."""
        return self.id.partition("/")[2]


HOST = Subject(kind="host", id="host")


def evidence(read: Known[Any] | Unknown, *, note: str | None = None, volatile: bool = False) -> Evidence:
    """Evidence from a value that was (or could not be) read; the reason for an unknown becomes the note."""
    if isinstance(read, Unknown):
        # ENOENT says no more than "absent", and a recording does not keep it.
        why = read.reason if read.detail in (None, "ENOENT") else f"{read.reason}: {read.detail}"
        return Evidence(
            source=read.source,
            value=None,
            volatile=volatile,
            note=why if note is None else f"{note} ({why})",
        )
    return Evidence(source=read.source, value=str(read.value).strip(), volatile=volatile, note=note)


def shown(source: str, value: str, *, note: str | None = None, volatile: bool = False) -> Evidence:
    """Evidence whose value was put together from what was read at `source`."""
    return Evidence(source=source, value=value, volatile=volatile, note=note)


def _finding(
    status: Status,
    id: str,
    subject: Subject,
    message: str,
    evidence: tuple[Evidence, ...],
    expected: str | None,
    actual: str | None,
    remedy: Remedy | None,
    metrics: tuple[Metric, ...],
) -> Finding:
    return Finding(
        id=id,
        check=id.partition("/")[0],
        subject=subject,
        status=status,
        title="",
        message=message,
        expected=expected,
        actual=actual,
        evidence=evidence,
        remedy=remedy,
        waived=None,
        duration_ms=None,
        metrics=metrics,
    )


def passed(
    id: str,
    subject: Subject,
    message: str,
    *evidence: Evidence,
    expected: str | None = None,
    actual: str | None = None,
    metrics: tuple[Metric, ...] = (),
) -> Finding:
    """A pass; `id` is the check's id (outcome `ok`) or a full finding id. Evidence with a value is required."""
    id = id if "/" in id else f"{id}/ok"
    return _finding("pass", id, subject, message, evidence, expected, actual, None, metrics)


def warned(
    id: str,
    subject: Subject,
    message: str,
    *evidence: Evidence,
    remedy: Remedy,
    expected: str | None = None,
    actual: str | None = None,
    metrics: tuple[Metric, ...] = (),
) -> Finding:
    """A warning: the machine serves, but worse than it could."""
    return _finding("warn", id, subject, message, evidence, expected, actual, remedy, metrics)


def failed(
    id: str,
    subject: Subject,
    message: str,
    *evidence: Evidence,
    remedy: Remedy,
    expected: str | None = None,
    actual: str | None = None,
    metrics: tuple[Metric, ...] = (),
) -> Finding:
    """A fail: the machine is not ready."""
    return _finding("fail", id, subject, message, evidence, expected, actual, remedy, metrics)


def manual(id: str, subject: Subject, message: str, *evidence: Evidence, remedy: Remedy) -> Finding:
    """Something that cannot be read in band; the remedy says what to look at."""
    return _finding("manual", id, subject, message, evidence, None, None, remedy, ())


def skipped(
    check: str,
    subject: Subject,
    reason: str,
    *evidence: Evidence,
    outcome: str = "not-applicable",
) -> Finding:
    """The check does not apply to this subject."""
    return _finding("skip", f"{check}/{outcome}", subject, reason, evidence, None, None, None, ())


def undetermined(
    check: str,
    subject: Subject,
    message: str,
    *evidence: Evidence,
    because: Unknown | None = None,
    outcome: str | None = None,
    remedy: Remedy | None = None,
    expected: str | None = None,
) -> Finding:
    """The check should apply but could not be determined.

    `because` gives outcome, evidence and the usual remedy for that reason; otherwise `outcome` and `remedy` are needed.
    """
    if because is not None:
        outcome = outcome or because.reason
        evidence = (*evidence, _unread(because))
        remedy = remedy or _remedy_for(check, because)
    if outcome is None or remedy is None:
        raise ValueError(f"{check}: an unknown needs `because`, or an outcome and a remedy")
    return _finding(
        "unknown",
        f"{check}/{outcome}",
        subject,
        message,
        evidence,
        expected,
        None,
        remedy,
        (),
    )


def _unread(because: Unknown) -> Evidence:
    return evidence(because)


def _remedy_for(check: str, because: Unknown) -> Remedy:
    """The way to the evidence, for each reason why it was not read."""
    where = printable(because.source)
    if because.reason == "denied":
        verb = "Run" if where.startswith("selftest ") else "Read"
        step = Step(
            text=f"{verb} {where} as root",
            argv=("sudo", "amdcheck", "run", check),
            root=True,
            reboot=False,
        )
        return Remedy(action="investigate", owner="setup", steps=(step,), reference=None)
    kernel_log = Step(
        text="Look at the kernel log for its reason", argv=("dmesg", "--level=err,warn"), root=True, reboot=False
    )
    if where.startswith("selftest ") and because.reason in ("failed", "timeout"):
        again = "Run it again when the machine is quiet and has memory free"
        first = Step(text=again, argv=("amdcheck", "run", check), root=False, reboot=False)
        return Remedy(action="investigate", owner="node", steps=(first, kernel_log), reference=None)
    text = {
        "absent": f"Find out why {where} does not exist on this kernel or installation",
        "failed": f"Read {where} by hand",
        "timeout": f"Find out what blocks {where}: a hung device, a dead mount",
        "not-recorded": f"Record the machine again, at the level that is judged, so that {where} is in the recording, "
        "or run amdcheck on it",
    }[because.reason]
    return Remedy(
        action="investigate",
        owner="setup" if because.reason == "not-recorded" else "node",
        steps=(
            Step(text=text, argv=None, root=False, reboot=False),
            *((kernel_log,) if because.reason in ("failed", "timeout") else ()),
        ),
        reference=None,
    )
