"""The product table: every row can be found, and what it computes agrees with the published peaks."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from amdcheck.knowledge.gpus import (
    GROUPS,
    gpu_table,
    is_card_bridge,
    is_vf_id,
    marketing_name,
    product_of,
    products,
    reason_not_judged,
)


@pytest.mark.parametrize("key", products())
def test_every_row_names_its_source_and_its_ids_are_bare_lower_case(key: str) -> None:
    row = products()[key]
    assert row.source
    for device_id in (*row.pci_ids, *row.vf_ids):
        assert len(device_id) == 4
        assert device_id == device_id.lower()
        assert product_of(device_id) is not None
    assert set(row.less_sure) <= {*row.__struct_fields__, *GROUPS}


def test_what_is_said_of_a_group_holds_for_each_of_its_fields() -> None:
    row = products()["mi300x"]
    assert row.confidence_of("cus") == "verified"
    assert [row.confidence_of(field) for field in GROUPS["partitions"]] == ["one-source"] * 3
    assert products()["mi325x"].confidence_of("compute_partitions") == "one-source"
    assert products()["mi300a"].confidence_of("xgmi_link_gbs") == "unverified"


def test_what_is_unverified_may_not_fail_a_machine() -> None:
    row = replace(products()["mi300x"], less_sure={"partitions": "unverified", "hive": "one-source"})
    assert row.may_fail("hive", "baseboard")
    assert not row.may_fail("hive", "compute_partitions")


@pytest.mark.parametrize(
    ("key", "rate", "published"),
    [
        ("mi100", "fp16_mat", 184.6),
        ("mi210", "fp64_vec", 22.6),
        ("mi300x", "fp16_mat", 1307.4),
        ("mi300x", "fp8_mat", 2614.9),
        ("mi355x", "mxfp4_mat", 10066.3),
        ("mi250x", "fp16_mat", 191.5),  # one GCD: half of the module's 383
    ],
)
def test_cus_clock_and_rate_give_the_published_peak(key: str, rate: str, published: float) -> None:
    row = products()[key]
    assert row.cus is not None
    assert row.clock_mhz is not None
    assert row.cus * row.clock_mhz * row.rates[rate] / 1e6 == pytest.approx(published, rel=2e-3)


@pytest.mark.parametrize(
    ("device_id", "revision", "cus", "key"),
    [
        ("0x740c", None, 104, "mi250"),
        ("0x740c", None, 110, "mi250x"),
        ("0x744c", "0xcc", None, "rx7900xt"),
        ("0x744c", "0xc8", None, "rx7900xtx"),
        ("0x66a1", None, 64, "mi60"),
        ("0x66A1", None, None, "mi50"),
        ("0x74b5", None, None, "mi300x"),
    ],
)
def test_products_that_share_an_id_are_told_apart(
    device_id: str, revision: str | None, cus: int | None, key: str
) -> None:
    found = product_of(device_id, revision, cus)
    assert found is not None
    assert found[0] == key


def test_a_virtual_function_and_a_variant_are_named_as_such() -> None:
    row = products()["mi300x"]
    assert marketing_name(row, device_id="0x74b5") == "Instinct MI300X VF"
    assert is_vf_id("0x74b5")
    assert not is_vf_id("0x74a1")
    assert marketing_name(products()["rx9070xt"], device_id="0x7550", revision="0xc3") == "Radeon RX 9070"


@pytest.mark.parametrize(
    ("device_id", "word"),
    [("0x6758", "before gfx9"), ("0x67df", "before gfx9"), ("0x1638", "integrated"), ("0x164e", "integrated")],
)
def test_gpus_that_are_not_judged_say_why(device_id: str, word: str) -> None:
    assert word in str(reason_not_judged(device_id))


@pytest.mark.parametrize("device_id", ["0x740f", "0x1586", "0x6860", "0x73bf", "0x75ff", "garbage"])
def test_products_and_unknown_ids_are_not_excluded(device_id: str) -> None:
    assert reason_not_judged(device_id) is None


def test_no_product_lies_in_a_range_that_is_not_judged() -> None:
    for row in products().values():
        for device_id in (*row.pci_ids, *row.vf_ids):
            assert not any(r.holds(int(device_id, 16)) for r in gpu_table().not_judged), device_id


def test_bridges_of_the_card_are_known_and_others_are_not() -> None:
    assert is_card_bridge("0x1002", "0x14a0")
    assert is_card_bridge("0x1022", "0x14c7")
    assert not is_card_bridge("0x1022", "0x1483")
    assert not is_card_bridge("0x1000", "0xc010")
