"""The registry of checks: built-in ones, and those that other packages bring through entry points."""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from inspect import cleandoc
from typing import Any, Literal, ParamSpec

from msgspec import Struct

from amdcheck.facts.registry import injected_parameters
from amdcheck.model.expectations import Level
from amdcheck.model.finding import Finding

P = ParamSpec("P")
Needs = Literal["user", "render", "root"]
CheckFunction = Callable[..., Iterator[Finding]]
Predicate = Callable[..., "str | None"]

ENTRY_POINTS = "amdcheck.checks"
GROUPS = (
    "amdcheck",
    "container",
    "cpu",
    "fabric",
    "gpu",
    "inference",
    "kernel",
    "limits",
    "memory",
    "miopen",
    "numa",
    "pci",
    "rocm",
    "selftest",
)
_ID = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+){1,2}")


@dataclass(frozen=True)
class Check:
    """A registered check: what it is called, when it runs, and what it is given."""

    id: str
    title: str
    level: Level
    needs: Needs
    required: bool
    function: CheckFunction
    parameters: Mapping[str, type[Struct]]
    applies: Predicate | None
    applies_parameters: Mapping[str, type[Struct]]
    page: str
    origin: str

    @property
    def group(self) -> str:
        return self.id.partition(".")[0]


def is_builtin(check: Check) -> bool:
    """Is the check one of ours, not a plugin's."""
    return check.origin.startswith("amdcheck.checks.")


_CHECKS: dict[str, Check] = {}
load_errors: dict[str, str] = {}  # entry point or module -> why it could not be loaded


def check(
    id: str,
    *,
    title: str,
    level: Level,
    needs: Needs = "user",
    required: bool = True,
    applies: Predicate | None = None,
) -> Callable[[Callable[P, Iterator[Finding]]], Callable[P, Iterator[Finding]]]:
    """Register a check. Its docstring is its manual page, its parameters are the facts it judges.

    `applies` takes facts too and returns None, or the reason why the check does not apply to this machine.
    Raises TypeError or ValueError at registration for an id, page or parameter that cannot be right.
    """
    if not _ID.fullmatch(id) or id.partition(".")[0] not in GROUPS:
        raise ValueError(f"{id}: a check id is group.name in lower case, its group one of {', '.join(GROUPS)}")

    def register(
        function: Callable[P, Iterator[Finding]],
    ) -> Callable[P, Iterator[Finding]]:
        page = cleandoc(function.__doc__ or "")
        if not page:
            raise ValueError(f"{id}: a check has a docstring, its manual page")
        known = _CHECKS.get(id)
        origin = function.__module__
        if known is not None and known.origin != origin:
            raise ValueError(f"{id}: registered already by {known.origin}")
        _CHECKS[id] = Check(
            id=id,
            title=title,
            level=level,
            needs=needs,
            required=required,
            function=function,
            parameters=injected_parameters(id, function),
            applies=applies,
            applies_parameters=injected_parameters(f"{id} applies", applies) if applies else {},
            page=page,
            origin=origin,
        )
        return function

    return register


@functools.cache
def load_builtin() -> None:
    """Import every module of amdcheck.checks, so that its checks register themselves."""
    try:
        package: Any = importlib.import_module("amdcheck.checks")
    except ModuleNotFoundError as error:
        if error.name != "amdcheck.checks":
            raise
        return  # a broken installation; the caller sees that nothing is registered
    for module in pkgutil.walk_packages(package.__path__, "amdcheck.checks."):
        if not module.ispkg:
            importlib.import_module(module.name)


@functools.cache
def load_entry_points() -> None:
    """Load the checks of other packages; one that cannot be loaded is remembered, not fatal."""
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            entry.load()
        except (Exception, SystemExit) as error:
            load_errors[entry.name] = f"{type(error).__name__}: {error}"


def all_checks() -> Mapping[str, Check]:
    """Every registered check by id, in order of id."""
    load_builtin()
    load_entry_points()
    return dict(sorted(_CHECKS.items()))
