"""Supplies facts to checks by their annotations: each fact is read once and shared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

from msgspec import Struct

from amdcheck.facts.registry import needs
from amdcheck.host.protocol import Host
from amdcheck.model.errors import in_words
from amdcheck.model.expectations import Expectations

T = TypeVar("T")
F = TypeVar("F", bound=Struct)


class FactBroke(Exception):
    """A fact could not be read because its code raised; every check that asks for it is undetermined."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"{name}: {why}")
        self.name = name
        self.why = why


class FactStore:
    """Facts of one host, read on demand. `around` wraps each reading (to time it and to watch over it)."""

    def __init__(
        self,
        host: Host,
        expectations: Expectations,
        *,
        around: Callable[[type[Struct], Callable[[], Struct]], Struct] | None = None,
    ) -> None:
        self._host = host
        self._around = around or (lambda _cls, read: read())
        self._facts: dict[type[Struct], Struct] = {Expectations: expectations}
        self._broken: dict[type[Struct], FactBroke] = {}

    def put(self, value: Struct) -> None:
        """Supply a fact that was read before."""
        self._facts[type(value)] = value

    def put_broken(self, cls: type[Struct], why: str) -> None:
        """Remember that a fact cannot be read, so that nobody tries again."""
        self._broken[cls] = FactBroke(cls.__name__, why)

    def get(self, cls: type[F]) -> F:
        """The fact, read now if it was not yet. Raises FactBroke when its code (or one it needs) raised."""
        if cls in self._broken:
            raise self._broken[cls]
        if cls not in self._facts:
            try:
                wanted = self.supply(needs(cls))
                self._facts[cls] = self._around(cls, lambda: cast(Any, cls).read(self._host, **wanted))
            except FactBroke as inner:
                self._broken[cls] = inner
                raise
            except Exception as error:
                self._broken[cls] = FactBroke(cls.__name__, in_words(error))
                raise self._broken[cls] from error
        return cast(F, self._facts[cls])

    def supply(self, parameters: Mapping[str, type[Struct]]) -> dict[str, Any]:
        """Keyword arguments for a function with these parameters."""
        return {name: self.get(cls) for name, cls in parameters.items()}
