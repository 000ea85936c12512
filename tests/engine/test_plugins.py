"""Packages that bring checks, each with one way to misbehave: none ends, hangs or changes a run."""

from __future__ import annotations

import json
import shutil
import textwrap
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cli.command import amdcheck
from tests.compose import compose

MACHINE = "epyc7763-cpu-nps4"
Finding = dict[str, Any]


class Told(NamedTuple):
    """What a finding says in short."""

    id: str
    subject: str
    status: str


HEAD = """
    import os, signal, sys, threading, time
    from msgspec import Struct
    from amdcheck.api import HOST, Finding, Host, check, evidence, fact, passed, shown
    from collections.abc import Iterator
"""
FINE = """
    @check("cpu.fine", title="Fine", level="quick")
    def fine() -> Iterator[Finding]:
        '''Is always fine.'''
        yield passed("cpu.fine", HOST, "fine", shown("here", "1"))
"""


def of_check(body: str, *, parameters: str = "", more: str = "", before: str = "") -> str:
    """A module whose check cpu.sick does this."""
    lines = textwrap.indent(textwrap.dedent(body), " " * 8)
    head = f"""
    @check("cpu.sick", title="Sick", level="quick"{more})
    def sick({parameters}) -> Iterator[Finding]:
        '''Misbehaves.'''
"""
    return textwrap.dedent(HEAD + before + head + lines)


def of_import(body: str) -> str:
    """A module that registers cpu.fine and then does this."""
    return textwrap.dedent(HEAD + FINE) + textwrap.dedent(body)


def install(folder: Path, name: str, code: str, *, value: str | None = None) -> None:
    """A package as an installer leaves it: its module and its metadata, with an entry point of its name."""
    (folder / f"{name}.py").write_text(code, encoding="utf-8")
    metadata = folder / f"{name}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[amdcheck.checks]\n{name} = {value or name}\n")


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("machine") / "tree"
    compose(MACHINE).write_tree(path)
    return path


def run(machine: Path, site: Path | None) -> tuple[int, list[Finding]]:
    """`amdcheck all` as JSON on the machine with what is installed in `site`: the exit code, and what is found."""
    env = {} if site is None else {"PYTHONPATH": str(site)}
    result = amdcheck(
        "all",
        "--level",
        "quick",
        "--host",
        str(machine),
        "--format",
        "json",
        "--expect-gpus",
        "0",
        "--deadline",
        "55",
        env=env,
    )
    assert result.stderr == ""
    report = json.loads(result.stdout)
    assert result.returncode == report["summary"]["exit_code"]
    assert not report["run"]["deadline_hit"]
    return result.returncode, [{**finding, "duration_ms": None} for finding in report["findings"]]


@pytest.fixture(scope="module")
def built_in(machine: Path) -> list[Finding]:
    """What is found without any plugin: the machine is ready."""
    code, findings = run(machine, None)
    assert code == 0
    return findings


def brought(machine: Path, site: Path, built_in: list[Finding]) -> tuple[int, list[Finding]]:
    """The exit code, and what is found besides what is found without plugins; that must all be there, unchanged."""
    code, findings = run(machine, site)
    assert [finding for finding in findings if finding in built_in] == built_in
    return code, [finding for finding in findings if finding not in built_in]


@pytest.fixture(scope="module")
def all_at_once(machine: Path, built_in: list[Finding], tmp_path_factory: pytest.TempPathFactory) -> list[Finding]:
    """What is found besides, with every plugin below installed: none may cost another one anything."""
    site = tmp_path_factory.mktemp("site")
    for name, (body, _, _) in BROKEN_IMPORTS.items():
        install(site, f"broken_{name}", of_import(body))
    for name, (body, _, _) in BROKEN_LATER.items():
        body = f"if os.path.exists({str(site / name)!r}): {body}\nelse: open({str(site / name)!r}, 'w').close()"
        install(site, f"later_{name}", of_import(body).replace("cpu.fine", id_of("later", name)))
    for name, body in NOISY_IMPORTS.items():
        install(site, f"noisy_{name}", of_import(body).replace("cpu.fine", id_of("noisy", name)))
    for name, (module, _, _) in CHECKS.items():
        module = module.replace("cpu.sick", id_of("sick", name)).replace("Mine", f"Mine{name}")
        install(site, f"sick_{name}", module)
    code, findings = brought(machine, site, built_in)
    assert code == 3
    return findings


def id_of(kind: str, name: str) -> str:
    return f"cpu.{kind}-{name}".replace("_", "-")


