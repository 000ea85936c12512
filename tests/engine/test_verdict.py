from __future__ import annotations

from datetime import date

import pytest
from msgspec.structs import replace

from amdcheck.api import HOST, failed, manual, passed, shown, skipped, undetermined, warned
from amdcheck.engine.exits import STYLES, ExitStyle, event_exit, verdict_exit
from amdcheck.engine.verdict import summarize
from amdcheck.model.finding import Finding, Owner, Remedy, Step, Subject, Waived
from amdcheck.model.report import Lost, Summary
from amdcheck.model.value import Unknown


def remedy(owner: Owner = "node") -> Remedy:
    step = Step(text="t", argv=None, root=False, reboot=False)
    return Remedy(action="configure", owner=owner, steps=(step,), reference=None)


PASS = passed("cpu.vendor", HOST, "AMD", shown("/proc/cpuinfo", "AuthenticAMD"))
WARN = warned("numa.balancing/on", HOST, "on", shown("/proc/x", "1"), remedy=remedy())
FAIL = failed("gpu.present/none", HOST, "no GPU", shown("/sys/bus", "0"), remedy=remedy())
UNKNOWN = undetermined("cpu.cache", HOST, "no sizes", because=Unknown("absent", "/sys/c"))
MANUAL = manual("cpu.vendor/look", HOST, "look at the BIOS", remedy=remedy())
SKIP = skipped("pci.link-width", HOST, "no GPU")


def judged(
    *findings: Finding,
    required: bool = True,
    amd_present: bool = True,
    cpu_host: bool = False,
    whole: bool = True,
    live: bool = True,
    lost: tuple[Lost, ...] = (),
    style: ExitStyle = "gate",
    fail_on_warn: bool = False,
) -> Summary:
    return summarize(
        findings,
        [required] * len(findings),
        amd_present=amd_present,
        cpu_host=cpu_host,
        whole=whole,
        live=live,
        lost=lost,
        style=style,
        fail_on_warn=fail_on_warn,
    )


@pytest.mark.parametrize(
    ("findings", "verdict"),
    [
        ((PASS, SKIP), "ready"),
        ((PASS, WARN), "ready-with-warnings"),
        ((PASS, WARN, UNKNOWN), "undetermined"),
        ((PASS, WARN, UNKNOWN, FAIL), "not-ready"),
    ],
)
def test_the_worst_finding_decides(findings: tuple[Finding, ...], verdict: str) -> None:
    assert judged(*findings).verdict == verdict


@pytest.mark.parametrize("findings", [(), (SKIP,), (UNKNOWN,)])
def test_where_nothing_was_judged_nothing_is_ready(findings: tuple[Finding, ...]) -> None:
    summary = judged(*findings, required=False)
    assert (summary.verdict, summary.exit_code) == ("undetermined", 3)
    assert summary.headline == "UNDETERMINED: nothing was judged"


def test_an_advisory_unknown_does_not_change_the_verdict() -> None:
    assert judged(PASS, UNKNOWN, required=False).verdict == "ready"


@pytest.mark.parametrize(
    ("worst", "headline"),
    [
        (PASS, "READY, 2 undetermined (advisory): 1 finding passed"),
        (WARN, "READY WITH WARNINGS, 2 undetermined (advisory): numa.balancing/on: on"),
        (FAIL, "NOT READY: gpu.present/none: no GPU"),
    ],
)
def test_ready_is_not_said_without_what_could_not_be_determined(worst: Finding, headline: str) -> None:
    other = undetermined("cpu.isa", HOST, "no flags", because=Unknown("absent", "/proc/cpuinfo"))
    assert judged(worst, UNKNOWN, other, required=False).headline == headline


def test_what_only_root_may_read_is_counted_once() -> None:
    denied = undetermined("kernel.log", HOST, "not read", because=Unknown("denied", "/dev/kmsg"))
    lost = (Lost(check="kernel.log", needs="root", source="/dev/kmsg"),)
    assert judged(PASS, denied, required=False, lost=lost).headline == (
        "READY: 1 finding passed (1 check needs root: sudo amdcheck all)"
    )


def test_self_tests_that_were_left_out_on_a_busy_machine_are_counted() -> None:
    busy = [skipped(f"selftest.cpu.{name}", HOST, "none is idle", outcome="busy") for name in ("clock", "triad")]
    assert judged(PASS, SKIP, *busy).headline == (
        "READY: 1 finding passed; 2 self-tests not run: CPUs in use (--allow-busy)"
    )
    assert judged(PASS, *busy, live=False).headline == "READY: 1 finding passed; 2 self-tests not run: CPUs in use"
    assert judged(PASS, *busy).exit_code == 0
    gpu = skipped("selftest.gpu.gemm", Subject(kind="gpu", id="0000:03:00.0"), "in use", outcome="busy")
    assert judged(PASS, busy[0], gpu).headline.endswith("; 2 self-tests not run: CPUs and GPUs in use (--allow-busy)")


