"""The one loader of the tables: TOML beside this module, decoded into typed rows that all carry a source."""

from __future__ import annotations

from datetime import date
from typing import Literal, TypeVar

import msgspec
from msgspec import Struct

from amdcheck.knowledge.raw import read_toml

T = TypeVar("T")

Confidence = Literal["verified", "one-source", "unverified"]

# The day the tables were last brought up to date; bumped with every change of a row.
TABLES_DATE = date(2026, 12, 1)


class Row(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every row of every table has: where it comes from, and how sure it is."""

    source: str
    confidence: Confidence


def load(name: str, kind: type[T]) -> T:
    """Decode the table `name`.toml; a row that does not fit raises msgspec.ValidationError with its path."""
    return msgspec.convert(read_toml(name), kind)
