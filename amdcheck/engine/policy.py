"""The policy: what is expected of the machine, which checks count how much, and what is waived until when."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterable, Iterator, Mapping
from datetime import date
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import fields, replace

from amdcheck.engine.registry import Check
from amdcheck.host.apart import ASK_SECONDS, apart
from amdcheck.host.files import read_regular
from amdcheck.knowledge.profiles import Profile, profiles
from amdcheck.knowledge.remedies import remedies
from amdcheck.model.errors import InputError
from amdcheck.model.expectations import wrong_expectation
from amdcheck.model.finding import RESERVED_OUTCOMES, Finding, Waived
from amdcheck.model.text import printable

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PRESENCE = "gpu.present"

_LIMIT = 64 << 10  # bytes of a policy file

# What is right for each key, in the words of an error.
_RIGHT: Mapping[str, str] = {
    "profile": 'a name, such as profile = "production"',
    "expect": "a table, [expect]",
    "gpus": "a whole number, such as gpus = 8",
    "gfx": 'a target, such as gfx = "gfx942"',
    "rocm": 'a range, such as rocm = ">=6.4,<11"',
    "checks": 'a table for each check, such as [checks."numa.balancing"]',
    "at_most": 'at_most = "warn", or leave it out',
    "required": "required = true or required = false",
    "waive": "a table for each waiver, [[waive]]",
    "id": 'a finding, such as id = "pci.acs/redirect"',
    "subject": 'a subject, such as subject = "*"',
    "reason": 'why it may stand, such as reason = "XGMI only host"',
    "until": "its last day without quotes, such as until = 2027-03-31",
}


class Expect(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the machine should have."""

    gpus: int | None = None
    gfx: str | None = None
    rocm: str | None = None


class CheckPolicy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How much one check counts: a fail is `at_most` a warn, its unknowns are `required` or not."""

    at_most: Literal["warn"] | None = None
    required: bool | None = None


class Waiver(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One finding by its very id, on the subjects that a glob names, which stands until a day, and why."""

    id: str
    subject: str = "*"
    reason: str
    until: date


