"""A capture written as a tree reads like the capture, and a hostile one writes nothing outside."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from amdcheck.host.open import open_host
from amdcheck.host.unpack import unpack
from amdcheck.model.errors import InputError
from tests.memory_host import memory_capture

BDF = "0000:03:00.0"
PLACE = f"/sys/devices/pci0000:00/{BDF}"
LINK = f"/sys/bus/pci/devices/{BDF}"
EMPTY = memory_capture({}, complete=False)


def test_what_was_read_through_a_link_lies_where_it_leads(tmp_path: Path) -> None:
    capture = replace(
        EMPTY,
        files={f"{LINK}/vendor": "0x1002\n", f"{PLACE}/device": "0x740f\n", f"{LINK}/driver/uevent": "x"},
        links={LINK: f"../../../devices/pci0000:00/{BDF}"},
        dirs={LINK: ("device", "vendor"), "/sys/class/drm": ()},
        resolved={f"{LINK}/driver": "/sys/bus/pci/drivers/amdgpu", PLACE: PLACE, f"{LINK}/vendor": f"{PLACE}/vendor"},
    )
    unpack(capture, tmp_path / "tree")
    root = tmp_path / "tree"
    assert os.readlink(root / LINK[1:]) == f"../../../devices/pci0000:00/{BDF}"
    assert not (root / PLACE[1:] / "vendor").is_symlink()
    assert (root / PLACE[1:] / "vendor").read_text() == "0x1002\n"
    assert (root / LINK[1:] / "device").read_text() == "0x740f\n"
    assert os.readlink(root / PLACE[1:] / "driver") == "../../../bus/pci/drivers/amdgpu"
    assert (root / "sys/bus/pci/drivers/amdgpu/uevent").read_text() == "x"
    assert (root / "sys/class/drm").is_dir()
    assert root.stat().st_mode & 0o077 == 0, "a raw capture is its owner's alone"
    assert os.listdir(tmp_path) == ["tree"]


def test_the_tree_reads_like_the_capture(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {f"{LINK}/vendor": "0x1002\n", "/proc/cpuinfo": "x", "/opt/rocm/v": b"\xff"}
    links = {LINK: f"../../../devices/pci0000:00/{BDF}", "/opt/rocm": "/opt/rocm-6.4.0", "/sys/dangling": "gone"}
    capture = memory_capture(files, links=links)
    unpack(capture, tmp_path / "tree")
    host = open_host(tmp_path / "tree")
    for path, content in files.items():
        assert host.read_bytes(path).or_none() == (content if isinstance(content, bytes) else content.encode())
    assert host.entries(LINK).or_none() == ("vendor",)
    assert os.readlink(tmp_path / "tree/opt/rocm") == "rocm-6.4.0", "an absolute link must not lead to this machine"
    assert os.readlink(tmp_path / "tree/sys/dangling") == "gone"


@pytest.mark.parametrize(
    "harm",
    [
        replace(EMPTY, files={"/sys/../../escape": "x"}),
        replace(EMPTY, files={"../escape": "x"}),
        replace(EMPTY, files={"": "x"}),
        replace(EMPTY, files={"/a\0b": "x"}),
        replace(EMPTY, files={"/" + "x" * 300: "x"}),
        replace(EMPTY, files={"/sys": "x", "/sys/y": "x"}),
        replace(EMPTY, files={"/": "x"}),
        replace(EMPTY, dirs={"/sys/../..": ()}),
        replace(EMPTY, links={"/../escape": "x"}),
        replace(EMPTY, links={"/sys/up": "../../etc"}),
        replace(EMPTY, links={"/sys/up": "/../etc"}),
        replace(EMPTY, links={"/sys/round": "round"}, files={"/sys/round/x": ""}),
        replace(EMPTY, links={"/sys/both": "x"}, files={"/sys/x/y": ""}, dirs={}, resolved={"/sys/x": "/../../y"}),
        replace(EMPTY, resolved={"/sys/a": "/sys/../../../etc"}),
    ],
)
def test_a_capture_that_names_what_is_outside_is_refused(tmp_path: Path, harm: object) -> None:
    (tmp_path / "in").mkdir()
    with pytest.raises(InputError):
        unpack(harm, tmp_path / "in" / "tree")  # type: ignore[arg-type]
    assert os.listdir(tmp_path) == ["in"]
    assert os.listdir(tmp_path / "in") == []


def test_nothing_is_written_through_a_link_that_leads_out(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    capture = replace(EMPTY, links={"/sys/x": str(outside)}, files={"/sys/x/passwd": "x"})
    unpack(capture, tmp_path / "tree")
    assert os.listdir(outside) == []
    assert (tmp_path / "tree" / str(outside)[1:] / "passwd").read_text() == "x"


def test_existing_targets_are_refused(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").touch()
    (tmp_path / "file").touch()
    (tmp_path / "empty").mkdir()
    os.symlink("empty", tmp_path / "link")
    for name in ("full", "file", "link", "file/below", "gone/below"):
        with pytest.raises(InputError) as error:
            unpack(EMPTY, tmp_path / name)
        assert str(tmp_path / name) in str(error.value)
    unpack(EMPTY, tmp_path / "empty")
    assert sorted(os.listdir(tmp_path)) == ["empty", "file", "full", "link"]
