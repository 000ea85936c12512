"""The self-tests on emulated processors: what an EPYC offers and answers is judged right, and memory on aarch64."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from amdcheck.knowledge.isa import isa_table
from tests.selftest.conftest import tool
from tests.selftest.test_disassembly import KERNELS, build, run

TIMEOUT_S = 60  # of one emulated Python, which takes about two seconds of a CPU
OFFERED = ["sse2", "avx2", "fma"]  # by every EPYC before the 9004 series

pytestmark = pytest.mark.skipif(os.uname().machine != "x86_64", reason="this Python's machine code is not x86-64's")

PROGRAM = """
import json
from amdcheck.selftest import cpu_isa, cpuid
from amdcheck.selftest.library import load

library, cpu_isa.PASSES = load(), 4  # emulation takes its time
products = {}
for name in ("fma", "avx2"):
    product = library.find_gemm(name).prepare(m=37, n=41, k=300, seed=3)
    last = product.words - 1
    answers = []
    for wrong in (-1, 0, 1000, last):
        product.run(wrong=wrong)
        answers.append(list(product.wrong_words()))
    products[name] = {"answers": answers, "last": last}
tiles = {}
for name in ("sse2", "avx2", "fma"):
    said = cpu_isa.judge(library, library.find(name))
    tiles[name] = [said[key] for key in ("wrong", "compared", "planted", "noticed")]
print(json.dumps({"cpuid": cpuid.read(library), "products": products, "tiles": tiles}))
"""


def emulated(model: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python on a processor of that model. Its packages are those of this interpreter's environment."""
    qemu = tool("qemu-x86_64", "qemu-user")
    return subprocess.run(
        [qemu, "-cpu", model, sys.executable, "-I", *arguments], capture_output=True, text=True, timeout=TIMEOUT_S
    )


def document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    return said


@pytest.mark.parametrize("model", ["EPYC-Rome", "EPYC-Milan"])
def test_an_emulated_epyc_offers_avx2_without_avx512_and_every_wrong_word_is_found(model: str) -> None:
    said = document(emulated(model, "-c", PROGRAM))

    leaves = {leaf: tuple(registers) for leaf, registers in said["cpuid"]["leaves"].items()}
    _, ebx, ecx, edx = leaves["0x0.0"]
    assert struct.pack("<3I", ebx, edx, ecx) == b"AuthenticAMD"
    rows = isa_table().isa
    assert [key for key, row in rows.items() if row.in_processor(leaves)] == OFFERED
    assert all(rows[key].enabled(said["cpuid"]["xcr0"]) for key in OFFERED)

    for name, product in said["products"].items():
        assert product["answers"] == [[], [0], [1000], [product["last"]]], name
    for name, (wrong, compared, planted, noticed) in said["tiles"].items():
        assert (wrong, noticed) == (0, planted), name
        assert compared > planted > 0


def test_avx512_on_a_processor_without_it_ends_as_an_illegal_instruction() -> None:
    said = document(emulated("EPYC-Milan", "-m", "amdcheck.selftest", "cpu.isa", "avx512f"))
    assert [(one["name"], one["ended"]) for one in said["kernels"]] == [("avx512f", "SIGILL")]


def test_the_memory_kernels_run_on_aarch64(tmp_path: Path) -> None:
    """No matrix product is built there; latency, sharing, patterns and placement are plain C."""
    compiler = tool("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu libc6-dev-arm64-cross")
    cross = ("-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64")
    library = build("aarch64-linux-gnu-gcc", tmp_path, *cross)
    program, source = tmp_path / "driver", Path(__file__).with_name("sanitized.c")
    run(compiler, "-O1", f"-I{KERNELS}", str(source), str(library), f"-Wl,-rpath,{tmp_path}", "-o", str(program))
    run(tool("qemu-aarch64", "qemu-user"), "-L", "/usr/aarch64-linux-gnu", str(program))
