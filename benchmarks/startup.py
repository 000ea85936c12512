"""Start-up and a quick live run, beside a hello-world typer program and AMD's node-scraper.

    python -m benchmarks.startup [--rounds N] [--node-scraper PATH]

node-scraper is compared when its program is given or found on PATH (PyPI: amd-node-scraper).
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--node-scraper", default=shutil.which("node-scraper"))
    options = parser.parse_args()
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
        if options.node_scraper:
            commands["node-scraper run-plugins"] = [options.node_scraper, "--log-path", folder, "run-plugins"]
        series = interleaved(commands, options.rounds)
    rows = [("command", "median ms", "quartiles ms", "peak MiB")]
    for name, one in series.items():
        low, high = (1000 * q for q in one.quartiles)
        rows.append((name, f"{1000 * one.median:.0f}", f"{low:.0f}..{high:.0f}", f"{one.peak_mib:.0f}"))
    quick = series["amdcheck all, quick, json"]
    figures = {
        "help_ratio": round(series["amdcheck --help"].median / series["hello --help"].median, 3),
        "quick_extra_s": round(quick.median - series["hello"].median, 3),
        "quick_peak_mib": quick.peak_mib,
        "typer": version("typer"),
    }
    ok = (
        figures["help_ratio"] <= HELP_RATIO  # type: ignore[operator]
        and figures["quick_extra_s"] <= QUICK_EXTRA_S  # type: ignore[operator]
        and quick.peak_mib <= QUICK_MIB
    )
    if options.node_scraper:
        ratio = series["node-scraper run-plugins"].median / quick.median
        figures["node_scraper_ratio"] = round(ratio, 1)
        ok = ok and ratio >= SCRAPER_RATIO
    print_table("start-up", rows, {**figures, "within_budget": ok})
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
