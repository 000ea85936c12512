"""What rocm-smi and amd-smi print, in every form since 2020, as one record.

One tolerant reader for both tools: JSON in several shapes and amid banners, comma-separated values, and text tables.
A field that is not there, N/A, or one of the tools' numbers for "unknown" is None; nothing here raises on any text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct

from amdcheck.knowledge.smi import table

_DOCUMENTS = 64  # JSON documents, and attempts to find one, in one output
_GPUS = 1024
_BDF = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]", re.IGNORECASE)
_NOTHING = frozenset({"", "n/a", "none", "xxxx", "unknown", "null"})
_OPENING = re.compile(r"[{\[]")
_LINK_TYPES = frozenset({"XGMI", "PCIE"})


class SmiDriver(Struct, frozen=True, kw_only=True):
    """The driver as a tool names it. For the in-tree driver amd-smi prints /proc/version with its blanks removed:
    then `in_tree` is True and `version` the kernel release. rocm-smi prints the kernel release without saying so."""

    version: str | None
    in_tree: bool


class SmiGpu(Struct, frozen=True, kw_only=True):
    """One device or partition. `numa_affinity` is the PCI device's NUMA node, -1 for none."""

    index: int
    bdf: str | None = None
    gfx: str | None = None
    numa_node: int | None = None
    numa_affinity: int | None = None


class SmiLink(Struct, frozen=True, kw_only=True):
    """The way between two GPUs, a below b: XGMI or PCIE, with the tools' weight and hop count."""

    a: int
    b: int
    type: str | None = None
    weight: int | None = None
    hops: int | None = None


class SmiOutput(Struct, frozen=True, kw_only=True):
    """Everything that one output says of what amdcheck compares."""

    driver: SmiDriver | None = None
    tool_version: str | None = None
    library_version: str | None = None
    rocm_version: str | None = None
    gpus: tuple[SmiGpu, ...] = ()
    links: tuple[SmiLink, ...] = ()

    @property
    def says_nothing(self) -> bool:
        return self == SmiOutput()


def parse(text: str) -> SmiOutput:
    """Read one output, of either tool, in any form."""
    found = _Found()
    documents = json_documents(text)
    if documents:
        for document in documents:
            _from_json(document, found)
    elif not _from_csv(text, found):
        _from_text(text, found)
    return found.output()


class _Found:
    """What has been read so far; GPUs and links are put together from several places."""

    def __init__(self) -> None:
        self.driver: SmiDriver | None = None
        self.tool: str | None = None
        self.library: str | None = None
        self.rocm: str | None = None
        self.gpus: dict[int, dict[str, Any]] = {}
        self.links: dict[tuple[int, int], dict[str, Any]] = {}

    def gpu(self, index: int) -> dict[str, Any]:
        if len(self.gpus) >= _GPUS and index not in self.gpus:
            return {}
        return self.gpus.setdefault(index, {})

    def link(self, a: int, b: int, field: str, value: object) -> None:
        if a != b and len(self.links) < _GPUS * 64:
            pair = self.links.setdefault((min(a, b), max(a, b)), {})
            if pair.get(field) is None:
                pair[field] = _link_type(value) if field == "type" else _link_number(value)

    def output(self) -> SmiOutput:
        return SmiOutput(
            driver=self.driver,
            tool_version=self.tool,
            library_version=self.library,
            rocm_version=self.rocm,
            gpus=tuple(SmiGpu(index=index, **fields) for index, fields in sorted(self.gpus.items())),
            links=tuple(SmiLink(a=a, b=b, **fields) for (a, b), fields in sorted(self.links.items())),
        )


# Single values.


def stated(value: object) -> str | None:
    """A value as text; None for N/A, None, XXXX and the like."""
    if isinstance(value, Mapping):
        value = value.get("value")
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    text = str(value).strip()
    return None if text.lower() in _NOTHING else text


def number(value: object) -> int | None:
    """A count; bare, as text, or as {value, unit}. The tools' sentinels (0xFFFF, 0xFFFFFFFF) are None."""
    text = stated(value)
    if text is None or not re.fullmatch(r"-?\d{1,20}", text):
        return None
    return None if int(text) in table().sentinels.unknown else int(text)


