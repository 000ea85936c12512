"""CPU facts of recorded machines, against what other programs said of the same trees."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from amdcheck.facts.cpu import Cpu, has_amd_cpu
from amdcheck.model.value import Known, Unknown
from tests.corpus import CORPUS, needs_corpus
from tests.facts.recorded import host_of, lscpu_columns, lscpu_field, name_of, numbers, tree, trees, truth_of
from tests.judge import read_fact
from tests.memory_host import memory_host

pytestmark = needs_corpus

every_tree = pytest.mark.parametrize("path", trees(), ids=[name_of(path) for path in trees()])

OFFLINE_NODE0 = "ctl-intel-offline-cpu0-node0"


def cpu_of(path: Path) -> Cpu:
    return read_fact(Cpu, host_of(path))


@every_tree
def test_identity(path: Path) -> None:
    cpu, truth = cpu_of(path), truth_of(path)
    assert [cpu.vendor.or_none()] == (truth.get("vendor") or [None])
    assert [cpu.model_name.or_none()] == (list({name.strip() for name in truth.get("models", {})}) or [None])
    identity = [value.or_none() for value in (cpu.family, cpu.model, cpu.stepping)]
    named = truth.get("fam/model/step")
    assert identity == ([int(number) for number in named[0]] if named else [None] * 3)
    assert [cpu.microcode.or_none()] == (truth.get("microcode") or [None])
    offered = set(cpu.flags.or_none() or ())
    assert offered.issuperset(truth.get("flags", []))


@every_tree
def test_which_cpus_there_are(path: Path) -> None:
    cpu, truth = cpu_of(path), truth_of(path)
    for fact, key in ((cpu.offline, "offline"), (cpu.possible, "possible"), (cpu.present, "present")):
        if truth[key] is None:
            assert isinstance(fact, Unknown)
        else:
            assert set(fact.or_none() or ()) == numbers(truth[key])
    assert isinstance(cpu.online, Known)
    if truth["online"] is None:  # no such file: the folders say it
        assert len(cpu.online.value) == truth["cpudirs"]
        assert cpu.online.source == "/sys/devices/system/cpu"
    else:
        assert set(cpu.online.value) == numbers(truth["online"])
    assert cpu.threads == Known(len(cpu.online.value), cpu.online.source)


@every_tree
def test_cores_and_packages(path: Path) -> None:
    cpu, truth = cpu_of(path), truth_of(path)
    assert cpu.cores.or_none() == truth["cores"]
    assert {str(package) for package in cpu.package_of.values()} == set(truth["packages"])
    assert cpu.sockets.or_none() == len(truth["packages"])
    assert sorted(c for core in cpu.core_threads for c in core) == list(cpu.online.or_none() or ())


@every_tree
def test_caches(path: Path) -> None:
    """The summary counts the caches of offline CPUs too where a tree has them; hwloc does not, and neither do we."""
    cpu, truth = cpu_of(path), truth_of(path)
    found = Counter(f"L{c.level}{c.type[0]} {c.size_kib.or_none()}K" for c in cpu.caches)
    expected = {"L1D 32K": 17, "L1I 32K": 17, "L2U 256K": 17, "L3U 30720K": 2}
    assert dict(found) == (expected if name_of(path) == OFFLINE_NODE0 else truth.get("caches", {}))


@pytest.mark.parametrize("name", ["epyc7451-2s-8node", "opteron6328-offline-possible"])
def test_grouping_is_lscpus(name: str) -> None:
    """Which CPUs share a core, a package and each cache: equal sets of CPUs, not only equal counts."""
    cpu = cpu_of(tree(name))
    text = (CORPUS / "fsroot" / f"{name}.expected-lscpu.txt").read_text(encoding="utf-8")
    columns = lscpu_columns(text)
    assert {frozenset(core) for core in cpu.core_threads} == columns["Core"]
    packages = set(cpu.package_of.values())
    assert {frozenset(c for c, p in cpu.package_of.items() if p == package) for package in packages} == columns[
        "Socket"
    ]
    for level, kind, column in (
        (1, "Data", "L1d"),
        (1, "Instruction", "L1i"),
        (2, "Unified", "L2"),
        (3, "Unified", "L3"),
    ):
        assert {frozenset(c.cpus) for c in cpu.caches if (c.level, c.type) == (level, kind)} == columns[column]
    assert cpu.vendor.or_none() == lscpu_field(text, "Vendor ID")
    assert cpu.model_name.or_none() == lscpu_field(text, "Model name")
    assert str(cpu.threads_per_core.or_none()) == lscpu_field(text, "Thread(s) per core")
    assert str(cpu.sockets.or_none()) == lscpu_field(text, "Socket(s)")
    assert cpu.microcode.or_none() == lscpu_field(text, "Microcode version")
    # lscpu prints the flags of one CPU; of 6328's CPUs some have lwp and some have not.
    theirs = set((lscpu_field(text, "Flags") or "").split())
    assert theirs - set(cpu.uneven_flags) == set(cpu.flags.or_none() or ())


def test_epyc7451_l3_is_sixteen_slices_not_one_total() -> None:
    """lscpu's expected text: 128 MiB in 16 instances, each shared by 3 cores."""
    cpu = cpu_of(tree("epyc7451-2s-8node"))
    assert {(c.size_kib.or_none(), len(c.cpus), cpu.cores_among(c.cpus)) for c in cpu.l3} == {(8192, 6, 3)}
    assert sum(c.size_kib.or_none() or 0 for c in cpu.l3) == 128 * 1024


