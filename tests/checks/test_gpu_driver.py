"""gpu.driver-loaded and gpu.driver-version: no driver and why, drivers of every era."""

from __future__ import annotations

import pytest

from amdcheck.host.capture import Outcome
from amdcheck.model.expectations import Expectations
from amdcheck.model.finding import Finding
from tests.checks.saying import only, sources, summary, values
from tests.compose import compose
from tests.corpus import CORPUS, needs_corpus
from tests.gpu_hosts import Machine, cpu_host, gpu_host
from tests.judge import judge
from tests.memory_host import memory_host

KERNEL = "6.8.0-60-generic"
QUICK = Expectations(level="quick")


def loaded(machine: Machine) -> Finding:
    return only(judge("gpu.driver-loaded", machine.host(), QUICK))


def version(machine: Machine) -> Finding:
    return only(judge("gpu.driver-version", machine.host(), QUICK))


def without_driver(product: str = "mi210") -> Machine:
    """GPUs on the bus, nothing bound to them, no amdgpu in the listing of modules."""
    machine = gpu_host(product, 2)
    machine.files = {path: text for path, text in machine.files.items()
                     if not path.startswith(("/sys/module/amdgpu", "/sys/class/kfd", "/sys/class/drm"))}  # fmt: skip
    machine.files["/sys/module/ext4/initstate"] = "live\n"
    machine.files["/proc/sys/kernel/osrelease"] = f"{KERNEL}\n"
    machine.files[f"/lib/modules/{KERNEL}/kernel/drivers/gpu/drm/amd/amdgpu/amdgpu.ko"] = "x"
    machine.links = {path: to for path, to in machine.links.items() if not path.endswith("/driver")}
    machine.stats.pop("/dev/kfd")
    return machine


def with_version(text: str) -> Machine:
    machine = gpu_host("mi300x", 1)
    machine.files["/sys/module/amdgpu/version"] = f"{text}\n"
    machine.files["/proc/sys/kernel/osrelease"] = f"{KERNEL}\n"
    return machine


def test_healthy_mi210_machine_has_its_driver() -> None:
    machine = compose("mi210-8gpu-2hive-epyc7763x2")
    finding = only(judge("gpu.driver-loaded", machine.host, QUICK))
    assert summary(finding) == ("gpu.driver-loaded/ok", "pass", "host host")
    assert values(finding) == ["live", "dkms"]
    finding = only(judge("gpu.driver-version", machine.host, QUICK))
    assert summary(finding) == ("gpu.driver-version/ok", "pass", "host host")
    assert values(finding)[:2] == ["6.10.5", "ROCm 6.3"]


def test_gpus_without_driver_fail() -> None:
    finding = loaded(without_driver())
    assert summary(finding) == ("gpu.driver-loaded/not-loaded", "fail", "host host")
    assert values(finding) == ["no amdgpu in it", f"/lib/modules/{KERNEL}/kernel/drivers/gpu/drm/amd/amdgpu/amdgpu.ko"]
    assert finding.remedy is not None
    assert finding.remedy.steps[0].argv == ("modprobe", "amdgpu")


def test_dkms_not_built_for_the_new_kernel_says_so() -> None:
    machine = without_driver()
    machine.files["/var/lib/dkms/amdgpu/6.14.14-2204008.24.04/6.8.0-31-generic/x86_64/log/make.log"] = ""
    finding = loaded(machine)
    assert summary(finding) == ("gpu.driver-loaded/not-built", "fail", "host host")
    assert "6.14.14-2204008.24.04" in values(finding)
    assert finding.remedy is not None
    assert ("dkms", "autoinstall") in [step.argv for step in finding.remedy.steps]


@pytest.mark.parametrize(
    ("path", "text", "line"),
    [
        ("/proc/cmdline", "quiet nomodeset", "nomodeset"),
        ("/etc/modprobe.d/blacklist-gpu.conf", "blacklist amdgpu\n", "blacklist amdgpu"),
    ],
)
def test_blocked_driver_names_the_line_and_its_file(path: str, text: str, line: str) -> None:
    machine = without_driver()
    machine.files[path] = text
    finding = loaded(machine)
    assert summary(finding) == ("gpu.driver-loaded/blocked", "fail", "host host")
    assert (sources(finding)[1], values(finding)[1]) == (path, line)
    assert finding.remedy is not None
    assert path in finding.remedy.steps[0].text


