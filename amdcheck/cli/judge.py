"""`all` and `run`: run the checks, write the report, return the verdict's exit code."""

from __future__ import annotations

from pathlib import Path

from amdcheck.cli.ending import Ending
from amdcheck.cli.options import JudgeOptions
from amdcheck.cli.output import check_writable, to_file, to_stdout
from amdcheck.cli.request import judge_request, run
from amdcheck.cli.terminal import progress_on_stderr, view_of_stdout
from amdcheck.model.errors import InputError
from amdcheck.model.report import Report
from amdcheck.model.text import printable
from amdcheck.report.formats import FORMATS, FormatName, render
from amdcheck.report.lines import verdict_line
from amdcheck.report.view import Detail, View


def judge(options: JudgeOptions, select: tuple[str, ...]) -> int:
    """Run and report. Raises InputError and Ending."""
    files = tuple(_output(word) for word in options.output)
    if options.quiet and options.verbose:
        raise InputError("--quiet and --verbose contradict each other")
    request = judge_request(options, select=select)
    for _, path in files:
        check_writable(path)
    with progress_on_stderr(wanted=request.level != "quick" and not options.quiet) as on_progress:
        try:
            report = run(request, on_progress=on_progress).report
        except Ending as ending:
            if ending.report is not None and options.format not in (None, "console"):
                _write(options, ending.report, files)
                ending.answered = True
            raise
    _write(options, report, files)
    return report.summary.exit_code


def _output(word: str) -> tuple[FormatName, Path]:
    name, separator, path = word.partition("=")
    for known in FORMATS:
        if known == name and path:
            return known, Path(path)
    if not separator or not path:
        raise InputError(f"--output: {printable(word)!r} is not FORMAT=FILE")
    raise InputError(f"--output: {printable(name)!r} is no format; there are {', '.join(FORMATS)}")


def _write(options: JudgeOptions, report: Report, files: tuple[tuple[FormatName, Path], ...]) -> None:
    """Every output is tried; then the first loss is raised."""
    lost: Ending | None = None
    for name, path in files:
        try:
            to_file(path, render(name, report, View(detail="verbose" if options.verbose else "normal")))
        except Ending as loss:
            lost = lost or loss
    line = options.format is None and options.exit_style != "gate"
    if lost is None or not line:  # whoever reads one line is told of the loss in it
        to_stdout(_stdout(options, report))
    if lost is not None:
        raise Ending(lost.event, lost.message, answered=not line)


def _stdout(options: JudgeOptions, report: Report) -> str:
    """A format asked for by name wins; else what callers of the exit style read."""
    if options.format is None and options.exit_style != "gate":
        return verdict_line(options.exit_style, report)
    detail: Detail = "quiet" if options.quiet else "verbose" if options.verbose else "normal"
    return render(options.format or "console", report, view_of_stdout(detail=detail, no_color=options.no_color))
