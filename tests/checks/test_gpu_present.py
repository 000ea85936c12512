"""gpu.present: GPUs that should be there and are not, and GPUs that are there and driven by nobody."""

from __future__ import annotations

import pytest

from amdcheck.host.capture import Outcome
from amdcheck.host.open import open_host
from amdcheck.knowledge.gpus import GpuProduct
from amdcheck.model.expectations import Expectations
from amdcheck.model.finding import Finding
from tests.compose import compose
from tests.corpus import CORPUS, needs_corpus
from tests.facts.test_kernel_log import NEW_PROBE, kmsg
from tests.facts.test_kfd import hide
from tests.gpu_hosts import GUEST, IN_DOCKER, KFD_STAT, TOPOLOGY, Machine, add_device, cpu_host, gpu_host
from tests.judge import judge
from tests.memory_host import memory_host


def found(machine: Machine, gpus: int | None = None) -> list[Finding]:
    return judge("gpu.present", machine.host(), Expectations(gpus=gpus, level="quick"))


def ids(findings: list[Finding]) -> list[tuple[str, str, str]]:
    return [(f.id, f.subject.id, f.status) for f in findings]


def lost_from_bus(product: str, gpus: int, *lost: int, **how: object) -> Machine:
    """Off the bus, and the compute driver still lists them."""
    machine = gpu_host(product, gpus, **how)  # type: ignore[arg-type]
    nodes = {path: text for path, text in machine.files.items() if path.startswith(TOPOLOGY)}
    for index in lost:
        machine.take_off_bus(machine.bdfs[index])
    machine.files |= nodes
    return machine


def off_the_bus(product: str, gpus: int, *gone: int, **how: object) -> Machine:
    machine = gpu_host(product, gpus, **how)  # type: ignore[arg-type]
    for index in gone:
        machine.take_off_bus(machine.bdfs[index])
    return machine


def test_eight_mi300x_on_bare_metal_are_all_there() -> None:
    (finding,) = found(gpu_host("mi300x", 8, hives=(8,)))
    assert ids([finding]) == [("gpu.present/ok", "host", "pass")]
    assert str(finding.evidence[0].value).startswith("0000:12:00.0 Instinct MI300X; 0000:22:00.0")


def test_seven_of_eight_mi300x_on_bare_metal_fail() -> None:
    (finding,) = found(off_the_bus("mi300x", 8, 3, hives=(8,)))
    assert ids([finding]) == [("gpu.present/fewer", "host", "fail")]
    assert (finding.expected, finding.actual) == ("8 GPUs (product table: baseboard of Instinct MI300X)", "7")
    assert "0000:42:00.0" not in str(finding.evidence[0].value)


def test_cpx_partitions_do_not_make_up_for_a_missing_mi300x() -> None:
    (finding,) = found(off_the_bus("mi300x", 8, 0, hives=(8,), partitions=8))
    assert ids([finding]) == [("gpu.present/fewer", "host", "fail")]


def test_one_mi300x_vf_in_a_guest_warns() -> None:
    (finding,) = found(gpu_host("mi300x", 1, guest=True, device_id="0x74b5"))
    assert ids([finding]) == [("gpu.present/fewer", "host", "warn")]
    assert "fewer may be meant" in finding.message
    assert finding.remedy is not None
    assert (finding.remedy.action, finding.remedy.owner) == ("configure", "setup")
    assert finding.remedy.steps[0].text.startswith("If no more GPUs are meant for this guest: ")


def test_seven_of_eight_mi300x_in_a_container_warn() -> None:
    machine = off_the_bus("mi300x", 8, 3, hives=(8,))
    machine.files |= IN_DOCKER
    assert ids(found(machine)) == [("gpu.present/fewer", "host", "warn")]


def test_where_bare_metal_is_not_certain_a_short_board_warns() -> None:
    machine = off_the_bus("mi300x", 8, 3, hives=(8,))
    for path in ("/proc/cpuinfo", "/sys/class/dmi/id/sys_vendor", "/sys/class/dmi/id/product_name"):
        del machine.files[path]
    assert ids(found(machine)) == [("gpu.present/fewer", "host", "warn")]


