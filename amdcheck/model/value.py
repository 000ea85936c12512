"""What reading gives: a known value, or the reason why there is none. Never a sentinel."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Literal, TypeVar, Union

from msgspec import Struct

T = TypeVar("T")
U = TypeVar("U")

Reason = Literal["absent", "denied", "failed", "timeout", "not-recorded"]


class Known(Struct, Generic[T], frozen=True, tag="known", tag_field="outcome"):
    """A value that was really read, and the path or command it came from."""

    value: T
    source: str

    def parse(self, convert: Callable[[T], U]) -> Value[U]:
        """Convert the value; text that `convert` rejects with ValueError becomes `failed`, with what was found."""
        try:
            return Known(convert(self.value), self.source)
        except ValueError as error:
            return Unknown("failed", self.source, str(error))

    def or_none(self) -> T | None:
        """The value itself: for code that treats every unknown alike."""
        return self.value


class Unknown(Struct, frozen=True, tag="unknown", tag_field="outcome"):
    """No value: the reason, where it was looked for, and a detail such as the errno's text."""

    reason: Reason
    source: str
    detail: str | None = None

    def parse(self, convert: Callable[[T], U]) -> Unknown:
        """An unknown stays what it is."""
        return self

    def or_none(self) -> None:
        """See Known.or_none."""
        return None


Value = Union[Known[T], Unknown]
