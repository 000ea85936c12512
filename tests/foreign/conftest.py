"""Composed machines as trees on disk, and the programs of others that read them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.compose import ComposedHost, compose

TIMEOUT_S = 60


class Rendered:
    """A composed machine and the folder that holds its tree."""

    def __init__(self, host: ComposedHost, root: Path) -> None:
        self.host = host
        self.root = root
        self.plan = host.plan


@pytest.fixture(scope="session")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Rendered]:
    """Write a machine with its faults as a tree, once a session."""
    known: dict[tuple[str, ...], Rendered] = {}

    def render(machine: str, *faults: str) -> Rendered:
        key = (machine, *faults)
        if key not in known:
            host = compose(machine, *faults)
            root = tmp_path_factory.mktemp("tree")
            host.write_tree(root)
            known[key] = Rendered(host, root)
        return known[key]

    return render


def tool(name: str, package: str) -> str:
    """The path of a program. Without it: skipped, but in CI a failure that names Debian's package."""
    path = shutil.which(name)
    if path is None:
        if os.environ.get("CI") == "true":
            pytest.fail(f"{name} is missing: apt-get install {package}")
        pytest.skip(f"{name} is not installed (Debian package {package})")
    return path


def output(argv: list[str], **environment: str) -> str:
    """What a program prints; it must end well."""
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=TIMEOUT_S, env={**os.environ, "LC_ALL": "C", **environment}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