def test_seven_of_eight_mi210_without_an_expectation_are_not_fewer() -> None:
    assert ids(found(off_the_bus("mi210", 8, 5, hives=(4, 4)))) == [("gpu.present/ok", "host", "pass")]


def test_seven_of_eight_mi210_with_an_expectation_are_fewer() -> None:
    (finding,) = found(off_the_bus("mi210", 8, 5, hives=(4, 4)), gpus=8)
    assert ids([finding]) == [("gpu.present/fewer", "host", "fail")]
    assert (finding.expected, finding.actual) == ("8 GPUs (--expect-gpus or policy)", "7")


def test_an_expectation_beats_the_baseboard() -> None:
    assert ids(found(off_the_bus("mi300x", 8, 3, hives=(8,)), gpus=7)) == [("gpu.present/ok", "host", "pass")]


def test_seven_of_eight_mi210_that_the_kernel_log_names_are_fewer() -> None:
    machine = off_the_bus("mi210", 8, 5, hives=(4, 4))
    machine.files["/dev/kmsg"] = kmsg("amdgpu 0000:62:00.0: amdgpu: SMU is initialized successfully!")
    (finding,) = found(machine)
    assert ids([finding]) == [("gpu.present/fewer", "host", "fail")]
    assert "amdgpu 0000:62:00.0" in str(finding.evidence[-1].value)


def test_more_than_expected_warns_and_says_how_modules_count() -> None:
    (finding,) = found(gpu_host("mi250x", 8, hives=(8,)), gpus=4)
    assert ids([finding]) == [("gpu.present/more", "host", "warn")]
    assert "Instinct MI250X module counts as two" in finding.message


def test_all_gpus_off_the_bus_with_driver_and_rocm_left_fail() -> None:
    machine = off_the_bus("mi210", 8, *range(8), hives=(4, 4))
    machine.files["/opt/rocm-6.3.3/.info/version"] = "6.3.3-74\n"
    (finding,) = found(machine)
    assert ids([finding]) == [("gpu.present/none", "host", "fail")]
    assert {e.source for e in finding.evidence} >= {"/sys/module/amdgpu/initstate", "/dev/kfd", "/opt/rocm-6.3.3"}
    assert finding.remedy is not None
    assert finding.remedy.owner == "node"


@pytest.mark.parametrize(
    "sign",
    [
        {"/sys/module/amdgpu/initstate": "live\n"},
        {"/var/lib/dkms/amdgpu/6.10.5-2084815.22.04/source/dkms.conf": ""},
        {"/opt/rocm-6.3.3/.info/version": "6.3.3-74\n"},
        {"/dev/kmsg": kmsg(NEW_PROBE)},
    ],
)
def test_each_sign_alone_makes_a_host_without_gpus_fail(sign: dict[str, str | bytes]) -> None:
    machine = cpu_host()
    machine.files.update(sign)
    assert ids(found(machine)) == [("gpu.present/none", "host", "fail")]


def test_a_device_node_alone_makes_a_host_without_gpus_fail() -> None:
    machine = cpu_host()
    machine.stats["/dev/kfd"] = KFD_STAT
    assert ids(found(machine)) == [("gpu.present/none", "host", "fail")]


def test_a_cpu_host_with_an_expectation_fails() -> None:
    (finding,) = found(cpu_host(), gpus=8)
    assert ids([finding]) == [("gpu.present/none", "host", "fail")]
    assert finding.expected == "8 GPUs (--expect-gpus or policy)"


def test_a_cpu_host_without_any_sign_is_skipped_with_its_reason() -> None:
    (finding,) = found(cpu_host())
    assert ids([finding]) == [("gpu.present/not-applicable", "host", "skip")]
    assert "nothing says that one is expected" in finding.message


