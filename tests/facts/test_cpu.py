"""CPU facts of machines made for one trap each, and what reading them costs."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amdcheck.facts.cpu import Cpu, has_amd_cpu
from amdcheck.facts.cpuinfo import CpuInfo, fold
from amdcheck.host.protocol import READ_LIMIT
from amdcheck.host.snapshot import SnapshotHost
from amdcheck.model.value import Known, Unknown, Value
from tests.facts.small_machine import CPU, machine, without
from tests.judge import read_fact
from tests.memory_host import memory_host


def cpu_of(files: dict[str, str]) -> Cpu:
    return read_fact(Cpu, memory_host(files))


def test_a_healthy_machine_in_full() -> None:
    cpu = cpu_of(machine(sockets=2, ccx=2, cores=4))
    assert (cpu.sockets.or_none(), cpu.cores.or_none(), cpu.threads.or_none()) == (2, 16, 32)
    assert cpu.smt_control == Known("on", f"{CPU}/smt/control")
    assert cpu.package_of == {n: n % 16 // 8 for n in range(32)}
    assert [c.cpus for c in cpu.l3] == [(*range(n, n + 4), *range(n + 16, n + 20)) for n in (0, 4, 8, 12)]
    assert cpu.core_threads[0] == (0, 16)
    assert cpu.generation is not None
    assert cpu.generation.generation == "3"
    assert cpu.series is not None
    assert cpu.series.series == "EPYC 7003"


def test_smt_off_has_one_thread_a_core() -> None:
    cpu = cpu_of(machine(threads=1))
    assert (cpu.threads_per_core.or_none(), cpu.cores.or_none(), cpu.threads.or_none()) == (1, 8, 8)
    assert cpu.smt_control.or_none() == "notsupported"


def test_masks_alone_give_the_same_as_lists() -> None:
    """lscpu's recordings and old kernels have only masks."""
    files = machine(sockets=2)
    masks = without(files, "_list", "cpulist")
    assert "_list" not in "".join(masks)
    assert cpu_of(masks) == cpu_of(files)


def test_newer_names_of_the_sibling_files() -> None:
    files = machine(sockets=2)
    newer = {
        p.replace("thread_siblings", "core_cpus").replace("core_siblings", "package_cpus"): t for p, t in files.items()
    }
    assert cpu_of(newer) == cpu_of(files)


def test_no_online_file_counts_the_folders_that_are_not_switched_off() -> None:
    """ghw's snapshots lack cpu/online; CPU 3's own file says 0."""
    files = without(machine(threads=1), "cpu/online") | {f"{CPU}/cpu3/online": "0\n", f"{CPU}/cpu4/online": "1\n"}
    cpu = cpu_of(files)
    assert cpu.online == Known((0, 1, 2, 4, 5, 6, 7), CPU)
    assert cpu.cores.or_none() == 7


def test_no_sysfs_at_all_leaves_what_cpuinfo_says() -> None:
    files = {"/proc/cpuinfo": machine(sockets=2)["/proc/cpuinfo"]}
    cpu = cpu_of(files)
    assert (cpu.sockets.or_none(), cpu.cores.or_none(), cpu.threads.or_none()) == (2, 16, 32)
    assert cpu.cores == Known(16, "/proc/cpuinfo")
    assert cpu.caches == ()
    assert cpu.cache_gaps[0] == Unknown("absent", f"{CPU}/cpu0/cache")


def test_offline_cpus_are_in_no_count_and_no_cache() -> None:
    files = machine(threads=1)
    files |= {f"{CPU}/online": "0-6\n", f"{CPU}/offline": "7\n"}
    cpu = cpu_of({p: t for p, t in files.items() if "/cpu7/" not in p})
    assert cpu.offline == Known((7,), f"{CPU}/offline")
    assert cpu.cores.or_none() == 7
    assert [c.cpus for c in cpu.l3] == [(0, 1, 2, 3), (4, 5, 6)]