def numa(value: object) -> int | None:
    """A NUMA node; -1 for none, which older versions print as 4294967295."""
    text = stated(value)
    if text is None or not re.fullmatch(r"-?\d{1,10}", text):
        return None
    return -1 if int(text) in table().sentinels.no_numa_node else int(text)


def driver(value: object) -> SmiDriver | None:
    """A driver version as printed: 6.14.14, a kernel release, or /proc/version run together."""
    text = stated(value)
    if text is None:
        return None
    if text.startswith("Linuxver"):  # the default view of amd-smi cuts it to eight characters
        match = re.match(r"Linuxversion(\d[^(\s]*)\(", text)
        return SmiDriver(version=match[1] if match else None, in_tree=True)
    return SmiDriver(version=text, in_tree=False)


def bdf(value: object) -> str | None:
    text = stated(value)
    return text.lower() if text is not None and _BDF.fullmatch(text) else None


def _link_type(value: object) -> str | None:
    text = (stated(value) or "").upper()
    return text if text in _LINK_TYPES else None


def _link_number(value: object) -> int | None:
    """Weight or hops between two different devices: 0 is what a failed query leaves behind."""
    return number(value) or None


# JSON.


def json_documents(text: str) -> list[Any]:
    """The JSON objects and arrays of a text that may hold banners, several documents and a legend around them.

    A document that breaks off makes the whole text unreadable: half a list would look like fewer GPUs.
    """
    import json

    decoder = json.JSONDecoder()
    found: list[Any] = []
    at = 0
    for _ in range(_DOCUMENTS):
        match = _OPENING.search(text, at)
        if match is None:
            break
        next_line = text.find("\n", match.start()) + 1 or len(text)
        try:
            document, at = decoder.raw_decode(text, match.start())
        except json.JSONDecodeError as error:
            if error.pos > next_line:
                return []
            at = next_line  # a bracket in prose: "[WARNING] ..."
        except (ValueError, RecursionError):
            at = next_line
        else:
            found += [document] if _is_answer(document) else []
    return found


def _is_answer(document: object) -> bool:
    """An object, or an array of objects: [0] of "GPU[0]" and other brackets in prose are no documents."""
    return isinstance(document, dict) or (
        isinstance(document, list) and bool(document) and all(isinstance(item, dict) for item in document)
    )


def _from_json(document: Any, found: _Found) -> None:
    items = document if isinstance(document, list) else [document]
    for item in items:
        data = item.get("gpu_data")
        entries = data if isinstance(data, list) else [item]
        for entry in entries:
            if isinstance(entry, dict):
                _from_object(entry, found)


def _from_object(entry: Mapping[str, Any], found: _Found) -> None:
    lowered = {str(key).lower(): value for key, value in entry.items()}
    if "amdsmi_library_version" in lowered or "tool" in lowered:
        _from_version(lowered, found)
    if isinstance(lowered.get("gpu"), int) and not isinstance(lowered["gpu"], bool):
        _from_amd_smi_gpu(lowered["gpu"], lowered, found)
    for key, value in entry.items():
        card = re.fullmatch(r"card(\d{1,4})", str(key))
        if card and isinstance(value, dict):
            _from_card(int(card[1]), value, found)
        elif key in ("system", "cardsystem") and isinstance(value, dict):
            _from_system(value, found)


def _from_version(entry: Mapping[str, Any], found: _Found) -> None:
    found.tool = found.tool or stated(entry.get("version"))
    found.library = found.library or stated(entry.get("amdsmi_library_version"))
    found.rocm = found.rocm or stated(entry.get("rocm_version"))
    found.driver = found.driver or driver(entry.get("amdgpu_version"))


