"""miopen.*: the library of the wrong release, databases that are missing, pointers, homes on a network."""

from __future__ import annotations

import pytest

from amdcheck.host.protocol import Identity, Stat
from amdcheck.model.expectations import Expectations
from amdcheck.model.finding import Finding
from tests.checks.saying import only, sources, summary, values
from tests.compose import compose, machine_names
from tests.gpu_hosts import Machine, gpu_host
from tests.judge import judge
from tests.memory_host import memory_host

QUICK = Expectations(level="quick")
SQLITE = b"SQLite format 3\0" + bytes(4096)
WITH_MIOPEN = [name for name in machine_names() if "cpu" not in name]


def header(version: str) -> str:
    fields = zip(("MAJOR", "MINOR", "PATCH"), version.split("."), strict=True)
    return "".join(f"#define MIOPEN_VERSION_{name} {value}\n" for name, value in fields)


def machine(
    product: str = "mi210",
    *,
    rocm: str = "6.3.3",
    miopen: str | None = "3.3.0",
    names: tuple[str, ...] = (),
    partitions: int = 1,
) -> Machine:
    """One GPU, one ROCm installation with MIOpen, and these names in its database folder."""
    found = gpu_host(product, 1, partitions=partitions)
    root, number = f"/opt/rocm-{rocm}", "".join(part.rjust(2, "0") for part in rocm.split(".")).lstrip("0")
    found.files |= {f"{root}/.info/version": f"{rocm}\n", f"{root}/lib/libMIOpen.so.1.0.{number}": "x"}
    found.links[f"{root}/lib/libMIOpen.so.1"] = f"libMIOpen.so.1.0.{number}"
    if miopen is not None:
        found.files[f"{root}/include/miopen/version.h"] = header(miopen)
    found.files |= {f"{root}/share/miopen/db/{name}": SQLITE if name.endswith(".kdb") else "x" for name in names}
    return found


def judged(check: str, on: Machine, expect: Expectations = QUICK) -> list[Finding]:
    return judge(check, on.host(), expect)


# -- miopen.version ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WITH_MIOPEN)
@pytest.mark.parametrize("level", ["quick", "standard"])
def test_miopen_of_composed_machines_is_the_one_of_its_release(name: str, level: str) -> None:
    expect = Expectations(level=level)  # type: ignore[arg-type]
    findings = judge("miopen.version", compose(name).host, expect)
    assert {finding.status for finding in findings} <= {"pass", "skip"}


def test_header_and_name_agree_with_the_release() -> None:
    finding = only(judged("miopen.version", machine()))
    assert summary(finding) == ("miopen.version/ok", "pass", "path /opt/rocm-6.3.3")
    assert finding.actual == "3.3.0"
    assert values(finding)[:2] == ["/opt/rocm-6.3.3/lib/libMIOpen.so.1.0.60303", "6.3.3"]


def test_name_alone_passes_at_quick_and_says_what_it_rests_on() -> None:
    finding = only(judged("miopen.version", machine(miopen=None)))
    assert summary(finding)[:2] == ("miopen.version/ok", "pass")
    assert finding.message == "By its name the library is of ROCm 6.3.3, which carries MIOpen 3.3.0."


def test_installation_without_the_library_warns() -> None:
    on = gpu_host("mi210", 1)
    on.files["/opt/rocm-6.3.3/.info/version"] = "6.3.3\n"
    finding = only(judged("miopen.version", on))
    assert summary(finding) == ("miopen.version/missing", "warn", "path /opt/rocm-6.3.3")


def test_library_of_another_release_in_the_folder_warns() -> None:
    on = machine(miopen=None)
    on.links["/opt/rocm-6.3.3/lib/libMIOpen.so.1"] = "libMIOpen.so.1.0.60204"
    on.files["/opt/rocm-6.3.3/lib/libMIOpen.so.1.0.60204"] = "x"
    finding = only(judged("miopen.version", on))
    assert summary(finding) == ("miopen.version/mismatch", "warn", "path /opt/rocm-6.3.3")
    assert (finding.expected, finding.actual) == ("MIOpen of ROCm 6.3.3", "MIOpen of ROCm 6.2.4")