def test_expecting_no_gpu_silences_a_driver_that_was_left() -> None:
    machine = cpu_host()
    machine.files["/sys/module/amdgpu/initstate"] = "live\n"
    assert ids(found(machine, gpus=0)) == [("gpu.present/not-applicable", "host", "skip")]


def test_an_integrated_gpu_explains_the_driver_and_is_skipped() -> None:
    machine = cpu_host()
    add_device(machine, "0000:05:00.0", [], vendor="0x1002", device="0x1638", class_code="0x030000")
    machine.links[f"{machine.pci('0000:05:00.0')}/driver"] = "../../../bus/pci/drivers/amdgpu"
    machine.files["/sys/module/amdgpu/initstate"] = "live\n"
    machine.stats["/dev/kfd"] = KFD_STAT
    (finding,) = found(machine)
    assert ids([finding]) == [("gpu.present/not-applicable", "host", "skip")]
    assert "0000:05:00.0 (0x1638) is an integrated GPU" in finding.message
    assert ids(found(machine, gpus=1)) == [("gpu.present/none", "host", "fail")]


def test_a_tree_without_a_bus_listing_is_unreadable_not_none() -> None:
    host = memory_host({"/proc/cpuinfo": GUEST, "/sys/module/amdgpu/initstate": "live\n"}, complete=False)
    (finding,) = judge("gpu.present", host, Expectations(level="quick"))
    assert ids([finding]) == [("gpu.present/unreadable", "host", "unknown")]
    assert finding.evidence[-1].note == "not-recorded"


def test_a_device_that_does_not_say_what_it_is_may_be_a_gpu() -> None:
    host = memory_host({"/sys/bus/pci/devices/0000:03:00.0/irq": "5\n"})
    assert ids(judge("gpu.present", host, Expectations(level="quick"))) == [
        ("gpu.present/unreadable", "host", "unknown")
    ]


def test_kfd_nodes_count_where_no_bus_listing_can_be_read() -> None:
    machine = gpu_host("mi210", 8, hives=(4, 4))
    files = {path: text for path, text in machine.files.items() if path.startswith(TOPOLOGY)}
    (finding,) = judge("gpu.present", memory_host(files), Expectations(level="quick", gpus=8))
    assert ids([finding]) == [("gpu.present/ok", "host", "pass")]
    assert finding.evidence[0].source == f"{TOPOLOGY}/nodes"
    assert "no bus listing" in str(finding.evidence[0].note)


def test_a_gpu_that_the_driver_gave_up_is_unbound_with_the_logs_word() -> None:
    machine = gpu_host("mi210", 4, hives=(4,))
    machine.links.pop(f"{machine.pci('0000:22:00.0')}/driver")
    machine.files["/dev/kmsg"] = kmsg(NEW_PROBE)
    findings = found(machine)
    assert ids(findings) == [("gpu.present/ok", "host", "pass"), ("gpu.present/unbound", "0000:22:00.0", "fail")]
    assert findings[1].evidence[1].value == NEW_PROBE


def test_with_no_driver_loaded_no_gpu_is_called_unbound() -> None:
    machine = gpu_host("mi210", 2, hives=(2,))
    del machine.files["/sys/module/amdgpu/initstate"]
    machine.empty_dirs.append("/sys/module")
    for bdf in machine.bdfs:
        machine.links.pop(f"{machine.pci(bdf)}/driver")
    assert ids(found(machine)) == [("gpu.present/ok", "host", "pass")]


def test_a_gpu_given_to_guests_is_bound_to_another_driver() -> None:
    machine = gpu_host("mi210", 2)
    machine.links[f"{machine.pci('0000:22:00.0')}/driver"] = "../../../../bus/pci/drivers/vfio-pci"
    findings = found(machine)
    assert ids(findings)[1] == ("gpu.present/other-driver", "0000:22:00.0", "warn")
    assert findings[1].actual == "vfio-pci"