def told(findings: list[Finding]) -> list[Told]:
    return [Told(f["id"], f["subject"]["id"], f["status"]) for f in findings]


def of_plugin(name: str, findings: list[Finding]) -> list[Finding]:
    return [f for f in findings if f["subject"] == {"kind": "plugin", "id": name}]


FAILED, HANG, CRASHED = (f"amdcheck.plugin/{outcome}" for outcome in ("failed", "hang", "crashed"))

# What a module does while it is imported -> the finding, and words of its message.
BROKEN_IMPORTS = {
    "raises": ("raise RuntimeError('no such library')", FAILED, "RuntimeError: no such library"),
    "exits": ("sys.exit(0)", FAILED, "SystemExit: 0"),
    "interrupts": ("raise KeyboardInterrupt", FAILED, "KeyboardInterrupt"),
    "leaves": ("os._exit(0)", CRASHED, "its process ended while it was imported"),
    "kills_itself": ("os.kill(os.getpid(), signal.SIGKILL)", CRASHED, "its process ended"),
    "closes_all": ("os.closerange(0, 4096)", CRASHED, "its process ended"),
    "sleeps": ("time.sleep(600)", HANG, "importing it took over 5 s"),
    "loops": ("while True: pass", HANG, "importing it took over 5 s"),
    "forks_and_sleeps": (
        "if os.fork() == 0:\n    os.setsid()\n    time.sleep(600)\nos._exit(0)",
        CRASHED,
        "its process ended",
    ),
    "garbles": (
        "for fd in range(3, 64):\n    try: os.write(fd, b'{' * 100)\n    except OSError: pass",
        FAILED,
        "what it registers is nonsense",
    ),
    "cannot_be_told": (
        "class Silent(Exception):\n    def __str__(self): os.abort() if False else sys.exit(0)\nraise Silent",
        FAILED,
        "Silent",
    ),
    "speaks_no_utf8": (r"raise ValueError('\udcff\x1b[2J')", FAILED, r"ValueError: \xff\x1b[2J"),
    "bad_syntax": ("def :", FAILED, "SyntaxError"),
    "bad_level": (
        "check('cpu.x', title='X', level='fast')(fine)",
        FAILED,
        "cpu.x: the level is 'fast'; it is one of quick, standard, deep",
    ),
    "bad_title": ("check('cpu.x', title=42, level='quick')(fine)", FAILED, "cpu.x: the title is 42; it is one line"),
    "bad_needs": (
        "check('cpu.x', title='X', level='quick', needs='admin')(fine)",
        FAILED,
        "cpu.x: needs is 'admin'; it is one of user, render, root",
    ),
    "bad_weight": (
        "check('cpu.x', title='X', level='quick', required='yes')(fine)",
        FAILED,
        "cpu.x: required is 'yes'; it is True or False",
    ),
    "bad_id": ("check(7, title='X', level='quick')(fine)", FAILED, "7: a check id is group.name in lower case"),
    "bad_group": ("check('mine.x', title='X', level='quick')(fine)", FAILED, "its group one of"),
    "bad_parameter": (
        "def given(x: int): 'page'\ncheck('cpu.x', title='X', level='quick')(given)",
        FAILED,
        "cpu.x: parameter x is neither a fact nor Expectations",
    ),
    "twice": (
        "check('cpu.fine', title='X', level='quick')(fine)",
        FAILED,
        "cpu.fine: registered already by broken_twice",
    ),
    "shadows_a_check": (
        "check('numa.balancing', title='X', level='quick')(fine)",
        FAILED,
        "numa.balancing: registered already by amdcheck.checks.numa.balancing",
    ),
    "shadows_the_engine": (
        "check('amdcheck.run', title='X', level='quick')(fine)",
        FAILED,
        "amdcheck.run: the group amdcheck is what amdcheck says of itself",
    ),
    "replaces_a_check": (
        "from amdcheck.engine import registry as r\nr._CHECKS['numa.balancing'] = r._CHECKS['cpu.fine']",
        FAILED,
        "it replaces the built-in check numa.balancing",
    ),
    "removes_all_checks": (
        "from amdcheck.engine import registry\nregistry._CHECKS.clear()",
        FAILED,
        "it replaces the built-in check",
    ),
    "registers_rubbish": (
        "from amdcheck.engine import registry\nregistry._CHECKS['cpu.rubbish'] = 42",
        FAILED,
        "AttributeError",
    ),
    "shadows_a_fact": (
        "class Cpu(Struct, frozen=True):\n"
        "    @classmethod\n"
        "    def read(cls, host: Host) -> 'Cpu': return cls()\n"
        "fact(Cpu)",
        FAILED,
        "Cpu: a fact of that name exists already",
    ),
    "replaces_a_fact": (
        "from amdcheck.facts import registry as r\nr._FACTS['Cpu'] = r._FACTS['Numa']",
        FAILED,
        "it replaces the built-in fact Cpu",
    ),
}


