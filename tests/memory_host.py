"""A host in memory: the files, links and outcomes that a test names, and nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timezone

from amdcheck import __version__
from amdcheck.host.capture import (
    SCHEMA,
    Capture,
    Device,
    Manifest,
    Operation,
    Outcome,
    to_text,
)
from amdcheck.host.protocol import (
    CommandResult,
    Identity,
    OpenOutcome,
    SelfTestResult,
    Stat,
    SystemAnswers,
    UdevDevice,
)
from amdcheck.host.snapshot import SnapshotHost
from amdcheck.model.expectations import Level
from amdcheck.model.value import Reason

ROOT = Identity(uid=0, user="root", groups=(0,), group_names={"render": 109, "video": 44}, node_name=None)


def memory_host(
    files: Mapping[str, str | bytes],
    *,
    links: Mapping[str, str] | None = None,
    outcomes: Mapping[str, Outcome] | None = None,
    complete: bool = True,
    empty_dirs: Iterable[str] = (),
    stats: Mapping[str, Stat] | None = None,
    opens: Mapping[str, OpenOutcome] | None = None,
    udev: Iterable[UdevDevice] = (),
    commands: Iterable[CommandResult] = (),
    selftests: Iterable[SelfTestResult] = (),
    unanswered: Mapping[Operation, Mapping[str, Reason]] | None = None,
    identity: Identity | None = ROOT,
    system: SystemAnswers | None = None,
    level: Level = "standard",
) -> SnapshotHost:
    """A recorded machine that holds exactly this.

    Links are real links: a file named below one lands at its target. With `complete`, every folder on the way to a path
    lists what is named here and no more, so that all else in it is `absent`; a path under a folder that is not
    mentioned at all is `absent` too, for the root is listed. Without, everything not named is `not-recorded`.
    A path with an outcome other than `absent` stands in its folder's listing. Nodes of `stats` and `opens` exist.
    """
    return SnapshotHost(
        memory_capture(
            files,
            links=links,
            outcomes=outcomes,
            complete=complete,
            empty_dirs=empty_dirs,
            stats=stats,
            opens=opens,
            udev=udev,
            commands=commands,
            selftests=selftests,
            unanswered=unanswered,
            identity=identity,
            system=system,
            level=level,
        )
    )


def memory_capture(
    files: Mapping[str, str | bytes],
    *,
    links: Mapping[str, str] | None = None,
    outcomes: Mapping[str, Outcome] | None = None,
    complete: bool = True,
    empty_dirs: Iterable[str] = (),
    stats: Mapping[str, Stat] | None = None,
    opens: Mapping[str, OpenOutcome] | None = None,
    udev: Iterable[UdevDevice] = (),
    commands: Iterable[CommandResult] = (),
    selftests: Iterable[SelfTestResult] = (),
    unanswered: Mapping[Operation, Mapping[str, Reason]] | None = None,
    identity: Identity | None = ROOT,
    system: SystemAnswers | None = None,
    level: Level = "standard",
) -> Capture:
    """The capture behind `memory_host`."""
    at_links = dict(links or {})
    places = _Places(at_links)
    at_files = {places.real(path): to_text(content) for path, content in files.items()}
    at_outcomes = {places.real(path): outcome for path, outcome in (outcomes or {}).items()}
    devices = _devices(places, stats or {}, opens or {}, {device.node: device for device in udev})
    dirs: dict[str, tuple[str, ...]] = {}
    if complete:
        there = [path for path, outcome in at_outcomes.items() if outcome != "absent"]
        nodes = [device.path for device in devices if device.stat is not None or device.open is not None]
        folders = [places.real(path) for path in empty_dirs]
        dirs = _listings([*at_files, *at_links, *nodes, *there], folders)
        for path in there:
            dirs.pop(path, None)  # what cannot be read is not listed either
    return Capture(
        schema=SCHEMA,
        manifest=Manifest(
            created=datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc),
            amdcheck=__version__,
            source="live",
            redacted=False,
            level=level,
            expectations=None,
            identity=identity,
            system=system,
        ),
        files=at_files,
        links=at_links,
        dirs=dirs,
        outcomes=at_outcomes,
        commands=tuple(commands),
        devices=tuple(devices),
        selftests=tuple(selftests),
        real_paths=complete,
        unanswered={operation: dict(paths) for operation, paths in (unanswered or {}).items()},
    )


class _Places:
    """Where a path really lies, given the links that there are."""

    def __init__(self, links: Mapping[str, str]) -> None:
        self._links = links

    def real(self, path: str) -> str:
        """The folder's links followed, the last component as it stands."""
        done, todo, hops = "", path.split("/")[::-1], 0
        while todo:
            name = todo.pop()
            if name == "..":
                done = done.rpartition("/")[0]
            elif name not in ("", "."):
                done = f"{done}/{name}"
                target = self._links.get(done)
                if target is not None and todo:
                    hops += 1
                    assert hops <= 40, f"links of {path} go round"
                    done = "" if target.startswith("/") else done.rpartition("/")[0]
                    todo.extend(target.split("/")[::-1])
        return done or "/"


def _listings(paths: Iterable[str], folders: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """A complete listing of every folder on the way to these paths."""
    names: dict[str, set[str]] = {"/": set()}
    for folder in folders:
        names.setdefault(folder, set())
    for path in [*paths, *names]:
        while path != "/":
            parent, _, name = path.rpartition("/")
            parent = parent or "/"
            known = names.setdefault(parent, set())
            if name in known:
                break
            known.add(name)
            path = parent
    return {folder: tuple(sorted(entries)) for folder, entries in names.items()}


def _devices(
    places: _Places,
    stats: Mapping[str, Stat],
    opens: Mapping[str, OpenOutcome],
    udev: Mapping[str, UdevDevice],
) -> list[Device]:
    return [
        Device(path=places.real(path), stat=stats.get(path), open=opens.get(path), udev=udev.get(path))
        for path in sorted({*stats, *opens, *udev})
    ]
