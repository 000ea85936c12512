"""Facts and checks that misbehave, each in one way: what the supervisor must survive."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import cast

from msgspec import Struct

from amdcheck.api import HOST, Finding, Host, Subject, Value, evidence, fact, passed, shown, undetermined
from amdcheck.engine.registry import Check, CheckFunction, Predicate
from amdcheck.facts.registry import injected_parameters
from amdcheck.host.protocol import Command, CommandResult
from amdcheck.model.value import Known, Unknown

CARDS = tuple(f"card{n}" for n in range(8))


@fact
class Cards(Struct, frozen=True, kw_only=True):
    """One attribute of eight devices."""

    busy: dict[str, Value[str]]

    @classmethod
    def read(cls, host: Host) -> Cards:
        return cls(busy={card: host.read(f"/sys/cards/{card}/gpu_busy_percent") for card in CARDS})


@fact
class Attributes(Struct, frozen=True, kw_only=True):
    """Eight attributes of one device."""

    values: dict[str, Value[str]]

    @classmethod
    def read(cls, host: Host) -> Attributes:
        return cls(values={f"attr{n}": host.read(f"/sys/cards/attr{n}") for n in range(8)})


@fact
class Busy(Struct, frozen=True, kw_only=True):
    """A read that takes its time and never sleeps, as one does whose process hardly gets a CPU."""

    value: Value[str]

    @classmethod
    def read(cls, host: Host) -> Busy:
        inner = host._inner  # type: ignore[attr-defined]
        answer = inner.read

        def slow(path: str, *, limit: int = 0) -> Value[str]:
            end = time.monotonic() + 3.0
            while time.monotonic() < end:
                pass
            return cast("Value[str]", answer(path))

        inner.read = slow
        return cls(value=host.read("/sys/cards/card0/gpu_busy_percent"))


@fact
class Broken(Struct, frozen=True, kw_only=True):
    @classmethod
    def read(cls, host: Host) -> Broken:
        raise ZeroDivisionError("a bug of ours")


@fact
class Dying(Struct, frozen=True, kw_only=True):
    @classmethod
    def read(cls, host: Host) -> Dying:
        os.kill(os.getpid(), signal.SIGSEGV)
        return cls()


@fact
class Escaping(Struct, frozen=True, kw_only=True):
    """Forks twice into a session of its own, leaves a process behind, and goes on."""

    @classmethod
    def read(cls, host: Host) -> Escaping:
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(300)
            os._exit(0)
        return cls()


HANGS = "sleep 300"
FORKS_TWICE = "(setsid sh -c 'sleep 300' &) ; echo started"
FLOODS = "yes"
GARBAGE = "head -c 4096 /dev/urandom"
KILLED = "kill -SEGV $$"
_PROGRAMS = {"hangs": HANGS, "forks-twice": FORKS_TWICE, "floods": FLOODS, "garbage": GARBAGE, "killed": KILLED}


@fact
class Programs(Struct, frozen=True, kw_only=True):
    """Programs that misbehave, started side by side."""

    results: dict[str, Value[CommandResult]]

    @classmethod
    def read(cls, host: Host) -> Programs:
        commands = [Command(argv=("sh", "-c", program), timeout_s=1.0) for program in _PROGRAMS.values()]
        commands.append(Command(argv=("/etc/passwd",)))
        commands.append(Command(argv=("no-such-program-here",)))
        answers = host.run(commands)
        return cls(results=dict(zip((*_PROGRAMS, "not-executable", "missing"), answers, strict=True)))


def cards_busy(cards: Cards) -> Iterator[Finding]:
    """Judges every device alone."""
    for card, busy in cards.busy.items():
        subject = Subject(kind="gpu", id=card)
        if isinstance(busy, Known):
            yield passed("gpu.cards", subject, "idle", evidence(busy))
        else:
            yield undetermined("gpu.cards", subject, "not read", because=busy)


def attributes(device: Attributes) -> Iterator[Finding]:
    """Judges every attribute alone."""
    for name, value in device.values.items():
        subject = Subject(kind="path", id=name)
        if isinstance(value, Known):
            yield passed("gpu.attributes", subject, "read", evidence(value))
        else:
            yield undetermined("gpu.attributes", subject, "not read", because=value)


def programs(started: Programs) -> Iterator[Finding]:
    """One finding for each program: how it ended."""
    for name, result in started.results.items():
        subject = Subject(kind="process", id=name)
        if isinstance(result, Known) and not result.value.timed_out:
            yield passed("cpu.programs", subject, "ended", shown(result.source, f"rc {result.value.rc}"))
        elif isinstance(result, Known):
            because = Unknown("timeout", result.source, f"{len(result.value.stdout)} characters")
            yield undetermined("cpu.programs", subject, "did not end", because=because)
        else:
            yield undetermined("cpu.programs", subject, "did not start", because=result)


def hangs_before(fine: Cards) -> str | None:
    """A predicate that never ends."""
    while True:
        pass


def fine() -> Iterator[Finding]:
    """Nothing wrong here."""
    yield passed("cpu.fine", HOST, "fine", evidence(Known("1", "/sys/fine")))


def busy(read: Busy) -> Iterator[Finding]:
    """Judges what was read slowly."""
    if isinstance(read.value, Known):
        yield passed("cpu.busy", HOST, "read", evidence(read.value))
    else:
        yield undetermined("cpu.busy", HOST, "not read", because=read.value)


def broken(what: Broken) -> Iterator[Finding]:
    """Needs a fact that raises."""
    yield from ()


def dying(what: Dying) -> Iterator[Finding]:
    """Needs a fact that kills its process."""
    yield from ()


def escaping(what: Escaping) -> Iterator[Finding]:
    """Needs a fact that leaves a process behind."""
    yield passed("cpu.escaping", HOST, "went on", evidence(Known("1", "/sys/fine")))


def raising() -> Iterator[Finding]:
    """Raises."""
    raise KeyError("x")
    yield


def silent() -> Iterator[Finding]:
    """Says nothing."""
    yield from ()


def endless() -> Iterator[Finding]:
    """Never ends."""
    while True:
        pass
    yield


def flooding() -> Iterator[Finding]:
    """Yields for ever."""
    while True:
        yield passed("cpu.flooding", HOST, "again", evidence(Known("1", "/sys/fine")))


def nonsense() -> Iterator[Finding]:
    """Yields something that is no finding."""
    yield cast(Finding, 42)


def anothers() -> Iterator[Finding]:
    """Yields another check's finding."""
    yield passed("cpu.fine", HOST, "fine", evidence(Known("1", "/sys/fine")))


def vacuous() -> Iterator[Finding]:
    """Passes without evidence."""
    yield passed("cpu.vacuous", HOST, "trust me")


def malformed() -> Iterator[Finding]:
    """A finding whose fields have the wrong types."""
    yield passed("cpu.malformed", HOST, "x", evidence(Known("1", cast(str, 42))))


def exiting() -> Iterator[Finding]:
    """Ends its process as if all were well."""
    os._exit(0)
    yield


def make_check(
    id: str, function: CheckFunction, *, origin: str = "plugin_of_others", applies: Predicate | None = None
) -> Check:
    return Check(
        id=id,
        title=f"Title of {id}",
        level="quick",
        needs="user",
        required=True,
        function=function,
        parameters=injected_parameters(id, function),
        applies=applies,
        applies_parameters=injected_parameters(id, applies) if applies else {},
        page="page",
        origin=origin,
    )