@pytest.mark.parametrize("name", BROKEN_IMPORTS)
def test_a_plugin_that_breaks_while_it_is_imported_is_named(name: str, all_at_once: list[Finding]) -> None:
    _, id, words = BROKEN_IMPORTS[name]
    plugin = f"broken_{name}"
    found = of_plugin(plugin, all_at_once)
    assert told(found) == [Told(id, plugin, "unknown")]
    assert found[0]["message"].startswith(f"Plugin {plugin} of {plugin}: ")
    assert words in found[0]["message"]
    assert plugin in found[0]["remedy"]["steps"][0]["text"]


# What a module does when it is imported again, to run its check.
BROKEN_LATER = {
    "leaves": ("os._exit(0)", CRASHED, "its process ended outside of its checks and facts; not judged: cpu.later-"),
    "raises": ("raise RuntimeError('late')", CRASHED, "RuntimeError: late"),
    "sleeps": ("time.sleep(600)", HANG, "importing it, or what it left running then, did not end"),
}


@pytest.mark.parametrize("name", BROKEN_LATER)
def test_a_plugin_that_breaks_only_when_it_is_imported_again_is_named(name: str, all_at_once: list[Finding]) -> None:
    _, id, words = BROKEN_LATER[name]
    found = of_plugin(f"later_{name}", all_at_once)
    assert told(found) == [Told(id, f"later_{name}", "unknown")]
    assert words in found[0]["message"]


# What a module does while it is imported, and may: its check is judged.
NOISY_IMPORTS = {
    "prints": "print('{' * 1_000_000, flush=True)\nprint('x' * 1_000_000, file=sys.stderr, flush=True)",
    "has_a_long_page": "fine.__doc__ = ('word ' * 300 + '\\n') * 400\ncheck('cpu.long', title='L', level='deep')(fine)",
    "writes": "[os.write(fd, b'{' * 100) for fd in (0, 1, 2)]",
    "forks": "os.fork()",
    "forks_a_sleeper": "if os.fork() == 0:\n    os.setsid()\n    time.sleep(600)",
    "keeps_a_thread": "threading.Thread(target=time.sleep, args=(600,)).start()",
    "asks_for_input": "sys.stdin.read()",
    "takes_signals": "for n in (signal.SIGINT, signal.SIGTERM): signal.signal(n, lambda *_: None)",
    "moves_away": "os.chdir('/'); os.environ.clear(); sys.path.clear()",
    "leaves_no_doors": "import atexit; atexit.register(os.abort); sys.exit = sys.stdout = sys.stderr = None",
    "changes_words": "import amdcheck.facts.cpu as c; c.Cpu.read = c.CpuVendor = None",
}


@pytest.mark.parametrize("name", NOISY_IMPORTS)
def test_a_plugin_that_makes_noise_while_it_is_imported_is_judged(name: str, all_at_once: list[Finding]) -> None:
    assert of_plugin(f"noisy_{name}", all_at_once) == []
    found = [finding for finding in all_at_once if finding["check"] == id_of("noisy", name)]
    assert told(found) == [Told(f"{id_of('noisy', name)}/ok", "host", "pass")]


YIELD = "yield passed('cpu.sick', HOST, 'said', shown('here', '1'))\n"
OK = "ok"
FACT = """
    @fact
    class Mine(Struct, frozen=True):
        value: str
        @classmethod
        def read(cls, host: Host) -> "Mine":
            {body}
"""


def with_fact(body: str) -> str:
    return of_check(YIELD, parameters="mine: Mine", before=FACT.format(body=body))


def with_predicate(body: str) -> str:
    before = f"""
    def applies() -> str | None:
        {body}
"""
    return of_check(YIELD, more=", applies=applies", before=before)


