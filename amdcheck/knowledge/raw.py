"""The tables as they lie beside this module, unchecked; without what checks them, which takes longer to start."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

_HERE = Path(__file__).parent


def read_toml(name: str) -> dict[str, Any]:
    """The raw table `name`.toml of this package."""
    # Not importlib.resources: it costs as much as reading all tables, and the tables always lie beside this module.
    return tomllib.loads(_HERE.joinpath(f"{name}.toml").read_text(encoding="utf-8"))