def test_cloud_kernel_without_the_module() -> None:
    machine = without_driver()
    machine.files = {path: text for path, text in machine.files.items() if not path.startswith("/lib/modules")}
    machine.files[f"/lib/modules/{KERNEL}/modules.dep"] = "kernel/fs/ext4/ext4.ko:\n"
    assert summary(loaded(machine)) == ("gpu.driver-loaded/no-module", "fail", "host host")


def test_container_that_sees_no_modules_does_not_blame_the_kernel() -> None:
    machine = without_driver()
    machine.files = {path: text for path, text in machine.files.items() if not path.startswith("/lib/modules")}
    assert summary(loaded(machine)) == ("gpu.driver-loaded/not-loaded", "fail", "host host")


def test_gpus_handed_to_guests_need_no_driver_here() -> None:
    machine = without_driver()
    for bdf in machine.bdfs:
        machine.links[f"{machine.pci(bdf)}/driver"] = "../../../../bus/pci/drivers/vfio-pci"
    finding = loaded(machine)
    assert summary(finding) == ("gpu.driver-loaded/not-applicable", "skip", "host host")
    assert values(finding) == ["vfio-pci", "vfio-pci"]


def test_driver_expected_where_rocm_is_installed_and_no_gpu_is_there() -> None:
    machine = cpu_host()
    machine.files["/sys/module/ext4/initstate"] = "live\n"
    machine.files["/opt/rocm-6.3.3/.info/version"] = "6.3.3\n"
    assert summary(loaded(machine))[:2] == ("gpu.driver-loaded/not-loaded", "fail")


def test_cpu_host_is_not_asked_for_a_driver() -> None:
    machine = cpu_host()
    machine.files["/sys/module/ext4/initstate"] = "live\n"
    assert summary(loaded(machine)) == ("gpu.driver-loaded/not-applicable", "skip", "host host")
    assert summary(version(machine)) == ("gpu.driver-version/not-applicable", "skip", "host host")


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("live", ("gpu.driver-loaded/ok", "pass")),
        ("coming", ("gpu.driver-loaded/starting", "unknown")),
        ("going", ("gpu.driver-loaded/unloading", "fail")),
    ],
)
def test_state_of_the_module(state: str, expected: tuple[str, str]) -> None:
    machine = gpu_host("mi300x", 1)
    machine.files["/sys/module/amdgpu/initstate"] = f"{state}\n"
    finding = loaded(machine)
    assert summary(finding)[:2] == expected
    assert values(finding)[0] == state


def test_driver_built_into_the_kernel() -> None:
    machine = gpu_host("mi300x", 1)
    del machine.files["/sys/module/amdgpu/initstate"]
    machine.files["/sys/module/amdgpu/parameters/noretry"] = "-1\n"
    finding = loaded(machine)
    assert summary(finding)[:2] == ("gpu.driver-loaded/ok", "pass")
    assert values(finding) == ["built into the kernel", "in-tree"]


def test_in_tree_module_out_of_an_old_ramdisk_beside_a_built_dkms_module() -> None:
    machine = gpu_host("mi300x", 1)
    machine.files |= {
        "/proc/sys/kernel/osrelease": f"{KERNEL}\n",
        "/sys/module/amdgpu/taint": "\n",
        f"/lib/modules/{KERNEL}/updates/dkms/amdgpu.ko.zst": "x",
        f"/var/lib/dkms/amdgpu/6.16.13-2255209.24.04/{KERNEL}/x86_64/log/make.log": "",
    }
    finding = loaded(machine)
    assert summary(finding) == ("gpu.driver-loaded/other-module", "warn", "host host")
    assert values(finding) == ["live", "in-tree", f"/lib/modules/{KERNEL}/updates/dkms/amdgpu.ko.zst"]


