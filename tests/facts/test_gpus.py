"""Which GPUs there are: bus, driver and KFD put together, and who is not judged."""

from __future__ import annotations

import pytest

from amdcheck.facts.gpus import Gpus, has_amd_gpu
from amdcheck.host.open import open_host
from amdcheck.model.value import Known, Unknown
from tests.corpus import CORPUS, needs_corpus
from tests.facts.test_kfd import hide
from tests.gpu_hosts import TOPOLOGY, add_device, cpu_host, gpu_host
from tests.judge import read_fact


def test_eight_mi300x_in_cpx_are_eight_devices_of_eight_partitions() -> None:
    gpus = read_fact(Gpus, gpu_host("mi300x", 8, hives=(8,), partitions=8).host())
    assert [gpu.product for gpu in gpus.devices] == ["mi300x"] * 8
    assert {len(gpu.partitions) for gpu in gpus.devices} == {8}
    gpu = gpus.devices[0]
    assert (gpu.bdf, gpu.gfx.or_none()) == ("0000:12:00.0", "gfx942")
    assert gpu.unique_id.or_none() == "abcd000000000000"
    assert gpu.hive_id == Known(str(0xF00D0000), f"{TOPOLOGY}/nodes/1/properties")
    assert len(gpu.render_nodes) == 9  # the device's own and one for each partition


def test_mi250x_is_told_from_mi250_by_its_cus_and_each_gcd_is_a_device() -> None:
    gpus = read_fact(Gpus, gpu_host("mi250x", 8, hives=(8,), device_id="0x740c").host())
    assert [gpu.product_name for gpu in gpus.devices] == ["Instinct MI250X"] * 8


def test_attributes_of_the_driver() -> None:
    machine = gpu_host("mi210", 1)
    machine.set("0000:12:00.0", vbios_version="113-D67301V-073", serial_number="", unique_id="78ac1fbd4e3d21a0")
    place = machine.pci("0000:12:00.0")
    machine.files[f"{place}/fw_version/mec_fw_version"] = "0x0000005c\n"
    machine.files[f"{place}/fw_version/vce_fw_version"] = "0x00000000\n"
    machine.files["/sys/bus/pci/slots/7/address"] = "0000:10:00\n"
    (gpu,) = read_fact(Gpus, machine.host()).devices
    assert gpu.vbios.or_none() == "113-D67301V-073"
    assert isinstance(gpu.serial, Unknown)
    assert gpu.serial.reason == "absent"
    assert gpu.unique_id.or_none() == "78ac1fbd4e3d21a0"
    assert gpu.firmware == {"mec": "0x0000005c"}
    assert gpu.slot.or_none() == "7"
    assert gpu.vram_bytes.or_none() == 64 << 30


def test_a_sleeping_gpu_is_not_woken_for_its_partition_mode() -> None:
    machine = gpu_host("w7900", 1)
    place = machine.pci("0000:12:00.0")
    machine.files[f"{place}/power/runtime_status"] = "suspended\n"
    machine.set("0000:12:00.0", current_compute_partition="SPX")
    (gpu,) = read_fact(Gpus, machine.host()).devices
    assert isinstance(gpu.compute_partition, Unknown)
    assert "wake" in str(gpu.compute_partition.detail)


@pytest.mark.parametrize(
    ("device", "driver", "word"),
    [
        ("0x1638", "amdgpu", "integrated"),
        ("0x67df", "amdgpu", "before gfx9"),
        ("0x6758", "radeon", "before gfx9"),
        ("0x73bf", None, "neither in the table"),
    ],
)
def test_who_is_not_judged_says_why(device: str, driver: str | None, word: str) -> None:
    machine = cpu_host()
    add_device(machine, "0000:05:00.0", [], vendor="0x1002", device=device, class_code="0x030000")
    if driver:
        machine.links[f"{machine.pci('0000:05:00.0')}/driver"] = f"../../../bus/pci/drivers/{driver}"
    gpus = read_fact(Gpus, machine.host())
    assert gpus.devices == ()
    (other,) = gpus.not_judged
    assert (other.bdf, other.device_id, other.driver) == ("0000:05:00.0", device, driver)
    assert word in other.reason
    assert "0000:05:00.0" in str(has_amd_gpu(gpus))


def test_a_product_newer_than_the_table_counts_once_amdgpu_drives_it() -> None:
    machine = gpu_host("mi355x", 2, hives=(2,), device_id="0x75ff")
    gpus = read_fact(Gpus, machine.host())
    assert [(gpu.product, gpu.gfx.or_none()) for gpu in gpus.devices] == [(None, "gfx950")] * 2
    assert has_amd_gpu(gpus) is None


def test_virtual_functions_that_this_host_hands_out_are_not_its_gpus() -> None:
    machine = gpu_host("mi300x", 1)
    add_device(machine, "0000:12:02.0", [], vendor="0x1002", device="0x74b5", class_code="0x120000")
    machine.links[f"{machine.pci('0000:12:02.0')}/physfn"] = "../0000:12:00.0"
    gpus = read_fact(Gpus, machine.host())
    assert [gpu.bdf for gpu in gpus.devices] == ["0000:12:00.0"]
    assert "virtual function" in gpus.not_judged[0].reason


