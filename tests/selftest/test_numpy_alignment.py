"""The program that a judged interpreter runs: it needs nothing of ours, and says what its numpy gives."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest

PROGRAM = Path(__file__).parents[2] / "amdcheck" / "selftest" / "foreign" / "numpy_alignment.py"


def document(python: str, *options: str) -> dict[str, Any]:
    done = subprocess.run([python, *options, str(PROGRAM)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def test_both_ways_align_every_array_and_numpy_alone_does_not() -> None:
    pytest.importorskip("numpy")
    said = document(sys.executable, "-I")
    measured = said["measured"]
    assert said["lacks"] is None
    for way in ("sliced", "allocated"):
        assert [row["aligned"] for row in measured[way]] == [row["held"] for row in measured[way]]
        assert [row["bytes"] for row in measured[way]][::6] == [64, 64 << 20]
    assert measured["contiguous_same"] == measured["contiguous_tried"] == 7


def test_an_interpreter_without_numpy_says_what_it_lacks(tmp_path: Path) -> None:
    venv.create(tmp_path, with_pip=False)
    said = document(str(tmp_path / "bin" / "python"), "-I")
    assert said["lacks"] == "ModuleNotFoundError: No module named 'numpy'"
    assert (said["numpy"], said["measured"]) == (None, None)


def test_a_numpy_that_breaks_on_import_is_told(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("raise ImportError('libgfortran.so.5: cannot open shared object file')\n")
    program = (
        f"import runpy, sys; sys.path.insert(0, {str(tmp_path)!r}); "
        f"runpy.run_path({str(PROGRAM)!r}, run_name='__main__')"
    )
    done = subprocess.run([sys.executable, "-I", "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["lacks"] == "ImportError: libgfortran.so.5: cannot open shared object file"


def test_the_program_is_python_3_6_and_imports_the_standard_library_alone() -> None:
    """A judged interpreter may be old, and has no amdcheck."""
    tree = ast.parse(PROGRAM.read_text(), feature_version=(3, 6))
    imported = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert imported - {"numpy"} <= sys.stdlib_module_names
    assert "amdcheck" not in imported


def test_memory_of_posix_memalign_lives_as_long_as_a_view_of_it_and_no_longer() -> None:
    pytest.importorskip("numpy")
    program = f"""
import ctypes, gc, runpy, numpy
module = runpy.run_path({str(PROGRAM)!r})
freed = []
class Libc:
    posix_memalign = ctypes.CDLL(None).posix_memalign
    free = staticmethod(lambda address: freed.append(address.value))
array = module["allocated"](numpy, Libc, 4096)
start = array.ctypes.data
view = array[100:].view()
del array
gc.collect()
view[:] = 7
print(len(freed), view.sum())
del view
gc.collect()
print(freed == [start])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0", str(7 * 3996), "True"]