def test_a_sibling_that_is_offline_is_in_no_core() -> None:
    """A recording may still name it; the core keeps the thread that runs."""
    files = machine() | {f"{CPU}/online": "0-14\n", f"{CPU}/offline": "15\n"}
    cpu = cpu_of(files)
    assert (7,) in cpu.core_threads
    assert (cpu.cores.or_none(), cpu.threads.or_none()) == (8, 15)


def test_topology_that_is_missing_for_one_cpu_makes_the_count_unknown() -> None:
    files = machine(threads=1, family=6, vendor="GenuineIntel")
    files["/proc/cpuinfo"] = "processor\t: 0\n"
    cpu = cpu_of({p: t for p, t in files.items() if "/cpu5/topology" not in p})
    assert cpu.cores == Unknown("absent", f"{CPU}/cpu5/topology/thread_siblings_list")
    assert cpu.core_threads == ()


def test_siblings_that_leave_out_the_cpu_itself_are_not_believed() -> None:
    files = machine(threads=1) | {f"{CPU}/cpu2/topology/thread_siblings_list": "3\n"}
    del files["/proc/cpuinfo"]
    cpu = cpu_of(files)
    assert cpu.cores == Unknown("failed", f"{CPU}/cpu2/topology/thread_siblings_list", "3 lacks CPU 2 itself")


def test_cache_size_that_is_missing_as_on_arm_leaves_the_sharing() -> None:
    cpu = cpu_of(without(machine(), "index3/size"))
    assert cpu.l3[0].size_kib == Unknown("absent", f"{CPU}/cpu0/cache/index3/size")
    assert len(cpu.l3[0].cpus) == 8


def test_private_l2_of_an_old_kernel_stays_private() -> None:
    """Old kernels gave each Bulldozer CPU of a pair an L2 of its own: 64 instead of 32."""
    files = machine()
    for cpu in range(16):
        files[f"{CPU}/cpu{cpu}/cache/index2/shared_cpu_list"] = f"{cpu}\n"
    counts = Counter((c.level, c.type) for c in cpu_of(files).caches)
    assert counts == {(1, "Data"): 8, (1, "Instruction"): 8, (2, "Unified"): 16, (3, "Unified"): 2}


def test_asymmetric_slices_keep_their_own_sizes() -> None:
    """A desktop part with 16 MiB beside 8 MiB."""
    files = machine()
    for cpu in (4, 5, 6, 7, 12, 13, 14, 15):
        files[f"{CPU}/cpu{cpu}/cache/index3/size"] = "8192K\n"
    assert [c.size_kib.or_none() for c in cpu_of(files).l3] == [32768, 8192]


def test_hygon_is_named_and_is_not_amd() -> None:
    cpu = cpu_of(machine(vendor="HygonGenuine", family=24, model=0, name="Hygon C86 7185 32-core Processor"))
    assert cpu.vendor.or_none() == "HygonGenuine"
    assert has_amd_cpu(cpu) == "the processor is by HygonGenuine, not by AMD"
    assert cpu.generation is None


def test_flags_that_only_some_cpus_have() -> None:
    files = machine()
    first, rest = files["/proc/cpuinfo"].split("\n\n", 1)
    files["/proc/cpuinfo"] = first.replace(" fma", "") + "\n\n" + rest
    cpu = cpu_of(files)
    assert cpu.uneven_flags == ("fma",)
    assert cpu.isa == ("avx2",)


@pytest.mark.parametrize(
    ("text", "reason", "detail"),
    [
        ("", "failed", "no processor is listed"),
        ("garbage without a colon\n", "failed", "no processor is listed"),
        ("processor\t: 99999999999999\n", "failed", "no processor is listed"),
        ("processor\t: ²\n", "failed", "no processor is listed"),
    ],
)
def test_cpuinfo_that_lists_nobody(text: str, reason: str, detail: str) -> None:
    info = read_fact(CpuInfo, memory_host({"/proc/cpuinfo": text}))
    assert info.vendor == Unknown(reason, "/proc/cpuinfo", detail)  # type: ignore[arg-type]


