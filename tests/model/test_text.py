"""Words for people."""

from __future__ import annotations

from amdcheck.model.text import counted


def test_a_count_has_its_noun() -> None:
    assert [counted(n, "GPU") for n in (0, 1, 8)] == ["0 GPUs", "1 GPU", "8 GPUs"]
    assert [counted(n, "is expected", "are expected") for n in (1, 2)] == ["1 is expected", "2 are expected"]