class Policy(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    profile: str = "auto"
    expect: Expect = msgspec.field(default_factory=Expect)
    checks: dict[str, CheckPolicy] = {}
    waive: tuple[Waiver, ...] = ()


def read_policy(path: Path, known_checks: frozenset[str]) -> Policy:
    """The policy in a TOML file. Raises InputError with one sentence for anything wrong with it.

    It is read apart, for the file may lie on a dead mount, and 64 KiB of nested keys cost a parser many seconds.
    """
    where = f"policy {printable(str(path))}"

    def read() -> bytes:
        return msgspec.msgpack.encode(_parsed(read_regular(path, _LIMIT + 1), known_checks, where))

    try:
        return msgspec.msgpack.decode(apart(read), type=Policy)
    except TimeoutError:
        raise InputError(
            f"{where}: is not read within {ASK_SECONDS:g} s; it lies on a dead mount, or nests too deeply"
        ) from None
    except OSError as error:
        raise InputError(f"{where}: cannot be read: {error.strerror}") from None


def _parsed(text: bytes, known_checks: frozenset[str], where: str) -> Policy:
    if len(text) > _LIMIT:
        raise InputError(f"{where}: larger than {_LIMIT >> 10} KiB; that is no policy")
    try:
        raw = tomllib.loads(text.decode())
        _refuse_what_does_not_fit(raw, Policy, where, "")
    except RecursionError:
        raise InputError(f"{where}: nests too deeply; that is no policy") from None
    except ValueError as error:  # among them UnicodeDecodeError, TOMLDecodeError, and a number of too many digits
        raise InputError(f"{where}: not TOML: {printable(str(error), limit=200)}") from None
    policy = msgspec.convert(raw, Policy)
    for id in policy.checks:
        if not any(fnmatchcase(check, id) for check in known_checks):
            raise InputError(f"{where}: checks.{id!r} names no check{_nearest(id, known_checks)}")
    for waiver in policy.waive:
        _refuse_unnamed_finding(waiver.id, where, known_checks)
    expect = policy.expect
    wrong = wrong_expectation(gpus=expect.gpus, gfx=expect.gfx, rocm=expect.rocm)
    if wrong is not None:
        raise InputError(f"{where}: {wrong}")
    return policy


def _refuse_unnamed_finding(id: str, where: str, known_checks: frozenset[str]) -> None:
    """A waiver accepts what somebody has looked at: a glob would accept also what nobody has seen yet, GPUs that are
    gone among it. One for a finding that its check does not have would never count, and nobody would notice."""
    check, slash, outcome = id.partition("/")
    if not slash or any(sign in id for sign in "*?["):
        raise InputError(f"{where}: waive.id {id!r}: a waiver names one finding, as pci.link-width/degraded; no globs")
    if check not in known_checks:
        raise InputError(f"{where}: waive.id {id!r} names no check{_nearest(id, known_checks)}")
    ours = [key.partition("/")[2] for key in remedies(check.partition(".")[0]) if key.startswith(f"{check}/")]
    known = [*RESERVED_OUTCOMES, *ours]
    if ours and outcome not in known:
        raise InputError(f"{where}: waive.id {id!r}: {check} has no such outcome{_nearest(outcome, known)}")


def _refuse_what_does_not_fit(raw: Mapping[str, object], kind: type[Struct], where: str, prefix: str) -> None:
    """Name the key, what it holds and what is right; msgspec's own messages speak of types."""
    known = {f.encode_name: f for f in fields(kind)}
    for key, value in raw.items():
        if key not in known:
            raise InputError(f"{where}: unknown key {prefix}{key}{_nearest(key, known)}")
        try:
            msgspec.convert(value, known[key].type)
        except msgspec.ValidationError:
            for name, table, part in _tables(key, value):
                if not isinstance(part, dict):
                    raise InputError(f"{where}: {prefix}{name} is {_as_written(part)}, not a table of keys") from None
                _refuse_what_does_not_fit(part, table, where, f"{prefix}{name}.")
            raise InputError(f"{where}: {prefix}{key} is {_as_written(value)}; write {_RIGHT[key]}") from None
    for key in known:
        if known[key].required and key not in raw:
            raise InputError(f"{where}: {prefix}{key} is missing; write {_RIGHT[key]}")


def _tables(key: str, value: object) -> Iterator[tuple[str, type[Struct], object]]:
    """The tables in the value of a key of the policy, each with its name and its record."""
    if key == "expect" and isinstance(value, dict):
        yield key, Expect, value
    elif key == "checks" and isinstance(value, dict):
        for id, entry in value.items():
            yield f"checks.{id!r}", CheckPolicy, entry
    elif key == "waive" and isinstance(value, list):
        for number, entry in enumerate(value, start=1):
            yield key if len(value) == 1 else f"waive {number}", Waiver, entry


def _as_written(value: object) -> str:
    return printable(repr(value) if isinstance(value, (str, list, dict)) else str(value), limit=60)


def _nearest(word: str, right: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, sorted(right), 1, 0.5)
    return f"; did you mean {close[0]}?" if close else ""


def profile_named(name: str, said_by: str = "--profile") -> Profile:
    """A profile of the table. Raises InputError for an unknown name, which tells who named it."""
    try:
        return profiles()[name]
    except KeyError:
        names = ["auto", *profiles()]
        raise InputError(
            f"{said_by} {printable(name)}: no such profile{_nearest(name, names)} (there are {', '.join(names)})"
        ) from None


def detect_profile(*, container: bool, gpus: bool) -> str:
    """The name behind `auto`."""
    return f"{'container' if container else 'node'}-{'gpu' if gpus else 'cpu'}"


def apply_policy(finding: Finding, policy: Policy, today: date) -> Finding:
    """Cap the status and mark a waiver. A waiver past its date says so in the message and does not count."""
    at_most = next((rule.at_most for rule in _rules(policy, finding.check) if rule.at_most is not None), None)
    if at_most == "warn" and finding.status == "fail":
        finding = replace(
            finding, status="warn", message=_noted(finding.message, "a fail; the policy says at most warn")
        )
    if finding.status not in ("warn", "fail", "unknown"):
        return finding
    for waiver in policy.waive:
        if finding.id != waiver.id or not fnmatchcase(finding.subject.id, waiver.subject):
            continue
        if waiver.until >= today:
            return replace(finding, waived=Waived(reason=waiver.reason, until=waiver.until))
        note = f"its waiver ended on {waiver.until}: {waiver.reason}"
        finding = replace(finding, message=_noted(finding.message, note))
    return finding


def _noted(message: str, note: str) -> str:
    """The message with a note in brackets, inside its sentence."""
    return f"{message.removesuffix('.')} ({note}){'.' if message.endswith('.') else ''}"


def is_required(
    finding: Finding, check: Check, policy: Policy, profile: Profile, *, require_all: bool, privileged: bool
) -> bool:
    """Does an unknown of this finding make the machine undetermined?

    The policy's word comes first. What this user may not read is advisory, unless everything is required, where the
    check names root or render as its need. What any user should be able to read, or root, is no matter of privilege:
    denied there is a fault.
    """
    required = next((rule.required for rule in _rules(policy, check.id) if rule.required is not None), None)
    if required is not None:
        return required
    if require_all or profile.require_all:
        return True
    if finding.outcome == "denied" and check.needs != "user" and not privileged:
        return False
    if any(fnmatchcase(finding.check, glob) for glob in profile.advisory):
        return False
    return check.required


def _rules(policy: Policy, check: str) -> list[CheckPolicy]:
    """What the policy says of a check, the most specific first: its very id, then the longer glob.

    Globs do not reach gpu.present: GPUs that are gone are "ready" only where somebody wrote just that.
    """
    ids = [id for id in policy.checks if id == check or (check != PRESENCE and fnmatchcase(check, id))]
    return [policy.checks[id] for id in sorted(ids, key=lambda id: (id == check, len(id), id), reverse=True)]
