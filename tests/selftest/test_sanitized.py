"""The library under the sanitizers of gcc, its operands between pages that nobody may touch."""

from __future__ import annotations

import subprocess
from pathlib import Path

from amdcheck.knowledge.isa import isa_table
from tests.selftest.conftest import offered_flags, tool
from tests.selftest.test_disassembly import KERNELS, build, run
from tests.selftest.test_gemm import OFFERED as PRODUCTS

TILES = [key for key, row in isa_table().isa.items() if set(row.flags) <= offered_flags()]
SANITIZED = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
TIMEOUT_S = 60


def driver(library: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Build the driver against that library and run it over all that this machine can execute."""
    program = library.with_name("driver")
    source = Path(__file__).with_name("sanitized.c")
    run(
        tool("gcc", "gcc"), "-g", "-O1", "-Wall", "-Wextra", *SANITIZED, *options, f"-I{KERNELS}", str(source),
        str(library), f"-Wl,-rpath,{library.parent}", "-o", str(program),
    )  # fmt: skip
    argv = [str(program), *PRODUCTS, "--", *TILES]
    return subprocess.run(argv, capture_output=True, text=True, timeout=TIMEOUT_S)


def test_the_kernels_touch_nothing_beside_their_operands_and_do_nothing_undefined(tmp_path: Path) -> None:
    library = build("gcc", tmp_path, f"-DCMAKE_C_FLAGS={' '.join(SANITIZED)}")
    done = driver(library)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    done = driver(library, "-DSHORT_BY=4")  # the guard itself: one word too few is noticed
    assert done.returncode != 0
    assert "SEGV" in done.stderr
