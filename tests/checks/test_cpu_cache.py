"""cpu.cache: slices alike, visible, and never held against the table's maxima."""

from __future__ import annotations

import pytest

from tests.checks.saying import only, sources, summary, values
from tests.corpus import needs_corpus
from tests.facts.recorded import host_of, tree
from tests.facts.small_machine import CPU, DMI, ZEN3, machine, without
from tests.judge import judge
from tests.memory_host import memory_host

GUEST = {f"{DMI}/sys_vendor": "QEMU\n", f"{DMI}/product_name": "Standard PC (Q35 + ICH9, 2009)\n"}
GUEST_FLAGS = f"{ZEN3} hypervisor"


def with_one_l3(files: dict[str, str], listed: str) -> dict[str, str]:
    """Every CPU's L3 shared by this list."""
    return {p: f"{listed}\n" if p.endswith("index3/shared_cpu_list") else t for p, t in files.items()}


def test_milan_with_its_own_slices_passes() -> None:
    finding = only(judge("cpu.cache", memory_host(machine(sockets=2, ccx=8, cores=8))))
    assert summary(finding) == ("cpu.cache/ok", "pass", "host host")
    assert finding.message == "16 slices of L3, each 32 MiB over 8 cores; EPYC 7003 has up to 32 MiB over 8 cores."
    assert (values(finding), sources(finding)) == (["16 x 32 MiB over 8 cores"], [f"{CPU}/cpu0/cache/index3"])


@needs_corpus
def test_recorded_epyc7451_passes_with_three_cores_a_slice() -> None:
    finding = only(judge("cpu.cache", host_of(tree("epyc7451-2s-8node"))))
    assert summary(finding) == ("cpu.cache/ok", "pass", "host host")
    assert values(finding) == ["16 x 8 MiB over 3 cores"]


@pytest.mark.parametrize(
    ("name", "family", "model", "cores", "l3"),
    [
        ("AMD EPYC 9124 16-Core Processor", 25, 17, 4, "16384K"),  # CPUID dump: half of the series' slice
        ("AMD EPYC 7402P 24-Core Processor", 23, 49, 3, "16384K"),
        ("AMD EPYC 9175F 16-Core Processor", 26, 2, 1, "32768K"),  # one core a slice, on bare metal by design
        ("AMD EPYC 9684X 96-Core Processor", 25, 17, 8, "98304K"),
        ("AMD EPYC 9654 96-Core Processor", 25, 17, 8, "65536K"),  # more than the table knows
    ],
)
def test_a_part_that_differs_from_its_series_maxima_is_not_at_fault(
    name: str, family: int, model: int, cores: int, l3: str
) -> None:
    files = machine(name=name, family=family, model=model, cores=cores, l3=l3)
    assert summary(only(judge("cpu.cache", memory_host(files)))) == ("cpu.cache/ok", "pass", "host host")


def test_a_slice_that_lost_a_core_is_named() -> None:
    files = machine(threads=1)
    files |= {f"{CPU}/online": "0-6\n", f"{CPU}/offline": "7\n"}
    finding = only(judge("cpu.cache", memory_host({p: t for p, t in files.items() if "/cpu7/" not in p})))
    assert summary(finding) == ("cpu.cache/uneven", "warn", "host host")
    assert finding.message == (
        "1 of 2 slices differ from the others (32 MiB over 4 cores): CPUs 4-6: 32 MiB over 3 cores."
    )
    assert values(finding) == ["1 x 32 MiB over 4 cores, 1 x 32 MiB over 3 cores", "7"]


def test_a_server_with_slices_of_two_sizes_is_warned_and_a_desktop_is_not() -> None:
    sizes = {f"{CPU}/cpu{cpu}/cache/index3/size": "16384K\n" for cpu in (4, 5, 6, 7, 12, 13, 14, 15)}
    server = only(judge("cpu.cache", memory_host(machine() | sizes)))
    assert summary(server) == ("cpu.cache/uneven", "warn", "host host")
    assert server.actual == "CPUs 4-7,12-15: 16 MiB over 4 cores"
    desktop = machine(name="AMD Ryzen AI 9 HX 370 w/ Radeon 890M", family=26, model=36) | sizes
    finding = only(judge("cpu.cache", memory_host(desktop)))
    assert summary(finding) == ("cpu.cache/ok", "pass", "host host")
    assert finding.actual == "16 MiB over 4 cores or 32 MiB over 4 cores"


def test_an_epyc_on_bare_metal_that_shows_no_l3_is_undetermined() -> None:
    files = {p: t for p, t in machine().items() if "/index3/" not in p}
    finding = only(judge("cpu.cache", memory_host(files)))
    assert summary(finding) == ("cpu.cache/absent", "unknown", "host host")
    assert finding.evidence[-1].note == "absent: shown: L1, L2; every EPYC 7003 has L3"


