"""The composer writes what kernels write: compared with recorded machines, and consistent in itself."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Mapping
from typing import Any

import pytest

from tests.compose import ComposedHost, compose, machine_names, scaled
from tests.corpus import CORPUS, needs_corpus

NODES = "/sys/devices/virtual/kfd/kfd/topology/nodes"
RECORDED = "/sys/class/kfd/kfd/topology/nodes"

# Numbers that belong to one specimen, to its BIOS or its CPU, and not to the kind of machine.
_SPECIMEN = {"unique_id", "hive_id", "max_engine_clk_ccompute", "cpu_cores_count", "cpu_core_id_base"}


def recorded(item: str) -> dict[str, bytes]:
    """The files of a recorded tree by their path on that machine."""
    with tarfile.open(CORPUS / f"{item}.tar.xz") as tar:
        found = {}
        for member in tar:
            content = tar.extractfile(member) if member.isfile() else None
            if content is not None:
                found["/" + member.name.partition("/")[2]] = content.read()
    return found


def numbers(text: str | bytes) -> dict[str, int]:
    """The properties of a KFD folder."""
    lines = (text if isinstance(text, str) else text.decode()).splitlines()
    return {key: int(value) for key, _, value in (line.partition(" ") for line in lines)}


def links(files: Mapping[str, Any], base: str, kind: str) -> dict[tuple[int, int], dict[str, int]]:
    """All links of a topology by their ends, without the ends."""
    found = {}
    for path, text in files.items():
        if re.fullmatch(rf"{base}/\d+/{kind}/\d+/properties", path):
            link = numbers(text)
            found[link.pop("node_from"), link.pop("node_to")] = link
    return found


def properties(files: Mapping[str, Any], base: str) -> dict[int, dict[str, int]]:
    found = {}
    for path, text in files.items():
        match = re.fullmatch(rf"{base}/(\d+)/properties", path)
        if match:
            found[int(match[1])] = numbers(text)
    return found


@needs_corpus
def test_mi210_topology_is_the_recorded_one() -> None:
    ours, theirs = compose("mi210-8gpu-2hive-epyc7763x2").tree.files, recorded("kfd/mi210-8gpu-2hive-epyc64x2")
    mine, found = properties(ours, NODES), properties(theirs, RECORDED)
    assert {node: list(p) for node, p in mine.items()} == {node: list(p) for node, p in found.items()}
    for node, wanted in found.items():
        assert {k: v for k, v in mine[node].items() if k not in _SPECIMEN} == {
            k: v for k, v in wanted.items() if k not in _SPECIMEN
        }
    for kind in ("io_links", "p2p_links"):
        assert links(ours, NODES, kind) == links(theirs, RECORDED, kind)


@needs_corpus
def test_mi300x_partitions_are_the_recorded_ones() -> None:
    """The recorded machine lacks the last partition, as the fault has it."""
    ours = compose("mi300x-8gpu-cpx-epyc9654x2", "partition-missing").tree.files
    theirs = recorded("kfd/mi300x-8gpu-cpx-63of64-epyc96x2")
    mine, found = properties(ours, NODES), properties(theirs, RECORDED)
    assert set(mine) == set(found)
    ignored = _SPECIMEN | {"simd_id_base"}  # the recorded machine had been in SPX before, and numbers went on
    for node, wanted in found.items():
        assert {k: v for k, v in mine[node].items() if k not in ignored} == {
            k: v for k, v in wanted.items() if k not in ignored
        }
    assert links(ours, NODES, "io_links") == links(theirs, RECORDED, "io_links")


@needs_corpus
def test_old_kernels_names_and_formats_of_cpu_files_are_kept() -> None:
    """Every topology and cache file of a recorded EPYC exists, with masks and lists of the same form."""
    theirs = recorded("fsroot/epyc7451-2s-8node")
    ours = scaled("mi300x-8gpu-spx-epyc9654x2", cpus=96).tree.files
    base = "/sys/devices/system/cpu/cpu17"
    for path in theirs:
        match = re.fullmatch(rf"{base}/((topology|cache/index\d)/\w+)", path)
        if match and not path.endswith("uevent"):
            ours_text, their_text = str(ours[path]), theirs[path].decode()
            shape = re.compile(r"[0-9a-f]+") if "map" in path or "siblings" in path else re.compile(r"\d+")
            if path.endswith(("_map", "_siblings")):
                assert len(ours_text) == len(their_text), path
            assert shape.sub("N", ours_text).count("\n") == shape.sub("N", their_text).count("\n"), path
    keys = [line.partition(b"\t")[0].partition(b":")[0] for line in theirs["/proc/cpuinfo"].splitlines()]
    mine = [line.partition("\t")[0].partition(":")[0] for line in str(ours["/proc/cpuinfo"]).splitlines()]
    assert mine[: mine.index("")] == [key.decode() for key in keys[: keys.index(b"")]]


@needs_corpus
def test_pci_core_attributes_of_a_recorded_card_exist() -> None:
    theirs = recorded("drm/drm-vega10-card0")
    names = {path.rpartition("/")[2] for path in theirs}
    host = compose("w7900-2gpu-epyc9354")
    folder = host.tree.real("/sys/bus/pci/devices/0000:03:00.0")
    ours = {path[len(folder) + 1 :] for path in host.tree.files if path.startswith(f"{folder}/")}
    older = {
        "pcie_bw",
        "pp_sclk_od",
        "pp_mclk_od",
        "pp_num_states",
        "pp_cur_state",
        "pp_force_state",
        "pp_od_clk_voltage",
    }
    not_there = {"pp_dpm_dcefclk", "product_name", "product_number", "serial_number"}  # of display and server cards
    assert names - ours <= older | not_there
    card = "/sys/class/drm/card0/device"
    for name in ("resource", "uevent", "current_link_speed", "class", "modalias", "local_cpus", "aer_dev_correctable"):
        mine, text = str(host.tree.files[f"{folder}/{name}"]), theirs[f"{card}/{name}"].decode()
        assert [len(line.split()) for line in mine.splitlines()] == [len(line.split()) for line in text.splitlines()]
        assert [line.partition("=")[0] for line in mine.splitlines() if "=" in line] == [
            line.partition("=")[0] for line in text.splitlines() if "=" in line
        ]


@pytest.mark.parametrize("machine", machine_names())
def test_every_link_leads_somewhere(machine: str) -> None:
    host = compose(machine)
    tree, folders = host.tree, set(host.tree.listings())
    there = folders | set(tree.files) | set(tree.devices)
    dangling = {path for path in tree.links if tree.real(path) not in there}
    assert {path for path in dangling if not path.startswith(("/sys/bus/pci/drivers/", "/sys/bus/"))} == set()


@pytest.mark.parametrize("machine", [name for name in machine_names() if name.startswith(("mi", "w7900"))])
def test_kfd_counts_are_the_folders_there(machine: str) -> None:
    host = compose(machine)
    listings = host.tree.listings()
    for node, values in properties(host.tree.files, NODES).items():
        for kind in ("io_links", "p2p_links", "mem_banks", "caches"):
            assert values[f"{kind}_count"] == len(listings[f"{NODES}/{node}/{kind}"]), (node, kind)


@pytest.mark.parametrize("machine", machine_names())
def test_files_of_sysfs_end_with_a_newline(machine: str) -> None:
    """All text that the kernel shows does; config, gpu_metrics and the like are binary."""
    host: ComposedHost = compose(machine)
    texts = {p: t for p, t in host.tree.files.items() if p.startswith("/sys/") and isinstance(t, str)}
    assert {path for path, text in texts.items() if text and not text.endswith("\n")} == set()
