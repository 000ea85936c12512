"""The committed schemas, as an installed package holds them."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any


def committed_schema(name: str) -> str:
    return files("amdcheck.report").joinpath("schemas").joinpath(f"{name}.json").read_text(encoding="utf-8")


def schema(name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(committed_schema(name))
    return loaded
