"""Memory settings, the kernel's HMM options and amdgpu's retry parameter."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amdcheck.facts.hmm import NORETRY, Hmm
from amdcheck.facts.memory import NUMA_BALANCING, Memory
from amdcheck.facts.system import System
from amdcheck.host.protocol import SystemAnswers
from amdcheck.model.value import Known, Unknown
from tests.corpus import needs_corpus
from tests.facts.recorded import host_of, name_of, trees, truth_of
from tests.judge import read_fact
from tests.memory_host import memory_host

RELEASE = "6.8.0-60-generic"
BUILT_IN = "CONFIG_HSA_AMD=y\nCONFIG_HSA_AMD_SVM=y\nCONFIG_DEVICE_PRIVATE=y\nCONFIG_HMM_MIRROR=y\n"
ON = {"CONFIG_HSA_AMD_SVM": "y", "CONFIG_DEVICE_PRIVATE": "y", "CONFIG_HMM_MIRROR": "y"}


def hmm_of(files: dict[str, str | bytes], release: str = RELEASE) -> Hmm:
    return read_fact(Hmm, memory_host({"/proc/sys/kernel/osrelease": f"{release}\n", **files}))


@needs_corpus
@pytest.mark.parametrize("path", trees(), ids=[name_of(path) for path in trees()])
def test_total_of_recorded_machines(path: Path) -> None:
    memory, truth = read_fact(Memory, host_of(path)), truth_of(path)
    assert memory.total_kib.or_none() == (truth["meminfo"] and int(truth["meminfo"]))


def test_settings_of_a_live_looking_machine() -> None:
    memory = read_fact(
        Memory,
        memory_host(
            {
                "/proc/meminfo": "MemTotal:       527704624 kB\nSwapTotal:  8388604 kB\nHugePages_Total:      64\n"
                "Hugepagesize:       2048 kB\n",
                NUMA_BALANCING: "1\n",
                "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never\n",
                "/sys/kernel/mm/transparent_hugepage/defrag": "always defer [defer+madvise] madvise never\n",
                "/sys/kernel/mm/transparent_hugepage/khugepaged/defrag": "1\n",
                "/proc/sys/vm/swappiness": "60\n",
                "/proc/sys/vm/zone_reclaim_mode": "0\n",
            }
        ),
    )
    assert memory.total_kib == Known(527704624, "/proc/meminfo")
    assert (memory.swap_total_kib.or_none(), memory.hugepages.or_none(), memory.hugepage_kib.or_none()) == (
        8388604,
        64,
        2048,
    )
    assert memory.numa_balancing == Known(1, NUMA_BALANCING)
    assert memory.numa_balancing_offered == Known(True, NUMA_BALANCING)
    assert (memory.thp_enabled.or_none(), memory.thp_defrag.or_none()) == ("madvise", "defer+madvise")
    assert memory.thp_khugepaged_defrag.or_none() == 1
    assert (memory.swappiness.or_none(), memory.zone_reclaim.or_none()) == (60, 0)


def test_a_kernel_without_balancing_is_told_by_the_listing() -> None:
    memory = read_fact(Memory, memory_host({"/proc/sys/kernel/osrelease": "6.1.0\n"}))
    assert memory.numa_balancing == Unknown("absent", NUMA_BALANCING)
    assert memory.numa_balancing_offered == Known(False, "/proc/sys/kernel")


def test_nothing_recorded_is_not_a_kernel_without_balancing() -> None:
    memory = read_fact(Memory, memory_host({}, complete=False))
    assert memory.numa_balancing == Unknown("not-recorded", NUMA_BALANCING)
    assert isinstance(memory.numa_balancing_offered, Unknown)


@pytest.mark.parametrize("text", ["", "-1\n", "on\n", "9" * 50, "1 2\n", "\ud8001"])
def test_balancing_that_is_no_number_is_a_failure(text: str) -> None:
    memory = read_fact(Memory, memory_host({NUMA_BALANCING: text.encode("utf-8", "surrogatepass")}))
    assert isinstance(memory.numa_balancing, Unknown)
    assert memory.numa_balancing.reason == "failed"


@pytest.mark.parametrize("path", [f"/boot/config-{RELEASE}", f"/lib/modules/{RELEASE}/config"])
def test_kernel_configuration_beside_the_kernel(path: str) -> None:
    assert hmm_of({path: f"#\n# Linux\n#\n{BUILT_IN}"}).options == Known(ON, path)


def test_kernel_configuration_inside_the_kernel() -> None:
    hmm = hmm_of({"/proc/config.gz": gzip.compress(BUILT_IN.encode())})
    assert hmm.options == Known(ON, "/proc/config.gz")
    assert hmm.offered is True


def test_an_option_that_is_not_set_is_off() -> None:
    text = "CONFIG_64BIT=y\n# CONFIG_HSA_AMD_SVM is not set\nCONFIG_DEVICE_PRIVATE=y\nCONFIG_HMM_MIRROR=y\n"
    hmm = hmm_of({f"/boot/config-{RELEASE}": text})
    assert hmm.options.or_none() == {**ON, "CONFIG_HSA_AMD_SVM": "n"}
    assert hmm.offered is False


def test_another_kernels_configuration_is_not_taken() -> None:
    hmm = hmm_of({"/boot/config-5.15.0-1-generic": BUILT_IN})
    assert hmm.options == Unknown("absent", "/proc/config.gz")
    assert hmm.offered is None


@pytest.mark.parametrize("release", ["../../etc/shadow", "6.8/../x", "", "a" * 200, "-rf"])
def test_a_hostile_release_enters_no_path(release: str) -> None:
    hmm = hmm_of({f"/boot/config-{release}": BUILT_IN} if release and "/" not in release else {}, release)
    assert hmm.options == Unknown("absent", "/proc/config.gz")


@pytest.mark.parametrize(
    "content",
    [b"", b"no gzip", gzip.compress(b"not a configuration", mtime=0), gzip.compress(b"x" * 9, mtime=0)[:12]],
    ids=["empty", "no gzip", "another text", "cut off"],
)
def test_a_damaged_configuration_is_a_failure(content: bytes) -> None:
    hmm = hmm_of({"/proc/config.gz": content})
    assert isinstance(hmm.options, Unknown)
    assert hmm.options.reason == "failed"


def test_a_configuration_that_unpacks_to_gigabytes_is_cut() -> None:
    bomb = gzip.compress(b"CONFIG_64BIT=y\n" + b"\0" * (64 << 20))
    assert len(bomb) < 1 << 20
    host = memory_host({"/proc/config.gz": bomb})
    tracemalloc.start()
    try:
        assert read_fact(Hmm, host).offered is False
        assert tracemalloc.get_traced_memory()[1] < 24 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("text", "value"), [("-1\n", -1), ("0\n", 0), ("1\n", 1)])
def test_noretry(text: str, value: int) -> None:
    assert hmm_of({NORETRY: text}).noretry == Known(value, NORETRY)


def test_no_driver_no_noretry() -> None:
    assert hmm_of({}).noretry == Unknown("absent", NORETRY)


def test_psutils_answers_are_kept_as_they_are() -> None:
    answers = SystemAnswers(
        logical_cpus=96, physical_cores=48, memory_bytes=1 << 38, available_bytes=1 << 37, load_1m=0.5, boot_time=1.7e9
    )
    assert read_fact(System, memory_host({}, system=answers)).answers.or_none() == answers
    assert isinstance(read_fact(System, memory_host({})).answers, Unknown)


@given(st.binary(max_size=80), st.text(max_size=30), st.text(max_size=30))
def test_no_text_breaks_the_readers(packed: bytes, meminfo: str, chosen: str) -> None:
    host = memory_host(
        {
            "/proc/config.gz": packed,
            "/proc/meminfo": meminfo.encode("utf-8", "surrogatepass"),
            "/sys/kernel/mm/transparent_hugepage/enabled": chosen.encode("utf-8", "surrogatepass"),
        }
    )
    read_fact(Memory, host)
    read_fact(Hmm, host)
