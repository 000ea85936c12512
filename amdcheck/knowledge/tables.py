"""The one loader of the tables: TOML beside this module, decoded into typed rows that all carry a source."""

from __future__ import annotations

import sys
from datetime import date
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from msgspec import Struct

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

T = TypeVar("T")

_HERE = Path(__file__).parent

Confidence = Literal["verified", "one-source", "unverified"]

# The day the tables were last brought up to date; bumped with every change of a row.
TABLES_DATE = date(2026, 11, 30)


class Row(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every row of every table has: where it comes from, and how sure it is."""

    source: str
    confidence: Confidence


def read_toml(name: str) -> dict[str, Any]:
    """The raw table `name`.toml of this package."""
    # Not importlib.resources: it costs as much as reading all tables, and the tables always lie beside this module.
    return tomllib.loads(_HERE.joinpath(f"{name}.toml").read_text(encoding="utf-8"))


def load(name: str, kind: type[T]) -> T:
    """Decode the table `name`.toml; a row that does not fit raises msgspec.ValidationError with its path."""
    return msgspec.convert(read_toml(name), kind)