def test_opteron6328_has_fma_but_no_avx2() -> None:
    cpu = cpu_of(tree("opteron6328-offline-possible"))
    assert cpu.isa == ("fma",)
    assert cpu.uneven_flags == ("lwp",)


def test_opteron6272_name_is_without_its_trailing_spaces_and_caches_are_in_pairs() -> None:
    cpu = cpu_of(tree("opteron6272-r815-full-fsroot+cpuid"))
    assert cpu.model_name.or_none() == "AMD Opteron(TM) Processor 6272"
    assert Counter((c.level, c.type, len(c.cpus)) for c in cpu.caches) == {
        (1, "Data", 1): 64,
        (1, "Instruction", 2): 32,
        (2, "Unified", 2): 32,
        (3, "Unified", 8): 8,
    }


def test_opteron6134_is_what_hwloc_saw_of_it() -> None:
    """hwloc was confined to six CPUs by the cgroup; what it saw must be among the facts, size and sharing."""
    cpu = cpu_of(tree("opteron6134-4s8n-offline-possible"))
    ours = {(c.level, c.size_kib.or_none(), frozenset(c.cpus)) for c in cpu.caches}
    root = ElementTree.parse(CORPUS / "fsroot" / "opteron6134-4s8n-offline-possible.expected-hwloc.xml").getroot()
    caches = [o for o in root.iter("object") if o.get("type") in ("L1Cache", "L2Cache", "L3Cache")]
    assert caches
    assert {_cache_of(o) for o in caches} <= ours


def test_gb10_has_two_kinds_of_cores_and_is_not_amds() -> None:
    path = tree("ctl-nvidia-dgx-gb10-arm")
    cpu = cpu_of(path)
    root = ElementTree.parse(path.with_name("ctl-nvidia-dgx-gb10-arm.expected-hwloc.xml")).getroot()
    theirs = {_cache_of(o) for o in root.iter("object") if o.get("type") in ("L2Cache", "L3Cache")}
    assert {(c.level, c.size_kib.or_none(), frozenset(c.cpus)) for c in cpu.caches if c.level > 1} == theirs
    assert has_amd_cpu(cpu) == "the processor is aarch64, not one of AMD's"


def _cache_of(node: ElementTree.Element) -> tuple[int, int, frozenset[int]]:
    groups = (node.get("complete_cpuset") or "0x0").split(",")
    bits = int("".join(group.removeprefix("0x").zfill(8) for group in groups), 16)
    cpus = frozenset(n for n in range(bits.bit_length()) if bits >> n & 1)
    return int(node.get("depth") or 0), int(node.get("cache_size") or 0) // 1024, cpus


@pytest.mark.parametrize("name", [OFFLINE_NODE0, "ctl-power9-nvidia-gpu-numa-nodes"])
def test_counts_are_hwlocs(name: str) -> None:
    """hwloc counts only what is online: 17 of 24 CPUs of one machine, 32 of 176 of the other."""
    path = tree(name)
    cpu = cpu_of(path)
    text = path.with_name(f"{name}.expected-hwloc.txt").read_text(encoding="utf-8")

    def count(kind: str) -> int:
        line = next(line for line in text.splitlines() if f" {kind} (type" in line and "depth" in line)
        return int(line.split(":")[1].split()[0])

    assert cpu.sockets.or_none() == count("Package")
    assert cpu.cores.or_none() == count("Core")
    assert cpu.threads.or_none() == count("PU")
    assert len(cpu.l3) == count("L3Cache")
    assert len([c for c in cpu.caches if c.level == 2]) == count("L2Cache")


@pytest.mark.parametrize("name", ["ryzen7-fedora29", "ubuntu2204-x86_64"])
def test_cpuinfo_alone_against_lscpu(name: str) -> None:
    """/proc/cpuinfo without a sysfs: the 2700X as a guest (one of its 8 blocks was kept) and on bare metal."""
    folder = CORPUS / "pycpuinfo"
    lscpu = (folder / f"{name}.lscpu.txt").read_text(encoding="utf-8")
    text = (folder / f"{name}.cat_proc_cpuinfo.txt").read_text(encoding="utf-8")
    cpu = read_fact(Cpu, memory_host({"/proc/cpuinfo": text}))
    assert cpu.vendor.or_none() == lscpu_field(lscpu, "Vendor ID")
    assert cpu.model_name.or_none() == lscpu_field(lscpu, "Model name")
    assert str(cpu.family.or_none()) == lscpu_field(lscpu, "CPU family")
    assert str(cpu.model.or_none()) == lscpu_field(lscpu, "Model")
    assert str(cpu.stepping.or_none()) == lscpu_field(lscpu, "Stepping")
    assert set(cpu.flags.or_none() or ()) == set((lscpu_field(lscpu, "Flags") or "").split())
    assert "hypervisor" in (cpu.flags.or_none() or ()) or name == "ubuntu2204-x86_64"


def test_cpuinfo_alone_gives_cores_and_threads_of_the_2700x_but_never_an_l3() -> None:
    """`cache size` there is the L2 (512 KB): the slice of L3 stands in sysfs alone."""
    text = (CORPUS / "pycpuinfo" / "ubuntu2204-x86_64.cat_proc_cpuinfo.txt").read_text(encoding="utf-8")
    cpu = read_fact(Cpu, memory_host({"/proc/cpuinfo": text}))
    assert (cpu.threads.or_none(), cpu.cores.or_none(), cpu.sockets.or_none()) == (16, 8, 1)
    assert cpu.threads_per_core.or_none() == 2
    assert cpu.l3 == ()
    assert [gap.reason for gap in cpu.cache_gaps][:1] == ["absent"]
