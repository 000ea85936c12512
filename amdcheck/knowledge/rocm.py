"""ROCm releases and AMD GPU Driver releases: what a version string stands for, and which pairs AMD supports."""

from __future__ import annotations

import functools
import re
from datetime import date
from typing import Literal

from msgspec import Struct, field

from amdcheck.knowledge.tables import TABLES_DATE, Confidence, Row, load


class SupportRule(Row, frozen=True, kw_only=True):
    """How far driver and user space may be apart where no list names the pair."""

    releases_apart: int
    date_rule_from: str
    days_apart: int


class Release(Row, frozen=True, kw_only=True):
    """One ROCm release line. `drivers` is AMD's own list for it: exact (31.40.1) or a whole line (30.30)."""

    rocm: str
    released: date | None = None
    last: date | None = None
    seen_by: date | None = None
    preview: bool = False
    drivers: tuple[str, ...] = ()
    oldest_is_limit: bool = False
    points: dict[str, date] = field(default_factory=dict)


class DriverLine(Row, frozen=True, kw_only=True):
    """One line of AMD GPU Driver releases and the user space AMD lists for it."""

    line: str
    user: tuple[str, ...]
    released: date | None = None
    last: date | None = None
    seen_by: date | None = None
    preview: bool = False
    oldest_is_limit: bool = False


class ModuleVersion(Row, frozen=True, kw_only=True):
    """What a three-field module version stands for; `between` where only the neighbours are known."""

    version: str
    line: str | None = None
    between: tuple[str, str] | None = None


class RocmTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    rule: SupportRule
    release: tuple[Release, ...]
    driver: tuple[DriverLine, ...]
    module: tuple[ModuleVersion, ...]


@functools.cache
def table() -> RocmTable:
    return load("rocm", RocmTable)


def release_of(version: str) -> str | None:
    """The release line of a version as files spell it: 6.3.3-74 and 6.3.3 are 6.3; None for what is no version."""
    match = re.match(r"(\d{1,3})\.(\d{1,3})(?![\d])", version.strip())
    return f"{int(match[1])}.{int(match[2])}" if match else None


def release(line: str) -> Release | None:
    """The row of a release line such as 6.3."""
    return next((row for row in table().release if row.rocm == line), None)


def newest_release() -> Release:
    return [row for row in table().release if not row.preview][-1]


class PackagedDriver(Struct, frozen=True, kw_only=True):
    """The driver release behind a module version. `exact` only where the string spells all three fields."""

    line: str | None
    exact: str | None
    text: str  # as people say it: 30.10, 31.40.1, ROCm 6.2, between 30.30 and 31.30
    confidence: Confidence

    @property
    def name(self) -> str:
        """The driver within a sentence: driver 30.10, the driver of ROCm 6.2."""
        if self.line is None:
            return f"a driver {self.text}"
        return f"the driver of {self.text}" if self.text.startswith("ROCm") else f"driver {self.text}"


_MODULE = re.compile(r"(\d+)\.(\d+)\.(\d+)(?:\.(\d{8,12}))?(?:-\S+)?")


def packaged_driver(version: str) -> PackagedDriver | None:
    """What /sys/module/amdgpu/version stands for; None for a string that no table knows.

    A fourth field spells the release: 6.19.14.31400100 is 31.40.1. Without it the first three fields are looked up.
    """
    match = _MODULE.fullmatch(version.strip())
    if match is None:
        return None
    if match[4] is not None:
        number = int(match[4])
        line = f"{number // 1_000_000}.{number // 10_000 % 100}"
        exact = f"{line}.{number // 100 % 100}"
        return PackagedDriver(line=line, exact=exact, text=exact, confidence="verified")
    wanted = ".".join(match.group(1, 2, 3))
    row = next((row for row in table().module if row.version == wanted), None)
    if row is None:
        return None
    if row.line is None:
        text = f"between {row.between[0]} and {row.between[1]}" if row.between else "not known"
    else:
        text = row.line if _is_driver_number(row.line) else f"ROCm {row.line}"
    return PackagedDriver(line=row.line, exact=None, text=text, confidence=row.confidence)


def _is_driver_number(line: str) -> bool:
    """From 30.10 on the driver has numbers of its own; before, it carried its ROCm release's."""
    return int(line.partition(".")[0]) >= 30


