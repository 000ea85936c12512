"""The registry of checks: what registers itself in this process.

That is the built-in checks. The code of others runs in processes of its own (see engine.plugins).
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from inspect import cleandoc
from typing import Any, Literal, ParamSpec, get_args

from msgspec import Struct

from amdcheck.facts.registry import injected_parameters
from amdcheck.model.expectations import LEVELS, Level
from amdcheck.model.finding import Finding

P = ParamSpec("P")
Needs = Literal["user", "render", "root"]
CheckFunction = Callable[..., Iterator[Finding]]
Predicate = Callable[..., "str | None"]

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


@dataclass(frozen=True)
class Plugin:
    """What the entry point of another package brings: its checks, described, and the modules of its facts by name."""

    entry: EntryPoint
    package: str
    checks: tuple[Check, ...]
    facts: Mapping[str, str]


def is_builtin(check: Check) -> bool:
    """Is the check one of ours, not a plugin's."""
    return check.origin.startswith("amdcheck.checks.")


_CHECKS: dict[str, Check] = {}


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
    if not isinstance(id, str) or not _ID.fullmatch(id) or id.partition(".")[0] not in GROUPS:
        raise ValueError(f"{id}: a check id is group.name in lower case, its group one of {', '.join(GROUPS)}")
    if not isinstance(title, str) or not title.strip() or not title.isprintable():
        raise ValueError(f"{id}: the title is {title!r}; it is one line of text")
    if level not in LEVELS:
        raise ValueError(f"{id}: the level is {level!r}; it is one of {', '.join(LEVELS)}")
    if needs not in get_args(Needs):
        raise ValueError(f"{id}: needs is {needs!r}; it is one of {', '.join(get_args(Needs))}")
    if not isinstance(required, bool):
        raise ValueError(f"{id}: required is {required!r}; it is True or False")

    def register(
        function: Callable[P, Iterator[Finding]],
    ) -> Callable[P, Iterator[Finding]]:
        page = cleandoc(function.__doc__ or "")
        if not page:
            raise ValueError(f"{id}: a check has a docstring, its manual page")
        known = _CHECKS.get(id)
        origin = function.__module__
        if known is not None:
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


def all_checks() -> Mapping[str, Check]:
    """Every check that is registered in this process by id, in order of id.

    They are the built-in ones, and in a process that imports a plugin also that plugin's.
    """
    load_builtin()
    return dict(sorted(_CHECKS.items()))


def described(id: str, *, title: str, level: Level, needs: Needs, required: bool, page: str, origin: str) -> Check:
    """A check whose code is not in this process: it can be listed, explained and chosen, and not be run."""
    return Check(
        id=id,
        title=title,
        level=level,
        needs=needs,
        required=required,
        function=_not_in_this_process,
        parameters={},
        applies=None,
        applies_parameters={},
        page=page,
        origin=origin,
    )


def _not_in_this_process() -> Iterator[Finding]:
    raise NotImplementedError("the code of this check is not in this process")
