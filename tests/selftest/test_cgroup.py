"""CPU quotas of the control groups above a process, in both versions, as their files say them."""

from __future__ import annotations

from pathlib import Path

import pytest

from amdcheck.selftest import cgroup
from amdcheck.selftest.cgroup import Quota

V2_STAT = "usage_usec 100\nuser_usec 60\nsystem_usec 40\nnr_periods 10\nnr_throttled 3\nthrottled_usec 120000\n"
V1_STAT = "nr_periods 10\nnr_throttled 3\nthrottled_time 120000000\nnr_bursts 0\nburst_time 0\n"


def group(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def proc(tmp_path: Path, groups: str, *mounts: str) -> Path:
    """A /proc whose process is in these groups; mounts are "ROOT POINT TYPE OPTIONS", POINT below tmp_path."""
    folder = tmp_path / "proc" / "self"
    folder.mkdir(parents=True)
    lines = ["22 1 0:20 / / rw - ext4 /dev/vda rw"]
    for mount in mounts:
        root, point, kind, options = mount.split()
        lines.append(f"31 22 0:28 {root} {tmp_path / point} rw,nosuid shared:4 - {kind} {kind} {options}")
    (folder / "mountinfo").write_text("\n".join(lines) + "\n")
    (folder / "cgroup").write_text(groups)
    return tmp_path / "proc"


V2 = "/ cgroup cgroup2 rw,nsdelegate"


def test_version_2_tells_the_quota_of_every_group_above(tmp_path: Path) -> None:
    top = tmp_path / "cgroup"
    group(top, cpu__stat=V2_STAT)  # the root has no cpu.max
    group(top / "pods", cpu__max="400000 100000\n", cpu__stat=V2_STAT)
    group(top / "pods" / "one", cpu__max="max 100000\n", cpu__stat=V2_STAT)
    assert cgroup.quotas(proc=proc(tmp_path, "0::/pods/one\n", V2)) == {str(top / "pods"): Quota(4.0, 3, 0.12, 1e-4)}


def test_version_1_writes_minus_one_without_a_quota(tmp_path: Path) -> None:
    top = tmp_path / "cpu"
    files = {"cpu__cfs_period_us": "100000\n", "cpu__stat": V1_STAT}
    group(top, cpu__cfs_quota_us="-1\n", **files)
    group(top / "one", cpu__cfs_quota_us="20000\n", cpuacct__usage="250000000\n", **files)
    there = proc(tmp_path, "4:cpu,cpuacct:/one\n", "/ cpu cgroup rw,cpu,cpuacct")
    assert cgroup.quotas(proc=there) == {str(top / "one"): Quota(0.2, 3, 0.12, 0.25)}


@pytest.mark.parametrize(
    ("groups", "mounts", "expected"),
    [
        ("0::/\n", [V2], ["cgroup"]),
        ("0::/a/b\n", [V2], ["cgroup/a/b", "cgroup/a", "cgroup"]),
        ("0::/docker/x/y\n", ["/docker/x cgroup cgroup2 rw"], ["cgroup/y", "cgroup"]),
        ("0::/docker/xy\n", ["/docker/x cgroup cgroup2 rw"], ["cgroup"]),  # a container that is not shown its group
        (
            "5:cpu:/c\n4:memory:/a\n0::/u\n",
            ["/ cpu cgroup rw,cpu", "/ mem cgroup rw,memory", "/ unified cgroup2 rw"],
            ["mem/a", "mem", "unified/u", "unified"],
        ),
        ("0::/../sibling\n", [V2], ["cgroup"]),
        # A container that is shown its host's groups, too, before or behind its own.
        ("0::/\n", [V2, "/../.. host cgroup2 rw"], ["cgroup"]),
        ("0::/\n", ["/../.. host cgroup2 rw", V2], ["cgroup"]),
        ("0::/docker/x\n", ["/docker/x cgroup cgroup2 rw", "/ host cgroup2 rw"], ["cgroup"]),
        ("0::/docker/x\n", [V2, "/docker/x cgroup cgroup2 rw"], ["cgroup"]),  # the second one hides the first
        ("4:memory:/a\n", [V2], []),
        ("4:memory:/a\n", [], []),
        ("nonsense\n", [V2], []),
    ],
)
def test_each_folder_up_to_the_mount_is_walked_once(
    groups: str, mounts: list[str], expected: list[str], tmp_path: Path
) -> None:
    there = proc(tmp_path, groups, *mounts)
    assert [str(folder.relative_to(tmp_path)) for folder in cgroup.folders("memory", proc=there)] == expected


def test_the_smallest_quota_is_told_with_what_it_did_meanwhile() -> None:
    before = {"/a": Quota(8.0, 0, 0.0, None), "/a/b": Quota(0.5, 3, 0.12, None)}
    after = {"/a": Quota(8.0, 1, 0.5, None), "/a/b": Quota(0.5, 5, 0.2, None)}
    assert cgroup.tightest(before, after) == {"path": "/a/b", "cpus": 0.5, "throttled": 2, "throttled_s": 0.08}
    assert cgroup.tightest({}, {}) is None


@pytest.mark.parametrize("text", ["", "nonsense\n", "a b c\n", "100000 0\n"])
def test_files_that_make_no_sense_are_no_quota(tmp_path: Path, text: str) -> None:
    group(tmp_path / "cgroup", cpu__max=text, cpu__stat=V2_STAT)
    assert cgroup.quotas(proc=proc(tmp_path, "0::/\n", V2)) == {}


def test_a_machine_without_proc_has_no_quota(tmp_path: Path) -> None:
    assert cgroup.quotas(proc=tmp_path) == {}


def test_our_own_groups_are_found_below_their_mounts() -> None:
    assert all(folder.is_dir() for folder in cgroup.folders("cpu"))


def test_what_others_of_the_group_use_of_the_quota_is_not_left() -> None:
    before = {"/a": Quota(4.0, 0, 0.0, 10.0), "/b": Quota(64.0, 0, 0.0, None)}
    after = {"/a": Quota(4.0, 0, 0.0, 10.15), "/b": Quota(64.0, 0, 0.0, None)}
    assert cgroup.cpus_left(before, after, 0.06) == pytest.approx(1.5)
    assert cgroup.cpus_left({}, after, 0.06) == 4.0  # it has come between the two looks
    assert cgroup.cpus_left({}, {}, 0.06) is None
