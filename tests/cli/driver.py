"""The real command line over an engine that answers as told: `python -m tests.cli.driver ANSWER WORDS...`.

Run as a child, so that descriptors, signals and exit codes are the real ones.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable

from msgspec.structs import replace

from amdcheck.engine import run as engine
from amdcheck.engine.exits import verdict_exit
from amdcheck.engine.run import AlreadyRunning, NoChecks, Progress, RunRequest, RunResult
from amdcheck.model.errors import InputError
from amdcheck.model.finding import HOST, Remedy, Step, undetermined
from amdcheck.model.report import Report
from tests.report import samples


def _warnings() -> Report:
    return samples.report(
        samples.balancing(), verdict="ready-with-warnings", headline="READY WITH WARNINGS: numa.balancing/enabled"
    )


def _locked() -> Report:
    step = Step(text="Wait", argv=None, root=False, reboot=False)
    remedy = Remedy(action="monitor", owner="user", steps=(step,), reference=None)
    message = "Another run (pid 7) holds /run/amdcheck.lock"
    raise AlreadyRunning(undetermined("amdcheck.run", HOST, message, outcome="already-running", remedy=remedy))


def _broken_policy() -> Report:
    raise InputError("policy.toml: no such file")


def _bug() -> Report:
    raise KeyError("nobody expected this")


def _limited() -> Report:
    raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))  # what fork says under ulimit -u


def _no_checks() -> Report:
    raise NoChecks


def _slow() -> Report:
    """A run with a child, which ends the child however it is left. Says on stderr when it can be interrupted."""
    child = subprocess.Popen(["sleep", "60"])
    try:
        print(f"child {child.pid}", file=sys.stderr, flush=True)
        time.sleep(60)
    finally:
        child.kill()
        child.wait()
    return samples.ready()


def _huge() -> Report:
    """More than a pipe holds, so that a reader who leaves is noticed."""
    return samples.report(*(samples.wide_link(samples.gpu(i)) for i in range(2000)))


ANSWERS: dict[str, Callable[[], Report]] = {
    **samples.SAMPLES,
    "warnings": _warnings,
    "locked": _locked,
    "broken_policy": _broken_policy,
    "bug": _bug,
    "limited": _limited,
    "no_checks": _no_checks,
    "slow": _slow,
    "huge": _huge,
}


def _answer(name: str) -> Callable[..., RunResult]:
    def run(request: RunRequest, *, on_progress: Callable[[Progress], None] | None = None) -> RunResult:
        report = ANSWERS[name]()
        code = verdict_exit(report.summary.verdict, request.exit_style, fail_on_warn=request.fail_on == "warn")
        report = replace(
            report,
            summary=replace(report.summary, exit_code=code),
            run=replace(report.run, level=request.level or engine.DEFAULT_LEVEL),
        )
        return RunResult(report=report, capture=b"recording" if request.capture else None)

    return run


def main() -> int:
    engine.run = _answer(sys.argv.pop(1))
    from amdcheck.cli import main as command_line

    code = command_line()
    if "AMDCHECK_TEST_MODULES" in os.environ:
        print("loaded:", *(name for name in ("rich", "psutil", "pyudev") if name in sys.modules), file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