# A module -> the outcomes of its check cpu.sick, and words of the last one's message.
CHECKS = {
    "prints": (of_check("print('{' * 1_000_000, flush=True)\n" + YIELD), [OK], ""),
    "forks": (of_check("os.fork()\n" + YIELD), [OK], ""),
    "forks_after": (of_check(YIELD + "os.fork()"), [OK], ""),
    "exits": (of_check("sys.exit(0)\n" + YIELD), ["crashed"], "SystemExit: 0"),
    "interrupts": (of_check("raise KeyboardInterrupt\n" + YIELD), ["crashed"], "KeyboardInterrupt"),
    "leaves": (of_check("os._exit(0)\n" + YIELD), ["crashed"], "the worker ended"),
    "forks_and_leaves": (
        of_check("if os.fork() == 0: time.sleep(600)\nos._exit(0)\n" + YIELD),
        ["crashed"],
        "the worker ended",
    ),
    "loops": (of_check("while True: pass\n" + YIELD), ["timeout"], "did not end within its time"),
    "sleeps_at_last": (
        of_check(
            "try:\n    while True: yield passed('cpu.sick', HOST, 'x', shown('a', '1'))\nfinally: time.sleep(600)"
        ),
        ["timeout"],
        "did not end within its time",
    ),
    "raises_at_last": (of_check(YIELD + "raise OSError('gone')"), [OK, "crashed"], "OSError: gone"),
    "exits_at_last": (of_check(YIELD + "sys.exit(3)"), [OK, "crashed"], "SystemExit: 3"),
    "returns_nothing": (of_check("return None"), ["crashed"], "TypeError"),
    "own_kind_of_finding": (
        of_check(
            "x = passed('cpu.sick', HOST, 'said', shown('here', '1'))\n"
            "class Other(Finding, frozen=True, kw_only=True): check = property(lambda self: sys.exit(0))\n"
            "yield Other(**{name: getattr(x, name) for name in x.__struct_fields__})"
        ),
        ["crashed"],
        "",
    ),
    "closes_all": (of_check("os.closerange(3, 4096)\n" + YIELD), ["crashed"], "the worker ended"),
    "garbles": (
        of_check("for fd in range(3, 64):\n    try: os.write(fd, b'{' * 100)\n    except OSError: pass\n" + YIELD),
        ["crashed"],
        "it sent garbage",
    ),
    "fact_forks": (with_fact("os.fork(); return cls('1')"), [OK], ""),
    "fact_of_another_kind": (with_fact("return 42"), ["crashed"], "its read returned a int"),
    "fact_with_a_wrong_field": (with_fact("return cls(42)"), ["crashed"], "Expected `str`, got `int`"),
    "fact_that_cannot_travel": (with_fact("return cls(object())"), ["crashed"], "which the check needs"),
    "fact_exits": (with_fact("sys.exit(0)"), ["crashed"], "SystemExit: 0"),
    "fact_leaves": (with_fact("os._exit(0)"), ["crashed"], "which the check needs"),
    "fact_interrupts": (with_fact("raise KeyboardInterrupt"), ["crashed"], "KeyboardInterrupt"),
    "predicate_exits": (with_predicate("sys.exit(0)"), ["crashed"], "SystemExit: 0"),
    "predicate_loops": (with_predicate("\n            while True: pass"), ["timeout"], "did not end within its time"),
    "predicate_says_a_number": (with_predicate("return 42"), ["crashed"], "malformed finding"),
}


@pytest.mark.parametrize("name", CHECKS)
def test_a_check_of_a_plugin_that_misbehaves_is_unknown_alone(name: str, all_at_once: list[Finding]) -> None:
    _, outcomes, words = CHECKS[name]
    check, plugin = id_of("sick", name), f"sick_{name}"
    found = [
        finding for finding in all_at_once if finding["check"] == check or finding in of_plugin(plugin, all_at_once)
    ]
    assert told(found) == [
        Told(f"{check}/ok", "host", "pass") if outcome == OK else Told(f"{check}/{outcome}", plugin, "unknown")
        for outcome in outcomes
    ]
    assert words in found[-1]["message"]


def test_nothing_else_is_found(all_at_once: list[Finding]) -> None:
    expected = len(BROKEN_IMPORTS) + len(BROKEN_LATER) + len(NOISY_IMPORTS)
    assert len(all_at_once) == expected + sum(len(outcomes) for _, outcomes, _ in CHECKS.values())


def test_a_package_with_a_garbled_list_and_one_that_names_no_module_are_told(
    machine: Path, built_in: list[Finding], tmp_path: Path
) -> None:
    (tmp_path / "garbled-1.0.dist-info").mkdir()
    (tmp_path / "garbled-1.0.dist-info" / "entry_points.txt").write_bytes(b"[amdcheck.checks]\n\xff\xfe = x\n")
    install(tmp_path, "nowhere", "", value="no_such_module")
    code, others = brought(machine, tmp_path, built_in)
    assert (code, told(others)) == (
        3,
        [Told(FAILED, "garbled-1.0.dist-info", "unknown"), Told(FAILED, "nowhere", "unknown")],
    )


