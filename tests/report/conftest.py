"""The committed schemas, as an installed package holds them."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any

import pytest


@pytest.fixture(scope="session")
def schema_files() -> dict[str, str]:
    folder = files("amdcheck.report").joinpath("schemas")
    return {name: folder.joinpath(f"{name}.json").read_text(encoding="utf-8") for name in ("report", "capture")}


@pytest.fixture(scope="session")
def schemas(schema_files: dict[str, str]) -> dict[str, Any]:
    return {name: json.loads(text) for name, text in schema_files.items()}
