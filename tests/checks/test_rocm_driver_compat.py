"""rocm.driver-compat: installed releases against the loaded driver."""

from __future__ import annotations

import pytest

from amdcheck.model.expectations import Expectations
from amdcheck.model.finding import Finding
from tests.checks.saying import only, summary, values
from tests.compose import compose, machine_names
from tests.gpu_hosts import gpu_host
from tests.judge import judge
from tests.memory_host import memory_host

QUICK = Expectations(level="quick")
BASE = {"/proc/sys/kernel/osrelease": "6.8.0-60-generic\n", "/sys/module/amdgpu/initstate": "live\n"}


def found(files: dict[str, str], expect: Expectations = QUICK, **more: object) -> list[Finding]:
    return judge("rocm.driver-compat", memory_host({**BASE, **files}, **more), expect)  # type: ignore[arg-type]


def pair(rocm: str, module: str) -> Finding:
    return only(found({f"/opt/rocm-{rocm}/.info/version": f"{rocm}-1\n", "/sys/module/amdgpu/version": module}))


@pytest.mark.parametrize("name", machine_names())
def test_composed_machines_are_all_of_supported_pairs(name: str) -> None:
    for finding in judge("rocm.driver-compat", compose(name).host, QUICK):
        assert finding.status in ("pass", "skip"), finding.message


def test_listed_pair_shows_both_versions_and_the_list() -> None:
    finding = pair("10.0.0", "7.1.3.31500000")
    assert summary(finding) == ("rocm.driver-compat/ok", "pass", "path /opt/rocm-10.0.0")
    assert values(finding)[:2] == ["10.0.0", "7.1.3.31500000"]
    assert finding.evidence[2].note == "basis: listed"


def test_inferred_pair_says_so() -> None:
    finding = pair("7.1.1", "6.12.12")
    assert summary(finding)[:2] == ("rocm.driver-compat/ok", "pass")
    assert finding.message.startswith("Inferred, as no list names the pair: ")


@pytest.mark.parametrize(
    ("rocm", "module"),
    [("6.0.2", "6.10.5"), ("10.0.0", "6.12.12"), ("6.3.3", "6.3.6"), ("6.3.3", "7.1.3.31500000")],
)
def test_unsupported_pair_fails(rocm: str, module: str) -> None:
    finding = pair(rocm, module)
    assert summary(finding) == ("rocm.driver-compat/unsupported", "fail", f"path /opt/rocm-{rocm}")
    assert values(finding)[:2] == [rocm, module]


@pytest.mark.parametrize(
    ("rocm", "module", "outcome"),
    [
        ("11.2.0", "7.1.3.31500000", "not-in-table"),
        ("10.0.0", "8.0.0.33000000", "not-in-table"),
        ("7.2.0", "6.18.3", "not-in-table"),
        ("7.2.0", "9.9.9", "not-in-table"),
        ("7.9.0", "6.14.14", "preview"),
        ("10.2.0", "6.14.14", "unclear"),
    ],
)
def test_what_the_tables_do_not_know_warns(rocm: str, module: str, outcome: str) -> None:
    assert summary(pair(rocm, module))[:2] == (f"rocm.driver-compat/{outcome}", "warn")


def test_two_releases_side_by_side_are_judged_apart() -> None:
    files = {
        "/opt/rocm-6.0.2/.info/version": "6.0.2",
        "/opt/rocm-6.4.1/.info/version": "6.4.1",
        "/sys/module/amdgpu/version": "6.10.5",
    }
    assert [summary(finding) for finding in found(files)] == [
        ("rocm.driver-compat/unsupported", "fail", "path /opt/rocm-6.0.2"),
        ("rocm.driver-compat/ok", "pass", "path /opt/rocm-6.4.1"),
    ]


def test_in_tree_kernel_number_is_never_compared_with_rocm_numbers() -> None:
    finding = only(found({"/opt/rocm-6.3.3/.info/version": "6.3.3", "/sys/module/amdgpu/taint": "\n"}))
    assert summary(finding) == ("rocm.driver-compat/in-tree", "skip", "path /opt/rocm-6.3.3")
    assert values(finding) == ["6.3.3", "6.8.0-60-generic"]


def test_without_driver_there_is_nothing_to_compare() -> None:
    host = memory_host({"/sys/module/ext4/initstate": "live", "/opt/rocm-6.3.3/.info/version": "6.3.3"})
    finding = only(judge("rocm.driver-compat", host, QUICK))
    assert summary(finding) == ("rocm.driver-compat/not-applicable", "skip", "path /opt/rocm-6.3.3")


def test_installation_without_a_version_is_unknown() -> None:
    finding = only(found({"/opt/rocm-6.3.3/bin/rocminfo": "", "/sys/module/amdgpu/version": "6.10.5"}))
    assert summary(finding) == ("rocm.driver-compat/absent", "unknown", "path /opt/rocm-6.3.3")


def test_link_to_an_installation_that_is_gone_warns() -> None:
    links = {"/opt/rocm": "/etc/alternatives/rocm", "/etc/alternatives/rocm": "/opt/rocm-6.2.0"}
    finding = only(found({"/opt/other/x": ""}, links=links))
    assert summary(finding) == ("rocm.driver-compat/dangling", "warn", "path /opt/rocm")
    assert finding.message.startswith("/opt/rocm leads to /opt/rocm-6.2.0, which is gone")
    assert values(finding) == ["/etc/alternatives/rocm -> /opt/rocm-6.2.0"]


def test_rocm_option_that_leads_nowhere_is_unknown() -> None:
    finding = only(found({"/opt/x/y": ""}, Expectations(level="quick", rocm_root="/opt/rocm-9.9.9")))
    assert summary(finding) == ("rocm.driver-compat/absent", "unknown", "path /opt/rocm-9.9.9")


def test_host_without_rocm_is_skipped() -> None:
    assert summary(only(found({"/opt/x/y": ""})))[:2] == ("rocm.driver-compat/not-applicable", "skip")


@pytest.mark.parametrize("check", ["rocm.driver-compat", "miopen.version"])
def test_unreadable_opt_is_unknown_where_there_are_gpus(check: str) -> None:
    machine = gpu_host("mi210", 1)
    machine.empty_dirs.remove("/opt")
    machine.outcomes["/opt"] = "denied"
    finding = only(judge(check, machine.host(), QUICK))
    assert summary(finding) == (f"{check}/denied", "unknown", "host host")
    finding = only(judge(check, memory_host(BASE, complete=False), QUICK))
    assert summary(finding)[:2] == (f"{check}/not-applicable", "skip")