@pytest.mark.parametrize("ended", ["GPU reset(2) failed", "GPU mode1 reset failed", "GPU reset end with ret = -110"])
def test_a_gpu_that_could_not_be_reset_is_lost_until_a_later_reset_succeeds(ended: str) -> None:
    machine = gpu_host("mi210", 4, hives=(4,))
    line = f"amdgpu 0000:22:00.0: amdgpu: {ended}"
    machine.files["/dev/kmsg"] = kmsg(line)
    findings = found(machine, gpus=4)
    assert ids(findings) == [("gpu.present/ok", "host", "pass"), ("gpu.present/lost", "0000:22:00.0", "fail")]
    assert [(e.source, e.value) for e in findings[1].evidence] == [("/dev/kmsg", line)]
    machine.files["/dev/kmsg"] = kmsg(line, "amdgpu 0000:32:00.0: amdgpu: GPU reset(4) succeeded!")
    assert len(found(machine)) == 2
    machine.files["/dev/kmsg"] = kmsg(line, "amdgpu 0000:22:00.0: amdgpu: GPU reset(4) succeeded!")
    assert ids(found(machine)) == [("gpu.present/ok", "host", "pass")]


def test_a_gpu_lost_amid_a_flooded_log_is_lost() -> None:
    machine = gpu_host("mi210", 4, hives=(4,))
    flood = ["amdgpu 0000:12:00.0: amdgpu: line"] * 2000
    machine.files["/dev/kmsg"] = kmsg(*flood, "amdgpu 0000:22:00.0: amdgpu: device lost from bus!", *flood)
    assert ids(found(machine))[1:] == [("gpu.present/lost", "0000:22:00.0", "fail")]


def test_gpus_of_another_driver_count_for_no_expected_number() -> None:
    machine = gpu_host("mi210", 4)
    machine.links[f"{machine.pci('0000:22:00.0')}/driver"] = "../../../../bus/pci/drivers/vfio-pci"
    (finding,) = found(machine, gpus=4)
    assert ids([finding]) == [("gpu.present/fewer", "host", "fail")]
    assert finding.message == "3 of 4 expected GPUs are there; vfio-pci holds 1 more."
    assert "0000:22:00.0 Instinct MI210 (vfio-pci); " in str(finding.evidence[0].value)
    assert finding.remedy is not None
    assert finding.remedy.owner == "setup"
    (finding,) = found(machine, gpus=3)
    assert ids([finding]) == [("gpu.present/ok", "host", "pass")]


@pytest.mark.parametrize("bound", [0, 2])
def test_a_product_newer_than_the_table_that_amdgpu_did_not_start_is_unbound(bound: int) -> None:
    """By another of the same id that it drives, or by the log."""
    machine = gpu_host("mi355x", 3, hives=(3,), device_id="0x75ff")
    for bdf in machine.bdfs[bound:]:
        machine.links.pop(f"{machine.pci(bdf)}/driver")
    if not bound:
        machine.files["/dev/kmsg"] = kmsg(NEW_PROBE)
    findings = [f for f in found(machine) if f.id != "gpu.present/not-in-table"]
    unbound = [("gpu.present/unbound", bdf, "fail") for bdf in machine.bdfs[bound:]]
    assert ids(findings) == [("gpu.present/ok", "host", "pass"), *unbound]


def test_a_product_newer_than_the_table_warns_and_is_counted() -> None:
    findings = found(gpu_host("mi355x", 2, hives=(2,), device_id="0x75ff"), gpus=2)
    assert ids(findings) == [
        ("gpu.present/ok", "host", "pass"),
        ("gpu.present/not-in-table", "0000:12:00.0", "warn"),
        ("gpu.present/not-in-table", "0000:22:00.0", "warn"),
    ]
    assert findings[1].message.startswith("GPU 0x75ff (gfx950) is not in the product table")


