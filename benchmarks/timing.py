"""Times whole commands side by side: interleaved, so that a noisy moment hits all of them alike."""

from __future__ import annotations

import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path

from msgspec import Struct

from amdcheck.knowledge.selftests import limit

BIN = Path(sys.executable).parent

# Byte code is cached, as it is for whoever installs a package; pip compiled the other programs' code already.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


class Series(Struct, frozen=True, kw_only=True):
    """Wall times of one command in seconds, and the largest resident set of its runs in MiB."""

    seconds: tuple[float, ...]
    peak_mib: float

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)

    @property
    def quartiles(self) -> tuple[float, float]:
        low, _, high = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return low, high


class Front:
    """The instructions that the core began in a cycle at most, by all that was seen of it so far.

    Beside a neighbour on its other thread it begins fewer; one who never rests is not told by that.
    """

    def __init__(self, most: float = 0.0) -> None:
        self.most = most

    def saw(self, issued: float) -> None:
        self.most = max(self.most, issued)

    def was_alone(self, issued: float) -> bool:
        return issued >= limit("issued-alone").value * self.most


def run_once(argv: Sequence[str]) -> tuple[float, float]:
    """Wall seconds and peak resident MiB of one run, its output dropped; any exit code will do."""
    began = time.perf_counter()
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=ENVIRONMENT
    ) as child:
        _, _, usage = os.wait4(child.pid, 0)
        took = time.perf_counter() - began
        child.returncode = 0  # reaped by wait4 already
    return took, usage.ru_maxrss / 1024


def interleaved(commands: Mapping[str, Sequence[str]], rounds: int) -> dict[str, Series]:
    """Run every command once a round, after one round that warms the caches."""
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    peaks: dict[str, float] = dict.fromkeys(commands, 0.0)
    for number in range(rounds + 1):
        for name, argv in commands.items():
            took, peak = run_once(argv)
            peaks[name] = max(peaks[name], peak)
            if number:
                seconds[name].append(took)
    return {name: Series(seconds=tuple(seconds[name]), peak_mib=round(peaks[name], 1)) for name in commands}


def timed(call: Callable[[], object]) -> float:
    """Wall seconds of one call."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def machine() -> str:
    """What ran this, for the table's caption."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 30
    system = f"{platform.system()} {platform.release()}"
    return f"{os.cpu_count()} CPUs, {memory} GiB, {system}, Python {platform.python_version()}"


def processor() -> str:
    """The name of this machine's first processor."""
    return _first("model name") or "unnamed processor"


def offered_flags() -> frozenset[str]:
    """The flags of this machine's first processor, empty where /proc/cpuinfo prints none."""
    return frozenset(_first("flags").split())


def _first(key: str) -> str:
    match = re.search(rf"^{key}\s*: *(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return match[1] if match else ""


def print_table(title: str, rows: Sequence[Sequence[str]], data: Mapping[str, object]) -> None:
    """A table for people and one JSON line for machines."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    print(f"{title} ({machine()})")
    for row in rows:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    print(json.dumps({"benchmark": title, "date": date.today().isoformat(), "machine": machine(), **data}))