def _from_amd_smi_gpu(index: int, entry: Mapping[str, Any], found: _Found) -> None:
    """One GPU of amd-smi static, list, topology ...; section names in lower case."""
    fields = found.gpu(index)
    section = {name: value for name, value in entry.items() if isinstance(value, dict)}
    asic, bus, nodes, drv = (section.get(name, {}) for name in ("asic", "bus", "numa", "driver"))
    fields["bdf"] = fields.get("bdf") or bdf(entry.get("bdf")) or bdf(_any(bus, "bdf"))
    fields["gfx"] = fields.get("gfx") or _gfx(_any(asic, "target_graphics_version"))
    if nodes:
        fields["numa_node"] = numa(_any(nodes, "node"))
        fields["numa_affinity"] = numa(_any(nodes, "affinity"))
    found.driver = found.driver or driver(_any(drv, "driver_version", "version"))
    for link in entry["links"] if isinstance(entry.get("links"), list) else ():
        if isinstance(link, dict) and isinstance(link.get("gpu"), int):
            for field, name in (("type", "link_type"), ("weight", "weight"), ("hops", "num_hops")):
                found.link(index, link["gpu"], field, link.get(name))
    for field, name in (("type", "link_type"), ("weight", "weight"), ("hops", "hops")):  # up to amd-smi of ROCm 6.1.0
        for other, value in section.get(name, {}).items():
            match = re.fullmatch(r"gpu_(\d{1,4})", str(other))
            if match:
                found.link(index, int(match[1]), field, value)


def _any(section: Mapping[str, Any], *names: str) -> object:
    """The first of these fields, in either case."""
    for name in names:
        for key in (name, name.upper()):
            if key in section:
                return section[key]
    return None


def _gfx(value: object) -> str | None:
    text = (stated(value) or "").lower()
    return text if re.fullmatch(r"gfx[0-9a-f]{3,5}", text) else None


def _from_card(index: int, card: Mapping[str, Any], found: _Found) -> None:
    """One card of rocm-smi's JSON; which keys there are differs from version to version."""
    fields = found.gpu(index)
    for field, key, convert in (
        ("bdf", "PCI Bus", bdf),
        ("gfx", "GFX Version", _gfx),
        ("numa_node", "(Topology) Numa Node", numa),
        ("numa_affinity", "(Topology) Numa Affinity", numa),
    ):
        value = convert(card.get(key))
        if value is not None:
            fields[field] = value


_PAIR = re.compile(r"\(Topology\) (Weight|Hops|Link type) between DRM devices (\d{1,4}) and (\d{1,4})")
_PAIR_FIELDS = {"Weight": "weight", "Hops": "hops", "Link type": "type"}


def _from_system(system: Mapping[str, Any], found: _Found) -> None:
    """What is said of no single card: the driver, and the links as one key for each pair."""
    found.driver = found.driver or driver(system.get("Driver version"))
    for key, value in system.items():
        match = _PAIR.fullmatch(str(key))
        if match:
            found.link(int(match[2]), int(match[3]), _PAIR_FIELDS[match[1]], value)


# Comma-separated values.


def _from_csv(text: str, found: _Found) -> bool:
    """rocm-smi --csv in its three forms. It prints no link matrix."""
    import csv

    lines = [line for line in text.splitlines() if line.strip()]
    start = next((i for i, line in enumerate(lines[:20]) if re.match(r"device,|name, ?value", line)), None)
    if start is None:
        return False
    try:
        rows = list(csv.reader(lines[start : start + _GPUS], skipinitialspace=True))
    except csv.Error:
        return False
    header, *body = rows
    for row in body:
        if header[0] == "name" and len(row) == 2:
            _from_system({row[0]: row[1]}, found)
            continue
        values = dict(zip(header[1:], row[1:], strict=False))
        card = re.fullmatch(r"card(\d{1,4})", row[0])
        if card:
            _from_card(int(card[1]), values, found)
        else:
            _from_system(values, found)
    return True


# Text.

_SECTIONS = {
    "weight between two gpus": "weight",
    "hops between two gpus": "hops",
    "link type between two gpus": "type",
    "weight table": "weight",
    "hops table": "hops",
    "link type table": "type",
}
_NUMA_LINE = re.compile(r"GPU\s*\[?(\d{1,4})\]?\s*:\s*\(Topology\) Numa (Node|Affinity):\s*(\S+)")
_CONCISE = re.compile(r"(Device\s+Node|GPU\s+Temp)\b")
_LINK_METRIC = re.compile(r"\s*GPU(\d{1,4})\s+([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[01][0-9a-fA-F]\.[0-7])\s+(?:\d|N/A)")


def _from_text(text: str, found: _Found) -> None:
    lines = text.splitlines()
    _from_versions_line(lines, found)
    _from_matrices(lines, found)
    _from_single_lines(lines, found)
    for index, sections in _blocks(lines):
        _from_amd_smi_gpu(index, sections, found)