def test_a_container_with_three_of_eight_gpus_passes_and_says_so() -> None:
    machine = gpu_host("mi210", 8, hives=(4, 4))
    machine.files |= IN_DOCKER
    for node in range(4, 9):
        hide(machine, node)
    (finding,) = found(machine)
    assert ids([finding]) == [("gpu.present/ok", "host", "pass")]
    kept = "the device cgroup keeps 5 more from this container."
    assert finding.message == f"GPUs are there: 3 x Instinct MI210; {kept}"
    (finding,) = found(machine, gpus=3)
    assert (finding.status, finding.message) == (
        "pass",
        f"All 3 expected GPUs are there: 3 x Instinct MI210; {kept}",
    )
    (finding,) = found(machine, gpus=8)
    assert (finding.id, finding.actual) == ("gpu.present/fewer", "3")


def test_a_job_without_one_of_the_gpus_is_not_told_that_it_is_a_container() -> None:
    machine = gpu_host("mi210", 2)
    hide(machine, 2)
    (finding,) = found(machine)
    kept = "the device cgroup keeps 1 more from this job or service."
    assert (finding.id, finding.message) == ("gpu.present/ok", f"GPUs are there: 1 x Instinct MI210; {kept}")


def test_a_container_that_was_given_no_gpu_warns() -> None:
    machine = gpu_host("mi210", 2)
    machine.files |= IN_DOCKER
    for node in (1, 2):
        hide(machine, node)
    assert ids(found(machine)) == [("gpu.present/hidden", "host", "warn")]
    (finding,) = found(machine, gpus=0)
    assert (finding.id, finding.status, finding.message) == (
        "gpu.present/ok",
        "pass",
        "No GPU is expected, and none is here; the device cgroup keeps 2 more from this container.",
    )


@needs_corpus
@pytest.mark.parametrize(
    ("name", "count", "label"),
    [
        ("mi210-8gpu-2hive-epyc64x2", 8, "8 x Instinct MI210"),
        ("mi300x-8gpu-cpx-63of64-epyc96x2", 8, "8 x Instinct MI300X"),
        ("vega10-1gpu-copied-as-2", 1, "1 x Vega 10"),
    ],
)
def test_recorded_kfd_trees_count_devices_not_nodes(name: str, count: int, label: str) -> None:
    host = open_host(CORPUS / "kfd" / f"{name}.tar.xz")
    (finding,) = judge("gpu.present", host, Expectations(level="quick", gpus=count))
    assert ids([finding]) == [("gpu.present/ok", "host", "pass")]
    assert label in finding.message


@needs_corpus
@pytest.mark.parametrize("path", sorted((CORPUS / "fsroot-controls").glob("*.tar.xz")) if CORPUS.is_dir() else [])
def test_recorded_machines_without_amd_gpus_are_never_failed_for_it(path: object) -> None:
    (finding,) = judge("gpu.present", open_host(path), Expectations(level="quick"))  # type: ignore[arg-type]
    assert finding.status in ("skip", "unknown")


@pytest.mark.parametrize(("attribute", "reason"), [("vendor", "timeout"), ("device", "failed")])
def test_a_gpu_whose_ids_cannot_be_read_is_no_missing_gpu(attribute: str, reason: Outcome) -> None:
    """Seven of eight MI300X say what they are; the eighth is on the bus and does not."""
    machine = gpu_host("mi300x", 8, hives=(8,))
    bdf = machine.bdfs[2]
    machine.unread(f"{machine.pci(bdf)}/{attribute}", reason)
    del machine.links[f"{machine.pci(bdf)}/driver"]
    path = f"/sys/bus/pci/devices/{bdf}/{attribute}"
    for gpus in (None, 8):
        (finding,) = found(machine, gpus)
        assert ids([finding]) == [("gpu.present/unreadable", "host", "unknown")]
        assert (finding.evidence[-1].source, finding.evidence[-1].note) == (path, reason)
        assert bdf in finding.message
    (finding,) = found(machine, 7)
    assert ids([finding]) == [("gpu.present/ok", "host", "pass")]
    (finding,) = found(machine, 9)
    assert ids([finding]) == [("gpu.present/fewer", "host", "fail")]


