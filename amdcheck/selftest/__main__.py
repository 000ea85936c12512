"""The child of a self-test: `python -I -m amdcheck.selftest NAME [PARAMS...]` prints one JSON document on stdout."""

from __future__ import annotations

import json
import sys
from importlib import import_module

# Each self-test is a module with `run(params)`; only the one that is asked for is imported.
TESTS = {
    "cpu.isa": "cpu_isa",
    "cpu.alignment": "cpu_alignment",
    "cpu.compute": "cpu_compute",
    "cpu.cores": "cpu_cores",
    "cpu.memory": "cpu_memory",
    "cpu.pattern": "cpu_pattern",
    "miopen-version": "miopen_version",
}


def main(arguments: list[str]) -> int:
    """Run one self-test. Exit code 0: a document was written, whatever it says; 2: no such self-test."""
    name, params = (arguments[0] if arguments else ""), tuple(arguments[1:])
    if name not in TESTS:
        print(f"usage: python -m amdcheck.selftest NAME [PARAMS...], NAME one of {', '.join(TESTS)}", file=sys.stderr)
        return 2
    result = import_module(f"amdcheck.selftest.{TESTS[name]}").run(params)
    json.dump({"test": name, **result}, sys.stdout)
    sys.stdout.write("\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
