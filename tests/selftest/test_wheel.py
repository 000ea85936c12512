"""What a built wheel holds, with a compiler and without one."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.selftest.conftest import missing, tool

ROOT = Path(__file__).parents[2]


def build(folder: Path, **environment: str) -> Path:
    """Build a wheel of this tree in-process of the build backend, as pip does without isolation."""
    if find_spec("scikit_build_core") is None:
        missing("scikit-build-core is not here: install amdcheck[test]")
    tool("cmake", "cmake")
    program = "import sys; from scikit_build_core.build import build_wheel; build_wheel(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", program, str(folder)],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = folder.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Path:
    tool("gcc", "gcc")
    return build(tmp_path_factory.mktemp("native"))


@pytest.fixture(scope="module")
def pure(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("pure"), CC="/bin/false")


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_one_wheel_serves_every_python_of_a_platform(native: Path) -> None:
    assert native.name.startswith("amdcheck-")
    assert native.name.endswith(f"-py3-none-linux_{os.uname().machine}.whl")
    assert "amdcheck/selftest/libamdcheck_kernels.so" in names(native)


def test_without_a_compiler_the_wheel_is_pure_python(pure: Path) -> None:
    assert pure.name.endswith("-py3-none-any.whl")
    assert not [name for name in names(pure) if name.endswith(".so")]


def test_the_wheel_holds_what_is_needed_and_nothing_that_is_not(native: Path, pure: Path) -> None:
    checks = {f"amdcheck/{path.relative_to(ROOT)}" for path in (ROOT / "checks").rglob("*.py")}
    package = {str(path.relative_to(ROOT)) for path in (ROOT / "amdcheck").rglob("*.py")}
    tables = {str(path.relative_to(ROOT)) for path in (ROOT / "amdcheck" / "knowledge").rglob("*.toml")}
    assert "amdcheck/checks/selftest/cpu_isa.py" in checks
    assert "amdcheck/knowledge/remedies/selftest.toml" in tables
    assert "amdcheck/selftest/foreign/numpy_alignment.py" in package
    for wheel in (native, pure):
        assert checks | package | tables <= names(wheel)
        elsewhere = {name for name in names(wheel) if name.partition("/")[0] not in ("amdcheck", wheel_info(wheel))}
        assert elsewhere == set()
        assert not [name for name in names(wheel) if name.endswith((".c", ".h", "CMakeLists.txt", ".pyc"))]


def wheel_info(wheel: Path) -> str:
    name, version, *_ = wheel.name.split("-")
    return f"{name}-{version}.dist-info"


@pytest.mark.parametrize("kind", ["native", "pure"])
def test_an_installed_wheel_brings_its_checks_and_runs_its_self_test(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """In a venv of its own, away from this tree; what it depends on comes from the venv that runs the tests."""
    venv.create(tmp_path, with_pip=False)
    python = tmp_path / "bin" / "python"
    site = next((tmp_path / "lib").glob("python3*")) / "site-packages"
    with zipfile.ZipFile(request.getfixturevalue(kind)) as archive:
        archive.extractall(site)
    dependencies = [path for path in sys.path if path.endswith("site-packages")]
    (site / "dependencies.pth").write_text("".join(f"{path}\n" for path in dependencies))
    program = (
        "import json, subprocess, sys, amdcheck\n"
        "assert amdcheck.__file__.startswith(sys.prefix), amdcheck.__file__\n"
        "from amdcheck.engine.registry import all_checks\n"
        "child = [sys.executable, '-I', '-m', 'amdcheck.selftest', 'cpu.isa', 'sse2']\n"
        "said = json.loads(subprocess.run(child, capture_output=True, check=True).stdout)\n"
        "print(all_checks()['selftest.cpu.isa'].origin, [k['ended'] for k in said['kernels']], said['lacks'])\n"
    )
    done = subprocess.run([python, "-I", "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    kernels = "['returned'] None" if kind == "native" else "[] amdcheck was installed without its native kernels"
    assert done.stdout.startswith(f"amdcheck.checks.selftest.cpu_isa {kernels}")