def test_the_compute_driver_says_the_id_that_the_bus_does_not() -> None:
    machine = gpu_host("mi300x", 8, hives=(8,))
    machine.unread(f"{machine.pci(machine.bdfs[2])}/device", "timeout")
    (finding,) = found(machine)
    assert ids([finding]) == [("gpu.present/ok", "host", "pass")]
    assert "8 x Instinct MI300X" in finding.message


def test_a_gpu_of_unread_id_that_the_compute_driver_does_not_know_either_is_unknown() -> None:
    machine = gpu_host("mi300x", 8, hives=(8,))
    bdf = machine.bdfs[2]
    machine.unread(f"{machine.pci(bdf)}/device", "timeout")
    machine.forget_node(3)
    assert ids(found(machine)) == [("gpu.present/ok", "host", "pass"), ("gpu.present/unreadable", bdf, "unknown")]


@pytest.mark.parametrize("reason", ["timeout", "failed", "denied"])
def test_a_gpu_whose_driver_cannot_be_read_is_unknown(reason: Outcome) -> None:
    machine = gpu_host("mi210", 8, hives=(4, 4))
    machine.unread(f"{machine.pci('0000:42:00.0')}/driver", reason)
    findings = found(machine)
    assert ids(findings) == [("gpu.present/ok", "host", "pass"), (f"gpu.present/{reason}", "0000:42:00.0", "unknown")]
    assert findings[1].evidence[-1].source == "/sys/bus/pci/devices/0000:42:00.0/driver"


@pytest.mark.parametrize("path", ["/sys/module", "/opt", "/var/lib/dkms/amdgpu"])
def test_a_sign_that_could_not_be_looked_for_is_not_called_absent(path: str) -> None:
    machine = cpu_host()
    machine.unread(path, "timeout")
    if path in machine.empty_dirs:
        machine.empty_dirs.remove(path)
    (finding,) = found(machine)
    assert ids([finding]) == [("gpu.present/timeout", "host", "unknown")]
    assert finding.evidence[-1].source == path


def test_expecting_no_gpu_says_so() -> None:
    machine = cpu_host()
    machine.files["/sys/module/amdgpu/initstate"] = "live\n"
    (finding,) = found(machine, gpus=0)
    assert finding.message == "No AMD GPU to judge is on the PCI bus, and none is expected (--expect-gpus or policy)."


def test_an_integrated_gpu_does_not_explain_a_gpu_that_the_log_knows() -> None:
    machine = cpu_host()
    add_device(machine, "0000:05:00.0", [], vendor="0x1002", device="0x1638", class_code="0x030000")
    machine.links[f"{machine.pci('0000:05:00.0')}/driver"] = "../../../bus/pci/drivers/amdgpu"
    machine.files["/sys/module/amdgpu/initstate"] = "live\n"
    machine.files["/dev/kmsg"] = kmsg(NEW_PROBE)
    assert ids(found(machine)) == [("gpu.present/none", "host", "fail")]


def test_a_baseboard_that_is_not_verified_warns_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GpuProduct, "may_fail", lambda row, *fields: False)
    (finding,) = found(off_the_bus("mi300x", 8, 3, hives=(8,)))
    assert ids([finding]) == [("gpu.present/fewer", "host", "warn")]
    assert finding.message.endswith("That its board has so many is not verified.")


def test_a_bus_of_many_virtual_functions_hides_no_gpu() -> None:
    """Their addresses come before those of the GPUs."""
    machine = gpu_host("mi300x", 8, hives=(8,))
    for number in range(8200):
        bdf = f"00000:{number >> 8:02x}:{number >> 3 & 31:02x}.{number & 7}"
        machine.files[f"/sys/bus/pci/devices/{bdf}/class"] = "0x020000\n"
    (finding,) = found(machine, gpus=8)
    assert ids([finding]) == [("gpu.present/ok", "host", "pass")]


