"""The recorded host trees with what other programs said of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from amdcheck.facts.cpulist import parse_cpulist, parse_cpumap
from amdcheck.host.open import open_host
from amdcheck.host.protocol import Host
from tests.corpus import CORPUS


def trees() -> list[Path]:
    """Every recorded host tree; none where the recordings are absent."""
    return sorted(path for folder in ("fsroot", "fsroot-controls") for path in (CORPUS / folder).glob("*.tar.xz"))


def name_of(path: Path) -> str:
    return path.name.partition(".")[0]


def tree(name: str) -> Path:
    return next(path for path in trees() if name_of(path) == name)


@cache
def host_of(path: Path) -> Host:
    return open_host(path)


def truth_of(path: Path) -> dict[str, Any]:
    """What a summary program read from the same tree; INDEX.md says which keys to trust."""
    text = path.with_name(f"{name_of(path)}.truth.json").read_text(encoding="utf-8")
    decoded: dict[str, Any] = json.loads(text)
    return decoded


def numbers(text: str) -> set[int]:
    """A set in a truth file, which has lists and masks without saying which: masks come in groups of four or more."""
    text = text.strip("\0\n ")
    is_mask = "-" not in text and all(len(group) >= 4 for group in text.split(","))
    return set(parse_cpumap(text) if is_mask else parse_cpulist(text))


def lscpu_field(text: str, name: str) -> str | None:
    match = re.search(rf"^{re.escape(name)}:\s*(.*)$", text, re.MULTILINE)
    return match[1].strip() if match else None


def lscpu_columns(text: str) -> dict[str, set[frozenset[int]]]:
    """lscpu's first parsable table: for each column the CPUs grouped by their value."""
    lines = text.split("# CPU,", 1)[1].splitlines()
    names = f"CPU,{lines[0]}".split(",")
    rows = []
    for line in lines[1:]:
        if not re.fullmatch(r"[0-9,]+", line):
            break
        rows.append(line.split(","))
    return {name: _grouped((row[0], row[column]) for row in rows) for column, name in enumerate(names) if name}


def _grouped(pairs: Iterable[tuple[str, str]]) -> set[frozenset[int]]:
    groups: dict[str, set[int]] = {}
    for cpu, value in pairs:
        groups.setdefault(value, set()).add(int(cpu))
    return {frozenset(group) for group in groups.values()}
