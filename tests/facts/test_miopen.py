"""MIOpen's libraries and databases in every layout, the names of its databases, and the user's folders."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from amdcheck.facts.miopen import MiopenInstall, MiopenInstalls, version_of_header
from amdcheck.facts.miopen_user import MiopenUser
from amdcheck.facts.packages import parse as parse_packages
from amdcheck.host.protocol import AclEntry, CommandResult, Identity, SelfTestResult, Stat
from amdcheck.knowledge import miopen as table
from amdcheck.model.expectations import Expectations, Level
from amdcheck.model.value import Known, Unknown
from tests.judge import read_fact
from tests.memory_host import memory_host

SQLITE = b"SQLite format 3\0" + bytes(4096)
HEADER = "#define MIOPEN_VERSION_MAJOR 3\n#define MIOPEN_VERSION_MINOR 3\n#define MIOPEN_VERSION_PATCH 0\n"
ROOT = "/opt/rocm-6.3.3"
FILES: dict[str, str | bytes] = {
    f"{ROOT}/.info/version": "6.3.3-74\n",
    f"{ROOT}/lib/libMIOpen.so.1.0.60303": "x",
    f"{ROOT}/include/miopen/version.h": HEADER,
    f"{ROOT}/share/miopen/db/gfx90a68.HIP.fdb.txt": "x",
    f"{ROOT}/share/miopen/db/gfx90a.kdb": SQLITE,
}
LINKS = {f"{ROOT}/lib/libMIOpen.so.1": "libMIOpen.so.1.0.60303"}


def command(argv: tuple[str, ...], stdout: str) -> CommandResult:
    return CommandResult(
        argv=argv, rc=0, stdout=stdout, stderr="", duration_s=0.1, timed_out=False, truncated=False, stuck=()
    )


def selftest(library: str, document: object) -> SelfTestResult:
    result = command(("python",), json.dumps(document))
    return SelfTestResult(name="miopen-version", params=(library,), python=None, result=result)


def installs(
    files: dict[str, str | bytes],
    links: dict[str, str],
    *,
    level: Level = "quick",
    tests: tuple[SelfTestResult, ...] = (),
    commands: tuple[CommandResult, ...] = (),
    python: str | None = None,
) -> tuple[MiopenInstall, ...]:
    host = memory_host(files, links=links, selftests=tests, commands=commands)
    return read_fact(MiopenInstalls, host, Expectations(level=level, python=python)).installs


def test_legacy_installation_at_quick() -> None:
    (found,) = installs(FILES, LINKS)
    assert found.library == Known(f"{ROOT}/lib/libMIOpen.so.1.0.60303", f"{ROOT}/lib/libMIOpen.so.1")
    assert found.built_for.or_none() == "6.3.3"
    assert found.version == Known("3.3.0", f"{ROOT}/include/miopen/version.h")
    assert isinstance(found.api, Unknown)
    assert found.system_db.path == f"{ROOT}/share/miopen/db"
    assert [(db.name, db.is_sqlite.or_none()) for db in found.system_db.kernel_dbs] == [("gfx90a.kdb", True)]


def test_library_is_asked_at_standard_and_its_word_comes_first() -> None:
    library = f"{ROOT}/lib/libMIOpen.so.1.0.60303"
    said = {"test": "miopen-version", "ended": "returned", "detail": None, "result": {"version": "3.3.0"}}
    (found,) = installs(FILES, LINKS, level="standard", tests=(selftest(library, said),))
    assert found.version == Known("3.3.0", f"miopenGetVersion of {library}")


@pytest.mark.parametrize(
    "document",
    [
        {"ended": "SIGSEGV", "detail": None, "result": None},
        {"ended": "failed", "detail": "OSError: libamdhip64.so.6: cannot open", "result": None},
        {"result": {"version": "3"}},
        [1, 2],
        "3.3.0",
    ],
)
def test_library_that_cannot_be_asked(document: object) -> None:
    library = f"{ROOT}/lib/libMIOpen.so.1.0.60303"
    (found,) = installs(FILES, LINKS, level="standard", tests=(selftest(library, document),))
    assert isinstance(found.api, Unknown)
    assert found.version.or_none() == "3.3.0"  # by the header


def test_library_that_kills_its_child_is_told_by_the_signal() -> None:
    library = f"{ROOT}/lib/libMIOpen.so.1.0.60303"
    asked = selftest(library, {})
    died = replace(asked, result=replace(asked.result, rc=-11, stdout=""))
    (found,) = installs(FILES, LINKS, level="standard", tests=(died,))
    assert found.api == Unknown("failed", f"miopenGetVersion of {library}", "the child was killed by SIGSEGV")


def test_package_of_the_same_release_is_taken_and_of_another_is_not() -> None:
    argv = ("dpkg-query", "-W", "-f=${Package}\\t${Version}\\t${db:Status-Status}\\n")
    for text, expected in (("3.3.0.60303-74~22.04", "3.3.0"), ("3.4.0.60401-83~22.04", None)):
        answer = command((*argv, "miopen-hip"), f"miopen-hip\t{text}\tinstalled\n")
        (found,) = installs(FILES, LINKS, level="standard", commands=(answer,))
        assert found.package.or_none() == expected


def test_rocm_without_miopen() -> None:
    (found,) = installs({f"{ROOT}/.info/version": "6.3.3"}, {})
    assert isinstance(found.library, Unknown)
    assert found.library.reason == "absent"


def test_layout_before_the_files_were_reorganized() -> None:
    root = "/opt/rocm-5.1.1"
    files: dict[str, str | bytes] = {
        f"{root}/.info/version": "5.1.1",
        f"{root}/miopen/lib/libMIOpen.so.1.0.50101": "x",
        f"{root}/miopen/share/miopen/db/gfx90878.HIP.fdb.txt": "x",
    }
    (found,) = installs(files, {f"{root}/miopen/lib/libMIOpen.so.1": "libMIOpen.so.1.0.50101"})
    assert found.built_for.or_none() == "5.1.1"
    assert found.system_db.path == f"{root}/miopen/share/miopen/db"


def test_core_layout() -> None:
    root = "/opt/rocm/core-10.0"
    files: dict[str, str | bytes] = {
        f"{root}/.info/version": "10.0.0",
        f"{root}/lib/libMIOpen.so.1.0": "x",
        f"{root}/share/miopen/db/gfx942130.db.txt": "x",
    }
    (found,) = installs(files, {f"{root}/lib/libMIOpen.so.1": "libMIOpen.so.1.0"})
    assert isinstance(found.built_for, Unknown)
    assert found.system_db.names.or_none() == ("gfx942130.db.txt",)


def test_wheels_keep_miopen_beside_the_core() -> None:
    site = "/opt/venv/lib/python3.12/site-packages"
    files: dict[str, str | bytes] = {
        f"{site}/_rocm_sdk_core/lib/x": "",
        f"{site}/rocm_sdk_core-7.14.0.dist-info/RECORD": "",
        f"{site}/_rocm_sdk_libraries_gfx94X_dcgpu/lib/libMIOpen.so.1": "x",
        f"{site}/_rocm_sdk_libraries_gfx94X_dcgpu/share/miopen/db/gfx942.kdb": SQLITE,
    }
    (found,) = installs(files, {})
    assert found.root == f"{site}/_rocm_sdk_libraries_gfx94X_dcgpu"
    assert found.rocm_version.or_none() == "7.14.0"
    assert found.system_db.names.or_none() == ("gfx942.kdb",)


def test_pytorch_wheel_brings_its_own() -> None:
    site = "/srv/env/lib/python3.12/site-packages"
    files: dict[str, str | bytes] = {
        f"{site}/torch/lib/libMIOpen.so": "x",
        f"{site}/torch-2.7.0+rocm6.3.dist-info/METADATA": "",
        f"{site}/torch/share/miopen/db/gfx90a68.HIP.fdb.txt": "x",
    }
    (found,) = installs(files, {}, python="/srv/env/bin/python3")
    assert found.root == f"{site}/torch"
    assert found.rocm_version.or_none() == "6.3"
    assert found.system_db.path == f"{site}/torch/share/miopen/db"


@pytest.mark.parametrize(
    ("content", "real"),
    [
        (SQLITE, True),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 8\n", False),
        (b"outs:\n- md5: 0.dir\n  size: 8\n", False),
        (b"SQLite format 3\0", False),  # shorter than any database
        (b"", False),
    ],
)
def test_kernel_database_or_what_was_left_in_its_place(content: bytes, real: bool) -> None:
    (found,) = installs({**FILES, f"{ROOT}/share/miopen/db/gfx90a.kdb": content}, LINKS)
    assert found.system_db.kernel_dbs[0].is_sqlite.or_none() is real


@pytest.mark.parametrize("text", ["", "#define MIOPEN_VERSION_MAJOR 3", "MIOPEN_VERSION_MAJOR 3.3.0"])
def test_header_without_a_whole_version(text: str) -> None:
    with pytest.raises(ValueError, match="not all there"):
        version_of_header(text)


@given(st.text(max_size=200))
def test_no_package_text_breaks_the_reader(text: str) -> None:
    parse_packages(text)


# -- names -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gfx", "units", "names"),
    [
        ("gfx906", 60, ("gfx906_60",)),
        ("gfx906", 64, ("gfx906_64",)),
        ("gfx908", 120, ("gfx90878",)),
        ("gfx90a", 104, ("gfx90a68",)),
        ("gfx90a", 110, ("gfx90a6e",)),
        ("gfx942", 304, ("gfx942130",)),
        ("gfx942", 228, ("gfx942e4",)),
        ("gfx942", 38, ("gfx942_38",)),  # CPX
        ("gfx942", 80, ("gfx94250",)),  # MI308X
        ("gfx942", 20, ("gfx942_20",)),
        ("gfx950", 256, ("gfx950100",)),
        ("gfx950", 32, ("gfx950_32",)),
        ("gfx1030", 72, ("gfx1030_36",)),
        ("gfx1100", 96, ("gfx1100_48", "gfx110060")),
        ("gfx1100", 84, ("gfx1100_42", "gfx110054")),
        ("gfx1100", 70, ("gfx1100_35", "gfx110046")),
        ("gfx1102", 32, ("gfx1102_16", "gfx110220")),
        ("gfx1201", 64, ("gfx1201_32", "gfx120140")),
        ("gfx1151", 40, ("gfx1151_20", "gfx115128")),
        ("gfx1200", 32, ("gfx1200_16", "gfx120020")),
        ("gfx1101", 60, ("gfx1101_30",)),
    ],
)
def test_database_name_of_a_device(gfx: str, units: int, names: tuple[str, ...]) -> None:
    assert table.base_names(gfx, units) == names


def test_database_name_with_suffixes() -> None:
    assert table.base_names("gfx90a", 104, xnack=True) == ("gfx90a_xnack68",)


def test_smaller_gfx942_reads_the_full_devices_database() -> None:
    assert table.redirected_name("gfx942", 80) == "gfx942130"
    assert table.redirected_name("gfx942", 38) == "gfx942130"
    assert table.redirected_name("gfx942", 228) is None
    assert table.redirected_name("gfx950", 32) is None


def test_number_in_a_name_belongs_to_its_target_alone() -> None:
    assert table.count_of("gfx90a68", "gfx90a") == 104
    assert table.count_of("gfx942_38", "gfx942") == 38
    assert table.count_of("gfx1100_48", "gfx110") is None
    assert table.nearest_name("gfx90a", 108, frozenset({"gfx90a68", "gfx90a6e", "gfx90878"})) == "gfx90a6e"


def test_search_for_the_nearest_count_works_only_after_3_5_1() -> None:
    assert [table.searches_nearest(v) for v in ("3.3.0", "3.5.1", "3.5.2", "3.6.0")] == [False, False, True, True]


def test_version_of_a_release() -> None:
    row = table.carried_by("5.0")
    assert row is not None
    assert row.matches("2.15.0")
    newer = table.carried_by("7.14")
    assert newer is not None
    assert newer.matches("3.6.0")
    assert not newer.matches("3.5.1")


# -- the user's folders ------------------------------------------------------------------------------------------------

EXT4, NFS = 0xEF53, 0x6969
PASSWD = "root:x:0:0:root:/root:/bin/bash\nserve:x:1200:1200::/home/serve:/bin/sh\n"
SERVE = Identity(uid=1200, user="serve", groups=(1200, 109), group_names={}, node_name=None)


def folder(*, mode: int = 0o755, uid: int = 1200, gid: int = 1200, magic: int = EXT4,
           acl: tuple[AclEntry, ...] = ()) -> Stat:  # fmt: skip
    return Stat(kind="dir", mode=mode, uid=uid, gid=gid, size=4096, device=None, acl=acl, filesystem=magic)


def user(
    stats: dict[str, Stat], files: dict[str, str] | None = None, *, pid: int | None = None, service: str | None = None
) -> MiopenUser:
    host = memory_host({"/etc/passwd": PASSWD, **(files or {})}, stats=stats, empty_dirs=stats, identity=SERVE)
    return read_fact(MiopenUser, host, Expectations(level="quick", pid=pid, service=service))


def test_home_of_whoever_runs() -> None:
    read = user({"/home/serve": folder()})
    assert isinstance(read.user, Known)
    assert (read.user.value.label, read.home.or_none(), read.asked_for) == ("serve", "/home/serve", False)
    assert [(f.purpose, f.path, f.nearest, f.writable.or_none()) for f in read.folders] == [
        ("user database", "/home/serve/.config/miopen", "/home/serve", True),
        ("kernel cache", "/home/serve/.cache/miopen", "/home/serve", True),
    ]


def test_process_of_a_service_with_its_own_environment() -> None:
    files = {
        "/sys/fs/cgroup/system.slice/vllm.service/cgroup.procs": "4242\n4243\n",
        "/proc/4242/status": "Name:\tpython\nUid:\t1200\t1200\t1200\t1200\nGid:\t1200\t1200\nGroups:\t109 44\n",
        "/proc/4242/environ": "HOME=/srv/serve\0HSA_XNACK=1\0MIOPEN_USER_DB_PATH=/var/lib/miopen\0",
    }
    read = user({"/srv/serve": folder(), "/var/lib/miopen": folder(uid=0, mode=0o755)}, files, service="vllm")
    assert (read.asked_for, read.xnack, read.home.or_none()) == (True, True, "/srv/serve")
    assert [(f.path, f.set_by, f.writable.or_none()) for f in read.folders] == [
        ("/var/lib/miopen", "MIOPEN_USER_DB_PATH", False),
        ("/srv/serve/.cache/miopen", None, True),
    ]


@pytest.mark.parametrize("service", ["../../../etc", "a/b", "", ".hidden"])
def test_service_name_never_leaves_its_folder(service: str) -> None:
    read = user({}, service=service)
    assert isinstance(read.user, Unknown)
    assert read.folders == ()


@pytest.mark.parametrize(
    ("stat", "writable"),
    [
        (folder(mode=0o700), True),
        (folder(mode=0o500), False),
        (folder(uid=0, gid=109, mode=0o770), True),
        (folder(uid=0, gid=109, mode=0o750), False),
        (folder(uid=0, gid=0, mode=0o777), True),
        (folder(uid=0, gid=0, mode=0o755), False),
        (folder(uid=0, gid=0, mode=0o770, acl=(AclEntry(tag="user", id=1200, permissions=7),)), True),
        (
            folder(
                uid=0,
                gid=0,
                mode=0o770,
                acl=(AclEntry(tag="user", id=1200, permissions=7), AclEntry(tag="mask", id=None, permissions=5)),
            ),
            False,
        ),
        (folder(uid=0, gid=0, mode=0o770, acl=(AclEntry(tag="group", id=109, permissions=7),)), True),
    ],
)
def test_who_may_write(stat: Stat, writable: bool) -> None:
    assert user({"/home/serve": stat}).folders[0].writable.or_none() is writable


def test_read_only_mount_is_noticed_and_the_longest_mount_point_counts() -> None:
    mounts = ["tmpfs /home tmpfs rw 0 0\n", "overlay / overlay ro,relatime 0 0\n", "tmpfs /hom tmpfs ro 0 0\n"]
    for order in (mounts, mounts[::-1]):
        read = user({"/home/serve": folder()}, {"/proc/self/mounts": "".join(order)})
        assert read.folders[0].read_only_mount.or_none() is False
    read = user({"/home/serve": folder()}, {"/proc/self/mounts": "overlay / overlay ro,relatime 0 0\n"})
    assert read.folders[0].read_only_mount.or_none() is True


def test_random_uid_of_a_container_has_no_account() -> None:
    host = memory_host({"/etc/passwd": PASSWD}, identity=Identity(
        uid=1000680000, user=None, groups=(0,), group_names={}, node_name=None))  # fmt: skip
    read = read_fact(MiopenUser, host, Expectations(level="quick"))
    assert read.home == Known(None, "/etc/passwd")
    assert (read.folders, read.without_place) == ((), ("user database", "kernel cache"))


STATUS = "Uid:\t1200\t1200\t1200\t1200\nGid:\t1200\t1200\t1200\t1200\nGroups:\t109\n"


def test_mounts_are_those_of_the_judged_process() -> None:
    files = {
        "/proc/7/status": STATUS,
        "/proc/7/environ": "HOME=/home/serve\0",
        "/proc/7/mounts": "overlay / overlay ro,relatime 0 0\n",
        "/proc/self/mounts": "/dev/sda1 / ext4 rw,relatime 0 0\n",
    }
    read = user({"/home/serve": folder()}, files, pid=7)
    assert [f.read_only_mount for f in read.folders] == [Known(True, "/proc/7/mounts")] * 2


def test_process_whose_environment_may_not_be_read_leaves_the_folders_unknown() -> None:
    files = {"/etc/passwd": PASSWD, "/proc/7/status": STATUS}
    host = memory_host(files, outcomes={"/proc/7/environ": "denied"}, stats={"/home/serve": folder()})
    read = read_fact(MiopenUser, host, Expectations(level="quick", pid=7))
    assert read.folders == ()
    assert read.home == Unknown("denied", "/proc/7/environ")


@pytest.mark.parametrize(
    "path",
    [
        "/sys/fs/cgroup/systemd/system.slice/vllm@0.service",
        "/sys/fs/cgroup/system.slice/system-vllm.slice/vllm@0.service",
    ],
)
def test_service_is_found_under_cgroup_v1_and_in_the_slice_of_its_template(path: str) -> None:
    files = {f"{path}/cgroup.procs": "7\n", "/proc/7/status": STATUS, "/proc/7/environ": "HOME=/srv/serve\0"}
    read = user({"/srv/serve": folder()}, files, service="vllm@0")
    assert [f.path for f in read.folders] == ["/srv/serve/.config/miopen", "/srv/serve/.cache/miopen"]


def test_service_that_does_not_run_is_judged_by_its_template_and_what_that_sets() -> None:
    unit = '[Service]\nUser=serve\nEnvironment="MIOPEN_USER_DB_PATH=/var/lib/miopen" HSA_XNACK=1\n'
    files = {"/etc/systemd/system/vllm@.service": unit, "/etc/group": ""}
    read = user({"/var/lib/miopen": folder()}, files, service="vllm@0")
    assert (read.asked_for, read.xnack, read.home.or_none()) == (True, True, "/home/serve")
    assert [(f.path, f.writable.or_none()) for f in read.folders] == [
        ("/var/lib/miopen", True),
        ("/home/serve/.cache/miopen", None),  # nothing is recorded of /home
    ]


def test_environment_file_of_a_service_that_does_not_run_leaves_its_folders_unknown() -> None:
    files = {"/etc/systemd/system/vllm.service": "[Service]\nUser=serve\nEnvironmentFile=-/etc/default/vllm\n"}
    read = user({"/home/serve": folder()}, files, service="vllm")
    assert read.folders == ()
    assert isinstance(read.home, Unknown)
    assert read.home.reason == "failed"


@given(st.text(max_size=120), st.text(max_size=120))
def test_no_text_breaks_the_user(status: str, environ: str) -> None:
    user({}, {"/proc/7/status": status, "/proc/7/environ": environ}, pid=7)
