"""What the engine itself says, of no check: its pages and findings. Their remedies are rows like all others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from msgspec.structs import replace

from amdcheck.engine.lock import Held
from amdcheck.engine.registry import Check, described
from amdcheck.host.capture import Hang
from amdcheck.host.processes import Stuck
from amdcheck.knowledge.remedies import remedy
from amdcheck.model.finding import HOST, Evidence, Finding, Subject, shown, undetermined

PluginOutcome = Literal["failed", "hang", "crashed"]


def _page(id: str, title: str, page: str) -> Check:
    return described(id, title=title, level="quick", needs="user", required=True, page=page, origin="amdcheck.engine")


OWN: Mapping[str, Check] = {
    own.id: own
    for own in (
        _page(
            "amdcheck.host",
            "Reading the host",
            "What blocked while this machine was read, or while the recording was made: a file, or a\n"
            "program that could not be ended at its deadline. Whatever asked for it, such a machine is not ready.\n\n"
            "A read that does not end sleeps in the kernel, most often in the driver of a device that no longer\n"
            "answers. Nothing ends such a process, and a server that touches the device blocks just so.",
        ),
        _page(
            "amdcheck.plugin",
            "Plugins",
            "Checks of other packages, which arrive through the entry-point group amdcheck.checks. They are imported\n"
            "and run in processes of their own, after all built-in checks.\n\n"
            "A plugin that raises while it is imported, does not end, ends its process, or registers what cannot be a\n"
            "check is named here. Whoever installed it wanted the machine judged by it, so the verdict is\n"
            "undetermined until it is repaired or uninstalled; all other checks are judged as ever.",
        ),
        _page(
            "amdcheck.run",
            "One run at a time",
            "Whether another run of amdcheck holds the lock of this machine (/run/amdcheck.lock for root). A run\n"
            "measures, and two at once would disturb each other, so the second one ends without a verdict.",
        ),
    )
}


def own_finding(id: str, subject: Subject, message: str, *evidence: Evidence, **holes: str) -> Finding:
    """A finding of the engine by its id, titled, with the remedy of its row."""
    own, _, outcome = id.partition("/")
    finding = undetermined(own, subject, message, *evidence, outcome=outcome, remedy=remedy(id, **holes))
    return replace(finding, title=OWN[own].title)


def hang_findings(hangs: Iterable[Hang]) -> Iterator[Finding]:
    """What blocked, one finding each: said by the run that saw it and by every replay of its recording."""
    stuck: dict[str, list[Stuck]] = {}
    for hang in hangs:
        stuck.setdefault(hang.what, []).extend(hang.stuck)
    for what, processes in stuck.items():
        seen = [
            shown(f"/proc/{p.pid}/wchan", f"pid {p.pid} state {p.state} sleeps in {p.wchan}", volatile=True)
            for p in processes
        ]
        if not seen:
            seen = [shown(what, "blocked past its deadline; the process could be ended")]
        if what.startswith("/"):
            subject, message = Subject(kind="path", id=what), f"{what} blocks: reading it did not end"
        elif what:
            subject, message = Subject(kind="process", id=what), f"{what} blocks: it did not end"
        else:
            subject, message = HOST, "A process that was started to read the host cannot be ended"
        finding = own_finding("amdcheck.host/hang", subject, message, *seen)
        yield replace(finding, expected="an answer within its deadline")


def plugin_finding(name: str, package: str, outcome: PluginOutcome, why: str) -> Finding:
    """A plugin (the name of its entry point, and the package that brings it) cannot be used, or not all of it."""
    message = f"Plugin {name} of {package}: {why}"
    return own_finding(f"amdcheck.plugin/{outcome}", Subject(kind="plugin", id=name), message, package=package)


def held_finding(held: Held) -> Finding:
    """Another run holds the lock."""
    pid = "" if held.holder is None else f" (pid {held.holder.pid})"
    number = "" if held.holder is None else str(held.holder.pid)
    if held.overdue:
        message = f"An earlier run{pid} is past its own deadline and still holds {held.path}: it is stuck"
        return own_finding("amdcheck.run/previous-stuck", HOST, message, pid=number)
    return own_finding("amdcheck.run/already-running", HOST, f"Another run{pid} holds {held.path}", pid=number)
