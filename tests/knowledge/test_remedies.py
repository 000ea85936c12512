"""Every remedy as an operator reads it at night: its commands run as they stand, and say when they need root."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from amdcheck.knowledge.distributions import distributions, manager_of
from amdcheck.knowledge.remedies import StepTemplate, remedies, remedy, steps_on
from amdcheck.model.finding import Status
from tests.compose import fault, fault_names

TABLES = sorted((Path(__file__).parents[2] / "amdcheck" / "knowledge" / "remedies").glob("*.toml"))
STEPS = {
    f"{id} {number}.{variant}": step
    for table in TABLES
    for id, row in remedies(table.stem).items()
    for number, template in enumerate((*row.steps, *(row.in_guest.steps if row.in_guest else ())), start=1)
    for variant, step in enumerate(steps_on(template, None), start=1)
    if step.argv
}
SCRIPTS = {id: step for id, step in STEPS.items() if step.argv[0] == "sh"}
# What asks for root, wherever it stands in a command: programs, and writing to what root owns.
NEED_ROOT = re.compile(
    r"\b(dmesg|journalctl -k|modprobe(?!\.)|usermod|udevadm|dmidecode|sysctl -w|lspci -vv|systemctl reboot|chmod"
    r"|cpupower frequency-set|turbostat|dkms autoinstall|apt-get|dnf|zypper|update-initramfs|dracut"
    r"|update-alternatives)\b"
    r"|(> ?|tee )/(sys|etc)/|> (driver|current)"
)
# Programs of every host, and those of what the remedy is about.
PROGRAMS = {
    "amdcheck", "apt-get", "awk", "cat", "chmod", "cpuid", "cpupower", "dkms", "dmesg", "dmidecode", "dnf",
    "dpkg-query", "dracut", "env", "findmnt", "grep", "head", "journalctl", "ls", "lscpu", "lspci", "modprobe",
    "namei", "ps", "rm", "rpm", "sh", "sysctl", "systemctl", "top", "tuned-adm", "turbostat", "update-alternatives",
    "update-initramfs", "usermod", "which", "zypper",
}  # fmt: skip


def test_a_row_names_the_worst_status_that_its_finding_has_by_any_fault() -> None:
    rank = ("fail", "warn", "unknown", "manual")
    seen: dict[str, set[Status]] = {}
    for expected in (e for name in fault_names() for e in fault(name).expect):
        seen.setdefault(expected.id, set()).add(expected.status)
    rows = {id: row.status for table in TABLES for id, row in remedies(table.stem).items()}
    worst = {id: min(seen[id] - {"pass", "skip"}, key=rank.index) for id in rows if id in seen}
    assert {id: rows[id] for id in worst} == worst


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_a_command_says_whether_it_needs_root(step: StepTemplate) -> None:
    line = " ".join(step.argv)
    assert step.root == (NEED_ROOT.search(line) is not None or step.argv[0] in ("rm", "namei"))


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_a_command_is_one_that_a_host_has(step: StepTemplate) -> None:
    assert step.argv[0] in PROGRAMS or step.argv[0] == "{tool:package}"


@pytest.mark.parametrize("step", SCRIPTS.values(), ids=SCRIPTS)
def test_a_script_is_one_that_the_shell_can_read(step: StepTemplate) -> None:
    shell, option, script = step.argv
    assert (shell, option) == ("sh", "-c")
    filled = re.sub(r"\{\w+:\w+\}", "x", script)
    assert subprocess.run(["sh", "-n", "-c", filled], capture_output=True, text=True, check=False).stderr == ""


@pytest.mark.parametrize(
    ("os_id", "command"),
    [
        ("ubuntu", ("apt-get", "install", "miopen-hip-gfx90akdb")),
        ("rocky", ("dnf", "install", "miopen-hip-gfx90akdb")),
        ("sles", ("zypper", "install", "miopen-hip-gfx90akdb")),
    ],
)
def test_a_package_is_installed_the_way_of_the_host(os_id: str, command: tuple[str, ...]) -> None:
    (step,) = remedy("miopen.kernel-cache/missing", os_id=os_id, package="miopen-hip-gfx90akdb").steps
    assert step.argv == command
    assert step.root
    assert " on " not in step.text


@pytest.mark.parametrize("os_id", [None, "arch"])
def test_every_way_is_told_where_the_distribution_is_in_no_table(os_id: str | None) -> None:
    steps = remedy("gpu.driver-loaded/blocked", os_id=os_id, where="/etc/modprobe.d/x.conf").steps
    told = {step.text.partition(" (on ")[2]: step.argv for step in steps if "initial ramdisk" in step.text}
    assert told == {
        "Debian and Ubuntu)": ("update-initramfs", "-u", "-k", "all"),
        "RHEL and its kin, SLES and openSUSE)": ("dracut", "--force", "--regenerate-all"),
    }


def test_a_distribution_has_one_package_manager() -> None:
    ids = [id for row in distributions().values() for id in row.ids]
    assert len(ids) == len(set(ids))
    assert (manager_of("debian"), manager_of("rhel"), manager_of("sles"), manager_of(None)) == (
        "apt",
        "dnf",
        "zypper",
        None,
    )


def test_both_ends_of_a_narrow_link_have_their_command() -> None:
    steps = remedy("pci.link-width/degraded", port="0000:00:01.1", device="0000:01:00.0").steps
    assert [step.argv for step in steps[:2]] == [
        ("lspci", "-vv", "-s", "0000:00:01.1"),
        ("lspci", "-vv", "-s", "0000:01:00.0"),
    ]


def test_a_gpu_is_taken_back_from_another_driver_by_commands_alone() -> None:
    steps = remedy("gpu.present/other-driver", bdf="0000:03:00.0").steps
    scripts = [step.argv[2] for step in steps if step.argv is not None and step.argv[0] == "sh"]
    assert scripts == [
        "cd /sys/bus/pci/devices/0000:03:00.0 && echo > driver_override && echo 0000:03:00.0 > driver/unbind",
        "modprobe amdgpu && echo 0000:03:00.0 > /sys/bus/pci/drivers/amdgpu/bind",
    ]


@pytest.mark.parametrize(("outcome", "least"), [("absent", 9), ("not-noticed", 9), ("disturbed", 4)])
def test_what_self_tests_have_in_common_is_said_in_the_same_words(outcome: str, least: int) -> None:
    """Kernels that are not installed, a planted error that was not seen (the clock's control plants none), and others
    on the CPU."""
    own = {id: row for id, row in remedies("selftest").items() if id.endswith(f"/{outcome}") and ".cpu." in id}
    own.pop("selftest.cpu.clock/not-noticed", None)
    assert len(own) >= least
    texts = {
        id: [step.text.replace("-c N,M", "-c N") for step in row.steps] for id, row in own.items()
    }  # some take two
    assert len({(row.action, row.owner, *texts[id]) for id, row in own.items()}) == 1


def test_a_self_test_that_was_disturbed_is_run_again_itself() -> None:
    for id, row in remedies("selftest").items():
        check, _, outcome = id.partition("/")
        if outcome == "disturbed":
            assert row.steps[-1].argv == ("amdcheck", "run", check)


def test_who_uses_the_cpus_now_is_not_asked_of_a_lifetime_s_average() -> None:
    """pcpu of ps is CPU time over the age of the process; top's second list is of the second between them."""
    assert [id for id, step in STEPS.items() if "pcpu" in " ".join(step.argv)] == []
    tops = {step.argv for step in STEPS.values() if step.argv[0] == "top"}
    assert tops == {("top", "-H", "-b", "-n", "2", "-d", "1")}


QUOTAS = {id: step for id, step in SCRIPTS.items() if "cpu.max" in step.argv[2]}
VERSIONS = {
    "version 2": ("0::/app/a b\n", {"app/a b/cpu.max": "400000 100000\n"}),
    "version 2 in a container": ("0::/\n", {"cpu.max": "400000 100000\n"}),
    "version 1": (
        "4:cpu,cpuacct:/app\n2:pids:/other\n",
        {"cpu/app/cpu.cfs_quota_us": "400000\n", "cpu/app/cpu.stat": "nr_periods 9\nnr_throttled 3\n"},
    ),
    "version 1 in a container": ("4:cpu:/of-the-host\n", {"cpu/cpu.cfs_quota_us": "400000\n"}),
}


@pytest.mark.parametrize("step", QUOTAS.values(), ids=QUOTAS)
@pytest.mark.parametrize(("groups", "files"), VERSIONS.values(), ids=VERSIONS)
def test_a_quota_is_shown_for_either_version_of_control_groups(
    step: StepTemplate, groups: str, files: dict[str, str], tmp_path: Path
) -> None:
    root, own = tmp_path / "cgroup", tmp_path / "self"
    own.write_text(groups)
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    script = step.argv[2].replace("/proc/self/cgroup", str(own)).replace("/sys/fs/cgroup", str(root))
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    assert done.stderr == ""
    assert ":400000" in done.stdout
    assert ("nr_throttled 3" in done.stdout) == any(name.endswith("cpu.stat") for name in files)


def test_frequencies_are_shown_of_every_cpu_not_of_the_first() -> None:
    """The finding names the CPU, and it is seldom the first."""
    first = re.compile(r"policy0|/cpu0/")
    assert [id for id, step in SCRIPTS.items() if "cpufreq" in step.argv[2] and first.search(step.argv[2])] == []