def test_nodes_of_the_compute_driver_alone_say_that_gpus_are_expected() -> None:
    machine = lost_from_bus("mi210", 2, 0, 1)
    del machine.files["/sys/module/amdgpu/initstate"], machine.stats["/dev/kfd"]
    findings = found(machine)
    assert ids(findings) == [
        ("gpu.present/none", "host", "fail"),
        ("gpu.present/off-bus", "0000:12:00.0", "fail"),
        ("gpu.present/off-bus", "0000:22:00.0", "fail"),
    ]
    assert [(e.source, e.value) for e in findings[0].evidence[1:]] == [(f"{TOPOLOGY}/nodes", "2 GPU nodes")]


def test_a_node_at_the_address_of_another_device_is_a_sign_too() -> None:
    machine = cpu_host()
    machine.files[f"{TOPOLOGY}/nodes/1/properties"] = "simd_count 416\nlocation_id 256\ndomain 0\n"  # 0000:01:00.0
    assert ids(found(machine)) == [("gpu.present/none", "host", "fail")]


def test_an_integrated_gpu_does_not_explain_a_gpu_that_was_lost() -> None:
    machine = lost_from_bus("mi210", 1, 0)
    add_device(machine, "0000:05:00.0", [], vendor="0x1002", device="0x1638", class_code="0x030000")
    machine.links[f"{machine.pci('0000:05:00.0')}/driver"] = "../../../bus/pci/drivers/amdgpu"
    assert ids(found(machine)) == [
        ("gpu.present/none", "host", "fail"),
        ("gpu.present/off-bus", "0000:12:00.0", "fail"),
    ]


@pytest.mark.parametrize("partitions", [1, 8])
@pytest.mark.parametrize(("gpus", "host"), [(None, "gpu.present/ok"), (7, "gpu.present/ok"), (8, "gpu.present/fewer")])
def test_a_gpu_that_was_lost_from_the_bus_fails_by_its_address(partitions: int, gpus: int | None, host: str) -> None:
    """In a guest of MI210s no product rule and no log says that one is gone; its partitions are one device."""
    machine = lost_from_bus("mi210", 8, 5, hives=(4, 4), partitions=partitions)
    findings = found(machine, gpus)
    assert [(f.id, f.subject.id) for f in findings] == [(host, "host"), ("gpu.present/off-bus", "0000:62:00.0")]
    assert (findings[1].status, findings[1].actual) == ("fail", "off the bus")
    assert [e.value for e in findings[1].evidence] == ["a node at 0000:62:00.0", "no 0000:62:00.0"]


@pytest.mark.parametrize("where", ["nodes", "nodes/1/properties"])
def test_nodes_that_could_not_be_read_may_be_gpus(where: str) -> None:
    machine = cpu_host()
    machine.files[f"{TOPOLOGY}/nodes/1/gpu_id"] = "4711\n"
    machine.unread(f"{TOPOLOGY}/{where}", "timeout")
    (finding,) = found(machine)
    assert ids([finding]) == [("gpu.present/timeout", "host", "unknown")]
    assert finding.evidence[-1].source == f"{TOPOLOGY}/{where}"


def test_one_expected_gpu_is_told_as_one() -> None:
    (finding,) = judge("gpu.present", compose("mi300x-1vf-kvm").host, Expectations(gpus=1))
    assert finding.expected == "1 GPU (--expect-gpus or policy)"
    assert finding.message.startswith("The expected GPU is there: 1 x ")


def test_nodes_that_the_device_cgroup_hides_are_gpus_too() -> None:
    machine = lost_from_bus("mi210", 2, 0, 1)
    del machine.files["/sys/module/amdgpu/initstate"], machine.stats["/dev/kfd"]
    for node in (1, 2):
        hide(machine, node)
    (finding,) = found(machine)
    assert ids([finding]) == [("gpu.present/none", "host", "fail")]
    assert finding.evidence[1].value == "2 GPU nodes"


def test_an_apu_that_has_no_memory_of_its_own_is_whole() -> None:
    host = compose("mi300a-4apu")
    for gpu in host.plan.gpus:
        host.tree.files[f"/sys/bus/pci/devices/{gpu.bdf}/mem_info_vram_total"] = "0\n"
    assert {f.status for f in judge("gpu.present", host.host)} == {"pass"}
