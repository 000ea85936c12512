"""gpu.device-access: by mode and owner without opening, by the kernel's answer when opened."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from amdcheck.host.protocol import AclEntry, Identity, OpenOutcome, Stat, UdevDevice
from amdcheck.model.expectations import Expectations, Level
from amdcheck.model.finding import Finding
from tests.facts.test_devices import STATUS
from tests.facts.test_kfd import hide
from tests.gpu_hosts import IN_DOCKER, KFD_STAT, TOPOLOGY, USER, Machine, cpu_host, gpu_host
from tests.judge import judge
from tests.memory_host import ROOT

OUTSIDER = Identity(uid=1000, user="ann", groups=(1000,), group_names={"render": 109, "video": 44}, node_name=None)
NODES = ("/dev/kfd", "/dev/dri/renderD128")


def found(machine: Machine, level: Level = "quick", pid: int | None = None) -> list[Finding]:
    return judge("gpu.device-access", machine.host(), Expectations(level=level, pid=pid))


def ids(findings: list[Finding]) -> list[tuple[str, str, str]]:
    return [(f.id, f.subject.id, f.status) for f in findings]


def one_gpu(identity: Identity = USER, **opens: str | None) -> Machine:
    machine = gpu_host("mi210", 1)
    machine.identity = identity
    machine.opens = {path: OpenOutcome(errno=None) for path in NODES}
    machine.opens |= {f"/dev/{name}": OpenOutcome(errno=errno) for name, errno in opens.items()}
    return machine


def argv(finding: Finding) -> tuple[str, ...] | None:
    assert finding.remedy is not None
    return finding.remedy.steps[0].argv


@pytest.mark.parametrize(("level", "how"), [("quick", "by mode and owner"), ("standard", "opened")])
def test_a_member_of_the_group_may(level: Level, how: str) -> None:
    findings = found(one_gpu(), level)
    assert ids(findings) == [
        ("gpu.device-access/ok", "/dev/kfd", "pass"),
        ("gpu.device-access/ok", "0000:12:00.0", "pass"),
    ]
    assert how in findings[1].message
    assert findings[1].evidence[0].value == "char 0660 uid 0 gid 109 (render)"


def test_who_is_not_in_the_group_learns_the_command() -> None:
    findings = found(one_gpu(OUTSIDER))
    assert ids(findings) == [
        ("gpu.device-access/not-in-group", "/dev/kfd", "fail"),
        ("gpu.device-access/not-in-group", "0000:12:00.0", "fail"),
    ]
    assert argv(findings[0]) == ("usermod", "-aG", "render", "ann")
    assert findings[0].evidence[1].value == "ann (uid 1000), groups 1000"


def test_in_a_container_the_groups_number_is_named() -> None:
    machine = one_gpu(OUTSIDER)
    machine.files |= IN_DOCKER
    finding = found(machine)[0]
    assert ids([finding]) == [("gpu.device-access/container-group", "/dev/kfd", "fail")]
    assert finding.remedy is not None
    assert "--group-add 109" in finding.remedy.steps[0].text


def test_a_node_that_only_root_may_open_lacks_its_udev_rule() -> None:
    machine = one_gpu(OUTSIDER)
    machine.stats["/dev/kfd"] = replace(KFD_STAT, mode=0o600, gid=0)
    assert ids(found(machine))[0] == ("gpu.device-access/udev-rule", "/dev/kfd", "fail")


def test_the_process_of_pid_is_judged_not_root_who_asks() -> None:
    machine = gpu_host("mi210", 1)
    machine.files["/proc/4711/status"] = STATUS.replace("44 109", "44")
    machine.files["/etc/passwd"] = "llm:x:1001:1001::/srv:/bin/false\n"
    machine.opens = {path: OpenOutcome(errno=None) for path in NODES}
    findings = found(machine, "standard", pid=4711)
    assert [f.id for f in findings] == ["gpu.device-access/not-in-group"] * 2
    assert argv(findings[0]) == ("usermod", "-aG", "render", "llm")


def test_a_refusal_to_the_one_who_asks_says_nothing_of_the_judged_process() -> None:
    machine = one_gpu(OUTSIDER, kfd="EACCES")
    machine.files["/proc/4711/status"] = STATUS
    assert ids(found(machine, "standard", pid=4711))[0] == ("gpu.device-access/ok", "/dev/kfd", "pass")


def test_opening_a_device_speaks_for_the_one_who_opened_it_alone() -> None:
    """Neither does our success show that the process may, nor our own cgroup's refusal that it may not."""
    machine = one_gpu(kfd="EPERM")
    machine.files["/proc/4711/status"] = STATUS
    kfd, gpu = found(machine, "standard", pid=4711)
    assert ids([kfd, gpu]) == [
        ("gpu.device-access/ok", "/dev/kfd", "pass"),
        ("gpu.device-access/ok", "0000:12:00.0", "pass"),
    ]
    assert gpu.message.endswith("may use /dev/dri/renderD128 (by mode and owner).")
    assert gpu.evidence[0].note is None


