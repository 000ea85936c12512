from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import date
from itertools import permutations
from pathlib import Path

import pytest
from msgspec.structs import fields, replace

from amdcheck.api import HOST, failed, shown, undetermined
from amdcheck.engine.policy import (
    _RIGHT,
    CheckPolicy,
    Expect,
    Policy,
    Waiver,
    apply_policy,
    detect_profile,
    is_required,
    profile_named,
    read_policy,
)
from amdcheck.engine.registry import Check, Needs
from amdcheck.model.errors import InputError
from amdcheck.model.finding import Finding, Remedy, Step
from amdcheck.model.value import Unknown
from tests.standins.hungfs import dead_mount

REMEDY = Remedy(
    action="configure", owner="node", steps=(Step(text="t", argv=None, root=False, reboot=False),), reference=None
)
CHECKS = frozenset({"pci.acs", "memory.thp", "gpu.present"})


def policy_file(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "policy.toml"
    path.write_text(text)
    return path


def make_check(id: str, *, needs: Needs = "user", required: bool = True) -> Check:
    return Check(
        id=id,
        title=id,
        level="quick",
        needs=needs,
        required=required,
        function=lambda: iter(()),
        parameters={},
        applies=None,
        applies_parameters={},
        page="page",
        origin="amdcheck.checks.x",
    )


def redirect() -> Finding:
    return failed("pci.acs/redirect", HOST, "ACS redirects", shown("/sys/x", "1"), remedy=REMEDY)


def test_the_contracts_policy_is_read(tmp_path: Path) -> None:
    policy = read_policy(
        policy_file(
            tmp_path,
            """
            profile = "production"
            [expect]
            gpus = 8
            gfx = "gfx942"
            rocm = ">=6.4,<11"
            [checks."memory.thp"]
            at_most = "warn"
            required = false
            [[waive]]
            id = "pci.acs/redirect"
            subject = "*"
            reason = "XGMI only host"
            until = 2027-03-31
            """,
        ),
        CHECKS,
    )
    assert policy.expect.gpus == 8
    assert policy.checks["memory.thp"].at_most == "warn"
    assert policy.waive[0].until == date(2027, 3, 31)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("profil = 'x'", "unknown key profil; did you mean profile?"),
        ("[expect]\ngpu = 8", "unknown key expect.gpu; did you mean gpus?"),
        ('[checks."memory.thp"]\natmost = "warn"', "unknown key checks.'memory.thp'.atmost; did you mean at_most?"),
        ('[checks."memory.tph"]\nrequired = false', "checks.'memory.tph' names no check; did you mean memory.thp?"),
        ("[expect]\ngpus = 'eight'", "expect.gpus is 'eight'; write a whole number, such as gpus = 8"),
        ("[expect]\ngpus = true", "expect.gpus is True; write a whole number"),
        ("expect = 8", "expect is 8; write a table, [expect]"),
        ('checks = ["gpu.present"]', "checks is ['gpu.present']; write a table for each check"),
        ("[checks]\n'gpu.present' = 'warn'", "checks.'gpu.present' is 'warn', not a table of keys"),
        ("[checks.'gpu.present']\nat_most = 'pass'", "at_most is 'pass'; write at_most = \"warn\", or leave it out"),
        ("[checks.'gpu.present']\nrequired = 'no'", "required is 'no'; write required = true or required = false"),
        ("[expect]\ngpus = -1", "expect.gpus must not be negative"),
        ("[expect]\ngfx = 'mi300x'", "expect.gfx 'mi300x' is no target"),
        ("[expect]\nrocm = 'six'", "expect.rocm 'six' is no version range"),
        ("[expect]\ngpus = 1000000000000000000000000000000", "expect.gpus is more than 4096, which no machine has"),
        ("[expect]\ngpus = " + "9" * 5000, "not TOML: Exceeds the limit"),
        ("x = " + "[" * 20000, "nests too deeply; that is no policy"),
        ("#" * (65 << 10), "larger than 64 KiB; that is no policy"),
        ("a = ", "not TOML"),
        (
            "[[waive]]\nid = 'gpu.present/nune'\nreason = 'x'\nuntil = 2027-01-01",
            "gpu.present has no such outcome; did you mean none?",
        ),
        ("[[waive]]\nid = 'pci.acs/x'\nuntil = 2027-01-01", "waive.reason is missing; write why it may stand"),
        ("waive = ['pci.acs']", "waive is 'pci.acs', not a table of keys"),
        (
            "[[waive]]\nid = 'pci.acs/x'\nreason = 'x'\nuntil = 2027-01-01\n"
            "[[waive]]\nid = 'pci.acs/y'\nreason = 'x'\nuntil = 2027-01-01T12:00:00",
            "waive 2.until is 2027-01-01 12:00:00; write its last day without quotes, such as until = 2027-03-31",
        ),
        ("[[waive]]\nid = 'pci.acs/x'\nreasn = 'x'", "unknown key waive.reasn; did you mean reason?"),
    ],
)
def test_a_wrong_policy_gets_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=r"policy .*") as error:
        read_policy(policy_file(tmp_path, text), CHECKS)
    assert sentence in str(error.value)
    assert "\n" not in str(error.value) or "not TOML" in str(error.value)
    assert "Expected `" not in str(error.value)