def test_version_that_the_release_does_not_carry_warns() -> None:
    finding = only(judged("miopen.version", machine(miopen="3.1.0")))
    assert summary(finding) == ("miopen.version/mismatch", "warn", "path /opt/rocm-6.3.3")
    assert (finding.expected, finding.actual) == ("MIOpen 3.3.0", "3.1.0")


def test_library_and_package_that_differ_warn() -> None:
    composed = compose("mi210-8gpu-2hive-epyc7763x2")
    composed.tree.files["/opt/rocm-6.3.3/include/miopen/version.h"] = header("3.2.0")
    finding = only(judge("miopen.version", composed.host, Expectations(level="standard")))
    assert summary(finding) == ("miopen.version/inconsistent", "warn", "path /opt/rocm-6.3.3")
    assert {"3.2.0", "3.3.0"} <= set(values(finding))


def test_release_newer_than_the_tables_warns() -> None:
    finding = only(judged("miopen.version", machine(rocm="11.0.0", miopen="4.0.0")))
    assert summary(finding)[:2] == ("miopen.version/not-in-table", "warn")


def test_newer_layout_without_header_is_not_asked_at_quick() -> None:
    on = machine(rocm="10.0.0", miopen=None)
    on.files["/opt/rocm-10.0.0/lib/libMIOpen.so.1.0"] = "x"
    on.links["/opt/rocm-10.0.0/lib/libMIOpen.so.1"] = "libMIOpen.so.1.0"
    finding = only(judged("miopen.version", on))
    assert summary(finding) == ("miopen.version/not-asked", "unknown", "path /opt/rocm-10.0.0")


def test_host_without_rocm_is_skipped() -> None:
    assert summary(only(judged("miopen.version", gpu_host("mi210", 1))))[:2] == (
        "miopen.version/not-applicable",
        "skip",
    )


# -- miopen.database ---------------------------------------------------------------------------------------------------


def both(base: str) -> tuple[str, str]:
    return f"{base}.HIP.fdb.txt", f"{base}.db.txt"


DB = "/opt/rocm-6.3.3/share/miopen/db"


def test_exact_database_of_an_mi210() -> None:
    finding = only(judged("miopen.database", machine(names=both("gfx90a68"))))
    assert summary(finding) == ("miopen.database/ok", "pass", f"path {DB}/gfx90a68")
    assert values(finding) == ["gfx90a68.HIP.fdb.txt, gfx90a68.db.txt"]


@pytest.mark.parametrize("names", [both("gfx90a6e"), ("gfx90a68.HIP.fdb.txt",), ("gfx90a68.db.txt",)])
def test_database_that_the_release_ships_and_the_host_lacks(names: tuple[str, ...]) -> None:
    finding = only(judged("miopen.database", machine(names=names)))
    assert summary(finding) == ("miopen.database/missing", "warn", f"path {DB}/gfx90a68")


def test_shipped_database_is_missed_even_where_the_nearest_would_do() -> None:
    finding = only(judged("miopen.database", machine(rocm="10.0.0", miopen="3.6.0", names=both("gfx90a6e"))))
    assert summary(finding)[:2] == ("miopen.database/missing", "warn")


def test_find_db_alone_is_enough_where_no_perf_db_is_shipped() -> None:
    finding = only(judged("miopen.database", machine("mi60", names=("gfx906_64.HIP.fdb.txt",))))
    assert summary(finding)[:2] == ("miopen.database/ok", "pass")
    assert values(finding) == ["gfx906_64.HIP.fdb.txt"]


def two_gpus() -> Machine:
    on, one = gpu_host("mi210", 2), machine(names=(*both("gfx90a68"), "gfx90a.kdb"))
    on.files |= {path: text for path, text in one.files.items() if path.startswith("/opt/")}
    on.links |= {path: text for path, text in one.links.items() if path.startswith("/opt/")}
    return on