@pytest.mark.parametrize(
    ("cache", "expected"),
    [
        ("/index3/", ("cpu.cache/not-applicable", "skip", "host host")),
        ("/cache/", ("cpu.cache/absent", "unknown", "host host")),
    ],
)
def test_a_desktop_part_without_l3_is_skipped_only_when_it_shows_other_caches(
    cache: str, expected: tuple[str, str, str]
) -> None:
    files = machine(name="AMD A10-9700 RADEON R7", family=21, model=101)
    finding = only(judge("cpu.cache", memory_host({p: t for p, t in files.items() if cache not in p})))
    assert summary(finding) == expected


def test_a_guest_without_l3_is_told_what_the_hypervisor_hides() -> None:
    files = {p: t for p, t in machine(flags=GUEST_FLAGS).items() if "/index3/" not in p} | GUEST
    finding = only(judge("cpu.cache", memory_host(files)))
    assert summary(finding) == ("cpu.cache/hidden", "warn", "host host")
    assert values(finding) == ["L1, L2", "QEMU Standard PC (Q35 + ICH9, 2009)"]


def test_a_guest_with_one_l3_over_all_cores_is_merged() -> None:
    files = with_one_l3(machine(ccx=4, cores=8, flags=GUEST_FLAGS), "0-63") | GUEST
    finding = only(judge("cpu.cache", memory_host(files)))
    assert summary(finding) == ("cpu.cache/merged", "warn", "host host")
    assert (finding.expected, finding.actual) == ("at most 8 cores a slice", "32 cores")
    assert values(finding) == ["1 x 32 MiB over 32 cores"]


def test_a_guest_with_an_l3_for_every_core_is_split() -> None:
    files = machine(sockets=8, ccx=1, cores=1, threads=1, flags=GUEST_FLAGS) | GUEST
    finding = only(judge("cpu.cache", memory_host(files)))
    assert summary(finding) == ("cpu.cache/split", "warn", "host host")
    assert values(finding) == ["8 x 32 MiB over 1 core"]


def test_a_guest_of_one_cpu_is_not_split() -> None:
    files = machine(ccx=1, cores=1, threads=1, flags=GUEST_FLAGS) | GUEST
    assert only(judge("cpu.cache", memory_host(files))).id == "cpu.cache/ok"


def test_a_guest_whose_vcpus_do_not_divide_evenly_passes() -> None:
    files = machine(threads=1, flags=GUEST_FLAGS) | GUEST | {f"{CPU}/online": "0-5\n"}
    files = {p: t for p, t in files.items() if "/cpu6/" not in p and "/cpu7/" not in p}
    finding = only(judge("cpu.cache", memory_host(files)))
    assert summary(finding) == ("cpu.cache/ok", "pass", "host host")
    assert finding.actual == "32 MiB over 2 cores or 32 MiB over 4 cores"


def test_size_that_is_missing_is_unknown() -> None:
    finding = only(judge("cpu.cache", memory_host(without(machine(), "index3/size"))))
    assert summary(finding) == ("cpu.cache/absent", "unknown", "host host")
    assert sources(finding)[-1] == f"{CPU}/cpu0/cache/index3/size"


def test_no_cache_folders_are_unknown() -> None:
    files = {p: t for p, t in machine().items() if "/cache/" not in p}
    finding = only(judge("cpu.cache", memory_host(files)))
    assert summary(finding) == ("cpu.cache/absent", "unknown", "host host")
    assert sources(finding) == [f"{CPU}/cpu0/cache"]


def test_a_cpu_outside_every_slice_makes_the_slices_unknown() -> None:
    files = {p: t for p, t in machine(threads=1).items() if "cpu7/cache/index3" not in p}
    files = {p: "4-6\n" if p.endswith("shared_cpu_list") and t == "4-7\n" else t for p, t in files.items()}
    finding = only(judge("cpu.cache", memory_host(files)))
    assert summary(finding) == ("cpu.cache/absent", "unknown", "host host")
    assert "CPUs 7 show no L3" in (finding.evidence[-1].note or "")


def test_bare_metal_that_has_no_l3_is_skipped_with_what_it_has() -> None:
    files = machine(name="AMD A10-7850K", family=21, model=48, flags="lm avx")
    finding = only(judge("cpu.cache", memory_host({p: t for p, t in files.items() if "/index3/" not in p})))
    assert summary(finding) == ("cpu.cache/not-applicable", "skip", "host host")
    assert values(finding) == ["L1, L2"]