def test_a_guest_knows_its_gpu_as_a_virtual_function() -> None:
    (gpu,) = read_fact(Gpus, gpu_host("mi300x", 1, guest=True, device_id="0x74b5").host()).devices
    assert (gpu.product, gpu.product_name, gpu.is_virtual_function) == ("mi300x", "Instinct MI300X VF", True)


def test_a_guests_function_other_than_zero_is_joined_with_its_node() -> None:
    machine = cpu_host()
    add_device(machine, "0000:00:05.1", [], vendor="0x1002", device="0x74b5", class_code="0x120000")
    machine.bdfs.append("0000:00:05.1")
    machine.files[f"{TOPOLOGY}/nodes/1/properties"] = (
        f"simd_count 1216\nsimd_per_cu 4\nlocation_id {5 << 3 | 1}\ndomain 0\ndevice_id 29877\n"
    )
    (gpu,) = read_fact(Gpus, machine.host()).devices
    assert (gpu.bdf, [p.kfd_node for p in gpu.partitions]) == ("0000:00:05.1", [1])


def test_an_old_kernel_that_names_no_pci_domain_is_joined_by_bus_and_device() -> None:
    machine = cpu_host()
    add_device(machine, "0002:19:00.0", [], vendor="0x1002", device="0x66a1", class_code="0x038000")
    machine.files[f"{TOPOLOGY}/nodes/1/properties"] = f"simd_count 240\nsimd_per_cu 4\nlocation_id {0x1900}\n"
    (gpu,) = read_fact(Gpus, machine.host()).devices
    assert (gpu.bdf, len(gpu.partitions), gpu.gfx.or_none()) == ("0002:19:00.0", 1, "gfx906")


def test_devices_that_differ_by_domain_alone_get_a_node_each_from_an_old_kernel() -> None:
    machine = cpu_host()
    for node, bdf in enumerate(("0001:00:02.0", "0002:00:02.0"), start=1):
        add_device(machine, bdf, [], vendor="0x1002", device="0x66a1", class_code="0x038000")
        machine.files[f"{TOPOLOGY}/nodes/{node}/properties"] = f"simd_count 240\nlocation_id {2 << 3}\n"
        machine.files[f"{TOPOLOGY}/nodes/{node}/gpu_id"] = f"{node}\n"
    gpus = read_fact(Gpus, machine.host())
    assert [(gpu.bdf, [p.kfd_node for p in gpu.partitions]) for gpu in gpus.devices] == [
        ("0001:00:02.0", [1]),
        ("0002:00:02.0", [2]),
    ]
    assert gpus.off_bus == ()


def test_a_node_whose_device_left_the_bus_is_no_device() -> None:
    machine = gpu_host("mi210", 2)
    nodes = {path: text for path, text in machine.files.items() if path.startswith(TOPOLOGY)}
    machine.take_off_bus("0000:22:00.0")
    machine.files.update(nodes)
    gpus = read_fact(Gpus, machine.host())
    assert [gpu.bdf for gpu in gpus.devices] == ["0000:12:00.0"]
    assert gpus.off_bus == ("0000:22:00.0",)


def test_a_container_marks_the_gpus_that_it_was_not_given() -> None:
    machine = gpu_host("mi210", 2)
    hide(machine, 2)
    gpus = read_fact(Gpus, machine.host())
    assert [(gpu.bdf, gpu.hidden) for gpu in gpus.devices] == [("0000:12:00.0", False), ("0000:22:00.0", True)]


@needs_corpus
def test_recorded_kfd_trees_without_a_bus_give_devices_from_their_nodes() -> None:
    names = {"mi210-8gpu-2hive-epyc64x2": 8, "mi300x-8gpu-cpx-63of64-epyc96x2": 8, "vega10-1gpu-copied-as-2": 1}
    for name, count in names.items():
        gpus = read_fact(Gpus, open_host(CORPUS / "kfd" / f"{name}.tar.xz"))
        assert len(gpus.devices) == count
        assert not any(gpu.on_bus for gpu in gpus.devices)
        assert isinstance(gpus.listing, Unknown)
    assert gpus.devices[0].gfx.or_none() == "gfx900"  # the kernel does not say; the product does
    assert gpus.devices[0].vram_bytes.or_none() == 17163091968


@needs_corpus
@pytest.mark.parametrize("path", sorted((CORPUS / "fsroot-controls").glob("*.tar.xz")) if CORPUS.is_dir() else [])
def test_recorded_machines_without_amd_gpus_have_none(path: object) -> None:
    gpus = read_fact(Gpus, open_host(path))  # type: ignore[arg-type]
    assert (gpus.devices, gpus.not_judged) == ((), ())
    assert has_amd_gpu(gpus) is not None


@needs_corpus
def test_recorded_turks_radeon_is_not_judged() -> None:
    gpus = read_fact(Gpus, open_host(CORPUS / "fsroot" / "ryzen1600-radeon-ghw.tar.xz"))
    assert gpus.devices == ()
    assert [(other.device_id, "before gfx9" in other.reason) for other in gpus.not_judged] == [("0x6758", True)]