Basis = Literal[
    "listed",  # AMD's list of the ROCm release, or of the driver, names the pair
    "inferred",  # no list names it; AMD's general rule allows it
    "excluded",  # AMD's list of the driver ends above this user space
    "outside",  # no list names it, and it is outside the general rule
    "unclear",  # the dates that the rule needs are not known well enough
    "preview",  # a technology preview that no list pairs with this driver
    "release-unknown",
    "driver-unknown",
]


class Compatibility(Struct, frozen=True, kw_only=True):
    """What the tables say of one pair; `why` is a clause that ends a sentence, `source` names the rows used."""

    basis: Basis
    why: str
    source: str
    confidence: Confidence

    @property
    def supported(self) -> bool | None:
        return {"listed": True, "inferred": True, "excluded": False, "outside": False}.get(self.basis)


def compatibility(version: str, driver: PackagedDriver) -> Compatibility:
    """May this ROCm release run on this driver? `version` is a whole version (6.3.3) or a release line (6.3).

    The release's own list comes first, then the driver's, then the rule: two releases before 6.4, one year from there.
    """
    rocm = release_of(version) or version
    user = release(rocm)
    if user is None:
        return _not_in_table("release-unknown", f"ROCm {rocm}", rocm, newest_release().rocm)
    if driver.line is None:
        return _not_in_table("driver-unknown", driver.name)
    if _named(user.drivers, driver):
        why = f"AMD's list for ROCm {rocm} names {driver.name}"
        return Compatibility(basis="listed", why=why, source=user.source, confidence=user.confidence)
    line = next((row for row in table().driver if row.line == driver.line), None)
    if line is None:
        return _not_in_table("driver-unknown", driver.name, driver.line, table().driver[-1].line)
    if rocm in line.user:
        why = f"AMD's list for {driver.name} names ROCm {rocm}"
        return Compatibility(basis="listed", why=why, source=line.source, confidence=line.confidence)
    return _excluded(user, line, driver) or _preview(user, driver) or _by_rule(user, version, line, driver.name)


def _not_in_table(
    basis: Literal["release-unknown", "driver-unknown"], name: str, found: str = "", newest: str = ""
) -> Compatibility:
    newer = found and newest and _numbers(found) > _numbers(newest)
    why = f"{name} is {'newer than' if newer else 'not in'} the tables of {TABLES_DATE}"
    return Compatibility(basis=basis, why=why, source=table().rule.source, confidence="verified")


def _excluded(user: Release, line: DriverLine, driver: PackagedDriver) -> Compatibility | None:
    """A complete list ends before this pair. What an older driver excludes as too old, a newer one excludes too."""
    lines = [row.line for row in table().driver]
    if user.oldest_is_limit and lines.index(line.line) < min(lines.index(_line_of(name)) for name in user.drivers):
        why = f"AMD's list for ROCm {user.rocm} ends at driver {user.drivers[-1]}, which is newer than {driver.name}"
        return Compatibility(basis="excluded", why=why, source=user.source, confidence=user.confidence)
    for row in table().driver[: lines.index(line.line) + 1]:
        if row.oldest_is_limit and _older(user.rocm, row.user[0]):
            of = driver.name if row is line else f"{_label(row.line)}, and for every driver since,"
            why = f"AMD's list for {of} begins at ROCm {row.user[0]}"
            return Compatibility(basis="excluded", why=why, source=row.source, confidence=row.confidence)
    return None


def _preview(user: Release, driver: PackagedDriver) -> Compatibility | None:
    if not user.preview:
        return None
    why = f"ROCm {user.rocm} is a technology preview that no list pairs with {driver.name}"
    return Compatibility(basis="preview", why=why, source=user.source, confidence=user.confidence)


def _line_of(name: str) -> str:
    """30.10 of 30.10.2 and of 30.10."""
    return ".".join(name.split(".")[:2])


def _label(line: str) -> str:
    return f"driver {line}" if _is_driver_number(line) else f"the driver of ROCm {line}"


def _named(drivers: tuple[str, ...], driver: PackagedDriver) -> bool:
    """Is the driver in a list of exact releases and whole lines? A line alone matches if all listed are of it."""
    if driver.line in drivers or driver.exact in drivers:
        return True
    return driver.exact is None and any(name.startswith(f"{driver.line}.") for name in drivers)


