"""rocm-smi and amd-smi, asked at level standard and above: cross-checks, whose exit codes prove nothing."""

from __future__ import annotations

from posixpath import join

from msgspec import Struct

from amdcheck.facts.registry import fact
from amdcheck.facts.rocm import RocmInstalls, RocmRoot
from amdcheck.facts.smi_output import SmiDriver, SmiGpu, SmiLink, SmiOutput, parse
from amdcheck.host.protocol import Command, CommandResult, Host
from amdcheck.knowledge.smi import table
from amdcheck.knowledge.versions import numbers
from amdcheck.model.expectations import Expectations
from amdcheck.model.finding import Subject
from amdcheck.model.value import Known, Reason, Unknown, Value

# What each tool is asked. --json throughout: rocm-smi's --csv drops the link matrix.
QUESTIONS: dict[str, tuple[tuple[str, ...], ...]] = {
    "rocm-smi": (("--showdriverversion", "--json"), ("--showtopo", "--json")),
    "amd-smi": (("static", "--json"), ("version", "--json")),
}
ASKED_FOR_LINKS = {"rocm-smi": "--showtopo", "amd-smi": "topology"}  # by hand: the links between GPUs
_NO_GROUP = "missing the following required groups"


class SmiRun(Struct, frozen=True, kw_only=True):
    """One question and what came of it.

    `output` is unknown when the tool is missing (absent), may not be run (denied), did not end (timeout), or said
    nothing that could be read (failed); `silent`: it ended without a word on stdout, whatever its exit code.
    """

    argv: tuple[str, ...]
    output: Value[SmiOutput]
    duration_s: float | None
    rc: int | None
    silent: bool
    complaint: str  # the last line on stderr, where tools put their reason
    stuck: tuple[str, ...]

    @property
    def source(self) -> str:
        return " ".join(self.argv)


class SmiTool(Struct, frozen=True, kw_only=True):
    """One tool with its answers put together; `root` is the ROCm installation it was taken from, None: from PATH."""

    name: str
    root: RocmRoot | None
    runs: tuple[SmiRun, ...]

    @property
    def subject(self) -> Subject:
        return Subject(kind="package", id=self.name)

    def _said(self) -> list[tuple[SmiOutput, str]]:
        return [(run.output.value, run.source) for run in self.runs if isinstance(run.output, Known)]

    def _nothing(self, what: str) -> Unknown:
        """Why no answer holds a thing: the first run that failed, else that none said it."""
        for run in self.runs:
            if isinstance(run.output, Unknown):
                return run.output
        return Unknown("absent", self.name, f"the output does not say {what}")

    @property
    def driver(self) -> Value[SmiDriver]:
        for output, source in self._said():
            if output.driver is not None:
                return Known(output.driver, source)
        return self._nothing("the driver's version")

    @property
    def rocm_version(self) -> Value[str]:
        for output, source in self._said():
            if output.rocm_version is not None:
                return Known(output.rocm_version, source)
        return self._nothing("a ROCm version")

    @property
    def gpus(self) -> Value[tuple[SmiGpu, ...]]:
        for output, source in self._said():
            if output.gpus:
                return Known(output.gpus, source)
        return self._nothing("any GPU")

    @property
    def links(self) -> Value[tuple[SmiLink, ...]]:
        for output, source in self._said():
            if any(link.type for link in output.links):
                return Known(output.links, source)
        return self._nothing("link types")


@fact
class SmiTools(Struct, frozen=True, kw_only=True):
    """Empty at level quick: no external tool is started then."""

    tools: tuple[SmiTool, ...]

    @classmethod
    def read(cls, host: Host, rocm: RocmInstalls, expect: Expectations) -> SmiTools:
        if expect.level == "quick":
            return cls(tools=())
        places = [(name, *_place(host, name, rocm)) for name in QUESTIONS]
        commands = [
            Command(argv=(path, *question), timeout_s=table().limits.deadline_s)
            for name, path, _ in places
            for question in QUESTIONS[name]
        ]
        answers = iter(zip(commands, host.run(commands), strict=True))
        return cls(
            tools=tuple(
                SmiTool(name=name, root=root, runs=tuple(_run(*next(answers)) for _ in QUESTIONS[name]))
                for name, _, root in places
            )
        )


def _place(host: Host, name: str, rocm: RocmInstalls) -> tuple[str, RocmRoot | None]:
    """The tool of the newest installation that has it, else the name for a look-up in PATH."""
    newest_first = sorted(rocm.roots, key=lambda root: numbers(root.version.or_none() or "0"), reverse=True)
    for root in newest_first:
        path = join(root.root, "bin", name)
        if isinstance(host.resolve(path), Known):
            return path, root
    return name, None


def _run(command: Command, answer: Value[CommandResult]) -> SmiRun:
    if isinstance(answer, Unknown):
        return SmiRun(argv=command.argv, output=answer, duration_s=None, rc=None, silent=False, complaint="", stuck=())
    result = answer.value
    return SmiRun(
        argv=command.argv,
        output=_output(result, " ".join(command.argv)),
        duration_s=result.duration_s,
        rc=result.rc,
        silent=not result.timed_out and not result.stdout.strip(),
        complaint=_last_line(result.stderr),
        stuck=result.stuck,
    )


def _output(result: CommandResult, source: str) -> Value[SmiOutput]:
    """The exit code is not looked at: these tools leave with 0 and no output when they find no driver."""
    if result.timed_out:
        return Unknown("timeout", source, f"no answer within {table().limits.deadline_s:g} s")
    if result.truncated:
        return Unknown("failed", source, "the output is longer than what is kept of it")
    output = parse(result.stdout)
    if not output.says_nothing:
        return Known(output, source)
    reason: Reason = "denied" if _NO_GROUP in result.stdout + result.stderr else "failed"
    said = "said nothing on stdout" if not result.stdout.strip() else "printed nothing that could be read"
    return Unknown(reason, source, f"exit code {result.rc}, {said}: {_last_line(result.stderr)}".rstrip(": "))


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""