def test_gpu_of_unknown_compute_units_is_undetermined_beside_one_that_is_known() -> None:
    on = two_gpus()
    for node in on.nodes_of(on.bdfs[1]):
        on.forget_node(node)
    unknown, known = judged("miopen.database", on)
    assert summary(unknown) == ("miopen.database/absent", "unknown", f"gpu {on.bdfs[1]}")
    assert summary(known) == ("miopen.database/ok", "pass", f"path {DB}/gfx90a68")


def test_gpu_that_no_driver_serves_needs_no_database() -> None:
    on = two_gpus()
    for node in on.nodes_of(on.bdfs[1]):
        on.forget_node(node)
    del on.links[f"{on.pci(on.bdfs[1])}/driver"]
    skip, known = judged("miopen.database", on)
    assert summary(skip) == ("miopen.database/not-applicable", "skip", f"gpu {on.bdfs[1]}")
    assert known.status == "pass"


def test_gpu_of_unknown_target_is_undetermined_in_the_kernel_cache_beside_one_that_is_known() -> None:
    on = two_gpus()
    on.set(on.bdfs[1], device="0x7fff")  # no row of the product table
    for node in on.nodes_of(on.bdfs[1]):
        on.forget_node(node)
    unknown, known = judged("miopen.kernel-cache", on)
    assert (unknown.status, unknown.subject.id) == ("unknown", on.bdfs[1])
    assert summary(known) == ("miopen.kernel-cache/ok", "pass", f"path {DB}/gfx90a.kdb")


def test_missing_folder_warns() -> None:
    finding = only(judged("miopen.database", machine()))
    assert summary(finding) == ("miopen.database/no-folder", "warn", f"path {DB}")


def test_cpx_partitions_run_untuned_on_libraries_that_need_the_exact_name() -> None:
    on = machine("mi300x", names=both("gfx942130"), partitions=8)
    finding = only(judged("miopen.database", on))
    assert summary(finding) == ("miopen.database/untuned", "warn", f"path {DB}/gfx942_38")
    assert values(finding) == ["2 files, none of gfx942_38.HIP.fdb.txt"]


def test_cpx_partitions_use_the_full_devices_results_on_newer_libraries() -> None:
    on = machine("mi300x", rocm="10.0.0", miopen="3.6.0", names=both("gfx942130"), partitions=8)
    finding = only(judged("miopen.database", on))
    assert summary(finding)[:2] == ("miopen.database/ok", "pass")
    assert values(finding)[0] == "gfx942130.HIP.fdb.txt"


def test_mi308x_is_untuned_before_the_correction() -> None:
    finding = only(judged("miopen.database", machine("mi308x", names=both("gfx942130"))))
    assert summary(finding) == ("miopen.database/untuned", "warn", f"path {DB}/gfx94250")


def test_either_name_of_an_rdna_card_will_do() -> None:
    for base in ("gfx1100_48", "gfx110060"):
        on = machine("rx7900xtx", rocm="10.0.0", miopen="3.6.0", names=both(base))
        assert only(judged("miopen.database", on)).status == "pass"


def test_rdna_card_on_a_release_that_ships_nothing_for_it_is_skipped() -> None:
    finding = only(judged("miopen.database", machine("rx7900xtx", names=both("gfx90a68"))))
    assert summary(finding)[:2] == ("miopen.database/not-shipped", "skip")


def test_library_of_unknown_release_without_the_exact_name_is_unknown() -> None:
    finding = only(judged("miopen.database", machine(rocm="11.0.0", miopen=None, names=both("gfx90a6e"))))
    assert summary(finding)[:2] == ("miopen.database/unknown-release", "unknown")


