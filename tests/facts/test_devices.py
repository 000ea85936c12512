"""Who may open a device node: the kernel's rule for modes and ACLs, and whose rights are judged."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from amdcheck.facts.devices import DeviceNodes
from amdcheck.facts.judged_user import User, access, is_known_unit, parse_status
from amdcheck.host.protocol import AclEntry, Stat, UdevDevice
from amdcheck.model.expectations import Expectations
from amdcheck.model.value import Known, Unknown
from tests.gpu_hosts import KFD_STAT, USER, gpu_host
from tests.judge import read_fact
from tests.memory_host import memory_host

ANN = User(uid=1000, user="ann", groups=(1000, 109), is_reader=True)
BOB = User(uid=1001, user="bob", groups=(1001,), is_reader=True)
STATUS = "Name:\tvllm\nUid:\t0\t1001\t1001\t1001\nGid:\t0\t1001\t1001\t1001\nGroups:\t44 109 \n"
QUICK = Expectations(level="quick")


def node(mode: int, *acl: AclEntry, uid: int = 0, gid: int = 109) -> Stat:
    return replace(KFD_STAT, mode=mode, uid=uid, gid=gid, acl=acl)


def entry(tag: str, permissions: int, id: int | None = None) -> AclEntry:
    return AclEntry(tag=tag, id=id, permissions=permissions)  # type: ignore[arg-type]


def acl(*named: AclEntry, group: int = 6, mask: int = 6) -> tuple[AclEntry, ...]:
    """A whole ACL around its named entries."""
    return (entry("owner", 6), entry("owning-group", group), *named, entry("mask", mask), entry("other", 0))


@pytest.mark.parametrize(
    ("stat", "user", "allowed", "by"),
    [
        (node(0o660), ANN, True, "group"),
        (node(0o660), BOB, False, "other"),
        (node(0o666), BOB, True, "other"),
        (node(0o640), ANN, False, "group"),
        (node(0o606), ANN, False, "group"),  # the group's lack is not made up for by others' right
        (node(0o060, uid=1000), ANN, False, "owner"),
        (node(0o600), User(uid=0, user="root", groups=(0,), is_reader=True), True, "root"),
        (node(0o660, *acl(entry("user", 6, 1001))), BOB, True, "acl-user"),
        (node(0o660, *acl(entry("user", 6, 1001), mask=4)), BOB, False, "acl-user"),
        (node(0o660, *acl(entry("group", 6, 1001), group=0)), BOB, True, "group"),
    ],
)
def test_access_as_the_kernel_decides_it(stat: Stat, user: User, allowed: bool, by: str) -> None:
    assert (access(stat, user).allowed, access(stat, user).by) == (allowed, by)


def test_status_gives_the_effective_ids_and_all_groups() -> None:
    assert parse_status(STATUS) == (1001, (1001, 44, 109))


@pytest.mark.parametrize("text", ["", "Uid:\n", "Uid:\t1\nGid:\t1\n", "Uid: a b c d\n"])
def test_a_status_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="Uid"):
        parse_status(text)


def test_the_judged_user_is_whoever_runs_amdcheck() -> None:
    machine = gpu_host("mi210", 1)
    machine.identity = USER
    devices = read_fact(DeviceNodes, machine.host(), QUICK)
    assert devices.user == Known(User(uid=1000, user="ann", groups=(1000, 109), is_reader=True), "process credentials")
    assert [(n.path, n.gpu, n.group, n.opened) for n in devices.nodes] == [
        ("/dev/kfd", None, "render", None),
        ("/dev/dri/renderD128", "0000:12:00.0", "render", None),
    ]


def test_the_judged_user_is_the_process_that_pid_names() -> None:
    machine = gpu_host("mi210", 1)
    machine.files["/proc/4711/status"] = STATUS
    machine.files["/etc/passwd"] = "root:x:0:0::/root:/bin/sh\nllm:x:1001:1001::/srv:/bin/false\n"
    user = read_fact(DeviceNodes, machine.host(), Expectations(pid=4711)).user
    assert user.or_none() == User(uid=1001, user="llm", groups=(1001, 44, 109), is_reader=False)


def test_a_service_that_runs_is_judged_by_its_first_process() -> None:
    machine = gpu_host("mi210", 1)
    machine.files["/sys/fs/cgroup/system.slice/vllm.service/cgroup.procs"] = "4711\n4712\n"
    machine.files["/proc/4711/status"] = STATUS
    user = read_fact(DeviceNodes, machine.host(), Expectations(service="vllm")).user
    assert isinstance(user, Known)
    assert (user.value.uid, user.source) == (1001, "/proc/4711/status")


def test_a_service_that_does_not_run_is_judged_by_its_unit_and_drop_ins() -> None:
    machine = gpu_host("mi210", 1)
    machine.files["/usr/lib/systemd/system/vllm.service"] = "[Service]\nUser=nobody\nExecStart=/x\n"
    machine.files["/etc/systemd/system/vllm.service.d/user.conf"] = "[Service]\nUser=llm\nSupplementaryGroups=video\n"
    machine.files["/etc/passwd"] = "llm:x:1001:1001::/srv:/bin/false\n"
    machine.files["/etc/group"] = "llm:x:1001:\nrender:x:109:ann,llm\nvideo:x:44:\n"
    user = read_fact(DeviceNodes, machine.host(), Expectations(service="vllm.service")).user
    assert user.or_none() == User(uid=1001, user="llm", groups=(1001, 109, 44), is_reader=False)


@pytest.mark.parametrize("service", ["nothere", "../../etc/passwd", "a b", "x\n"])
def test_a_service_that_is_none_leaves_the_user_unknown(service: str) -> None:
    user = read_fact(DeviceNodes, gpu_host("mi210", 1).host(), Expectations(service=service)).user
    assert isinstance(user, Unknown)


@pytest.mark.parametrize(
    ("file", "text", "known"),
    [
        ("/sys/fs/cgroup/system.slice/vllm.service/cgroup.procs", "4711\n", True),
        ("/sys/fs/cgroup/system.slice/vllm.service/cgroup.procs", "", False),
        ("/sys/fs/cgroup/system.slice/other.service/cgroup.procs", "4711\n", False),
        ("/etc/systemd/system/vllm.service", "[Service]\n", True),
    ],
)
def test_a_unit_is_known_by_a_process_or_by_its_file(file: str, text: str, known: bool) -> None:
    assert is_known_unit(memory_host({file: text}), "vllm.service") is known


def test_quick_opens_nothing_and_standard_opens_each_node() -> None:
    machine = gpu_host("mi210", 1)
    assert all(n.opened is None for n in read_fact(DeviceNodes, machine.host(), QUICK).nodes)
    assert all(n.opened is not None for n in read_fact(DeviceNodes, machine.host(), Expectations()).nodes)


def test_a_seat_tag_is_asked_for_only_where_there_is_an_acl() -> None:
    machine = gpu_host("w7900", 1)
    machine.stats["/dev/dri/renderD128"] = node(0o660, entry("user", 6, 1000), entry("mask", 6))
    machine.udev = [UdevDevice(node="/dev/dri/renderD128", properties={}, tags=("seat", "uaccess"))]
    devices = read_fact(DeviceNodes, machine.host(), QUICK)
    assert [(n.path, n.seat) for n in devices.nodes] == [("/dev/kfd", False), ("/dev/dri/renderD128", True)]
