"""Signs that a machine is meant to have GPUs."""

from __future__ import annotations

from amdcheck.facts.presence import GpuSigns
from amdcheck.facts.rocm import RocmInstalls
from amdcheck.model.expectations import Expectations
from tests.gpu_hosts import KFD_STAT, cpu_host
from tests.judge import read_fact


def test_a_cpu_host_shows_no_sign() -> None:
    signs = read_fact(GpuSigns, cpu_host().host(), Expectations())
    assert signs.signs == ()
    assert signs.gone == ()


def test_driver_dkms_rocm_device_and_expectation_are_signs() -> None:
    machine = cpu_host()
    machine.files["/sys/module/amdgpu/initstate"] = "live\n"
    machine.files["/var/lib/dkms/amdgpu/6.10.5-2084815.22.04/source/dkms.conf"] = ""
    machine.files["/opt/rocm-6.3.3/.info/version"] = "6.3.3-74\n"
    machine.stats["/dev/kfd"] = KFD_STAT
    signs = read_fact(GpuSigns, machine.host(), Expectations(gpus=8)).signs
    assert [(sign.source, sign.value) for sign in signs] == [
        ("--expect-gpus or policy", "8"),
        ("/sys/module/amdgpu/initstate", "amdgpu"),
        ("/var/lib/dkms/amdgpu", "6.10.5-2084815.22.04"),
        ("/dev/kfd", "present"),
        ("/opt/rocm-6.3.3", "6.3.3"),
    ]


def test_a_hip_library_that_another_package_pulled_in_is_no_sign_a_whole_installation_is() -> None:
    machine = cpu_host()
    machine.files["/usr/lib/x86_64-linux-gnu/libamdhip64.so.5"] = ""
    assert read_fact(GpuSigns, machine.host(), Expectations()).signs == ()
    machine.files["/usr/bin/rocminfo"] = ""
    assert [sign.source for sign in read_fact(GpuSigns, machine.host(), Expectations()).signs] == ["/usr"]


def test_expecting_none_is_no_sign() -> None:
    assert read_fact(GpuSigns, cpu_host().host(), Expectations(gpus=0)).signs == ()


def test_rocm_wheels_of_one_python_are_no_sign() -> None:
    machine = cpu_host()
    packages = "/opt/venv/lib/python3.12/site-packages"
    machine.files["/opt/venv/bin/python3"] = ""
    machine.files[f"{packages}/_rocm_sdk_core/.info/version"] = "7.14.0\n"
    expect = Expectations(python="/opt/venv/bin/python3")
    assert [root.layout for root in read_fact(RocmInstalls, machine.host(), expect).roots] == ["wheel"]
    assert read_fact(GpuSigns, machine.host(), expect).signs == ()
