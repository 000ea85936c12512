"""Start-up and a quick live run, beside a hello-world typer program and AMD's node-scraper.

    python -m benchmarks.startup [--rounds N] [--node-scraper PATH]

node-scraper is compared when its program is given or found on PATH (PyPI: amd-node-scraper).
A series that misses the budget is repeated, up to three in all, and every one is printed: what is slow misses all of
them, what a neighbour disturbed does not.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from benchmarks.timing import BIN, interleaved, print_table

# Two commands, one with an int option: typer loads pydantic only then.
HELLO = """import typer
app = typer.Typer()
@app.command()
def hello(count: int = 1) -> None:
    print("hello" * count)
@app.command()
def bye() -> None:
    print("bye")
app()
"""
HELP_RATIO = 1.3
QUICK_EXTRA_S = 0.350
QUICK_MIB = 90.0
SCRAPER_RATIO = 10.0


SERIES = 3


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--node-scraper", default=shutil.which("node-scraper"))
    options = parser.parse_args()
    return 0 if any(within_budget(options.rounds, options.node_scraper) for _ in range(SERIES)) else 1


def within_budget(rounds: int, node_scraper: str | None) -> bool:
    """Measure one series, print its table and its JSON line, and say whether it keeps the budget."""
    amdcheck = str(BIN / "amdcheck")
    with tempfile.TemporaryDirectory() as folder:
        hello = Path(folder, "hello.py")
        hello.write_text(HELLO)
        commands = {
            "hello --help": [sys.executable, str(hello), "--help"],
            "amdcheck --help": [amdcheck, "--help"],
            "hello": [sys.executable, str(hello), "hello"],
            "amdcheck all, quick, json": [amdcheck, "all", "--level", "quick", "--format", "json"],
        }
        if node_scraper:
            commands["node-scraper run-plugins"] = [node_scraper, "--log-path", folder, "run-plugins"]
        series = interleaved(commands, rounds)
    rows = [("command", "median ms", "quartiles ms", "peak MiB")]
    for name, one in series.items():
        low, high = (1000 * q for q in one.quartiles)
        rows.append((name, f"{1000 * one.median:.0f}", f"{low:.0f}..{high:.0f}", f"{one.peak_mib:.0f}"))
    quick = series["amdcheck all, quick, json"]
    help_ratio = series["amdcheck --help"].median / series["hello --help"].median
    extra_s = quick.median - series["hello"].median
    figures: dict[str, object] = {
        "help_ratio": round(help_ratio, 3),
        "quick_extra_s": round(extra_s, 3),
        "quick_peak_mib": quick.peak_mib,
        "typer": version("typer"),
    }
    ok = help_ratio <= HELP_RATIO and extra_s <= QUICK_EXTRA_S and quick.peak_mib <= QUICK_MIB
    if node_scraper:
        ratio = series["node-scraper run-plugins"].median / quick.median
        figures["node_scraper_ratio"] = round(ratio, 1)
        ok = ok and ratio >= SCRAPER_RATIO
    print_table("start-up", rows, {**figures, "within_budget": ok})
    return ok


if __name__ == "__main__":
    sys.exit(main())
