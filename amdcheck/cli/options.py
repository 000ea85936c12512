"""The options that commands share, each written once, as a field of a record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields
from functools import wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Concatenate, Literal, ParamSpec, TypeVar, get_type_hints

import typer

from amdcheck.cli.exit_style import VARIABLE
from amdcheck.engine.exits import ExitStyle
from amdcheck.model.expectations import GPUS_LIMIT, PID_LIMIT, Level
from amdcheck.report.formats import FormatName

R = TypeVar("R", bound="CommonOptions")
P = ParamSpec("P")
T = TypeVar("T")

ShowFormat = Literal["console", "json"]
FailOn = Literal["fail", "warn"]


# Paths have a parser of ours, for typer's own looks at the file, and a dead mount blocks whoever looks.


@dataclass(frozen=True, kw_only=True)
class CommonOptions:
    """What every command takes."""

    exit_style: Annotated[
        ExitStyle,
        typer.Option(help=f"Whose exit codes to use, for errors too; npd means --level quick --deadline 4 "
                     f"[env var: {VARIABLE}]"),
    ] = "gate"  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ShowOptions(CommonOptions):
    """Of commands that show something else than a report."""

    format: Annotated[ShowFormat, typer.Option(help="How to write it.")] = "console"


@dataclass(frozen=True, kw_only=True)
class EvidenceOptions(CommonOptions):
    """What is read, and of which machine."""

    level: Annotated[
        Level | None,
        typer.Option(
            help="quick reads the host; standard adds short self-tests, deep long ones. "
            "A check that is named by its id runs at any level. "
            "[default: standard; with --host that of the recording]"
        ),
    ] = None
    skip: Annotated[list[str], typer.Option(metavar="ID|GLOB", help="Leave these checks out; may be given again.")] = (
        field(default_factory=list)
    )
    host: Annotated[
        Path | None,
        typer.Option(
            parser=Path,
            metavar="PATH",
            help="Judge a capture, or a host tree (folder or .tar), instead of this machine.",
        ),
    ] = None
    service: Annotated[
        str | None, typer.Option(metavar="UNIT", help="Judge this unit's environment, limits, affinity and user.")
    ] = None
    pid: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=PID_LIMIT, help="The same for the process of this number.")
    ] = None
    python: Annotated[
        str | None,
        typer.Option(metavar="PATH", help="The interpreter whose packages serve; by default the active environment's."),
    ] = None
    rocm: Annotated[
        str | None, typer.Option(metavar="PATH", help="The ROCm installation to judge; by default every one found.")
    ] = None
    allow_busy: Annotated[
        bool,
        typer.Option(
            "--allow-busy",
            help="Let self-tests that measure run on CPUs in use, too; those of milliseconds always run.",
        ),
    ] = False
    deadline: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help="End the run by then. [default: quick 10, standard 60, deep none]"),
    ] = None


@dataclass(frozen=True, kw_only=True)
class JudgeOptions(EvidenceOptions):
    """What is expected, and how the verdict is told."""

    policy: Annotated[
        Path | None, typer.Option(parser=Path, metavar="FILE", help="What is expected here, and what is waived (TOML).")
    ] = None
    profile: Annotated[str | None, typer.Option(metavar="NAME", help="The profile to judge by. [default: auto]")] = None
    expect_gpus: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, max=GPUS_LIMIT, help="How many GPUs this machine is meant to have."),
    ] = None
    fail_on: Annotated[FailOn, typer.Option(help="With warn, warnings alone exit with 1.")] = "fail"
    require_all: Annotated[
        bool, typer.Option("--require-all", help="What this user may not read makes the verdict undetermined.")
    ] = False
    format: Annotated[FormatName | None, typer.Option(help="What to write to standard output. [default: console]")] = (
        None
    )
    output: Annotated[
        list[str],
        typer.Option(metavar="FORMAT=FILE", help="Write the report to a file as well; may be given again."),
    ] = field(default_factory=list)
    quiet: Annotated[bool, typer.Option("--quiet", help="Show the headline alone.")] = False
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Show what passed and was skipped, with evidence and metrics.")
    ] = False
    no_color: Annotated[bool, typer.Option("--no-color", help="Show no colours; so does NO_COLOR.")] = False


def takes(record: type[R]) -> Callable[[Callable[Concatenate[R, P], T]], Callable[..., T]]:
    """Give a command the options of `record`, whose fields become options, as its first argument."""
    hints = get_type_hints(record, include_extras=True)
    common = {f.name for f in fields(CommonOptions)}
    options = [
        Parameter(
            f.name,
            Parameter.KEYWORD_ONLY,
            annotation=hints[f.name],
            default=f.default if f.default_factory is MISSING else f.default_factory(),
        )
        for f in sorted(fields(record), key=lambda f: f.name in common)  # what every command takes comes last
    ]

    def decorate(command: Callable[Concatenate[R, P], T]) -> Callable[..., T]:
        own = list(signature(command, eval_str=True).parameters.values())[1:]

        @wraps(command)
        def call(**words: Any) -> T:
            given = {option.name: words.pop(option.name) for option in options}
            return command(record(**given), **words)  # type: ignore[call-arg]

        # typer reads both to learn the command's arguments.
        call.__signature__ = Signature([*own, *options])  # type: ignore[attr-defined]
        call.__annotations__ = {p.name: p.annotation for p in (*own, *options)}
        return call

    return decorate