def test_a_process_that_is_gone_leaves_it_unknown() -> None:
    assert ids(found(gpu_host("mi210", 1), pid=4711)) == [("gpu.device-access/absent", "/dev/kfd", "unknown")]


@pytest.mark.parametrize(
    ("errno", "outcome"),
    [
        ("EPERM", "cgroup"),
        ("ENODEV", "stale-device"),
        ("ENXIO", "stale-device"),
        ("EACCES", "blocked"),
        ("ENOMEM", "open-failed"),
        ("EAGAIN", "open-failed"),
    ],
)
def test_what_the_kernel_answers_is_decoded(errno: str, outcome: str) -> None:
    findings = found(one_gpu(kfd=errno), "standard")
    assert ids(findings) == [
        (f"gpu.device-access/{outcome}", "/dev/kfd", "fail"),
        ("gpu.device-access/ok", "0000:12:00.0", "pass"),
    ]
    assert findings[0].evidence[0].note == f"open gives {errno}"


def test_quick_does_not_ask_the_kernel() -> None:
    assert ids(found(one_gpu(kfd="EPERM"), "quick"))[0] == ("gpu.device-access/ok", "/dev/kfd", "pass")


def test_an_open_that_hangs_is_unknown() -> None:
    machine = one_gpu()
    host = machine.host()
    host.capture.unanswered["open"] = {"/dev/kfd": "timeout"}
    del host._opens["/dev/kfd"]
    findings = judge("gpu.device-access", host, Expectations(level="standard"))
    assert ids(findings)[0] == ("gpu.device-access/timeout", "/dev/kfd", "unknown")


@pytest.mark.parametrize(("container", "outcome"), [(False, "no-device"), (True, "not-passed")])
def test_a_node_that_does_not_exist(container: bool, outcome: str) -> None:
    machine = one_gpu()
    del machine.stats["/dev/kfd"], machine.opens["/dev/kfd"]
    machine.empty_dirs.append("/dev")
    if container:
        machine.files |= IN_DOCKER
    assert ids(found(machine))[0] == (f"gpu.device-access/{outcome}", "/dev/kfd", "fail")


def test_a_right_that_ends_with_the_session_warns() -> None:
    machine = one_gpu(OUTSIDER)
    acl = (
        AclEntry(tag="owner", id=None, permissions=6),
        AclEntry(tag="user", id=1000, permissions=6),
        AclEntry(tag="owning-group", id=None, permissions=6),
        AclEntry(tag="mask", id=None, permissions=6),
        AclEntry(tag="other", id=None, permissions=0),
    )
    machine.stats |= {path: replace(KFD_STAT, acl=acl) for path in NODES}
    machine.udev = [UdevDevice(node=path, properties={}, tags=("uaccess",)) for path in NODES]
    findings = found(machine)
    assert [f.id for f in findings] == ["gpu.device-access/session-only"] * 2
    assert findings[0].status == "warn"
    assert findings[0].evidence[0].value == "char 0660 uid 0 gid 109 (render) +acl"


def test_one_partitions_node_that_is_closed_fails_its_gpu() -> None:
    machine = gpu_host("mi300x", 1, partitions=8)
    machine.identity = USER
    machine.stats["/dev/dri/renderD133"] = replace(KFD_STAT, mode=0o600)
    finding = found(machine)[1]
    assert ids([finding]) == [("gpu.device-access/udev-rule", "0000:12:00.0", "fail")]
    assert "/dev/dri/renderD133" in finding.message


def test_gpus_that_a_container_was_not_given_are_skipped() -> None:
    machine = gpu_host("mi210", 2)
    machine.files |= IN_DOCKER
    hide(machine, 2)
    del machine.stats["/dev/dri/renderD129"]
    assert ids(found(machine)) == [
        ("gpu.device-access/ok", "/dev/kfd", "pass"),
        ("gpu.device-access/ok", "0000:12:00.0", "pass"),
        ("gpu.device-access/not-applicable", "0000:22:00.0", "skip"),
    ]


