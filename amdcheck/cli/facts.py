"""`facts`: what was read, without judgement."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import groupby

from amdcheck.cli.options import EvidenceOptions, ShowFormat
from amdcheck.cli.output import to_stdout
from amdcheck.cli.request import evidence_request, read_facts
from amdcheck.cli.sheet import Sheet
from amdcheck.cli.terminal import view_of_stdout
from amdcheck.facts.cpulist import format_cpulist

_LONGEST = 160  # characters of one value on a screen; JSON has them all
_FOLDED = 4  # entries in a row that are the same but for their place: one of them is shown


def show_facts(options: EvidenceOptions, format: ShowFormat) -> int:
    """Read every fact of the host and write it. Raises InputError and Ending."""
    facts = read_facts(evidence_request(options))
    if format == "json":
        # Escaped beyond ASCII: facts hold the host's strings as they are, and some turn a terminal's text around.
        to_stdout(json.dumps(facts, indent=2).encode("ascii") + b"\n")
        return 0
    to_stdout(facts_text(facts, Sheet(view_of_stdout(detail="normal", no_color=True))))
    return 0


def facts_text(facts: Mapping[str, object], sheet: Sheet) -> str:
    """One block a fact, one line a value with the place it was read at."""
    for number, (name, fact) in enumerate(facts.items()):
        if number:
            sheet.line()
        sheet.line(name)
        _member(sheet, fact, "  ")
    return sheet.text()


def _member(sheet: Sheet, value: object, indent: str) -> None:
    if isinstance(value, Mapping):
        for key, item in _merged(value).items():
            _named(sheet, key, item, indent)
    elif isinstance(value, (list, tuple)):
        number = 0
        for _, run in groupby(value, key=_likeness):
            alike = list(run)
            shown = alike if len(alike) < _FOLDED else alike[:1]
            for item in shown:
                _item(sheet, number, item, indent)
                number += 1
            if len(shown) < len(alike):
                last = number + len(alike) - 2
                sheet.words(f"the same as {number - 1} but for its place", first=f"{indent}{number}-{last}: ")
                number = last + 1
    else:
        sheet.words(_scalar(value), first=indent)


def _item(sheet: Sheet, number: int, item: object, indent: str) -> None:
    if isinstance(item, Mapping) and all(_is_flat(part) for part in item.values()):
        sheet.words(", ".join(f"{key} {_flat(part)}" for key, part in item.items()), first=f"{indent}- ")
    else:
        _named(sheet, str(number), item, indent)


def _merged(value: Mapping[object, object]) -> dict[str, object]:
    """Entries by number (CPUs, nodes) with the same plain value as one: 0-95,192-287: 0."""
    if not all(str(key).isdecimal() and _is_flat(item) for key, item in value.items()):
        return {str(key): item for key, item in value.items()}
    numbers: dict[str, list[int]] = {}
    for key, item in value.items():
        numbers.setdefault(_flat(item), []).append(int(str(key)))
    return {format_cpulist(sorted(keys)): text for text, keys in numbers.items()}


def _likeness(item: object) -> object:
    """What must be equal for entries in a row to be told as one: all but where they were read, and their own CPUs."""
    if isinstance(item, Mapping):
        return tuple((str(key), _likeness(part)) for key, part in item.items() if key not in ("source", "cpus"))
    if isinstance(item, (list, tuple)):
        return tuple(map(_likeness, item))
    return item


def _named(sheet: Sheet, name: str, value: object, indent: str) -> None:
    head = f"{indent}{name}: "
    hang = len(indent) + 2
    if isinstance(value, Mapping) and value.get("outcome") == "unknown":
        detail = f" ({value['detail']})" if value.get("detail") else ""
        sheet.words(f"not known, {value.get('reason')}{detail}  [{value.get('source')}]", first=head, hang=hang)
    elif isinstance(value, Mapping) and value.get("outcome") == "known":
        inner = value.get("value")
        if _is_flat(inner):
            sheet.words(f"{_flat(inner)}  [{value.get('source')}]", first=head, hang=hang)
        else:
            sheet.words(f"[{value.get('source')}]", first=head, hang=hang)
            _member(sheet, inner, indent + "  ")
    elif _is_flat(value):
        sheet.words(_flat(value), first=head, hang=hang)
    else:
        sheet.line(head.rstrip())
        _member(sheet, value, indent + "  ")


def _is_flat(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return not any(isinstance(item, (Mapping, list, tuple)) for item in value)
    return not isinstance(value, Mapping) or not value


def _flat(value: object) -> str:
    if isinstance(value, (list, tuple)):
        text = _ranges(value) or ", ".join(_scalar(item) for item in value) or "none"
    else:
        text = _scalar(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _scalar(value: object) -> str:
    if value is None or value == {}:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)


def _ranges(numbers: Sequence[object]) -> str:
    """Ascending integers as the kernel writes them: 0-63,128-191. Empty for anything else."""
    whole = [n for n in numbers if isinstance(n, int) and not isinstance(n, bool)]
    if not whole or len(whole) != len(numbers) or whole != sorted(set(whole)):
        return ""
    return format_cpulist(whole)
