"""The README says what is so."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

from amdcheck.cli.app import app
from amdcheck.engine.exits import STYLES, event_exit, verdict_exit
from amdcheck.engine.run import RunRequest, run
from tests import readme
from tests.cli.command import amdcheck
from tests.compose import compose
from tests.engine.test_plugins import install

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TEXT = readme.README.read_text(encoding="utf-8")


def test_example_is_what_amdcheck_prints() -> None:
    assert readme.shown_in_readme() == readme.example(readme.CAPTURE)


def test_committed_capture_shows_the_one_fault_that_it_was_made_with() -> None:
    findings = run(RunRequest(host=readme.CAPTURE)).report.findings
    assert [(f.id, f.status) for f in findings if f.status not in ("pass", "skip", "manual")] == [
        ("pci.link-width/degraded", "fail")
    ]


def test_readme_opens_with_the_two_commands() -> None:
    head = TEXT[:400]
    assert "make run" in head
    assert "make test" in head


def test_every_dependency_has_a_row_that_earns_it() -> None:
    project = tomllib.loads((readme.ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = [*project["project"]["dependencies"], *project["build-system"]["requires"]]
    names = {re.split(r"[<>=;\[ ]", requirement, maxsplit=1)[0] for requirement in wanted}
    rows = set(re.findall(r"^\| [^|]+ \| `([a-z0-9-]+)` \|", TEXT, re.MULTILINE))
    assert rows == names


def test_exit_table_is_the_one_of_the_code() -> None:
    rows = dict(re.findall(r"^\| ([^|]+) \| (\d+ \| \d+ \| \d+) \|$", TEXT, re.MULTILINE))
    told = {event: tuple(int(code) for code in codes.split(" | ")) for event, codes in rows.items()}
    assert told == {
        "ready": tuple(verdict_exit("ready", style, fail_on_warn=False) for style in STYLES),
        "ready with warnings": tuple(verdict_exit("ready-with-warnings", s, fail_on_warn=False) for s in STYLES),
        "not ready": tuple(verdict_exit("not-ready", style, fail_on_warn=False) for style in STYLES),
        "undetermined": tuple(verdict_exit("undetermined", style, fail_on_warn=False) for style in STYLES),
        "wrong usage, unreadable policy or host, unknown id": tuple(event_exit("usage", s) for s in STYLES),
        "the report could not be written": tuple(event_exit("report-lost", style) for style in STYLES),
        "a bug of amdcheck": tuple(event_exit("bug", style) for style in STYLES),
        "another run is going on": tuple(event_exit("locked", style) for style in STYLES),
        "resource limits, or a foreign file in the lock's place, keep it from running": tuple(
            event_exit("prevented", style) for style in STYLES
        ),
        "ended by SIGHUP": tuple(event_exit("sighup", style) for style in STYLES),
        "ended by SIGINT": tuple(event_exit("sigint", style) for style in STYLES),
        "ended by SIGTERM": tuple(event_exit("sigterm", style) for style in STYLES),
    }


def test_every_command_is_told() -> None:
    for command in app.registered_commands:
        assert f"`amdcheck {command.name}" in TEXT


PLUGIN = re.compile(r"<!-- plugin -->\n```python\n(.*?)```\n.*?```toml\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize(
    ("image", "said"),
    [
        ("2026.11", ("kernel.site-image/ok", "pass", None)),
        ("2026.10", ("kernel.site-image/old", "warn", "Let the node boot from the network")),
        (None, ("kernel.site-image/absent", "unknown", None)),
    ],
)
def test_the_plugin_that_it_shows_is_one(tmp_path: Path, image: str | None, said: tuple[str, str, str | None]) -> None:
    found = PLUGIN.search(TEXT)
    assert found is not None
    (name, module), *others = tomllib.loads(found[2])["project"]["entry-points"]["amdcheck.checks"].items()
    assert (name, others) == ("site", [])
    (tmp_path / "site").mkdir()
    install(tmp_path / "site", module, found[1])
    compose("epyc7763-cpu-nps4").write_tree(tmp_path / "tree")
    if image is not None:
        (tmp_path / "tree" / "etc" / "site-image").write_text(f"{image}\n")
    words = ("run", "kernel.site-image", "--level", "quick", "--format", "json", "--host", str(tmp_path / "tree"))
    told = amdcheck(*words, env={"PYTHONPATH": str(tmp_path / "site")})
    findings = {finding["check"]: finding for finding in json.loads(told.stdout)["findings"]}
    finding = findings["kernel.site-image"]
    assert (finding["id"], finding["status"]) == said[:2]
    assert said[2] is None or finding["remedy"]["steps"][0]["text"] == said[2]


def test_committed_capture_is_named_in_the_readme() -> None:
    assert str(readme.CAPTURE.relative_to(readme.ROOT)) in TEXT