def test_a_family_that_is_no_number_is_a_failure_and_no_crash() -> None:
    text = "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: twenty\nmodel\t\t: 9" + "9" * 6000 + "\n"
    cpu = cpu_of({"/proc/cpuinfo": text})
    assert cpu.family == Unknown("failed", "/proc/cpuinfo", "not a number: 'twenty'")
    assert isinstance(cpu.model, Unknown)


def test_denied_cpuinfo_is_denied_throughout() -> None:
    cpu = read_fact(Cpu, memory_host({}, outcomes={"/proc/cpuinfo": "denied"}))
    assert cpu.vendor == Unknown("denied", "/proc/cpuinfo")
    assert has_amd_cpu(cpu) is None  # nobody knows, so no check may skip on it


@pytest.mark.parametrize("name", ["online", "possible", "present", "offline"])
def test_a_hostile_list_is_a_failed_value(name: str) -> None:
    cpu = cpu_of(machine() | {f"{CPU}/{name}": "0-99999999999\n"})
    value = getattr(cpu, name)
    if name == "online":  # the folders say it instead
        assert value == Known(tuple(range(16)), CPU)
    else:
        assert value == Unknown("failed", f"{CPU}/{name}", "not a list of numbers: 0-99999999999")


def test_a_hostile_sharing_list_is_a_gap_and_no_cache() -> None:
    files = machine(threads=1)
    files |= {f"{CPU}/cpu0/cache/index3/shared_cpu_{form}": "0-99999999999\n" for form in ("list", "map")}
    cpu = cpu_of(files)
    assert cpu.cache_gaps[0].source == f"{CPU}/cpu0/cache/index3/shared_cpu_list"
    assert all(0 not in c.cpus or c.level < 3 or c.source != f"{CPU}/cpu0/cache/index3" for c in cpu.caches)


@given(st.text(max_size=300) | st.lists(st.sampled_from(machine()["/proc/cpuinfo"].splitlines())).map("\n".join))
def test_no_cpuinfo_breaks_the_reader(text: str) -> None:
    info = fold(Known(text, "/proc/cpuinfo"))
    assert isinstance(info.processors, (Known, Unknown))


class CountingHost(SnapshotHost):
    """Counts what is asked of it."""

    asked: Counter[str]

    @classmethod
    def of(cls, files: dict[str, str]) -> CountingHost:
        host = cls(memory_host(files).capture)
        host.asked = Counter()
        return host

    def read(self, path: str, *, limit: int = READ_LIMIT) -> Value[str]:
        self.asked[path] += 1
        return super().read(path, limit=limit)

    def entries(self, path: str) -> Value[tuple[str, ...]]:
        self.asked[path] += 1
        return super().entries(path)


def reads_of(**shape: int) -> Counter[str]:
    host = CountingHost.of(machine(**shape))  # type: ignore[arg-type]
    read_fact(Cpu, host)
    return host.asked


def test_each_file_is_read_once() -> None:
    assert set(reads_of(sockets=2).values()) == {1}


def test_cost_grows_with_the_cores_and_not_with_their_threads_or_faster() -> None:
    small, large = reads_of(sockets=1, ccx=4, cores=8), reads_of(sockets=2, ccx=8, cores=8)
    assert sum(large.values()) <= 4.1 * sum(small.values())
    assert sum(reads_of(threads=2).values()) == sum(reads_of(threads=1).values())


def test_a_slice_of_l3_is_read_from_one_of_its_cpus() -> None:
    slices = [path for path in reads_of(sockets=2, ccx=2) if "index3/size" in path]
    assert sorted(slices) == [f"{CPU}/cpu{cpu}/cache/index3/size" for cpu in (0, 12, 4, 8)]
