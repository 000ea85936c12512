"""What the tests of the self-tests share: the loaded kernels, and the tools that some of them need."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import NoReturn

import pytest

from amdcheck.selftest.library import Library, load
from benchmarks.timing import offered_flags as offered_flags


def tool(name: str, package: str) -> str:
    """The path of a program; without it the test is skipped, and fails in CI, which installs what it needs."""
    path = shutil.which(name)
    if path is None:
        missing(f"{name} is not here: install {package}")
    return path


def missing(message: str) -> NoReturn:
    """Skip the test, or fail it in CI."""
    if os.environ.get("CI") == "true":
        pytest.fail(message)
    pytest.skip(message)


@pytest.fixture(autouse=True)
def affinity() -> Iterator[None]:
    """A step pins its process: where a test runs one in its own, that ends with the test."""
    before = os.sched_getaffinity(0)
    yield
    os.sched_setaffinity(0, before)


@pytest.fixture(scope="session")
def library() -> Library:
    return load()
