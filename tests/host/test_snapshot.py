"""SnapshotHost: what a capture holds is answered, what it does not hold is not-recorded and never a guess."""

from __future__ import annotations

import pytest

from amdcheck.host.protocol import (
    Command,
    CommandResult,
    Host,
    OpenOutcome,
    SelfTest,
    SelfTestResult,
    Stat,
    SystemAnswers,
    UdevDevice,
)
from amdcheck.model.value import Known, Unknown
from tests.memory_host import ROOT, memory_host

GPU = "/sys/devices/pci0000:00/0000:00:01.1/0000:03:00.0"
BUS = "/sys/bus/pci/devices/0000:03:00.0"
LINKS = {BUS: "../../../devices/pci0000:00/0000:00:01.1/0000:03:00.0"}


def one_gpu(**more: str) -> Host:
    return memory_host({f"{GPU}/vendor": "0x1002\n", **more}, links=LINKS)


def reason(value: object) -> str:
    assert isinstance(value, Unknown), value
    return value.reason


def test_a_file_is_read_through_the_link_and_at_its_place() -> None:
    host = one_gpu()
    assert host.read(f"{BUS}/vendor") == Known("0x1002\n", f"{BUS}/vendor")
    assert host.read_bytes(f"{GPU}/vendor") == Known(b"0x1002\n", f"{GPU}/vendor")


def test_a_file_named_below_a_link_lands_at_the_target() -> None:
    host = memory_host({f"{BUS}/vendor": "0x1002\n"}, links=LINKS)
    assert host.read(f"{GPU}/vendor").or_none() == "0x1002\n"
    assert host.entries(BUS).or_none() == ("vendor",)


def test_siblings_of_a_complete_folder_are_absent() -> None:
    host = one_gpu()
    for path in (f"{BUS}/numa_node", f"{GPU}/numa_node", "/proc/cpuinfo", "/sys/bus/pci/devices/0000:04:00.0/vendor"):
        assert reason(host.read(path)) == "absent", path
        assert reason(host.stat(path)) == "absent", path


def test_without_listings_nothing_is_absent() -> None:
    host = memory_host({"/proc/version": "Linux"}, complete=False)
    assert host.read("/proc/version").or_none() == "Linux"
    assert reason(host.read("/proc/cpuinfo")) == "not-recorded"
    assert reason(host.entries("/proc")) == "not-recorded"


def test_a_listed_name_without_text_is_not_recorded() -> None:
    host = memory_host({}, stats={"/dev/kfd": _stat("char")})
    assert host.entries("/dev").or_none() == ("kfd",)
    assert reason(host.read("/dev/kfd")) == "not-recorded"
    assert reason(host.read("/dev/dri")) == "absent"


def test_outcomes_hold_for_what_lies_below() -> None:
    host = memory_host({"/proc/version": ""}, outcomes={"/sys/kernel/debug": "denied", "/opt/rocm": "absent"})
    assert reason(host.read("/sys/kernel/debug/dri/0/name")) == "denied"
    assert reason(host.entries("/sys/kernel/debug")) == "denied"
    assert host.entries("/sys/kernel").or_none() == ("debug",)
    assert reason(host.read("/opt/rocm/.info/version")) == "absent"


def test_folders_are_no_files_and_files_no_folders() -> None:
    host = one_gpu()
    assert reason(host.read(GPU)) == "failed"
    assert reason(host.entries(f"{GPU}/vendor")) == "absent"
    assert reason(host.read(f"{GPU}/vendor/x")) == "absent"


def test_links_and_real_paths() -> None:
    host = one_gpu()
    assert host.link(BUS).or_none() == LINKS[BUS]
    assert host.resolve(BUS).or_none() == GPU
    assert host.resolve(f"{BUS}/../0000:03:00.0/vendor").or_none() == f"{GPU}/vendor"
    assert host.resolve("/").or_none() == "/"
    assert reason(host.link(GPU)) == "absent"
    assert reason(host.resolve(f"{BUS}/gone")) == "absent"


def test_links_that_go_round_fail() -> None:
    host = memory_host({}, links={"/a": "/b", "/b": "/a"})
    assert reason(host.read("/a")) == "failed"
    assert reason(host.read("/a/x")) == "failed"


@pytest.mark.parametrize("path", ["", "proc/version", "/a\0b", "/" + "x" * 5000, "/\ud800"])
def test_a_path_that_is_none_fails(path: str) -> None:
    assert reason(memory_host({"/a": ""}).read(path)) == "failed"


def test_bytes_that_are_no_utf8_and_limits() -> None:
    host = memory_host({"/sys/firmware": b"\xff\x00E", "/proc/x": "größe"})
    assert host.read("/sys/firmware").or_none() == "\\xff\0E"
    assert host.read_bytes("/sys/firmware", limit=1).or_none() == b"\xff"
    assert host.read("/proc/x", limit=3).or_none() == "gr\\xc3"
    assert host.read("/proc/x", limit=7).or_none() == "größe"


def test_devices_commands_selftests_and_answers_about_the_machine() -> None:
    opened = OpenOutcome(errno="EACCES")
    node = UdevDevice(node="/dev/kfd", properties={"TAGS": ":uaccess:"}, tags=("uaccess",))
    ran = _result(("rocm-smi", "--json"), "{}")
    tested = SelfTestResult(name="cpu.isa", params=("avx2",), python=None, result=_result(("python",), "{}"))
    system = SystemAnswers(
        logical_cpus=2, physical_cores=1, memory_bytes=1, available_bytes=1, load_1m=0.5, boot_time=1.0
    )
    host = memory_host(
        {},
        stats={"/dev/kfd": _stat("char")},
        opens={"/dev/kfd": opened},
        udev=[node],
        unanswered={"udev": {"/dev/null": "absent"}, "run": {"amd-smi": "absent"}},
        commands=[ran],
        selftests=[tested],
        system=system,
    )
    assert host.stat("/dev/kfd").or_none() == _stat("char")
    assert host.probe_open("/dev/kfd").or_none() == opened
    assert host.udev(["/dev/kfd", "/dev/null"]).or_none() == (node,)
    assert reason(host.udev(["/dev/dri"])) == "not-recorded"
    assert host.system().or_none() == system
    assert host.identity().or_none() == ROOT
    smi, absent, unasked = host.run(
        [Command(argv=("rocm-smi", "--json")), Command(argv=("amd-smi",)), Command(argv=("lscpu",))]
    )
    assert smi == Known(ran, "rocm-smi --json")
    assert (reason(absent), reason(unasked)) == ("absent", "not-recorded")
    assert host.selftest(SelfTest(name="cpu.isa", params=("avx2",))).or_none() == tested
    assert (
        reason(host.selftest(SelfTest(name="cpu.isa", params=("avx2",), python="/usr/bin/python3"))) == "not-recorded"
    )
    assert reason(memory_host({}).system()) == "not-recorded"


def _stat(kind: str) -> Stat:
    return Stat(
        kind="char" if kind == "char" else "file",
        mode=0o660,
        uid=0,
        gid=109,
        size=0,
        device=(511, 0),
        acl=(),
        filesystem=None,
    )


def _result(argv: tuple[str, ...], stdout: str) -> CommandResult:
    return CommandResult(argv=argv, rc=0, stdout=stdout, stderr="", duration_s=0.1, timed_out=False)