def test_the_second_of_two_plugins_with_one_id_is_refused(
    machine: Path, built_in: list[Finding], tmp_path: Path
) -> None:
    install(tmp_path, "first", of_import(""))
    install(tmp_path, "second", of_import(""))
    _, others = brought(machine, tmp_path, built_in)
    assert told(others) == [Told("cpu.fine/ok", "host", "pass"), Told(FAILED, "second", "unknown")]
    assert "the check cpu.fine is brought by first already (first)" in others[1]["message"]


def test_two_entries_of_one_module_are_judged_once(machine: Path, built_in: list[Finding], tmp_path: Path) -> None:
    install(tmp_path, "first", of_import(""))
    install(tmp_path, "second", "", value="first:fine")
    code, others = brought(machine, tmp_path, built_in)
    assert (code, told(others)) == (0, [Told("cpu.fine/ok", "host", "pass")])


def test_a_plugin_with_no_check_of_the_request_is_not_imported_again(machine: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    install(tmp_path, "sound", of_import(f"open({str(log)!r}, 'a').write('imported\\n')"))
    env = {"PYTHONPATH": str(tmp_path)}
    assert amdcheck("run", "cpu.vendor", "--host", str(machine), env=env).returncode == 0
    assert log.read_text() == "imported\n"


def test_sound_plugin_is_listed_explained_and_named_in_requests(machine: Path, tmp_path: Path) -> None:
    install(tmp_path, "sound", of_import("print('{')"))
    env = {"PYTHONPATH": str(tmp_path)}
    listed = json.loads(amdcheck("list", "--format", "json", env=env).stdout)
    assert [entry["origin"] for entry in listed if entry["id"] == "cpu.fine"] == ["sound"]
    assert len(listed) == len(json.loads(amdcheck("list", "--format", "json").stdout)) + 1
    page = json.loads(amdcheck("explain", "cpu.fine", "--format", "json", env=env).stdout)
    assert (page["check"]["title"], page["page"]) == ("Fine", "Is always fine.")
    alone = amdcheck("run", "cpu.fine", "--host", str(machine), "--format", "json", env=env)
    assert [finding["id"] for finding in json.loads(alone.stdout)["findings"]] == ["cpu.fine/ok"]
    skipped = amdcheck(
        "all", "--level", "quick", "--skip", "cpu.fine", "--host", str(machine), "--format", "json", env=env
    )
    assert "cpu.fine" in json.loads(skipped.stdout)["run"]["not_selected"]


def test_broken_plugins_are_told_by_commands_that_judge_nothing(machine: Path, tmp_path: Path) -> None:
    bodies = {
        "exits": "sys.exit(0)",
        "leaves": "os._exit(0)",
        "prints": "print('{')\n1 / 0",
        "sleeps": "time.sleep(600)",
    }
    for name, body in bodies.items():
        install(tmp_path, name, of_import(body))
    for words in (["list"], ["explain", "numa.balancing"], ["facts", "--host", str(machine), "--deadline", "8"]):
        without = amdcheck(*words, "--format", "json")
        result = amdcheck(*words, "--format", "json", env={"PYTHONPATH": str(tmp_path)})
        assert (result.returncode, json.loads(result.stdout)) == (0, json.loads(without.stdout))
        told_of = [line.partition("Plugin ")[2].partition(" ")[0] for line in result.stderr.splitlines()]
        assert told_of == list(bodies)
        if words == ["list"]:  # once is enough to wait for it
            bodies.pop("sleeps")
            shutil.rmtree(tmp_path / "sleeps-1.0.dist-info")


def test_facts_of_plugins_stand_among_the_others(machine: Path, tmp_path: Path) -> None:
    fact = textwrap.dedent(HEAD + FACT)
    install(tmp_path, "bringing", fact.format(body="return cls('1')"))
    install(tmp_path, "lying", fact.replace("Mine", "Lying").format(body="return 42"))
    install(tmp_path, "leaving", fact.replace("Mine", "Leaving").format(body="os._exit(0)"))
    words = ("facts", "--host", str(machine), "--format", "json")
    result = amdcheck(*words, env={"PYTHONPATH": str(tmp_path)})
    facts, without = json.loads(result.stdout), json.loads(amdcheck(*words).stdout)
    assert result.returncode == 0
    assert {name: facts[name] for name in without} == without
    assert facts["Mine"] == {"value": "1"}
    assert facts["Lying"] == {"broken": "TypeError: its read returned a int"}
    assert "the worker ended" in facts["Leaving"]["broken"]
    assert len(facts) == len(without) + 3