def _from_versions_line(lines: Iterable[str], found: _Found) -> None:
    """amd-smi version: names and values between bars; the default view has two of them in its first box line."""
    for line in lines:
        if "ROCm version:" not in line and "AMDSMI Library version:" not in line:
            continue
        fields = dict(re.findall(r"(AMDSMI Tool|AMDSMI Library version|ROCm version|amdgpu version): ?(\S+)", line))
        tool = re.search(r"\bAMD-SMI (\d\S*)", line)
        found.tool = found.tool or stated(fields.get("AMDSMI Tool")) or (tool[1] if tool else None)
        found.library = found.library or stated(fields.get("AMDSMI Library version"))
        found.rocm = found.rocm or stated(fields.get("ROCm version"))
        found.driver = found.driver or driver(fields.get("amdgpu version"))


def _from_matrices(lines: Iterable[str], found: _Found) -> None:
    """Tables of pairs: a heading, a line of column names (GPU0 ... or addresses), then a line for each GPU."""
    field: str | None = None
    columns: list[str] = []
    order: dict[str, int] = {}  # addresses in the order of amd-smi's columns
    for line in lines:
        title = line.strip(" =").rstrip(":").lower()
        if line.startswith("=") or title.endswith(" table"):
            field, columns = _SECTIONS.get(title), []
            continue
        words = line.split()
        if words and all(_is_column(word) for word in words) and (len(words) > 1 or line[:1] == " "):
            columns = words
            for word in words:
                if _BDF.fullmatch(word):
                    index = order.setdefault(word.lower(), len(order))
                    found.gpu(index)["bdf"] = word.lower()
                else:
                    found.gpu(int(word[3:]))
        elif columns and words and _is_column(words[0]):
            row = _index(words[0], order)
            for column, value in zip(columns, words[1:], strict=False):
                other = _index(column, order)
                if row is not None and other is not None:
                    found.gpu(row)
                    if field is not None:
                        found.link(row, other, field, value)


def _is_column(word: str) -> bool:
    return re.fullmatch(r"GPU\d{1,4}", word) is not None or _BDF.fullmatch(word) is not None


def _index(name: str, order: Mapping[str, int]) -> int | None:
    return int(name[3:]) if name.startswith("GPU") else order.get(name.lower())


def _from_single_lines(lines: list[str], found: _Found) -> None:
    concise = False
    for line in lines:
        node = _NUMA_LINE.match(line)
        if node:
            found.gpu(int(node[1]))["numa_node" if node[2] == "Node" else "numa_affinity"] = numa(node[3])
        elif line.startswith("Driver version:"):
            found.driver = found.driver or driver(line.partition(":")[2])
        elif line.startswith(("ROCM-SMI version:", "ROCM-SMI-LIB version:")):
            _from_rocm_smi_version(line, found)
        elif _CONCISE.match(line):
            concise = True
        elif concise and re.match(r"\d{1,4}\s", line):
            found.gpu(int(line.split()[0]))
        elif row := _LINK_METRIC.match(line):
            found.gpu(int(row[1]))["bdf"] = row[2].lower()
        elif box := re.match(r"\|\s*([0-9a-f]{4}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]) ", line):
            found.gpu(len(found.gpus))["bdf"] = box[1]


def _from_rocm_smi_version(line: str, found: _Found) -> None:
    name, _, value = line.partition(":")
    if "LIB" in name:
        found.library = stated(value)
    else:
        found.tool = stated(value)


def _blocks(lines: Iterable[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """amd-smi's indented text: for each "GPU: 0" the sections below it, names in lower case."""
    index: int | None = None
    sections: dict[str, Any] = {}
    section = ""
    for line in lines:
        start = re.fullmatch(r"GPU:? (\d{1,4})\s*", line)
        if start:
            if index is not None:
                yield index, sections
            index, sections, section = int(start[1]), {}, ""
            continue
        entry = re.match(r"( {2,})([A-Za-z_][\w -]*?)\s*:(?:\s+(.*\S))?\s*$", line)
        if index is None or entry is None:
            continue
        indent, name, value = len(entry[1]), entry[2].lower().replace(" ", "_"), entry[3]
        if value is None:
            section = name if indent <= 4 else section
            sections.setdefault(section, {})
        elif indent <= 4:
            sections[name] = value
        elif isinstance(sections.get(section), dict):
            sections[section].setdefault(name, value)
    if index is not None:
        yield index, sections