@pytest.mark.parametrize(("rocm", "miopen"), [("6.3.3", "3.3.0"), ("10.0.0", "3.6.0")])
def test_service_under_xnack_looks_for_a_name_that_nobody_ships(rocm: str, miopen: str) -> None:
    on = machine(rocm=rocm, miopen=miopen, names=both("gfx90a68"))
    on.files |= {"/proc/77/status": "Uid:\t0\t0\t0\t0\n", "/proc/77/environ": "HOME=/root\0HSA_XNACK=1\0"}
    finding = only(judged("miopen.database", on, Expectations(level="quick", pid=77)))
    where = f"path /opt/rocm-{rocm}/share/miopen/db/gfx90a_xnack68"
    assert summary(finding) == ("miopen.database/untuned", "warn", where)


# -- miopen.kernel-cache -----------------------------------------------------------------------------------------------


def test_kernel_database_is_a_real_one() -> None:
    finding = only(judged("miopen.kernel-cache", machine(names=("gfx90a.kdb",))))
    assert summary(finding) == ("miopen.kernel-cache/ok", "pass", f"path {DB}/gfx90a.kdb")
    assert (sources(finding), values(finding)) == ([f"{DB}/gfx90a.kdb"], ["SQLite format 3"])


@pytest.mark.parametrize("name", ["gfx90a.kdb", "gfx90a68.kdb"])
def test_pointer_of_git_lfs_in_place_of_the_database_fails(name: str) -> None:
    on = machine(names=(name,))
    on.files[f"{DB}/{name}"] = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 12345\n"
    finding = only(judged("miopen.kernel-cache", on))
    assert summary(finding) == ("miopen.kernel-cache/pointer", "fail", f"path {DB}/gfx90a.kdb")
    assert sources(finding) == [f"{DB}/{name}"]


def test_missing_kernels_of_a_target_that_has_them_warn() -> None:
    finding = only(judged("miopen.kernel-cache", machine(names=both("gfx90a68"))))
    assert summary(finding) == ("miopen.kernel-cache/missing", "warn", f"path {DB}/gfx90a.kdb")
    assert finding.remedy is not None
    assert finding.remedy.steps[0].argv == ("apt-get", "install", "miopen-hip-gfx90akdb")


@pytest.mark.parametrize("product", ["mi355x", "rx7900xtx"])
def test_missing_kernels_of_a_target_that_never_had_them_are_skipped(product: str) -> None:
    finding = only(judged("miopen.kernel-cache", machine(product, names=("x.txt",))))
    assert summary(finding)[:2] == ("miopen.kernel-cache/not-applicable", "skip")


def test_kernel_database_that_may_not_be_read_is_unknown() -> None:
    on = machine(names=("gfx90a.kdb",))
    del on.files[f"{DB}/gfx90a.kdb"]
    on.files[f"{DB}/other.txt"] = "x"
    on.outcomes[f"{DB}/gfx90a.kdb"] = "denied"
    finding = only(judged("miopen.kernel-cache", on))
    assert summary(finding) == ("miopen.kernel-cache/denied", "unknown", f"path {DB}/gfx90a.kdb")


# -- miopen.user-dirs --------------------------------------------------------------------------------------------------

EXT4, NFS, GPFS = 0xEF53, 0x6969, 0x47504653
SERVE = Identity(uid=1200, user="serve", groups=(1200,), group_names={}, node_name=None)


def home(*, mode: int = 0o755, uid: int = 1200, magic: int = EXT4) -> Stat:
    return Stat(kind="dir", mode=mode, uid=uid, gid=uid, size=4096, device=None, acl=(), filesystem=magic)


MOUNTS = "/dev/sda1 / ext4 rw,relatime 0 0\n"


