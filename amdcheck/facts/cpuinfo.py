"""What /proc/cpuinfo says, all processors folded into one record. Its shape also tells the architecture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from msgspec import Struct

from amdcheck.facts.registry import fact
from amdcheck.host.protocol import Host
from amdcheck.model.value import Known, Unknown, Value

PATH = "/proc/cpuinfo"
LIMIT = 4 << 20  # bytes: 1.5 KiB a processor, and the most that a host answers of one file

Block = dict[str, str]


@fact
class CpuInfo(Struct, frozen=True, kw_only=True):
    """Identity is the first processor's; `flags` are those that every processor has. Other architectures than x86
    print other lines: what a line would have told is then `absent`."""

    processors: Value[tuple[int, ...]]
    architecture: Value[str]  # x86_64, x86, aarch64, arm, power, riscv: by the lines that are there
    vendor: Value[str]
    model_name: Value[str]
    family: Value[int]
    model: Value[int]
    stepping: Value[int]
    microcode: Value[str]
    flags: Value[tuple[str, ...]]
    uneven_flags: tuple[str, ...]
    package_of: dict[int, int]  # processor -> physical id, where printed
    core_of: dict[int, int]  # processor -> core id inside its package, where printed

    @classmethod
    def read(cls, host: Host) -> CpuInfo:
        return fold(host.read(PATH, limit=LIMIT))


def fold(text: Value[str]) -> CpuInfo:
    """The record of one text, or one that is unknown throughout for the reason that the text is."""
    parsed = text.parse(_blocks)
    if isinstance(parsed, Unknown):
        return _nothing(parsed)
    blocks = parsed.value
    first = next(iter(blocks.values()))
    every, some = _flags(blocks.values())
    source = parsed.source
    return CpuInfo(
        processors=Known(tuple(blocks), source),
        architecture=_architecture(first, source),
        vendor=_line(first, "vendor_id", source),
        model_name=_model_name(first, source),
        family=_line(first, "cpu family", source).parse(decimal),
        model=_line(first, "model", source).parse(decimal),
        stepping=_line(first, "stepping", source).parse(decimal),
        microcode=_line(first, "microcode", source),
        flags=Known(every, source) if every else Unknown("absent", source, "no flags line"),
        uneven_flags=some,
        package_of=_numbers(blocks, "physical id"),
        core_of=_numbers(blocks, "core id"),
    )


def decimal(text: str) -> int:
    """A decimal number. Raises ValueError for anything else."""
    number = _number(text.strip())
    if number is None:
        raise ValueError(f"not a number: {text[:60]!r}")
    return number


def _nothing(why: Unknown) -> CpuInfo:
    return CpuInfo(
        processors=why,
        architecture=why,
        vendor=why,
        model_name=why,
        family=why,
        model=why,
        stepping=why,
        microcode=why,
        flags=why,
        uneven_flags=(),
        package_of={},
        core_of={},
    )


def _blocks(text: str) -> dict[int, Block]:
    """The lines of each processor by its number. Raises ValueError for text without one, or cut by the limit."""
    if len(text) >= LIMIT:
        raise ValueError(f"longer than {LIMIT} bytes")
    blocks: dict[int, Block] = {}
    for paragraph in text.split("\n\n"):
        block = dict(_lines(paragraph))
        number = _number(block.get("processor"))
        if number is not None:
            blocks[number] = block
    if not blocks:
        raise ValueError("no processor is listed")
    return blocks


def _lines(paragraph: str) -> Iterator[tuple[str, str]]:
    for line in paragraph.split("\n"):
        key, colon, value = line.partition(":")
        if colon:
            yield key.strip(), value.strip()


def _line(block: Block, key: str, source: str) -> Value[str]:
    value = block.get(key)
    return Known(value, source) if value else Unknown("absent", source, f"no line {key!r}")


def _model_name(block: Block, source: str) -> Value[str]:
    """POWER prints its name as `cpu`; ARM prints none."""
    return _line(block, "cpu" if "model name" not in block and "cpu" in block else "model name", source)


def _architecture(block: Block, source: str) -> Value[str]:
    if "cpu family" in block and "flags" in block:
        return Known("x86_64" if "lm" in block["flags"].split() else "x86", source)
    if "CPU implementer" in block:
        return Known("aarch64" if "asimd" in block.get("Features", "").split() else "arm", source)
    if block.get("cpu", "").startswith("POWER"):
        return Known("power", source)
    if "isa" in block and "hart" in block:
        return Known("riscv", source)
    return Unknown("failed", source, "lines of no architecture that is known here")


def _flags(blocks: Iterable[Block]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The flags of every processor, and those of only some. Equal lines (the rule) are split once."""
    sets = [frozenset(line.split()) for line in {block.get("flags", block.get("Features", "")) for block in blocks}]
    every = frozenset.intersection(*sets)
    return tuple(sorted(every)), tuple(sorted(frozenset.union(*sets) - every))


def _numbers(blocks: Mapping[int, Block], key: str) -> dict[int, int]:
    found = {processor: _number(block.get(key)) for processor, block in blocks.items()}
    return {processor: number for processor, number in found.items() if number is not None}


def _number(text: str | None) -> int | None:
    """A small decimal number; None for everything else that may stand there."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 8 else None