def test_nothing_of_amd_is_undetermined() -> None:
    summary = judged(PASS, amd_present=False)
    assert (summary.verdict, summary.exit_code) == ("undetermined", 3)
    assert "no AMD CPU and no AMD GPU" in summary.headline


def test_a_cpu_hosts_headline_says_so() -> None:
    assert judged(PASS, cpu_host=True).headline.startswith("CPU host, no AMD GPU: READY")


def test_a_part_of_the_checks_speaks_for_itself_alone() -> None:
    assert judged(PASS, whole=False).headline == "1 check alone: READY: 1 finding passed"
    assert judged(PASS, SKIP, whole=False).headline.startswith("2 checks alone: READY")


def test_what_is_waived_is_counted_in_the_headline() -> None:
    waived = replace(FAIL, waived=Waived(reason="known", until=date(2030, 1, 1)))
    assert judged(PASS, waived).headline == "READY: 1 finding passed (1 waived)"


def test_gpus_that_are_gone_are_told_before_what_follows_from_it() -> None:
    driver = failed("gpu.driver-loaded/not-loaded", HOST, "not loaded", shown("/x", "0"), remedy=remedy())
    numa = failed("cpu.vendor/x", HOST, "first by name", shown("/x", "0"), remedy=remedy())
    assert judged(numa, driver, FAIL).headline == "NOT READY: gpu.present/none: no GPU (and 2 more)"


def test_a_long_message_is_cut_in_the_headline() -> None:
    long = failed("gpu.present/none", HOST, "x" * 1000, shown("/x", "0"), remedy=remedy())
    assert len(judged(long).headline) < 250


def test_what_root_would_add_is_counted_by_check() -> None:
    lost = tuple(Lost(check=c, needs="root", source=s) for c, s in (("a.b", "/x"), ("a.b", "/y"), ("a.c", "/z")))
    assert judged(PASS, lost=lost).headline.endswith("(2 checks need root: sudo amdcheck all)")


def test_only_an_unwaived_fail_of_the_node_drains() -> None:
    user = failed("gpu.present/none", HOST, "m", shown("/x", "0"), remedy=remedy("user"))
    assert judged(FAIL).drain
    assert not judged(user).drain
    assert not judged(WARN).drain


def test_the_reason_is_one_ascii_line_of_at_most_200_bytes() -> None:
    long = failed(
        "gpu.present/none", Subject(kind="gpu", id="0000:c3:00.0"), "ü" * 300, shown("/x", "0"), remedy=remedy()
    )
    reason = judged(long, FAIL).reason
    assert len(reason.encode()) <= 200
    assert reason.isascii()
    assert "\n" not in reason
    assert reason.startswith("amdcheck: not-ready: gpu.present/none on 0000:c3:00.0: ???")


def test_the_reason_names_the_worst_and_how_many_more() -> None:
    assert judged(FAIL, FAIL, WARN).reason == "amdcheck: not-ready: gpu.present/none: no GPU (and 1 more)"


def test_counts_are_disjoint_and_sum_up() -> None:
    waived = replace(FAIL, waived=Waived(reason="known", until=date(2030, 1, 1)))
    counts = judged(PASS, WARN, FAIL, UNKNOWN, SKIP, MANUAL, waived, waived).counts
    assert (counts.pass_, counts.warn, counts.fail, counts.unknown, counts.skip) == (1, 1, 1, 1, 1)
    assert (counts.manual, counts.waived) == (1, 2)


# The exit table as the contract has it: event -> (gate, nagios, npd).
TABLE = {
    "ready": (0, 0, 0),
    "ready-with-warnings": (0, 1, 0),
    "not-ready": (1, 2, 1),
    "undetermined": (3, 3, 2),
    "usage": (2, 3, 2),
    "report-lost": (74, 3, 2),
    "bug": (70, 3, 2),
    "locked": (3, 3, 2),
    "sigint": (130, 3, 2),
    "sigterm": (143, 3, 2),
}


@pytest.mark.parametrize("event", TABLE)
def test_exit_table(event: str) -> None:
    if event in ("ready", "ready-with-warnings", "not-ready", "undetermined"):
        codes = tuple(verdict_exit(event, style, fail_on_warn=False) for style in STYLES)  # type: ignore[arg-type]
    else:
        codes = tuple(event_exit(event, style) for style in STYLES)  # type: ignore[arg-type]
    assert codes == TABLE[event]


def test_fail_on_warn_is_gates_alone() -> None:
    assert judged(WARN, fail_on_warn=True).exit_code == 1
    assert judged(WARN, fail_on_warn=True, style="npd").exit_code == 0