def of_user(stat: Stat | None, *, pid: int | None = None, mounts: str | None = MOUNTS, **files: str) -> list[Finding]:
    on = machine()
    if mounts is not None:
        on.files |= {f"/proc/{pid or 'self'}/mounts": mounts}
    on.files |= {"/etc/passwd": "serve:x:1200:1200::/home/serve:/bin/sh\n"}
    on.files |= {
        "/proc/77/status": "Uid:\t1200\t1200\t1200\t1200\nGid:\t1200\t1200\nGroups:\t1200\n",
        "/proc/77/environ": "PATH=/bin\0" + files.get("environ", ""),
    }
    stats = {"/home/serve": stat} if stat is not None else {}
    host = memory_host(on.files, links=on.links, stats={**on.stats, **stats}, identity=SERVE,
                       empty_dirs=[*on.empty_dirs, *stats])  # fmt: skip
    return judge("miopen.user-dirs", host, Expectations(level="quick", pid=pid))


def test_local_home_of_the_user_that_runs() -> None:
    first, second = of_user(home())
    assert summary(first) == ("miopen.user-dirs/ok", "pass", "path /home/serve/.config/miopen")
    assert summary(second) == ("miopen.user-dirs/ok", "pass", "path /home/serve/.cache/miopen")
    assert values(first) == ["mode 0755 uid 1200 gid 1200 file system 0xef53"]


@pytest.mark.parametrize(("pid", "status"), [(None, "warn"), (77, "fail")])
def test_home_that_may_not_be_written_fails_only_for_a_named_service(pid: int | None, status: str) -> None:
    first, _ = of_user(home(uid=0), pid=pid)
    assert summary(first) == ("miopen.user-dirs/not-writable", status, "path /home/serve/.config/miopen")
    assert sources(first) == ["/home/serve"]


def test_network_home_that_miopen_avoids_loses_its_results() -> None:
    first, _ = of_user(home(magic=NFS))
    assert summary(first)[:2] == ("miopen.user-dirs/network-home", "warn")
    assert first.actual == "NFS"


def test_shared_home_that_miopen_does_not_avoid() -> None:
    first, _ = of_user(home(magic=GPFS))
    assert summary(first)[:2] == ("miopen.user-dirs/shared-home", "warn")


def test_folder_that_a_variable_moves_onto_nfs_is_not_avoided() -> None:
    first, _ = of_user(home(magic=NFS), pid=77, environ="MIOPEN_USER_DB_PATH=/home/serve/db\0")
    assert summary(first) == ("miopen.user-dirs/shared-home", "warn", "path /home/serve/db")


@pytest.mark.parametrize("pid", [None, 77])
def test_folder_of_which_no_mount_table_was_read_is_unknown_and_not_writable(pid: int | None) -> None:
    first, second = of_user(home(), pid=pid, mounts=None)
    assert summary(first) == ("miopen.user-dirs/absent", "unknown", "path /home/serve/.config/miopen")
    assert sources(first) == [f"/proc/{pid or 'self'}/mounts"]
    assert second.id == "miopen.user-dirs/absent"


def test_read_only_mount_of_the_judged_process_alone_fails() -> None:
    first, _ = of_user(home(), pid=77, mounts="overlay / overlay ro,relatime 0 0\n")
    assert summary(first) == ("miopen.user-dirs/not-writable", "fail", "path /home/serve/.config/miopen")
    assert first.message.endswith("/home/serve lies on a read-only file system.")


def test_random_uid_without_account_or_home() -> None:
    on = machine()
    nobody = Identity(uid=1000680000, user=None, groups=(0,), group_names={}, node_name=None)
    on.files["/etc/passwd"] = "root:x:0:0:root:/root:/bin/sh\n"
    host = memory_host(on.files, links=on.links, stats=on.stats, identity=nobody, empty_dirs=on.empty_dirs)
    finding = only(judge("miopen.user-dirs", host, QUICK))
    assert summary(finding) == ("miopen.user-dirs/no-home", "warn", "host host")


def test_recording_without_the_home_is_unknown() -> None:
    on = machine()
    on.files["/etc/passwd"] = "root:x:0:0:root:/root:/bin/sh\n"
    on.files["/root/x"] = ""
    assert {finding.id for finding in judged("miopen.user-dirs", on)} == {"miopen.user-dirs/not-recorded"}