def test_without_the_driver_and_without_a_gpu_it_is_skipped() -> None:
    machine = gpu_host("mi210", 1)
    del machine.files["/sys/module/amdgpu/initstate"]
    machine.empty_dirs.append("/sys/module")
    assert ids(found(machine)) == [("gpu.device-access/not-applicable", "/dev/kfd", "skip")]
    assert ids(found(cpu_host())) == [("gpu.device-access/not-applicable", "host", "skip")]


def test_a_tree_that_keeps_no_owners_is_unknown() -> None:
    machine = one_gpu()
    machine.stats, machine.opens = {}, {}
    assert {f.status for f in judge("gpu.device-access", machine.host(complete=False), Expectations())} <= {
        "unknown",
        "skip",
    }


def folder(mode: int) -> Stat:
    return replace(KFD_STAT, kind="dir", mode=mode, gid=0, device=None)


@pytest.mark.parametrize("pid", [None, 4711])
def test_a_folder_that_the_judged_user_may_not_search_closes_its_nodes(pid: int | None) -> None:
    """Root who asks sees the node in it; the user of the process does not reach it."""
    machine = gpu_host("mi210", 1)
    machine.identity = USER if pid is None else ROOT
    machine.files["/proc/4711/status"] = STATUS
    machine.stats["/dev/dri"] = folder(0o700)
    kfd, gpu = found(machine, pid=pid)
    assert ids([kfd, gpu]) == [
        ("gpu.device-access/ok", "/dev/kfd", "pass"),
        ("gpu.device-access/folder-closed", "0000:12:00.0", "fail"),
    ]
    assert gpu.message.endswith("cannot open /dev/dri/renderD128: /dev/dri may not be searched.")
    assert (gpu.evidence[1].source, gpu.evidence[1].value) == ("/dev/dri", "dir 0700 uid 0 gid 0")
    machine.stats["/dev"] = folder(0o700)
    assert [f.id for f in found(machine, pid=pid)] == ["gpu.device-access/folder-closed"] * 2


def test_root_searches_every_folder() -> None:
    machine = gpu_host("mi210", 1)
    machine.stats["/dev/dri"] = folder(0o700)
    assert {f.id for f in found(machine)} == {"gpu.device-access/ok"}


@pytest.mark.parametrize(("pid", "status"), [(None, "fail"), (4711, "unknown")])
def test_a_node_that_may_not_be_looked_at_is_closed_to_who_asks_and_unknown_of_others(
    pid: int | None, status: str
) -> None:
    machine = gpu_host("mi210", 1)
    machine.identity = USER
    machine.files["/proc/4711/status"] = STATUS
    del machine.stats["/dev/dri/renderD128"]
    machine.outcomes["/dev/dri/renderD128"] = "denied"
    outcome = "folder-closed" if status == "fail" else "denied"
    assert ids(found(machine, pid=pid))[1] == (f"gpu.device-access/{outcome}", "0000:12:00.0", status)


def nameless() -> Machine:
    """The second GPU has no render node that the driver names."""
    machine = gpu_host("mi210", 2)
    place = machine.pci("0000:22:00.0")
    del machine.files[f"{place}/drm/renderD129/dev"], machine.stats["/dev/dri/renderD129"]
    properties = f"{TOPOLOGY}/nodes/2/properties"
    machine.files[properties] = str(machine.files[properties]).replace("drm_render_minor 129", "drm_render_minor 0")
    return machine


@pytest.mark.parametrize(("container", "outcome"), [(False, "no-device"), (True, "not-passed")])
def test_a_gpu_that_is_driven_and_has_no_render_node_fails(container: bool, outcome: str) -> None:
    machine = nameless()
    if container:
        machine.files |= IN_DOCKER
    finding = found(machine)[2]
    assert ids([finding]) == [(f"gpu.device-access/{outcome}", "0000:22:00.0", "fail")]
    assert [(e.source, e.value) for e in finding.evidence] == [
        ("/sys/bus/pci/devices/0000:22:00.0/driver", "amdgpu"),
        ("/dev/dri", "no render node of this GPU"),
    ]


def test_a_render_node_that_nobody_names_may_be_the_gpus() -> None:
    machine = nameless()
    machine.stats["/dev/dri/renderD135"] = KFD_STAT
    finding = found(machine)[2]
    assert ids([finding]) == [("gpu.device-access/absent", "0000:22:00.0", "unknown")]
    assert finding.evidence[-1].source == "/sys/bus/pci/devices/0000:22:00.0/drm"


def test_render_nodes_that_cannot_be_listed_are_not_missed() -> None:
    machine = nameless()
    machine.outcomes["/dev/dri"] = "timeout"
    finding = found(machine)[2]
    assert ids([finding]) == [("gpu.device-access/timeout", "0000:22:00.0", "unknown")]
