"""Inner loops keep their accumulators in registers, whichever compiler built them."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from amdcheck.selftest.library import Library
from tests.selftest.conftest import tool

KERNELS = Path(__file__).parents[2] / "amdcheck" / "selftest" / "kernels"

# Every loop that accumulates: the instruction by which it is known, and how often it stands in the loop.
LOOPS = {
    "tile_sse2": ("mulps", 14),
    "tile_avx2": ("vpmaddwd", 14),
    "tile_fma": ("vfmadd231ps", 14),
    "tile_avx_vnni": ("vpdpbusd", 14),
    "tile_avx512f": ("vfmadd231ps", 30),
    "tile_avx512_vnni": ("vpdpbusd", 30),
    "tile_avx512_bf16": ("vdpbf16ps", 30),
    # Matrix products: four steps of six, four or fourteen rows of two accumulators, and short tiles of four rows.
    "gemm_fma": ("vfmadd231ps", 4 * 6 * 2),
    "gemm_fma_short": ("vfmadd231ps", 4 * 4 * 2),
    "gemm_avx2": ("vpmaddubsw", 4 * 4 * 2),
    "gemm_avx_vnni": ("vpdpbusd", 4 * 6 * 2),
    "gemm_avx_vnni_short": ("vpdpbusd", 4 * 4 * 2),
    "gemm_avx512f": ("vfmadd231ps", 4 * 14 * 2),
    "gemm_avx512f_short": ("vfmadd231ps", 4 * 4 * 2),
    "gemm_avx512_vnni": ("vpdpbusd", 4 * 14 * 2),
    "gemm_avx512_vnni_short": ("vpdpbusd", 4 * 4 * 2),
    "gemm_avx512_bf16": ("vdpbf16ps", 4 * 14 * 2),
    "gemm_avx512_bf16_short": ("vdpbf16ps", 4 * 4 * 2),
    # Ceilings: twice twelve accumulators.
    "amdcheck_ports_fma": ("vfmadd231ps", 24),
    "amdcheck_ports_avx2": ("vpmaddubsw", 24),
    "amdcheck_ports_avx_vnni": ("vpdpbusd", 24),
    "amdcheck_ports_avx512f": ("vfmadd231ps", 24),
    "amdcheck_ports_avx512_vnni": ("vpdpbusd", 24),
    "amdcheck_ports_avx512_bf16": ("vdpbf16ps", 24),
}
# The compilers of these are trusted with nothing but their intrinsics.
BY_THE_COMPILER = {name: mark for name, (mark, _) in LOOPS.items() if name.startswith("tile_")}

_FUNCTION = re.compile(r"^[0-9a-f]+ <([^>]+)>:$")
_LINE = re.compile(r"^\s*([0-9a-f]+):\s+(.*?)\s*(?:#.*)?$")
_JUMP = re.compile(r"^j[a-z]+\s+([0-9a-f]+)")
_STACK = re.compile(r"\(%[re](sp|bp)\b")

Instructions = list[tuple[int, str]]


def functions(disassembly: str) -> dict[str, Instructions]:
    """Address and text of each instruction, by function."""
    found: dict[str, Instructions] = {}
    current: Instructions = []
    for line in disassembly.splitlines():
        if start := _FUNCTION.match(line):
            current = found.setdefault(start[1], [])
        elif instruction := _LINE.match(line):
            current.append((int(instruction[1], 16), instruction[2]))
    return found


def loops(instructions: Instructions) -> Iterator[list[str]]:
    """The instructions of each loop: from where a backward jump lands to the jump."""
    for address, text in instructions:
        jump = _JUMP.match(text)
        if jump and int(jump[1], 16) <= address:
            yield [t for a, t in instructions if int(jump[1], 16) <= a <= address]


def stack_traffic(instructions: Instructions, mark: str) -> list[str]:
    """What the loops with `mark` in them read from and write to the stack. AssertionError without such a loop."""
    marked = [loop for loop in loops(instructions) if any(mark in text for text in loop)]
    assert marked, f"no loop with {mark}"
    return [text for loop in marked for text in loop if _STACK.search(text)]


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "warning" not in done.stderr, done.stderr
    return done.stdout


def build(compiler: str, folder: Path, *definitions: str) -> Path:
    """The library as CMake builds it, by this compiler."""
    cmake = tool("cmake", "cmake")
    choice = f"-DCMAKE_C_COMPILER={tool(compiler, compiler)}"
    run(cmake, "-S", str(KERNELS), "-B", str(folder), choice, *definitions)
    run(cmake, "--build", str(folder))
    return folder / "libamdcheck_kernels.so"


def disassemble(library: Path) -> dict[str, Instructions]:
    return functions(run(tool("objdump", "binutils"), "-d", "--no-show-raw-insn", str(library)))


@pytest.fixture(scope="module", params=["gcc", "clang"])
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Instructions]:
    return disassemble(build(request.param, tmp_path_factory.mktemp(request.param)))


def test_no_accumulator_leaves_its_register(built: dict[str, Instructions]) -> None:
    traffic = {name: stack_traffic(built[name], mark) for name, (mark, _) in LOOPS.items()}
    assert traffic == {name: [] for name in LOOPS}


def test_every_accumulator_is_updated_once_a_step(built: dict[str, Instructions]) -> None:
    """The loop is unrolled over the whole tile, or its accumulators would be an array in memory."""
    for name, (mark, times) in LOOPS.items():
        (loop,) = [loop for loop in loops(built[name]) if any(mark in text for text in loop)]
        assert sum(mark in text for text in loop) == times, name


def test_the_chain_of_multiplications_is_of_32_bits(built: dict[str, Instructions]) -> None:
    """Three cycles each on every Zen; of 64 bits they take four on Zen 1, whose clock would read a quarter too low."""
    chain = {text for _, text in built["amdcheck_time_imul"] if text.startswith("imul")}
    assert [re.sub(r"%(e[a-z]{2}|r\d+d)", "32", text) for text in chain] == ["imul   32,32"]


def test_the_reference_is_computed_without_vector_arithmetic(built: dict[str, Instructions]) -> None:
    """The answers and the comparison are integers, one at a time; a vector register may only copy or convert."""
    arithmetic = re.compile(r"^(p(mul|madd|add|sub|cmp)|(add|mul|sub)p)")
    for name in (
        "amdcheck_operands",
        "amdcheck_differences",
        "amdcheck_gemm_operands",
        "amdcheck_triad_operands",
        "amdcheck_triad_differences",
    ):
        assert [text for _, text in built[name] if arithmetic.match(text)] == [], name


def test_a_build_without_optimization_is_caught(tmp_path: Path) -> None:
    """The guard itself: there the accumulators live on the stack."""
    found = disassemble(build("gcc", tmp_path, "-DCMAKE_BUILD_TYPE=Debug"))
    assert all(stack_traffic(found[name], mark) for name, mark in BY_THE_COMPILER.items())


def test_the_flags_of_the_builder_do_not_raise_the_baseline(tmp_path: Path) -> None:
    """With -march=native in CFLAGS the code around the kernels must still run on every x86-64."""
    found = disassemble(build("gcc", tmp_path, "-DCMAKE_C_FLAGS=-march=x86-64-v4 -O3"))
    beyond = {
        (name, text)
        for name, instructions in found.items()
        for _, text in instructions
        if not name.startswith(("tile_", "loads_", "gemm_", "triad_", "amdcheck_ports_"))
        and re.match(r"v[a-z0-9]+ ", text)
    }
    assert beyond == set()


def test_the_library_of_another_architecture_is_valid_and_empty(tmp_path: Path) -> None:
    """What CMake builds on aarch64, as far as this machine's compiler can: no kernel, every function there."""
    path = build("gcc", tmp_path, "-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64")
    assert not [name for name in disassemble(path) if name.startswith("tile_")]
    library = Library(str(path))
    assert [library.find(name) for name in ("sse2", "avx512f", "hook-wrong")] == [None, None, None]
    assert library.time_loads(width=16, address=0, size=0, passes=1) is None
    assert library.current_cpu() >= 0


SPILLED = """
0000000000001000 <tile>:
    1000:\tvxorps %xmm0,%xmm0,%xmm0
    1004:\tvmovups %ymm0,0x20(%rsp)
    1010:\tvfmadd231ps (%rsi),%ymm1,%ymm0
    1014:\tvmovups %ymm0,-0x20(%rsp)
    1018:\tjne    1010 <tile+0x10>
    101a:\tvmovups -0x20(%rsp),%ymm0
    1020:\tret
"""


def test_a_spill_in_the_loop_is_told_and_one_before_it_is_not() -> None:
    assert stack_traffic(functions(SPILLED)["tile"], "vfmadd231ps") == ["vmovups %ymm0,-0x20(%rsp)"]


def test_a_function_without_the_loop_is_an_error() -> None:
    with pytest.raises(AssertionError, match="no loop with vpdpbusd"):
        stack_traffic(functions(SPILLED)["tile"], "vpdpbusd")
