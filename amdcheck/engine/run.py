"""One run from request to report: what `all`, `run` and `capture` call."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from datetime import date, datetime, timezone
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

from amdcheck import __version__
from amdcheck.engine.exits import ExitStyle
from amdcheck.engine.frames import Opened
from amdcheck.engine.hostinfo import HOST_FACTS, summarize_host
from amdcheck.engine.lock import Held, only_run
from amdcheck.engine.own import hang_findings, held_finding
from amdcheck.engine.plugins import Plugins, add, every_check, load_plugins
from amdcheck.engine.policy import (
    PRESENCE,
    Policy,
    apply_policy,
    detect_profile,
    is_required,
    profile_named,
    read_policy,
)
from amdcheck.engine.registry import Check, all_checks
from amdcheck.engine.selection import refuse_what_is_above, select
from amdcheck.engine.supervisor import Outcome, supervise
from amdcheck.engine.verdict import summarize
from amdcheck.engine.worker import IMPORT_SECONDS, Plan
from amdcheck.facts.cpu import Cpu
from amdcheck.facts.gpus import Gpus
from amdcheck.facts.judged_user import is_known_unit, unit_of
from amdcheck.facts.platform import Platform
from amdcheck.facts.presence import GpuSigns
from amdcheck.facts.registry import all_facts
from amdcheck.facts.system import System
from amdcheck.host.apart import apart
from amdcheck.knowledge.tables import TABLES_DATE
from amdcheck.model.errors import InputError
from amdcheck.model.expectations import LEVELS, Expectations, Level
from amdcheck.model.finding import Finding
from amdcheck.model.report import Lost, PolicySummary, Report, Run, Summary, Tool

DEFAULT_LEVEL: Level = "standard"
DEADLINES: Mapping[Level, float | None] = {"quick": 10.0, "standard": 60.0, "deep": None}

F = TypeVar("F", bound=Struct)


class RunRequest(Struct, frozen=True, kw_only=True):
    """The options of `all` and `run`, one shared record."""

    select: tuple[str, ...] = ("*",)
    level: Level | None = None  # None: that of the recording, else standard
    skip: tuple[str, ...] = ()
    host: Path | None = None
    policy: Path | None = None
    profile: str | None = None
    expect_gpus: int | None = None
    service: str | None = None
    pid: int | None = None
    python: str | None = None
    rocm: str | None = None
    fail_on: Literal["fail", "warn"] = "fail"
    require_all: bool = False
    allow_busy: bool = False
    exit_style: ExitStyle = "gate"
    deadline_s: float | None = None  # None: the level's default
    capture: bool = False  # also record everything that was read


class Progress(Struct, frozen=True, kw_only=True):
    """One step of a run for the terminal: check `check` starts, `done` of `total` are over."""

    done: int
    total: int
    check: str


class AlreadyRunning(Exception):
    """Another run holds the lock; `finding` is amdcheck.run/already-running or .../previous-stuck."""

    def __init__(self, finding: Finding, report: Report | None = None) -> None:
        super().__init__(f"{finding.id}: {finding.message}")
        self.finding = finding
        self.report = report  # of that finding alone


class NoChecks(Exception):
    """Not one check is registered: the installation is broken, and nothing may look ready."""


class RunResult(Struct, frozen=True, kw_only=True):
    """The report, and the finished capture file (xz) when it was asked for."""

    report: Report
    capture: bytes | None


def run(request: RunRequest, *, on_progress: Callable[[Progress], None] | None = None) -> RunResult:
    """Run the selected checks and judge the machine.

    Raises InputError for anything wrong with the request (an id or glob that matches no check, a policy or host that
    cannot be read), AlreadyRunning when another run holds the lock, NoChecks when nothing is registered.
    """
    started, clock = datetime.now(timezone.utc), time.monotonic()
    if not all_checks():
        raise NoChecks
    _refuse_what_is_not_there(request)
    plugins = plugins_of(request)
    checks = every_check(plugins)
    policy = read_policy(request.policy, frozenset(checks)) if request.policy is not None else Policy()
    profile_name = request.profile or policy.profile
    if profile_name != "auto":
        profile_named(profile_name, "--profile" if request.profile else f"policy {request.policy}: profile")
    if request.level is not None or request.host is None:
        refuse_what_is_above(checks, request.select, request.level or DEFAULT_LEVEL)
    choices = {level: _chosen(checks, request, level) for level in LEVELS}
    level, running = choices[request.level or DEFAULT_LEVEL]
    plan = Plan(
        host=request.host,
        expectations=_expectations(request, policy, level),
        record=request.capture,
        checks=running,
        extra_facts=(*HOST_FACTS, System) if request.capture else HOST_FACTS,
        at=choices if request.level is None else {},
    )
    refused: AlreadyRunning | None = None
    try:
        outcome = _carry_out(plan, plugins, request, clock, on_progress=on_progress)
    except AlreadyRunning as error:
        refused, outcome = error, Outcome(own=[error.finding])
    opened = outcome.opened or _never_opened(plan)
    plan = plan.replaying(opened.recorded)
    level, selected = plan.expectations.level, _that_count(plan.checks, outcome, request, opened.expectations)
    facts = _Facts(outcome)
    findings, owners = _judged(outcome, selected, policy, plugins.failed)
    if profile_name == "auto":
        profile_name = _detected(facts)
    profile = profile_named(profile_name)
    required = [
        True
        if owner is None
        else is_required(f, owner, policy, profile, require_all=request.require_all, privileged=opened.privileged)
        for f, owner in zip(findings, owners, strict=True)
    ]
    lost = () if opened.privileged else tuple(_lost(findings, owners))
    expect = opened.expectations
    report = Report(
        schema="amdcheck.report/1",
        tool=Tool(name="amdcheck", version=__version__, tables_date=TABLES_DATE),
        run=Run(
            id=os.urandom(16).hex(),
            started=started,
            duration_s=round(time.monotonic() - clock, 3),
            level=level,
            source=opened.source,
            privileged=opened.privileged,
            lost=lost,
            not_selected=tuple(id for id in checks if checks[id] not in selected),
            deadline_hit=outcome.deadline_hit,
        ),
        host=summarize_host(facts),
        policy=PolicySummary(
            profile=profile_name,
            file=None if request.policy is None else str(request.policy),
            expect={key: str(v) for key in ("gpus", "gfx", "rocm") if (v := getattr(expect, key)) is not None},
            date=date.today(),
        ),
        summary=_summary(findings, required, lost, facts, opened, request),
        findings=findings,
    )
    if refused is not None:
        raise AlreadyRunning(refused.finding, report)
    return RunResult(report=report, capture=_capture(outcome, opened, level) if request.capture else None)


def read_facts(request: RunRequest) -> dict[str, object]:
    """Every fact of the host as builtins ready for JSON, by name; one whose code broke is {"broken": why}."""
    clock = time.monotonic()
    all_checks()  # with them come the facts
    plugins = plugins_of(request)
    plan = Plan(
        host=request.host,
        expectations=_expectations(request, Policy(), request.level or DEFAULT_LEVEL),
        record=False,
        checks=(),
        extra_facts=tuple(all_facts().values()),
        at={level: (level, ()) for level in LEVELS} if request.level is None else {},
    )
    outcome = _carry_out(plan, plugins, request, clock, and_their_facts=True)
    facts: dict[str, object] = {}
    for name in sorted({*all_facts(), *(name for plugin in plugins.usable for name in plugin.facts)}):
        if name in outcome.facts:
            kind = all_facts().get(name, Any)  # a plugin's fact was validated where its class is
            facts[name] = msgspec.to_builtins(msgspec.msgpack.decode(outcome.facts[name], type=kind), str_keys=True)
        else:
            facts[name] = {"broken": outcome.broken.get(name, "not read before the deadline")}
    return facts


def _refuse_what_is_not_there(request: RunRequest) -> None:
    """Options that name something of this machine, before anything is judged by them. Raises InputError."""
    if request.pid is not None and request.service is not None:
        raise InputError("--pid and --service name the same thing: give one of them")
    unit = unit_of(request.service) if request.service is not None else None
    if request.service is not None and unit is None:
        raise InputError(f"--service {request.service!r}: not the name of a unit")
    if request.host is not None:
        if str(request.host) in ("", "."):
            raise InputError("--host: give a recording or the folder of a host tree")
        return
    for option, path, look in (("--rocm", request.rocm, _rocm_folder), ("--python", request.python, _interpreter)):
        try:
            if path is not None:
                apart(partial(look, path))
        except OSError as error:
            raise InputError(f"{option} {path}: {error.strerror}") from None
    if request.pid is not None and not os.path.isdir(f"/proc/{request.pid}"):
        raise InputError(f"--pid {request.pid}: there is no such process")
    if unit is not None:
        from amdcheck.host.live import LiveHost

        if not is_known_unit(LiveHost(level="quick"), unit):
            raise InputError(f"--service {unit}: it neither runs nor has a unit file")


def _rocm_folder(path: str) -> None:
    if not os.path.isdir(path):
        raise InputError(f"--rocm {path}: there is no such folder")


def _interpreter(path: str) -> None:
    if not (os.path.isfile(path) and os.access(path, os.X_OK)):
        raise InputError(f"--python {path}: not an interpreter that can be run; name its file")


def _never_opened(plan: Plan) -> Opened:
    """What can be said of a host whose run was over before it was open."""
    if plan.host is None:
        return Opened("live", plan.expectations, os.geteuid() == 0)
    is_capture = plan.host.name.endswith((".json", ".json.xz"))  # by its name, for looking at it may block
    return Opened("capture" if is_capture else "tree", plan.expectations, privileged=False)


def _chosen(checks: Mapping[str, Check], request: RunRequest, level: Level) -> tuple[Level, tuple[Check, ...]]:
    """The checks that a level means, and the level of their facts: a check that is named runs, and they with it.

    gpu.present runs always (see _that_count).
    """
    chosen = select(checks, request.select, request.skip, level)
    level = max((level, *(check.level for check in chosen)), key=LEVELS.index)
    return level, (*(check for id, check in checks.items() if id == PRESENCE and check not in chosen), *chosen)


def _that_count(
    checks: tuple[Check, ...], outcome: Outcome, request: RunRequest, expect: Expectations
) -> tuple[Check, ...]:
    """The checks whose findings count: those that were asked for, and gpu.present with what speaks against "ready".

    GPUs that are gone are never "ready", whatever part of the checks was asked for: a prolog that runs 'cpu.*' would
    else let a node take load that has lost them. What gpu.present finds missing is therefore told where it was left
    out too, and where a number is expected also that it could not be counted.
    """
    asked, skipped = (any(fnmatchcase(PRESENCE, g) for g in globs) for globs in (request.select, request.skip))
    if asked and not skipped:
        return checks
    found = outcome.findings.get(PRESENCE, ())
    outcome.findings[PRESENCE] = against = [
        f for f in found if f.status == "fail" or (f.status == "unknown" and expect.gpus)
    ]
    return tuple(check for check in checks if check.id != PRESENCE or against)


def plugins_of(request: RunRequest) -> Plugins:
    """The installed plugins; to learn of them never takes more than half of the run."""
    deadline = DEADLINES[request.level or DEFAULT_LEVEL] if request.deadline_s is None else request.deadline_s
    return load_plugins(IMPORT_SECONDS if deadline is None else min(IMPORT_SECONDS, deadline / 2))


def _carry_out(
    plan: Plan,
    plugins: Plugins,
    request: RunRequest,
    began: float,
    *,
    and_their_facts: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> Outcome:
    """Run the workers, alone on a live machine."""
    deadline = DEADLINES[plan.expectations.level] if request.deadline_s is None else request.deadline_s
    total = len(plan.checks)

    def on_check(before: int) -> Callable[[int, str], None]:
        def tell(done: int, check: str) -> None:
            if on_progress is not None:
                on_progress(Progress(done=before + done, total=total, check=check))

        return tell

    try:
        with only_run(deadline) if plan.host is None else nullcontext():
            outcome = supervise(plugins.without(plan), deadline_s=deadline, began=began, on_check=on_check(0))
            plan = plan.replaying(None if outcome.opened is None else outcome.opened.recorded)
            for part in plugins.parts(plan, outcome, and_their_facts=and_their_facts):
                counting = on_check(len(outcome.findings))
                add(outcome, part, supervise(part, deadline_s=deadline, began=began, on_check=counting))
            return outcome
    except Held as held:
        raise AlreadyRunning(held_finding(held)) from None


def _expectations(request: RunRequest, policy: Policy, level: Level) -> Expectations:
    return Expectations(
        level=level,
        gpus=request.expect_gpus if request.expect_gpus is not None else policy.expect.gpus,
        gfx=policy.expect.gfx,
        rocm=policy.expect.rocm,
        rocm_root=request.rocm,
        python=request.python,
        service=request.service,
        pid=request.pid,
        allow_busy=request.allow_busy,
    )


def _judged(
    outcome: Outcome, selected: Iterable[Check], policy: Policy, plugins: Iterable[Finding]
) -> tuple[tuple[Finding, ...], list[Check | None]]:
    """All findings with the policy applied, each beside its check (None for what the engine itself says)."""
    today = date.today()
    findings: list[Finding] = []
    owners: list[Check | None] = []
    for check in sorted(selected, key=lambda c: c.id):
        for finding in outcome.findings.get(check.id, ()):
            findings.append(apply_policy(finding, policy, today))
            owners.append(check)
    for finding in (*hang_findings(outcome.unfinished.hangs), *outcome.own, *plugins):
        findings.append(finding)
        owners.append(None)
    return tuple(findings), owners


def _summary(
    findings: tuple[Finding, ...],
    required: list[bool],
    lost: tuple[Lost, ...],
    facts: _Facts,
    opened: Opened,
    request: RunRequest,
) -> Summary:
    cpu, gpus, signs = facts.get(Cpu), facts.get(Gpus), facts.get(GpuSigns)
    is_amd_cpu = cpu is not None and cpu.vendor.or_none() == "AuthenticAMD"
    has_gpus = gpus is not None and bool(gpus.devices)
    expected = opened.expectations.gpus != 0 and (signs is None or bool(signs.signs))
    listed = gpus is not None and gpus.listing.or_none() is not None
    return summarize(
        findings,
        required,
        amd_present=is_amd_cpu or has_gpus,
        cpu_host=is_amd_cpu and not has_gpus and not expected and listed,
        whole=request.select == ("*",) and not request.skip,
        live=opened.source == "live",
        lost=lost,
        style=request.exit_style,
        fail_on_warn=request.fail_on == "warn",
    )


class _Facts:
    """Facts that the workers sent, decoded on demand."""

    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome

    def get(self, kind: type[F]) -> F | None:
        """The fact, or None when it was not read."""
        data = self._outcome.facts.get(kind.__name__)
        return None if data is None else msgspec.msgpack.decode(data, type=kind)


def _detected(facts: _Facts) -> str:
    platform, gpus, signs = facts.get(Platform), facts.get(Gpus), facts.get(GpuSigns)
    return detect_profile(
        container=platform is not None and platform.container is not None,
        gpus=(gpus is not None and bool(gpus.devices)) or (signs is not None and bool(signs.signs)),
    )


def _lost(findings: Iterable[Finding], owners: Iterable[Check | None]) -> Iterable[Lost]:
    """What more privilege would have shown, one entry a check and source."""
    seen: set[tuple[str, str]] = set()
    for finding, owner in zip(findings, owners, strict=True):
        if finding.status != "unknown" or finding.outcome != "denied" or owner is None:
            continue
        for entry in finding.evidence:
            if entry.value is None and (owner.id, entry.source) not in seen:
                seen.add((owner.id, entry.source))
                yield Lost(check=owner.id, needs="root" if owner.needs == "user" else owner.needs, source=entry.source)


def _capture(outcome: Outcome, opened: Opened, level: Level) -> bytes:
    from amdcheck.host.capture import Manifest
    from amdcheck.host.capture_file import encode
    from amdcheck.host.recording import Recorded, merge

    decoder = msgspec.msgpack.Decoder(Recorded)
    recorded = [decoder.decode(data) for data in outcome.recorded]
    manifest = Manifest(
        created=datetime.now(timezone.utc),
        amdcheck=__version__,
        source=opened.source,
        redacted=False,
        level=level,
        expectations=opened.expectations,
        identity=None,
        system=None,
    )
    hung = outcome.hung_paths | outcome.hung_folders
    blocked = sorted(what for what in hung if what.startswith("/"))
    return encode(merge(recorded, manifest, blocked=blocked, unfinished=outcome.unfinished))


__all__ = [
    "DEADLINES",
    "AlreadyRunning",
    "InputError",
    "NoChecks",
    "Progress",
    "RunRequest",
    "RunResult",
    "plugins_of",
    "read_facts",
    "run",
]
