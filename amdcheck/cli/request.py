"""Options become a request, and the engine's refusals become endings."""

from __future__ import annotations

import math
from collections.abc import Callable

from msgspec.structs import replace

from amdcheck.cli.ending import NO_CHECKS, Ending
from amdcheck.cli.options import EvidenceOptions, JudgeOptions
from amdcheck.cli.output import tell
from amdcheck.engine import run as engine
from amdcheck.engine.run import AlreadyRunning, NoChecks, Progress, RunRequest, RunResult
from amdcheck.model.errors import InputError

NPD_DEADLINE_S = 4.0


def evidence_request(
    options: EvidenceOptions, *, select: tuple[str, ...] = ("*",), capture: bool = False
) -> RunRequest:
    """The request of commands that read and do not judge. Raises InputError for a deadline that is none."""
    npd = options.exit_style == "npd"
    deadline = options.deadline
    if deadline is None and npd:
        deadline = NPD_DEADLINE_S
    if deadline is not None and not (math.isfinite(deadline) and deadline > 0):
        raise InputError(f"--deadline: {deadline} is not a number of seconds above 0")
    return RunRequest(
        select=select,
        level=options.level or ("quick" if npd else None),
        skip=tuple(options.skip),
        host=options.host,
        service=options.service,
        pid=options.pid,
        python=options.python,
        rocm=options.rocm,
        allow_busy=options.allow_busy,
        exit_style=options.exit_style,
        deadline_s=deadline,
        capture=capture,
    )


def judge_request(options: JudgeOptions, *, select: tuple[str, ...]) -> RunRequest:
    """The request of `all` and `run`."""
    return replace(
        evidence_request(options, select=select),
        policy=options.policy,
        profile=options.profile,
        expect_gpus=options.expect_gpus,
        fail_on=options.fail_on,
        require_all=options.require_all,
    )


def run(request: RunRequest, *, on_progress: Callable[[Progress], None] | None) -> RunResult:
    """Run. Raises InputError; Ending when another run holds the lock, or when there is nothing to judge with."""
    try:
        return engine.run(request, on_progress=on_progress)
    except AlreadyRunning as error:
        raise Ending("locked", str(error), report=error.report) from error
    except NoChecks as error:
        raise Ending("bug", NO_CHECKS) from error


def read_facts(request: RunRequest) -> dict[str, object]:
    """Read every fact; plugins that cannot be used are told. Raises InputError; Ending when the lock is held."""
    for finding in engine.plugins_of(request).failed:
        tell(finding.message)
    try:
        return engine.read_facts(request)
    except AlreadyRunning as error:
        raise Ending("locked", str(error)) from error
