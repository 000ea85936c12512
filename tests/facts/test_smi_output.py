"""Every recorded and rendered output of rocm-smi and amd-smi goes through the reader, with the values its name states.

The lists below are complete: a file that is added to the corpus without a line here is a failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amdcheck.facts.smi_output import SmiDriver, SmiGpu, SmiLink, SmiOutput, json_documents, parse
from tests.corpus import CORPUS, needs_corpus

SMI = CORPUS / "smi"
OPTIONS = {"showdriverversion", "showtopo"}


def read(path: Path) -> SmiOutput:
    return parse(path.read_text(encoding="utf-8", errors="surrogateescape"))


def listing(folder: Path, pattern: str = "*") -> list[Path]:
    return sorted(path for path in folder.glob(pattern) if path.is_file()) if folder.is_dir() else []


def names(paths: list[Path]) -> list[str]:
    return [path.name for path in paths]


def module(version: str) -> SmiDriver:
    return SmiDriver(version=version, in_tree=False)


def in_tree(version: str | None) -> SmiDriver:
    return SmiDriver(version=version, in_tree=True)


# -- rendered by the tools' own code: version.option.scenario.mode.stream ----------------------------------------------

RENDERED = [path for path in listing(SMI / "rendered") if path.name != "RENDER_LOG.txt"]


def parts(name: str) -> tuple[str, str, str, str, str]:
    """Version, option, scenario, mode and stream; the version holds dots itself."""
    head, option, tail = next(
        (head, option, tail) for option in OPTIONS for head, found, tail in [name.partition(f".{option}.")] if found
    )
    scenario, mode, stream = tail.split(".")
    return head, option, scenario, mode, stream


@needs_corpus
@pytest.mark.parametrize("path", RENDERED, ids=names(RENDERED))
def test_rendered_output_gives_what_its_name_states(path: Path) -> None:
    version, option, scenario, mode, stream = parts(path.name)
    output = read(path)
    silent = stream == "stderr" or path.stat().st_size == 0
    if silent:
        assert output.says_nothing
    elif option == "showdriverversion":
        assert output == SmiOutput(driver=module("6.8.5"))
    elif scenario == "4gpu_xgmi":
        assert _is_four_on_xgmi(output, with_links=mode != "csv")
    elif scenario == "2gpu_pcie_numa-1":
        assert [gpu.numa_affinity for gpu in output.gpus] == [-1, -1]  # older versions print 4294967295
        assert output.links == (SmiLink(a=0, b=1, type="PCIE", weight=40, hops=2),)
    elif scenario == "1gpu":
        assert output == SmiOutput(gpus=(SmiGpu(index=0, numa_node=0, numa_affinity=0),))
    elif scenario == "unsupported":
        assert all((link.type, link.weight, link.hops) == (None, None, None) for link in output.links)
        assert len(output.gpus) == (0 if version.startswith("rel-") else 2)
    else:
        pytest.fail(f"{path.name}: no expectation for scenario {scenario}")


def _is_four_on_xgmi(output: SmiOutput, *, with_links: bool) -> bool:
    pairs = [(a, b) for a in range(4) for b in range(a + 1, 4)]
    links = tuple(SmiLink(a=a, b=b, type="XGMI", weight=15, hops=1) for a, b in pairs) if with_links else ()
    gpus = tuple(SmiGpu(index=index, numa_node=0, numa_affinity=0) for index in range(4))
    return output == SmiOutput(gpus=gpus, links=links)


@needs_corpus
def test_rendered_files_are_all_of_known_versions_and_scenarios() -> None:
    assert {parts(path.name)[0] for path in RENDERED} == {"rel-3.9", "rel-4.1", "5.2.3", "5.7.1", "6.0.2", "6.2.2"}
    assert len(RENDERED) >= 120


@needs_corpus
def test_log_of_the_rendering_is_no_output() -> None:
    assert read(SMI / "rendered" / "RENDER_LOG.txt").says_nothing


# -- single files: what each of them says ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Says:
    """What is expected of one file; `gpus` by number, the first GPU and the links where they matter."""

    driver: SmiDriver | None = None
    tool: str | None = None
    library: str | None = None
    rocm: str | None = None
    gpus: int = 0
    first: SmiGpu | None = None
    links: int = 0
    types: frozenset[str | None] = frozenset()


NOTHING = Says()
PAIR = frozenset({"PCIE"})
XGMI = frozenset({"XGMI"})

SINGLE = {
    "from_tests": {
        "cvs_fabric_text_vpod0.txt": Says(gpus=2),
        "cvs_smoketest_fail_output.txt": NOTHING,
        "cvs_smoketest_pass_output.txt": NOTHING,
        "cvs_smoketest_skip_heavy_output.txt": NOTHING,
        "dme_static_MI210_gpu_data.json": Says(
            driver=in_tree("6.14.0-24-generic"),
            gpus=1,
            first=SmiGpu(index=0, gfx="gfx90a", numa_node=1, numa_affinity=1),
        ),
        "nodescraper_firmware_json.txt": Says(gpus=1),
        "nodescraper_list_json.txt": Says(gpus=1, first=SmiGpu(index=0, bdf="0000:0b:00.0")),
        "nodescraper_partition_json.txt": Says(gpus=2),  # three documents and a legend
        "nodescraper_process_json.txt": Says(gpus=1),
        "nodescraper_static_g_all_json.txt": Says(
            driver=module("6.1.0"),
            gpus=1,
            first=SmiGpu(index=0, bdf="0000:0b:00.0", gfx="gfx940", numa_node=3, numa_affinity=0),
        ),
        "nodescraper_version_json.txt": Says(library="1.2.3", rocm="6.1.0"),
    },
    "reported": {
        "REAL_debian12_rocminfo5.2.3_nodriver.stderr": NOTHING,
        "REAL_debian12_rocminfo5.2.3_nodriver.stdout": NOTHING,
        "REAL_debian12_rocmsmi5.2.3_showdriverversion_json_nodriver.stderr": NOTHING,
        "REAL_debian12_rocmsmi5.2.3_showdriverversion_json_nodriver.stdout": NOTHING,
        "REAL_debian12_rocmsmi5.2.3_showdriverversion_nodriver.stderr": NOTHING,
        "REAL_debian12_rocmsmi5.2.3_showdriverversion_nodriver.stdout": NOTHING,
        "REAL_debian12_rocmsmi5.2.3_showtopo_nodriver.stderr": NOTHING,
        "REAL_debian12_rocmsmi5.2.3_showtopo_nodriver.stdout": NOTHING,
        "amdsmi26.2.2_default_2xRX7900XTX.txt": Says(
            driver=in_tree(None), tool="26.2.2+unknown", gpus=2, first=SmiGpu(index=0, bdf="0000:03:00.0")
        ),
        "amdsmi26.2.2_firmware_RX7900XTX.txt": Says(gpus=1),
        "amdsmi26.2.2_static_driver_intree.txt": Says(driver=in_tree("6.19.11"), gpus=2),
        "amdsmi26.2.2_topology_2xRX7900XTX.txt": Says(
            gpus=2, first=SmiGpu(index=0, bdf="0000:03:00.0"), links=1, types=PAIR
        ),
        "amdsmi_firmware_json_with_banner.txt": Says(gpus=2),
        "amdsmi_metric_json_watch_apu_na.txt": Says(gpus=1),
        "amdsmi_missing_groups_rocm7.0.txt": NOTHING,
        "amdsmi_process_json_idle_string_form.json": Says(gpus=1),
        "amdsmi_static_asic_json_list_form_gfx1036.json": Says(gpus=1, first=SmiGpu(index=0, gfx="gfx1036")),
        "amdsmi_topology_json_1gpu.json": Says(gpus=1, first=SmiGpu(index=0, bdf="0000:0b:00.0")),
        "amdsmi_version_json_rocm7.0.2.json": Says(
            driver=module("6.16.6"), tool="26.2.0+021c61fc", library="26.2.0", rocm="7.0.2"
        ),
        "amdsmi_version_rocm6.1.0.txt": Says(tool="23.4.2+505b858", library="24.2.0.0", rocm="6.1.0"),
        "amdsmi_version_rocm7.10.0.txt": Says(
            driver=module("6.16.6"), tool="26.1.0+cd50d9e0", library="26.1.0", rocm="7.10.0"
        ),
        "amdsmi_version_rocm7.2.0_intree_oem_kernel.txt": Says(
            driver=in_tree("6.17.0-1012-oem"), tool="26.2.1+fc0010cf6a", library="26.2.1", rocm="7.2.0"
        ),
        "amdsmi_version_rocm7.2.1.txt": Says(
            driver=module("6.16.13"), tool="26.2.2+e1a6bc5663", library="26.2.2", rocm="7.2.1"
        ),
        "amdsmi_xgmi_mi300_38gbps.txt": Says(gpus=2, first=SmiGpu(index=0, bdf="0000:0c:00.0")),
        "rocmsmi_concise_old_vs_new_sonar209.txt": Says(gpus=2),
        "rocmsmi_driver_not_loaded_stderr.txt": NOTHING,
        "rocmsmi_json_no_data_stderr.txt": NOTHING,
        "rocmsmi_showdriverversion_json.txt": Says(driver=module("6.14.14")),
        "rocmsmi_showproductname_csv_header.txt": NOTHING,
        # cut off after the table of weights
        "rocmsmi_showtopo_lowpower_banner_head.txt": Says(gpus=8, links=28, types=frozenset({None})),
        "rocmsmi_showtopo_numa_gpu_space_form_tail.txt": Says(
            gpus=4, first=SmiGpu(index=0, numa_node=0, numa_affinity=0)
        ),
        "rocmsmi_version.txt": Says(tool="4.0.0+4179531dcd", library="7.8.0"),
    },
    "amdsmi_changelog": {
        "rocm6.1.0.L1388.monitor_-ptumv.txt": NOTHING,
        "rocm6.1.0.L1408.static_-U.txt": NOTHING,
        "rocm6.1.0.L1417.metric_-O.txt": NOTHING,
        "rocm6.1.0.L1444.metric_-U.txt": NOTHING,
        "rocm6.1.0.L1554.metric_-P.txt": Says(gpus=1),
        "rocm6.1.0.L1570.metric_usage.txt": Says(gpus=1),
        "rocm6.1.0.L1590.version.txt": Says(tool="23.4.2+505b858", library="24.2.0.0", rocm="6.1.0"),
        "rocm6.1.0.L1598.xgmi.txt": Says(gpus=8, first=SmiGpu(index=0, bdf="0000:0c:00.0")),
        "rocm6.1.0.L1634.metric_-p_json.txt": Says(gpus=1),
        "rocm6.1.0.L1668.topology.txt": Says(gpus=8, first=SmiGpu(index=0, bdf="0000:0c:00.0"), links=28, types=XGMI),
        "rocm6.1.1.L1052.metric_clock.txt": Says(gpus=1),
        "rocm6.1.1.L1163.metric_ecc_ecc-blocks.txt": Says(gpus=1),
        "rocm6.1.1.L1189.topology_json.txt": Says(gpus=2, links=1, types=PAIR),  # the old shape
        "rocm6.1.1.L1243.topology_json.txt": NOTHING,  # documentation with "...": no JSON, and no GPUs are made of it
        "rocm6.1.1.L1275.topology_-a_-t_json.txt": Says(
            gpus=2, first=SmiGpu(index=0, bdf="0000:08:00.0"), links=1, types=PAIR
        ),
        "rocm6.1.2.L1014.metric_power.txt": Says(gpus=2),
        "rocm6.1.2.L924.static_limit.txt": Says(gpus=2),
        "rocm6.1.2.L971.metric_ecc-block.txt": Says(gpus=1),
        "rocm6.2.0.L727.monitor_-q.txt": NOTHING,
        "rocm6.2.0.L743.set_process-isolation.txt": NOTHING,
        "rocm6.2.0.L758.static_asic_gpu.txt": NOTHING,
        "rocm6.2.0.L766.process.txt": Says(gpus=1),
        "rocm6.2.0.L782.process.txt": Says(gpus=1),
        "rocm6.2.0.L842.block.txt": Says(gpus=1),
        "rocm6.2.0.L865.block.txt": Says(gpus=1),
        "rocm6.3.0.L106.metric_usage.txt": Says(gpus=2),
        "rocm6.3.0.L260.metric_pcie.txt": Says(gpus=2),
        "rocm6.3.0.L33.metric_throttle.txt": Says(gpus=2),
        "rocm6.3.0.L366.topology_-cndz.txt": Says(gpus=8, first=SmiGpu(index=0, bdf="0000:0c:00.0")),
        "rocm6.3.0.L436.list.txt": Says(gpus=2, first=SmiGpu(index=0, bdf="0000:23:00.0")),
        "rocm6.3.0.L456.static_asic.txt": Says(gpus=1, first=SmiGpu(index=0, gfx="gfx942")),
        "rocm6.3.0.L491.static_asic.txt": Says(gpus=1, first=SmiGpu(index=0, gfx="gfx942")),
        "rocm6.3.0.L563.static_partition.txt": Says(gpus=1),
        "rocm6.3.0.L610.monitor_-p_-t_-v.txt": NOTHING,
        "rocm6.3.0.L78.monitor_violation.txt": NOTHING,
    },
    "telegraf": {
        "mi100_rocm571.json": Says(
            driver=module("6.2.4"),
            gpus=6,
            first=SmiGpu(index=0, bdf="0000:1e:00.0", numa_node=0, numa_affinity=0),
            links=15,
            types=PAIR,
        ),
        "rx6700xt_rocm430.json": Says(
            driver=module("6.3.6"),
            gpus=1,
            first=SmiGpu(index=0, bdf="0000:07:00.0", numa_node=0, numa_affinity=-1),
        ),
        "rx6700xt_rocm571.json": Says(
            driver=module("6.3.6"),
            gpus=1,
            first=SmiGpu(index=0, bdf="0000:07:00.0", numa_node=0, numa_affinity=-1),
        ),
        "rx6700xt_rocm612.json": Says(
            driver=module("6.3.6"),
            gpus=1,
            first=SmiGpu(index=0, bdf="0000:07:00.0", gfx="gfx1031", numa_node=0, numa_affinity=-1),
        ),
        "vega-10-XT.json": Says(
            driver=module("5.9.25"),
            gpus=1,
            first=SmiGpu(index=0, bdf="0000:04:00.0", numa_node=0, numa_affinity=0),
        ),
    },
}
# The same dumps, collected a second time.
JSON = {f"rocm-smi-{name}": says for name, says in SINGLE["telegraf"].items()}
TEXT = {
    "rocm-smi-concise-mi308x.txt": Says(gpus=8),
    "rocm-smi-showtopo-1gpu-kvm-empty.txt": Says(gpus=1, first=SmiGpu(index=0)),
    "rocm-smi-showtopo-8gpu-2hive-split.txt": Says(
        gpus=8,
        first=SmiGpu(index=0, numa_node=0, numa_affinity=0),
        links=28,
        types=frozenset({"XGMI", "PCIE"}),
    ),
    "rocm-smi-showtopo-mi308x-8gpu-spx-allxgmi.txt": Says(
        gpus=8, first=SmiGpu(index=0, numa_node=0, numa_affinity=0), links=28, types=XGMI
    ),
}
FOLDERS = {
    **{SMI / folder: expected for folder, expected in SINGLE.items()},
    CORPUS / "smi-json": JSON,
    CORPUS / "text": TEXT,
}
FILES = [
    (path, FOLDERS[folder].get(path.name))
    for folder in FOLDERS
    for path in listing(folder, "rocm*" if folder.name == "text" else "*")
]


@needs_corpus
@pytest.mark.parametrize(("path", "says"), FILES, ids=[f"{path.parent.name}/{path.name}" for path, _ in FILES])
def test_single_output_gives_what_it_says(path: Path, says: Says | None) -> None:
    assert says is not None, f"{path.name} has no expectation: say here what it holds"
    output = read(path)
    assert output.driver == says.driver
    assert (output.tool_version, output.library_version, output.rocm_version) == (says.tool, says.library, says.rocm)
    assert len(output.gpus) == says.gpus
    assert says.first is None or output.gpus[0] == says.first
    assert len(output.links) == says.links
    assert frozenset(link.type for link in output.links) == says.types


@needs_corpus
def test_every_expectation_has_its_file() -> None:
    for folder, expected in FOLDERS.items():
        assert set(expected) <= set(names(listing(folder))), folder.name
    assert {path.name for path in SMI.iterdir() if path.is_dir()} == {*SINGLE, "rendered"}


@needs_corpus
def test_two_hives_of_the_recorded_matrix() -> None:
    output = read(CORPUS / "text" / "rocm-smi-showtopo-8gpu-2hive-split.txt")
    xgmi = {(link.a, link.b) for link in output.links if link.type == "XGMI"}
    assert xgmi == {(a, b) for a in range(8) for b in range(a + 1, 8) if a // 4 == b // 4}
    assert {link.weight for link in output.links if link.type == "PCIE"} == {72}
    assert [gpu.numa_affinity for gpu in output.gpus] == [0, 0, 0, 0, 1, 1, 1, 1]


# -- forms that the corpus has no whole file of ------------------------------------------------------------------------


def test_link_metrics_that_run_into_each_other_still_name_the_gpu() -> None:
    row = "GPU0   0000:03:00.0 65535 Gb/s4294967295 Gb/sN/A\n"
    output = parse(f"LINK METRIC TABLE:\n  bdf  bit_rate max_bandwidth link_type 0000:03:00.0\n{row}")
    assert output.gpus == (SmiGpu(index=0, bdf="0000:03:00.0"),)


def test_standard_error_merged_into_the_text() -> None:
    text = (
        "WARNING: AMD GPU device(s) is/are in a low-power state.\n"
        "=========== ROCm System Management Interface ===========\n"
        "cat: /sys/x: No such file or directory\nDriver version: 6.10.5\n=== End of ROCm SMI Log ===\n"
    )
    assert parse(text) == SmiOutput(driver=module("6.10.5"))


def test_json_behind_a_banner_in_brackets() -> None:
    assert parse('[WARNING] slow\n{"system": {"Driver version": "6.8.5"}}').driver == module("6.8.5")


@pytest.mark.parametrize("cut", [30, 60, 100])
def test_json_that_breaks_off_is_no_shorter_list_of_gpus(cut: int) -> None:
    text = '{"gpu_data": [\n{"gpu": 0, "bus": {"bdf": "0000:03:00.0"}},\n{"gpu": 1, "bus": {"bdf": "0000:43:00.0"}}\n]}'
    assert len(parse(text).gpus) == 2
    assert parse(text[:cut]).says_nothing


def test_half_a_table_still_names_its_columns() -> None:
    text = "=== Weight between two GPUs ===\n       GPU0         GPU1         \nGPU0   0            "
    assert len(parse(text).gpus) == 2


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, '{"a":' * 50_000, "[1, 2, 3]", "{}", "[]", "GPU[0]", "\x00\xff", "9" * 5000, '{"card0": 7}',
     '{"gpu": 1e400}', '[{"gpu": true}]', '{"gpu_data": {"gpu": 0}}', '[{"gpu": 0, "links": [1, null]}]'],
)  # fmt: skip
def test_garbage_says_nothing_of_value(text: str) -> None:
    output = parse(text)
    assert output.driver is None
    assert output.links == ()


@given(st.text(max_size=300))
def test_no_text_breaks_the_reader(text: str) -> None:
    parse(text)


@given(st.text(alphabet='{}[]",:\n\t GPU0123456789-=|NumaTopolgyDrivesn.()', max_size=300))
def test_no_text_of_their_alphabet_breaks_the_reader(text: str) -> None:
    parse(text)
    json_documents(text)
