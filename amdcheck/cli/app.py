"""The commands. typer turns words into a call; the call is made outside it, where every ending has its exit code."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import typer

import amdcheck
from amdcheck.cli.options import CommonOptions, EvidenceOptions, JudgeOptions, ShowOptions, takes
from amdcheck.engine.exits import ExitStyle

Call = Callable[[], int]  # what a command line asks for; gives the exit code

app = typer.Typer(
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


def parse(words: Sequence[str], style: ExitStyle) -> Call | int:
    """The call that a command line asks for, or the exit code when help or version was asked for and given.

    Raises typer's exceptions for words that make no command line.
    """
    commands = typer.main.get_command(app)
    names = [info.name for info in app.registered_commands]
    defaults = {name: {"exit_style": style} for name in names}
    outcome: Call | int = commands.main(
        args=list(words), prog_name="amdcheck", standalone_mode=False, default_map=defaults
    )
    return outcome


def _show_version(wanted: bool) -> None:
    if wanted:
        from amdcheck.knowledge.tables import TABLES_DATE

        typer.echo(f"amdcheck {amdcheck.__version__}, tables of {TABLES_DATE.isoformat()}")
        raise typer.Exit


@app.callback()
@takes(CommonOptions)
def _root(
    options: CommonOptions,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_show_version, help="Show the version and exit.")
    ] = False,
) -> None:
    """Is this AMD machine ready to serve AI inference, and if not, what exactly must be done?"""


@app.command("all")
@takes(JudgeOptions)
def _all(options: JudgeOptions) -> Call:
    """Judge the machine: every check that applies."""
    from amdcheck.cli.judge import judge

    return partial(judge, options, ("*",))


@app.command("run")
@takes(JudgeOptions)
def _run(
    options: JudgeOptions,
    ids: Annotated[list[str], typer.Argument(metavar="ID|GLOB...", help="Checks, for example 'gpu.*' or cpu.isa.")],
) -> Call:
    """Judge by some of the checks."""
    from amdcheck.cli.judge import judge

    return partial(judge, options, tuple(ids))


@app.command("list")
@takes(ShowOptions)
def _list(
    options: ShowOptions,
    profiles: Annotated[bool, typer.Option("--profiles", help="List the profiles instead.")] = False,
) -> Call:
    """List the checks: id, level, needs, required or advisory, title."""
    from amdcheck.cli.listing import list_checks, list_profiles

    return partial(list_profiles if profiles else list_checks, options)


@app.command("explain")
@takes(ShowOptions)
def _explain(
    options: ShowOptions,
    id: Annotated[str, typer.Argument(metavar="ID", help="A check, or an outcome such as pci.link-width/degraded.")],
) -> Call:
    """Show the page of a check, or what an outcome asks for.

    "To do" names an action and its owner. The owner is node (who runs the machine), user (who runs models on it) or
    setup (who installs and configures: system image, packages, hypervisor or container, amdcheck itself).

    The action is monitor (nothing now, look again), configure (change a setting, install something), restart (a
    service or driver), reset (the device), reboot (the machine), isolate (give the machine no work until it is
    mended), replace (hardware) or investigate (the cause is not known yet; the steps find it).
    """
    from amdcheck.cli.explain import explain

    return partial(explain, options, id)


@app.command("facts")
@takes(EvidenceOptions)
def _facts(
    options: EvidenceOptions,
    format: Annotated[Literal["console", "json"], typer.Option(help="How to write it.")] = "console",
) -> Call:
    """Show what was read, without judgement."""
    from amdcheck.cli.facts import show_facts

    return partial(show_facts, options, format)


@app.command("capture")
@takes(EvidenceOptions)
def _capture(
    options: EvidenceOptions,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", parser=Path, metavar="FILE", help="Record what a run reads; - is stdout."),
    ] = None,
    unpack: Annotated[
        Path | None,
        typer.Option(parser=Path, metavar="DIR", help="Write the capture FILE as a host tree into this new folder."),
    ] = None,
    file: Annotated[Path | None, typer.Argument(parser=Path, metavar="FILE", help="The capture to unpack.")] = None,
) -> Call:
    """Record a machine for --host, or unpack a recording."""
    from amdcheck.cli.capture import record, unpack_capture

    if unpack is not None and file is not None and output is None:
        return partial(unpack_capture, unpack, file)
    if output is not None and unpack is None and file is None:
        return partial(record, options, output)
    raise typer.BadParameter("say either -o FILE to record, or --unpack DIR FILE to unpack")


@app.command("schema")
@takes(CommonOptions)
def _schema(
    options: CommonOptions,
    document: Annotated[Literal["report", "capture", "policy"], typer.Argument(help="Which document.")] = "report",
) -> Call:
    """Show the JSON Schema of a document."""
    from amdcheck.cli.schema import show_schema

    return partial(show_schema, document)
