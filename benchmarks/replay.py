"""Replaying and recording large machines: what a run costs against the machine's size.

    python -m benchmarks.replay [--rounds N]

The machines are composed: 2 x EPYC 9654 with 8 x MI300X, grown to more CPUs and to more partitions.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from amdcheck.engine.run import RunRequest, run
from amdcheck.host.capture_file import encode
from benchmarks.timing import BIN, interleaved, print_table
from tests.compose import ComposedHost, compose, scaled

MACHINE = "mi300x-8gpu-spx-epyc9654x2"
REPLAY_S = 0.5  # beyond the start of the program
CAPTURE_KIB = 200
CAPTURE_S = 1.0  # beyond the run
COST_PER_4X = 4.4


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "machine.json.xz")
        machine = compose(MACHINE)
        path.write_bytes(encode(machine.capture()))
        amdcheck = str(BIN / "amdcheck")
        series = interleaved(
            {
                "amdcheck list (start)": [amdcheck, "list"],
                "amdcheck all --host, 384 CPUs, 8 GPUs": [amdcheck, "all", "--format", "json", "--host", str(path)],
            },
            rounds,
        )
        start, replay = series.values()
        record_s, size_kib = _recording(path, Path(folder), rounds)
    cpus = {n: _cost(scaled(MACHINE, cpus=n), rounds) for n in (96, 384, 1536)}
    partitions = {n: _cost(scaled(MACHINE, partitions=n), rounds) for n in (8, 64)}
    figures: dict[str, object] = {
        "replay_beyond_start_s": round(replay.median - start.median, 3),
        "capture_kib": round(size_kib, 1),
        "capture_beyond_run_s": round(record_s, 3),
        "cpus_96_384": round(cpus[384] / cpus[96], 2),
        "cpus_384_1536": round(cpus[1536] / cpus[384], 2),
        "partitions_8_64": round(partitions[64] / partitions[8], 2),
    }
    ok = (
        replay.median - start.median <= REPLAY_S
        and size_kib <= CAPTURE_KIB
        and record_s <= CAPTURE_S
        and cpus[384] / cpus[96] <= COST_PER_4X
        and cpus[1536] / cpus[384] <= COST_PER_4X
    )
    rows = [("what", "figure"), *((name, str(value)) for name, value in figures.items())]
    rows += [(f"run on {n} CPUs, ms", f"{1000 * s:.0f}") for n, s in cpus.items()]
    rows += [(f"run on {n} partitions, ms", f"{1000 * s:.0f}") for n, s in partitions.items()]
    print_table("replay", rows, {**figures, "within_budget": ok})
    return 0 if ok else 1


def _median(rounds: int, work: Callable[[], object]) -> float:
    """Median seconds of `work`, after one that warms up."""
    work()
    seconds = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return statistics.median(seconds)


def _recording(path: Path, folder: Path, rounds: int) -> tuple[float, float]:
    """Seconds that recording adds to a run, and the recording's size in KiB."""
    plain = _median(rounds, lambda: run(RunRequest(host=path)))
    recorded = _median(rounds, lambda: run(RunRequest(host=path, capture=True)))
    capture = run(RunRequest(host=path, capture=True)).capture
    assert capture is not None
    return recorded - plain, len(capture) / 1024


def _cost(machine: ComposedHost, rounds: int) -> float:
    """Seconds of a run over the machine, its recording in memory of a file included."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "machine.json.xz")
        path.write_bytes(encode(machine.capture()))
        return _median(rounds, lambda: run(RunRequest(host=path)))


if __name__ == "__main__":
    sys.exit(main())
