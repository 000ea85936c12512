"""CPU quotas of the control groups above a process, in both versions, as their files say them."""

from __future__ import annotations

from pathlib import Path

import pytest

from amdcheck.selftest import cgroup

V2_STAT = "usage_usec 100\nuser_usec 60\nsystem_usec 40\nnr_periods 10\nnr_throttled 3\nthrottled_usec 120000\n"
V1_STAT = "nr_periods 10\nnr_throttled 3\nthrottled_time 120000000\nnr_bursts 0\nburst_time 0\n"


def group(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)


def use(monkeypatch: pytest.MonkeyPatch, folder: Path, top: Path) -> None:
    monkeypatch.setattr(cgroup, "_folders", lambda: [(str(folder), str(top))])


def test_version_2_tells_the_quota_of_every_group_above(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    group(tmp_path, cpu__stat=V2_STAT)  # the root has no cpu.max
    group(tmp_path / "pods", cpu__max="400000 100000\n", cpu__stat=V2_STAT)
    group(tmp_path / "pods" / "one", cpu__max="max 100000\n", cpu__stat=V2_STAT)
    use(monkeypatch, tmp_path / "pods" / "one", tmp_path)
    assert cgroup.quotas() == {str(tmp_path / "pods"): (4.0, 3, 0.12)}


def test_version_1_writes_minus_one_without_a_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"cpu__cfs_period_us": "100000\n", "cpu__stat": V1_STAT}
    group(tmp_path, cpu__cfs_quota_us="-1\n", **files)
    group(tmp_path / "one", cpu__cfs_quota_us="20000\n", **files)
    use(monkeypatch, tmp_path / "one", tmp_path)
    assert cgroup.quotas() == {str(tmp_path / "one"): (0.2, 3, 0.12)}


def test_the_smallest_quota_is_told_with_what_it_did_meanwhile() -> None:
    before = {"/a": (8.0, 0, 0.0), "/a/b": (0.5, 3, 0.12)}
    after = {"/a": (8.0, 1, 0.5), "/a/b": (0.5, 5, 0.2)}
    assert cgroup.tightest(before, after) == {"path": "/a/b", "cpus": 0.5, "throttled": 2, "throttled_s": 0.08}
    assert cgroup.tightest({}, {}) is None


@pytest.mark.parametrize("text", ["", "nonsense\n", "a b c\n"])
def test_files_that_make_no_sense_are_no_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    group(tmp_path, cpu__max=text, cpu__stat=V2_STAT)
    use(monkeypatch, tmp_path, tmp_path)
    assert cgroup.quotas() == {}


def test_a_machine_without_proc_has_no_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable() -> list[tuple[str, str]]:
        raise FileNotFoundError("/proc/self/mountinfo")

    monkeypatch.setattr(cgroup, "_folders", unreadable)
    assert cgroup.quotas() == {}


def test_our_own_groups_are_found_below_their_mounts() -> None:
    for folder, top in cgroup._folders():
        assert folder == top or folder.startswith(f"{top}/")
        assert Path(folder).is_dir()
