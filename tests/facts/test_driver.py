"""The amdgpu driver as sysfs, the module folders and DKMS show it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amdcheck.facts.driver import Driver
from amdcheck.host.protocol import Stat
from amdcheck.knowledge.rocm import packaged_driver
from amdcheck.model.value import Known, Unknown
from tests.judge import read_fact
from tests.memory_host import memory_host

KERNEL = "6.8.0-60-generic"
M = "/sys/module/amdgpu"
BASE = {"/proc/sys/kernel/osrelease": f"{KERNEL}\n"}
DKMS = {
    **BASE,
    f"{M}/initstate": "live\n",
    f"{M}/version": "6.12.12\n",
    f"{M}/srcversion": "863923CF4D8D36113D0DF56\n",
    f"{M}/taint": "OE\n",
    f"/lib/modules/{KERNEL}/updates/dkms/amdgpu.ko.zst": "x",
    f"/lib/modules/{KERNEL}/kernel/drivers/gpu/drm/amd/amdgpu/amdgpu.ko.zst": "x",
    f"/var/lib/dkms/amdgpu/6.12.12-2164967.22.04/{KERNEL}/x86_64/log/make.log": "",
}


def driver(files: dict[str, str], **more: object) -> Driver:
    return read_fact(Driver, memory_host(files, **more))  # type: ignore[arg-type]


def test_dkms_driver_of_rocm_6_4() -> None:
    read = driver(DKMS)
    assert read.loaded == Known(True, f"{M}/initstate")
    assert read.kind == Known("dkms", f"{M}/version")
    assert read.module_version == Known("6.12.12", f"{M}/version")
    assert read.packaged == Known("ROCm 6.4", f"{M}/version")
    assert read.module_path.or_none() == f"/lib/modules/{KERNEL}/updates/dkms/amdgpu.ko.zst"
    assert read.dkms_installed.or_none() == ("6.12.12-2164967.22.04",)
    assert read.dkms_built.or_none() == ("6.12.12-2164967.22.04",)
    assert read.blocked_by == ()


def test_in_tree_driver_has_no_version_and_that_is_no_fault() -> None:
    read = driver(
        {
            **BASE,
            f"{M}/initstate": "live\n",
            f"{M}/taint": "\n",
            f"/lib/modules/{KERNEL}/kernel/drivers/gpu/drm/amd/amdgpu/amdgpu.ko": "x",
        }
    )
    assert read.kind == Known("in-tree", f"{M}/taint")
    assert isinstance(read.module_version, Unknown)
    assert read.module_version.reason == "absent"
    assert isinstance(read.packaged, Unknown)
    assert read.dkms_installed.or_none() == ()
    assert not read.built_in


def test_driver_built_into_the_kernel_has_a_folder_without_initstate() -> None:
    read = driver({**BASE, f"{M}/parameters/noretry": "-1\n"})
    assert read.loaded == Known(True, "/sys/module")
    assert read.kind.or_none() == "in-tree"
    assert read.built_in


def test_out_of_tree_module_without_a_version_is_told_by_its_taint() -> None:
    assert driver({**BASE, f"{M}/initstate": "live", f"{M}/taint": "O\n"}).kind == Known("dkms", f"{M}/taint")


def test_old_kernel_without_taint_is_told_by_the_modules_that_only_amd_brings() -> None:
    files = {**BASE, f"{M}/initstate": "live", "/sys/module/amdkcl/initstate": "live"}
    assert driver(files).kind == Known("dkms", "/sys/module/amdkcl")


def test_not_loaded_is_known_from_the_listing_of_modules() -> None:
    read = driver({**BASE, "/sys/module/ext4/initstate": "live"})
    assert read.loaded == Known(False, "/sys/module")
    assert read.kind == Known("absent", "/sys/module")


def test_without_a_listing_of_modules_nothing_is_said() -> None:
    read = driver(BASE)
    assert isinstance(read.loaded, Unknown)
    assert isinstance(read.kind, Unknown)
    recorded = read_fact(Driver, memory_host(BASE, complete=False))
    assert isinstance(recorded.loaded, Unknown)
    assert recorded.loaded.reason == "not-recorded"


def test_dkms_package_that_is_not_built_for_the_running_kernel() -> None:
    read = driver(
        {
            **BASE,
            "/sys/module/ext4/initstate": "live",
            "/var/lib/dkms/amdgpu/6.14.14-2204008.24.04/6.8.0-31-generic/x86_64/log/make.log": "",
            "/var/lib/dkms/amdgpu/kernel-6.8.0-31-generic-x86_64": "",
            "/var/lib/dkms/amdgpu/original_module/x": "",
        }
    )
    assert read.dkms_installed.or_none() == ("6.14.14-2204008.24.04",)
    assert read.dkms_built.or_none() == ()


@pytest.mark.parametrize(
    ("path", "in_front"),
    [
        ("extra/amdgpu.ko.xz", True),  # RHEL and Bottlerocket
        ("weak-updates/amdgpu/amdgpu.ko.xz", True),
        ("updates/amdgpu.ko", True),
        ("kernel/drivers/gpu/drm/amd/amdgpu/amdgpu.ko.gz", False),
    ],
)
def test_module_file_of_every_distribution(path: str, in_front: bool) -> None:
    files = {**BASE, f"/lib/modules/{KERNEL}/{path}": "x"}
    if in_front:
        files[f"/lib/modules/{KERNEL}/kernel/drivers/gpu/drm/amd/amdgpu/amdgpu.ko"] = "x"
    assert driver(files).module_path.or_none() == f"/lib/modules/{KERNEL}/{path}"


def test_module_file_in_an_unusual_folder_is_found_in_modules_dep() -> None:
    dep = "kernel/fs/ext4.ko:\nkmp/amd/amdgpu.ko.zst: kmp/amd/amdkcl.ko.zst\n"
    read = driver({**BASE, f"/lib/modules/{KERNEL}/modules.dep": dep})
    assert read.module_path.or_none() == f"/lib/modules/{KERNEL}/kmp/amd/amdgpu.ko.zst"


def test_cloud_kernel_without_the_module() -> None:
    read = driver({**BASE, f"/lib/modules/{KERNEL}/modules.dep": "kernel/fs/ext4.ko:\n"})
    assert isinstance(read.module_path, Unknown)
    assert read.module_path.reason == "absent"


@pytest.mark.parametrize(
    ("where", "line", "found"),
    [
        ("/proc/cmdline", "root=/dev/sda1 nomodeset quiet", "nomodeset"),
        ("/proc/cmdline", "modprobe.blacklist=nouveau,amdgpu", "modprobe.blacklist=nouveau,amdgpu"),
        ("/proc/cmdline", "amdgpu.modeset=0", "amdgpu.modeset=0"),
        ("/etc/modprobe.d/no-gpu.conf", "# off\nblacklist   amdgpu\n", "blacklist amdgpu"),
        ("/usr/lib/modprobe.d/vfio.conf", "install amdgpu /bin/false\n", "install amdgpu /bin/false"),
    ],
)
def test_what_keeps_the_driver_away_is_named_with_its_file(where: str, line: str, found: str) -> None:
    assert driver({**BASE, "/sys/module/ext4/initstate": "live", where: line}).blocked_by == (Known(found, where),)


@pytest.mark.parametrize("line", ["modprobe.blacklist=amdgpu_x", "modprobe.blacklist=radeon", "amdgpu.modeset=1"])
def test_options_that_do_not_concern_the_driver(line: str) -> None:
    assert driver({**BASE, "/sys/module/ext4/initstate": "live", "/proc/cmdline": line}).blocked_by == ()


def test_blacklist_lines_of_a_loaded_driver_do_not_matter() -> None:
    assert driver({**DKMS, "/etc/modprobe.d/x.conf": "blacklist amdgpu\n"}).blocked_by == ()


def test_kfd_device() -> None:
    node = Stat(kind="char", mode=0o660, uid=0, gid=109, size=0, device=(511, 0), acl=(), filesystem=None)
    assert driver(DKMS, stats={"/dev/kfd": node}).kfd_device == Known(True, "/dev/kfd")
    assert driver({**DKMS, "/dev/null": ""}).kfd_device == Known(False, "/dev/kfd")


@pytest.mark.parametrize(
    ("module", "text", "line", "exact"),
    [
        ("6.2.4", "ROCm 5.7", "5.7", None),
        ("6.3.6", "ROCm 6.0", "6.0", None),
        ("6.7.0", "ROCm 6.1", "6.1", None),
        ("6.8.5", "ROCm 6.2", "6.2", None),
        ("6.10.5", "ROCm 6.3", "6.3", None),
        ("6.12.12", "ROCm 6.4", "6.4", None),
        ("6.14.14", "30.10", "30.10", None),
        ("6.16.6", "30.20", "30.20", None),
        ("6.16.13", "30.30", "30.30", None),
        ("6.16.13.30300400", "30.30.4", "30.30", "30.30.4"),
        ("6.18.3", "between 30.30 and 31.30", None, None),
        ("6.19.4", "31.30", "31.30", None),
        ("6.19.4.31300000-2337710", "31.30.0", "31.30", "31.30.0"),
        ("6.19.14", "31.40", "31.40", None),
        ("6.19.14.31400100", "31.40.1", "31.40", "31.40.1"),
        ("7.1.3.31500000", "31.50.0", "31.50", "31.50.0"),
        ("7.2.1.31600000", "31.60.0", "31.60", "31.60.0"),
    ],
)
def test_version_strings_of_every_era(module: str, text: str, line: str | None, exact: str | None) -> None:
    packaged = packaged_driver(module)
    assert packaged is not None
    assert (packaged.text, packaged.line, packaged.exact) == (text, line, exact)


@pytest.mark.parametrize(
    "text", ["6.8.0-60-generic", "5.9.25", "9.9.9", "", "6.12", "30.10.2.0.3010200", "N/A", "٦.٨.٥"]
)
def test_strings_that_stand_for_no_known_release(text: str) -> None:
    assert packaged_driver(text) is None


@given(st.text(max_size=80))
def test_no_version_string_breaks_the_table(text: str) -> None:
    packaged_driver(text)


@given(st.text(max_size=200), st.text(max_size=200))
def test_no_sysfs_text_breaks_the_fact(version: str, state: str) -> None:
    driver({**BASE, f"{M}/version": version, f"{M}/initstate": state})
