"""Where the recorded machines lie. Tests that need them are skipped where the folder is absent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

CORPUS = Path(os.environ.get("AMDCHECK_CORPUS", Path(__file__).parents[2] / "shared" / "corpus"))

needs_corpus = pytest.mark.skipif(not CORPUS.is_dir(), reason=f"recorded machines are not at {CORPUS}")
