"""Writes a composed machine as a recording, to be judged by hand.

python -m tests.compose MACHINE [FAULT ...] -o FILE
amdcheck all --host FILE
python -m tests.compose --list
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from msgspec.structs import replace

from amdcheck.host.capture import Capture
from amdcheck.host.capture_file import encode
from amdcheck.model.expectations import Expectations
from tests.compose import DescriptionError, compose, fault, fault_names, machine_names


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.compose", description="Write a composed machine.")
    parser.add_argument("machine", nargs="?", help="a name of fixtures/machines")
    parser.add_argument("fault", nargs="*", help="names of fixtures/faults, all of them faults of that machine")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="the recording: NAME.amdcheck.json.xz")
    parser.add_argument("--list", action="store_true", help="name the machines, and the faults of each")
    given = parser.parse_args(words)
    if given.list:
        try:
            print("\n".join(_listed()), flush=True)
        except BrokenPipeError:  # `| head` has seen enough
            sys.stdout = None  # nor shall the interpreter flush what is left
        return 0
    if given.machine is None or given.output is None:
        parser.error("say which MACHINE, and with -o into which FILE")
    try:
        capture = recording(given.machine, given.fault)
    except DescriptionError as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    given.output.write_bytes(encode(capture))
    print(f"wrote {given.output}")
    for expected in (expected for name in given.fault for expected in fault(name).expect):
        print(f"  must yield {expected.status} {expected.id} on {expected.subject}")
    return 0


def recording(machine: str, faults: Sequence[str]) -> Capture:
    """The machine with these faults, recorded at the level and with the options that find them: a replay needs none."""
    deep = any(fault(name).level == "deep" for name in faults)
    expect = Expectations(level="deep" if deep else "standard")
    host = compose(machine, *faults)
    for asked in (fault(name).expectations for name in faults):
        changes = {name: getattr(asked, name) for name in ("gpus", "gfx", "rocm", "python")}
        expect = replace(expect, **{name: value for name, value in changes.items() if value is not None})
    capture = host.capture(expect)
    return replace(capture, manifest=replace(capture.manifest, level=expect.level, expectations=expect))


def _listed() -> Iterator[str]:
    for machine in machine_names():
        yield machine
        for name in fault_names():
            if machine in fault(name).machines:
                yield f"  {name}: {fault(name).says}"


if __name__ == "__main__":
    sys.exit(main())