def test_every_key_of_a_policy_says_what_is_right_for_it() -> None:
    assert set(_RIGHT) == {f.encode_name for kind in (Policy, Expect, CheckPolicy, Waiver) for f in fields(kind)}


def test_a_policy_that_costs_its_parser_seconds_is_given_up(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(InputError, match=r"is not read within 2 s; it lies on a dead mount, or nests too deeply$"):
        read_policy(policy_file(tmp_path, "a." * 32000 + "a = 1"), CHECKS)
    assert time.monotonic() - began < 5.0


def test_a_policy_on_a_dead_mount_is_given_up() -> None:
    with dead_mount() as folder, pytest.raises(InputError, match=r"it lies on a dead mount"):
        read_policy(folder / "policy.toml", CHECKS)


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_a_policy_that_is_no_file_is_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    make(tmp_path / "policy.toml")
    with pytest.raises(InputError, match=r"^policy .*: cannot be read: it is not a file$"):
        read_policy(tmp_path / "policy.toml", CHECKS)


def test_a_missing_policy_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: No such file"):
        read_policy(tmp_path / "none.toml", CHECKS)


WAIVE = """
[[waive]]
id = "pci.acs/redirect"
reason = "XGMI only host"
until = 2027-03-31
"""


def test_a_waiver_counts_until_its_last_day(tmp_path: Path) -> None:
    policy = read_policy(policy_file(tmp_path, WAIVE), CHECKS)
    waived = apply_policy(redirect(), policy, date(2027, 3, 31)).waived
    assert waived is not None
    assert (waived.reason, waived.until) == ("XGMI only host", date(2027, 3, 31))


def test_a_waiver_past_its_date_says_so_and_does_not_count(tmp_path: Path) -> None:
    policy = read_policy(policy_file(tmp_path, WAIVE), CHECKS)
    finding = apply_policy(redirect(), policy, date(2027, 4, 1))
    assert finding.waived is None
    assert finding.status == "fail"
    assert "its waiver ended on 2027-03-31" in finding.message


@pytest.mark.parametrize(("stop", "end"), [("", ")"), (".", ").")])
def test_a_note_of_the_policy_stands_inside_the_sentence(tmp_path: Path, stop: str, end: str) -> None:
    finding = replace(redirect(), message=f"Traffic is redirected{stop}")
    expired = apply_policy(finding, read_policy(policy_file(tmp_path, WAIVE), CHECKS), date(2027, 4, 1))
    assert expired.message == f"Traffic is redirected (its waiver ended on 2027-03-31: XGMI only host{end}"
    at_most = read_policy(policy_file(tmp_path, '[checks."pci.*"]\nat_most = "warn"'), CHECKS)
    capped = apply_policy(finding, at_most, date(2027, 4, 1))
    assert capped.message == f"Traffic is redirected (a fail; the policy says at most warn{end}"


def test_at_most_warn_caps_a_fail(tmp_path: Path) -> None:
    policy = read_policy(policy_file(tmp_path, '[checks."pci.*"]\nat_most = "warn"'), CHECKS)
    finding = apply_policy(redirect(), policy, date(2027, 1, 1))
    assert (finding.id, finding.status) == ("pci.acs/redirect", "warn")


def unknown(reason: str) -> Finding:
    return undetermined("pci.acs", HOST, "m", because=Unknown(reason, "/sys/x"))  # type: ignore[arg-type]


@pytest.mark.parametrize("needs", ["root", "render"])
def test_denied_is_advisory_where_the_check_names_its_need_unless_everything_is_required(
    tmp_path: Path, needs: Needs
) -> None:
    policy = read_policy(policy_file(tmp_path, ""), CHECKS)
    node, production = profile_named("node-gpu"), profile_named("production")
    check = make_check("pci.acs", needs=needs)
    advisory = make_check("pci.acs", needs=needs, required=False)
    assert not is_required(unknown("denied"), check, policy, node, require_all=False, privileged=False)
    assert is_required(unknown("denied"), check, policy, node, require_all=True, privileged=False)
    assert is_required(unknown("denied"), check, policy, production, require_all=False, privileged=False)
    assert is_required(unknown("timeout"), check, policy, node, require_all=False, privileged=False)
    assert not is_required(unknown("timeout"), advisory, policy, node, require_all=False, privileged=False)


def test_what_any_user_should_be_able_to_read_is_required_when_it_is_denied(tmp_path: Path) -> None:
    policy = read_policy(policy_file(tmp_path, ""), CHECKS)
    node = profile_named("node-gpu")
    assert is_required(unknown("denied"), make_check("pci.acs"), policy, node, require_all=False, privileged=False)
    advisory = make_check("pci.acs", required=False)
    assert not is_required(unknown("denied"), advisory, policy, node, require_all=False, privileged=False)


def test_what_root_is_denied_is_required(tmp_path: Path) -> None:
    policy = read_policy(policy_file(tmp_path, ""), CHECKS)
    node = profile_named("node-gpu")
    check = make_check("pci.acs", needs="root")
    assert is_required(unknown("denied"), check, policy, node, require_all=False, privileged=True)


def test_the_policys_word_on_required_comes_first(tmp_path: Path) -> None:
    policy = read_policy(policy_file(tmp_path, '[checks."pci.acs"]\nrequired = false'), CHECKS)
    production = profile_named("production")
    check = make_check("pci.acs")
    assert not is_required(unknown("timeout"), check, policy, production, require_all=True, privileged=False)


def test_host_owned_checks_are_advisory_in_a_container(tmp_path: Path) -> None:
    policy = read_policy(policy_file(tmp_path, ""), CHECKS)
    finding = undetermined("numa.balancing", HOST, "m", because=Unknown("absent", "/proc/x"))
    check = make_check("numa.balancing")
    container, node = profile_named("container-gpu"), profile_named("node-gpu")
    assert not is_required(finding, check, policy, container, require_all=False, privileged=False)
    assert is_required(finding, check, policy, node, require_all=False, privileged=False)


def test_profiles() -> None:
    assert detect_profile(container=True, gpus=False) == "container-cpu"
    assert detect_profile(container=False, gpus=True) == "node-gpu"
    with pytest.raises(InputError, match="did you mean production"):
        profile_named("productoin")


SPECIFIC = ["pci.acs", "pci.*", "p*"]


@pytest.mark.parametrize("order", list(permutations(SPECIFIC)))
@pytest.mark.parametrize("most", range(3))
def test_the_most_specific_rule_decides_wherever_it_stands(tmp_path: Path, order: tuple[str, ...], most: int) -> None:
    """An id before a glob, a longer glob before a shorter one."""
    known = [id for id in order if id in SPECIFIC[most:]]
    text = "".join(f'[checks."{id}"]\nrequired = {str(id != SPECIFIC[most]).lower()}\n' for id in known)
    policy = read_policy(policy_file(tmp_path, text), CHECKS)
    node = profile_named("node-gpu")
    assert not is_required(unknown("timeout"), make_check("pci.acs"), policy, node, require_all=True, privileged=True)


def test_a_rule_that_says_nothing_of_it_leaves_it_to_the_next(tmp_path: Path) -> None:
    text = '[checks."pci.acs"]\nat_most = "warn"\n[checks."pci.*"]\nrequired = false\n'
    policy = read_policy(policy_file(tmp_path, text), CHECKS)
    node = profile_named("node-gpu")
    assert not is_required(unknown("timeout"), make_check("pci.acs"), policy, node, require_all=True, privileged=True)
    assert apply_policy(redirect(), policy, date(2027, 1, 1)).status == "warn"


def gone() -> Finding:
    return failed("gpu.present/none", HOST, "none", shown("/sys/bus/pci/devices", "0"), remedy=REMEDY)


@pytest.mark.parametrize(("rule", "status", "required"), [("*", "fail", True), ("gpu.present", "warn", False)])
def test_gpus_that_are_gone_count_less_only_where_the_policy_names_them(
    tmp_path: Path, rule: str, status: str, required: bool
) -> None:
    text = f'[checks."{rule}"]\nat_most = "warn"\nrequired = false\n'
    policy = read_policy(policy_file(tmp_path, text), CHECKS)
    assert apply_policy(gone(), policy, date(2027, 1, 1)).status == status
    unread = undetermined("gpu.present", HOST, "m", because=Unknown("timeout", "/x"), outcome="unreadable")
    check, node = make_check("gpu.present"), profile_named("node-gpu")
    assert is_required(unread, check, policy, node, require_all=False, privileged=True) is required


def test_a_waiver_accepts_its_own_finding_alone(tmp_path: Path) -> None:
    policy = read_policy(policy_file(tmp_path, WAIVE), CHECKS)
    other = failed("pci.acs/other", HOST, "m", shown("/sys/x", "1"), remedy=REMEDY)
    assert apply_policy(other, policy, date(2027, 1, 1)).waived is None
    assert apply_policy(redirect(), policy, date(2027, 1, 1)).waived is not None


@pytest.mark.parametrize("id", ["*", "*/*", "gpu.*", "pci.acs", "pci.acs/*", "gpu.present/n?ne", "gpu.present/[n]one"])
def test_a_waiver_of_no_certain_finding_is_refused(tmp_path: Path, id: str) -> None:
    text = f"[[waive]]\nid = '{id}'\nsubject = '*'\nreason = 'x'\nuntil = 2027-01-01"
    with pytest.raises(InputError, match="a waiver names one finding, as pci"):
        read_policy(policy_file(tmp_path, text), CHECKS)