def test_unreadable_module_folder_is_unknown() -> None:
    machine = gpu_host("mi300x", 1)
    machine.files = {
        path: text for path, text in machine.files.items() if not path.startswith(("/sys/module", "/sys/class/kfd"))
    }
    machine.unread("/sys/module", "denied")
    machine.empty_dirs.remove("/sys/module")
    finding = loaded(machine)
    assert summary(finding) == ("gpu.driver-loaded/denied", "unknown", "host host")


@needs_corpus
def test_recorded_kfd_topology_alone_shows_that_the_driver_is_loaded() -> None:
    from amdcheck.host.open import open_host

    host = open_host(CORPUS / "kfd" / "mi210-8gpu-2hive-epyc64x2.tar.xz")
    finding = only(judge("gpu.driver-loaded", host, QUICK))
    assert summary(finding) == ("gpu.driver-loaded/ok", "pass", "host host")
    assert values(finding) == ["8 GPU nodes"]
    assert summary(only(judge("gpu.driver-version", host, QUICK)))[1] == "unknown"


@pytest.mark.parametrize(
    ("text", "release"),
    [
        ("6.8.5", "ROCm 6.2"),
        ("6.14.14", "30.10"),
        ("6.16.13.30300400", "30.30.4"),
        ("6.19.14.31400100", "31.40.1"),
        ("7.1.3.31500000", "31.50.0"),
    ],
)
def test_version_of_every_era_passes_with_its_release(text: str, release: str) -> None:
    finding = version(with_version(text))
    assert summary(finding) == ("gpu.driver-version/ok", "pass", "host host")
    assert values(finding)[:2] == [text, release]


def test_in_tree_driver_is_its_kernel_and_no_fault() -> None:
    machine = gpu_host("mi300x", 1)
    machine.files |= {"/proc/sys/kernel/osrelease": "6.12.74\n", "/sys/module/amdgpu/taint": "\n"}
    finding = version(machine)
    assert summary(finding) == ("gpu.driver-version/ok", "pass", "host host")
    assert values(finding) == ["in-tree", "6.12.74"]


def test_version_newer_than_the_tables_warns() -> None:
    finding = version(with_version("9.1.0"))
    assert summary(finding) == ("gpu.driver-version/not-in-table", "warn", "host host")
    assert values(finding) == ["9.1.0"]


def test_version_file_full_of_garbage_is_unknown() -> None:
    machine = gpu_host("mi300x", 1)
    machine.files |= {"/sys/module/amdgpu/version": "\x1b[31m a b \u202e\n", "/sys/module/amdgpu/taint": "OE\n"}
    finding = version(machine)
    assert summary(finding) == ("gpu.driver-version/failed", "unknown", "host host")


def test_out_of_tree_module_without_version_is_unknown_not_in_tree() -> None:
    machine = gpu_host("mi300x", 1)
    machine.files["/sys/module/amdgpu/taint"] = "OE\n"
    finding = version(machine)
    assert summary(finding) == ("gpu.driver-version/absent", "unknown", "host host")
    assert values(finding)[0] == "OE"


def test_driver_that_is_not_loaded_has_no_version_to_judge() -> None:
    assert summary(version(without_driver())) == ("gpu.driver-version/not-applicable", "skip", "host host")


def test_recording_that_holds_nothing_of_the_driver() -> None:
    host = memory_host({"/proc/version": "x"}, complete=False)
    assert only(judge("gpu.driver-version", host, Expectations(gpus=8, level="quick"))).status == "unknown"


@pytest.mark.parametrize("reason", ["timeout", "denied", "failed"])
def test_driver_whose_state_cannot_be_read_has_not_finished_starting_for_sure(reason: Outcome) -> None:
    machine = gpu_host("mi300x", 1)
    machine.files["/sys/module/amdgpu/srcversion"] = "ABCDEF\n"
    machine.unread("/sys/module/amdgpu/initstate", reason)
    finding = loaded(machine)
    assert summary(finding) == (f"gpu.driver-loaded/{reason}", "unknown", "host host")
    assert sources(finding)[-1] == "/sys/module/amdgpu/initstate"
