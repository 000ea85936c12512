"""The EPYC table fits together: series lie in their generation, names decide where ids are shared."""

from __future__ import annotations

import pytest

from amdcheck.knowledge.epyc import (
    Series,
    all_series,
    every_zen_isa,
    generation,
    series,
)
from amdcheck.knowledge.isa import isa_table

ROWS = [pytest.param(row, id=key) for key, row in all_series().items()]


@pytest.mark.parametrize("row", ROWS)
def test_every_series_lies_in_the_generation_that_it_names(row: Series) -> None:
    for model in row.models:
        zen = generation(row.family, int(model, 16))
        assert zen is not None
        assert zen.generation == row.zen.rstrip("c")
        assert set(zen.isa) <= set(isa_table().isa)
        has_vnni = bool(row.int8_vnni_ops_cycle)
        assert has_vnni <= ("avx512_vnni" in zen.isa)
    assert set(row.less_sure) <= set(row.__struct_fields__)
    assert row.source


@pytest.mark.parametrize(
    ("family", "model", "expected"),
    [
        (0x17, 0x01, "1"),
        (0x17, 0x31, "2"),
        (0x17, 0x71, "2"),
        (0x19, 0x21, "3"),
        (0x19, 0x61, "4"),
        (0x1A, 0x44, "5"),
        (0x1A, 0x50, None),
        (0x15, 0x02, None),
        (0x18, 0x00, None),
    ],
)
def test_generation_by_family_and_model(family: int, model: int, expected: str | None) -> None:
    zen = generation(family, model)
    assert (zen and zen.generation) == expected


def test_desktop_parts_share_ids_with_servers_and_are_no_series() -> None:
    assert series(family=0x17, model=0x01, name="AMD Ryzen 5 1600 Six-Core Processor") is None
    assert series(family=0x17, model=0x01, name="AMD EPYC 7451 24-Core Processor") is not None


@pytest.mark.parametrize(
    ("name", "l3_mib", "cores"),
    [
        ("AMD EPYC 9754 128-Core Processor", 16, 128),
        ("AMD EPYC 8534P 64-Core Processor", 16, 64),
        ("AMD EPYC 9734 112-Core Processor", 16, 128),
    ],
)
def test_bergamo_and_siena_are_told_apart_by_name(name: str, l3_mib: int, cores: int) -> None:
    row = series(family=0x19, model=0xA0, name=name)
    assert row is not None
    assert (row.l3_mib_per_ccx, row.max_cores) == (l3_mib, cores)


def test_an_instruction_set_counts_only_in_full() -> None:
    assert isa_table().names(["sse2", "avx2", "avx512f", "avx512bw", "avx512vl"]) == ("avx2",)
    assert isa_table().names(["avx512dq", "avx512f", "avx512bw", "avx512vl"]) == ("avx512f",)
    assert every_zen_isa() == ("avx2", "fma")
    assert {key for key, row in isa_table().isa.items() if not row.asked or not row.loss} == {"sse2"}