def _order(rocm: str) -> int | None:
    ordered = [row.rocm for row in table().release if not row.preview]
    return ordered.index(rocm) if rocm in ordered else None


def _older(rocm: str, other: str) -> bool:
    """Is the release line older than the other? By the order of the table, by number for what lies before it."""
    mine, theirs = _order(rocm), _order(other)
    if mine is not None and theirs is not None:
        return mine < theirs
    return mine is None and not _is_preview(rocm) and _numbers(rocm) < _numbers(other)


def _is_preview(rocm: str) -> bool:
    row = release(rocm)
    return row is not None and row.preview


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(field) for field in version.split("."))


def _by_rule(user: Release, version: str, line: DriverLine, driver: str) -> Compatibility:
    """The pair that no list names: releases apart when both are older than the date rule, days apart otherwise."""
    rule = table().rule
    mine, start = _order(user.rocm), _order(rule.date_rule_from)
    theirs = None if _is_driver_number(line.line) else _order(line.line)
    if mine is None or theirs is None or start is None or max(mine, theirs) >= start:
        return _by_dates(user, version, line, driver)
    apart = abs(mine - theirs)
    basis: Basis = "inferred" if apart <= rule.releases_apart else "outside"
    why = f"ROCm {user.rocm} and {driver} are {apart} releases apart; AMD supports {rule.releases_apart}"
    return Compatibility(basis=basis, why=why, source=rule.source, confidence=rule.confidence)


def _by_dates(user: Release, version: str, line: DriverLine, driver: str) -> Compatibility:
    rule = table().rule
    users, drivers = _span(user, table().release, user.points.get(version)), _span(line, table().driver)
    basis: Basis = "unclear"
    if users is None or drivers is None:
        why = f"the release date of ROCm {user.rocm} or of {driver} is not known"
    else:
        best, worst = _gap(users, drivers)
        basis = "inferred" if worst <= rule.days_apart else "outside" if best > rule.days_apart else "unclear"
        apart = {"inferred": "less than a year", "outside": "more than a year", "unclear": "about a year"}[basis]
        why = f"ROCm {version} and {driver} came out {apart} apart; AMD supports up to one year"
    return Compatibility(
        basis=basis,
        why=why,
        source=f"{rule.source}; {user.source}; {line.source}",
        confidence=_weakest(user.confidence, line.confidence),
    )


class _Span(Struct, frozen=True):
    """When a line was current: from its first to its last release. `sure` is False where neighbours give the bounds."""

    first: date
    last: date
    sure: bool


def _span(
    row: Release | DriverLine, rows: tuple[Release, ...] | tuple[DriverLine, ...], day: date | None = None
) -> _Span | None:
    """The days of a line, or the one `day` that is known; for a line without dates, between its dated neighbours."""
    if day is not None:
        return _Span(day, day, True)
    if row.released is not None:
        return _Span(row.released, row.last or row.released, True)
    at = list(rows).index(row)
    before = [r.released for r in rows[:at] if r.released is not None and not r.preview]
    after = [r.released for r in rows[at + 1 :] if r.released is not None and not r.preview]
    if not before:
        return None
    return _Span(before[-1], row.seen_by or (after[0] if after else TABLES_DATE), False)


def _gap(one: _Span, other: _Span) -> tuple[int, int]:
    """Days between two lines: at best, and at worst where a date is only known to lie between bounds.

    A line with known dates counts by its nearest release, as AMD's own lists do (30.10 still lists 6.2).
    """
    best = max(0, (one.first - other.last).days, (other.first - one.last).days)
    if one.sure and other.sure:
        return best, best
    worst = 0
    for a in (one.last,) if one.sure else (one.first, one.last):
        for b in (other.last,) if other.sure else (other.first, other.last):
            near_a = min(max(b, one.first), one.last) if one.sure else a
            near_b = min(max(a, other.first), other.last) if other.sure else b
            worst = max(worst, abs((near_a - near_b).days))
    return best, worst


_RANK: dict[Confidence, int] = {"unverified": 0, "one-source": 1, "verified": 2}


def _weakest(*levels: Confidence) -> Confidence:
    return min(levels, key=_RANK.__getitem__)
