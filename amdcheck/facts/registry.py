"""The registry of facts: what may be asked for by annotation."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from inspect import signature
from typing import Any, TypeVar, get_type_hints

from msgspec import Struct

from amdcheck.host.protocol import Host
from amdcheck.model.expectations import Expectations

F = TypeVar("F", bound=type[Struct])

_FACTS: dict[str, type[Struct]] = {}


def fact(cls: F) -> F:
    """Register a frozen Struct whose classmethod `read(host, ...)` fills it; further parameters are facts.

    Raises TypeError for a class that cannot be a fact: not frozen, no `read`, a parameter that is no fact.
    A fact can only ask for facts that exist when it is defined, so cycles cannot be written.
    """
    if not (isinstance(cls, type) and issubclass(cls, Struct) and cls.__struct_config__.frozen):
        raise TypeError(f"{cls.__name__}: a fact is a frozen msgspec Struct")
    read = cls.__dict__.get("read")
    if not isinstance(read, classmethod):
        raise TypeError(f"{cls.__name__}: a fact has a classmethod read(host, ...)")
    parameters = list(signature(read.__func__).parameters)[1:]
    if not parameters or parameters[0] != "host":
        raise TypeError(f"{cls.__name__}.read: the first parameter is host: Host")
    if _FACTS.get(cls.__name__, cls).__module__ != cls.__module__:
        raise TypeError(f"{cls.__name__}: a fact of that name exists already")
    _FACTS[cls.__name__] = cls
    try:
        needs(cls)
    except TypeError:
        del _FACTS[cls.__name__]
        raise
    return cls


def is_injectable(kind: Any) -> bool:
    """May a parameter be annotated with this: a registered fact, or Expectations."""
    return kind is Expectations or (isinstance(kind, type) and _FACTS.get(kind.__name__) is kind)


def injected_parameters(
    owner: str, function: Any, *, drop: tuple[str, ...] = (), defined: Mapping[str, Any] | None = None
) -> dict[str, type[Struct]]:
    """The parameters of a check, predicate or `read` with their fact types, from its annotations.

    `defined` are names that its module does not hold yet, such as the class that is being decorated.
    Raises TypeError for a parameter that is neither a fact nor Expectations.
    """
    hints = get_type_hints(function, localns=dict(defined or {}))
    wanted: dict[str, type[Struct]] = {}
    for name in signature(function).parameters:
        if name in drop:
            continue
        kind = hints.get(name)
        if not is_injectable(kind):
            raise TypeError(f"{owner}: parameter {name} is neither a fact nor Expectations")
        wanted[name] = kind  # type: ignore[assignment]
    return wanted


@functools.cache
def needs(cls: type[Struct]) -> Mapping[str, type[Struct]]:
    """What a fact's `read` asks for besides the host."""
    read = cls.__dict__["read"].__func__
    itself = {cls.__name__: cls}
    if get_type_hints(read, localns=itself).get("host") is not Host:
        raise TypeError(f"{cls.__name__}.read: the first parameter is host: Host")
    return injected_parameters(f"{cls.__name__}.read", read, drop=("cls", "host"), defined=itself)


def all_facts() -> Mapping[str, type[Struct]]:
    """Every registered fact by name."""
    return _FACTS
