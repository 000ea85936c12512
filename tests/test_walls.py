"""The walls of the house: who may import whom, what checks and facts may touch, what start-up may load."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[1]

# Room -> the rooms whose modules it may import, besides its own.
MAY_IMPORT: Mapping[str, frozenset[str]] = {
    "model": frozenset(),
    "knowledge": frozenset({"model"}),
    "host": frozenset({"model"}),
    "facts": frozenset({"host", "knowledge", "model"}),
    "selftest": frozenset({"host", "model", "knowledge"}),
    "api": frozenset({"engine.registry", "facts", "host.protocol", "model"}),
    "checks": frozenset({"api", "model", "facts", "knowledge"}),
    "engine": frozenset({"api", "model", "facts", "knowledge", "host", "selftest", "checks"}),
    "report": frozenset({"model"}),
    "cli": frozenset({"api", "model", "facts", "knowledge", "host", "selftest", "checks", "engine", "report"}),
}

# What checks and facts may use of the standard library: nothing in it reads a file, runs a program or asks the time.
PURE = frozenset(
    """
    __future__ abc base64 bisect binascii collections contextlib csv dataclasses datetime difflib enum errno fnmatch
    functools hashlib heapq inspect itertools json math operator posixpath re shlex signal statistics string struct
    textwrap typing types uuid zlib
    """.split()  # noqa: SIM905
)
PURE_THIRD_PARTY = frozenset({"msgspec", "packaging"})

# Slow to import: only inside the functions that need them, so that no other run pays for them.
SLOW = frozenset("cpuinfo duckdb jinja2 lzma numpy packaging psutil pyudev rich tarfile typer".split())  # noqa: SIM905
# Modules that are themselves loaded only when they are needed.
LOADED_LATE = {"amdcheck/report/console.py": {"rich"}, "amdcheck/host/archive.py": {"tarfile"}}


class Module(NamedTuple):
    path: Path
    room: str
    tree: ast.Module

    @property
    def name(self) -> str:
        return str(self.path.relative_to(ROOT))


class Import(NamedTuple):
    module: str  # dotted, as written
    names: tuple[str, ...]
    line: int
    at_top: bool


def modules() -> list[Module]:
    files = [*(ROOT / "amdcheck").rglob("*.py"), *(ROOT / "checks").rglob("*.py")]
    return [Module(path, room_of(path), ast.parse(path.read_text(encoding="utf-8"))) for path in sorted(files)]


def room_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return "checks" if parts[0] == "checks" else parts[1]


def imports(tree: ast.Module) -> Iterator[Import]:
    inside = {
        id(n) for f in ast.walk(tree) if isinstance(f, (ast.FunctionDef, ast.AsyncFunctionDef)) for n in ast.walk(f)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, (), node.lineno, id(node) not in inside)
        elif isinstance(node, ast.ImportFrom):
            # checks/ is installed as amdcheck.checks: its modules find each other by relative imports alone.
            module = f"amdcheck.checks.{node.module or ''}" if node.level else node.module or ""
            yield Import(module, tuple(a.name for a in node.names), node.lineno, id(node) not in inside)


def target_rooms(imported: Import) -> Iterator[str]:
    """The rooms, with their module where one is named, that an import reaches into."""
    if imported.module.partition(".")[0] != "amdcheck":
        return
    inner = imported.module.removeprefix("amdcheck").removeprefix(".")
    if inner:
        yield inner
    else:
        yield from (name for name in imported.names if not name.startswith("__"))


def allowed(room: str, target: str) -> bool:
    return any(target == door or target.startswith(f"{door}.") for door in (room, *MAY_IMPORT[room]))


MODULES = modules()
HOUSE = [m for m in MODULES if m.room in MAY_IMPORT]
PURE_ROOMS = [m for m in MODULES if m.room in ("checks", "facts", "model")]


def test_every_room_has_its_walls() -> None:
    assert {m.room for m in MODULES} - set(MAY_IMPORT) == {"__init__", "__main__"}


@pytest.mark.parametrize("module", HOUSE, ids=lambda m: m.name)
def test_room_imports_only_rooms_it_may(module: Module) -> None:
    through = [
        f"{module.name}:{imported.line} imports {target}"
        for imported in imports(module.tree)
        for target in target_rooms(imported)
        if not allowed(module.room, target)
    ]
    assert through == []


@pytest.mark.parametrize("module", PURE_ROOMS, ids=lambda m: m.name)
def test_checks_and_facts_open_nothing_and_run_nothing(module: Module) -> None:
    impure = [
        f"{module.name}:{imported.line} imports {imported.module}"
        for imported in imports(module.tree)
        if imported.module.partition(".")[0] not in PURE | PURE_THIRD_PARTY | {"amdcheck"}
        and not (imported.module == "pathlib" and set(imported.names) <= {"PurePath", "PurePosixPath"})
    ]
    calls = [
        f"{module.name}:{node.lineno} calls {node.func.id}"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in {"open", "exec", "eval", "__import__", "print", "input"}
    ]
    assert impure + calls == []


@pytest.mark.parametrize("module", [m for m in MODULES if m.room in ("checks", "facts", "api")], ids=lambda m: m.name)
def test_annotations_that_are_read_at_run_time_are_imported_at_run_time(module: Module) -> None:
    assert not [n.lineno for n in ast.walk(module.tree) if isinstance(n, ast.Name) and n.id == "TYPE_CHECKING"]
    assert not [i.line for i in imports(module.tree) if "TYPE_CHECKING" in i.names]


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.name)
def test_slow_libraries_are_imported_where_they_are_needed(module: Module) -> None:
    free = LOADED_LATE.get(module.name, set()) | ({"typer"} if module.room == "cli" else set())
    early = [
        f"{module.name}:{imported.line} imports {imported.module}"
        for imported in imports(module.tree)
        if imported.at_top and imported.module.partition(".")[0] in SLOW - free
    ]
    assert early == []


def test_late_modules_are_imported_late() -> None:
    late = {name.removesuffix(".py").replace("/", ".") for name in LOADED_LATE}
    early = [
        f"{module.name}:{imported.line} imports {imported.module}"
        for module in MODULES
        for imported in imports(module.tree)
        if imported.at_top and imported.module in late
    ]
    assert early == []


def test_relative_imports_stay_in_checks() -> None:
    relative = {m.room for m in MODULES for n in ast.walk(m.tree) if isinstance(n, ast.ImportFrom) and n.level}
    assert relative <= {"checks"}


def test_every_folder_of_checks_is_a_package() -> None:
    folders = {path.parent for path in (ROOT / "checks").rglob("*.py")}
    assert [folder for folder in sorted(folders) if not (folder / "__init__.py").is_file()] == []


@pytest.mark.parametrize("module", [m for m in MODULES if m.room == "checks"], ids=lambda m: m.name)
def test_functions_of_checks_are_typed(module: Module) -> None:
    untyped = [
        f"{module.name}:{node.lineno} {node.name}"
        for node in ast.walk(module.tree)
        if isinstance(node, ast.FunctionDef)
        and (node.returns is None or any(a.annotation is None for a in (*node.args.args, *node.args.kwonlyargs)))
    ]
    assert untyped == []


# Spelled in parts, so that this file does not hold what it forbids.
FORBIDDEN = {
    "a path of one developer's machine": re.compile("/wo" + "rk/"),
    "a mark of unfinished work": re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X)\b"),
    "talk about how the work was organised": re.compile(r"\b[Tt]his (iss" + "ue|ses" + r"sion)\b"),
}
TEXTS = (".py", ".toml", ".md", ".c", ".h", ".txt", ".cfg", ".json")
TREES = ("amdcheck", "checks", "tests", "benchmarks", "fixtures", ".ci")


def written_files() -> list[Path]:
    inside = [p for tree in TREES for p in (ROOT / tree).rglob("*") if p.suffix in TEXTS or tree == ".ci"]
    beside = [ROOT / name for name in ("README.md", "Makefile", "pyproject.toml")]
    return [path for path in (*inside, *beside) if path.is_file() and "__pycache__" not in path.parts]


@pytest.mark.parametrize("why", FORBIDDEN)
def test_project_speaks_of_itself_alone(why: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in written_files()
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), start=1)
        if FORBIDDEN[why].search(line)
    ]
    assert found == []
