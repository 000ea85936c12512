"""Descriptions that cannot be composed say which file and key is wrong; machines can be grown; tools answer in form."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from amdcheck.engine.run import RunRequest, run
from amdcheck.facts.judged_user import User, access
from amdcheck.host.protocol import AclEntry, Command, Identity, Stat
from amdcheck.model.expectations import Expectations, Level
from amdcheck.model.value import Known, Unknown
from tests.compose import DescriptionError, compose, fault, scaled
from tests.compose.__main__ import main
from tests.compose.composed import _may_open
from tests.compose.config_space import Link, config_space
from tests.compose.description import parse_machine, raw_machine
from tests.compose.faults import faults
from tests.compose.plan import cpu_list
from tests.compose.tree import Tree
from tests.judge import judge

MI210 = "mi210-8gpu-2hive-epyc7763x2"
MI300X = "mi300x-8gpu-spx-epyc9654x2"


def test_unknown_machine_and_fault_name_the_nearest() -> None:
    with pytest.raises(DescriptionError, match=r"no such machine: .*the nearest is 'mi100-4gpu-epyc7452'"):
        compose("mi100-4gpu-epyc7542")
    with pytest.raises(DescriptionError, match=r"no such fault: 'link-width-8x'; the nearest is 'link-width-x8'"):
        compose(MI210, "link-width-8x")
    with pytest.raises(DescriptionError, match="not of epyc7302p-cpu-only"):
        compose("epyc7302p-cpu-only", "link-width-x8")


@pytest.mark.parametrize(
    ("table", "key", "value", "says"),
    [
        ("cpu", "soket", 2, r"unknown field `soket` - at `\$\.cpu`"),
        ("cpu", "nps", 3, r"at `\$\.cpu\.nps`"),
        ("os", "kernel", 6, r"at `\$\.os\.kernel`"),
        ("gpus", "slot", [{"at": "0000:63:00.0"}], r"missing required field `port` - at `\$\.gpus\.slot\[0\]`"),
    ],
)
def test_bad_key_is_named_with_its_file(table: str, key: str, value: object, says: str) -> None:
    raw = raw_machine(MI210)
    raw[table][key] = value
    with pytest.raises(DescriptionError, match=rf"fixtures/machines/{MI210}\.toml: .*{says}"):
        parse_machine(MI210, raw)


def test_bad_key_of_a_fault_is_the_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = replace(fault("link-width-x8"), machine={"gpus": {"slot": {"2": {"link_widht": 8}}}})
    monkeypatch.setitem(faults(), "link-width-x8", wrong)
    with pytest.raises(DescriptionError, match=r"^fault 'link-width-x8': machine: .*`link_widht`"):
        compose(MI210, "link-width-x8")


def test_a_composed_recording_is_judged_with_the_options_that_find_its_faults(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "node.amdcheck.json.xz"
    assert main([MI210, "link-width-x8", "more-gpus-than-expected", "-o", str(file)]) == 0
    assert "must yield warn gpu.present/more on host" in capsys.readouterr().out
    report = run(RunRequest(host=file)).report
    assert {f.id for f in report.findings if f.status != "pass"} >= {"pci.link-width/degraded", "gpu.present/more"}


def test_a_fault_that_is_mistyped_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([MI210, "link-width-8x", "-o", str(tmp_path / "x")]) == 2
    says = "no such fault: 'link-width-8x'; the nearest is 'link-width-x8'"
    assert capsys.readouterr().err == f"python -m tests.compose: {says}\n"
    assert not (tmp_path / "x").exists()


def test_unknown_product_lists_what_there_is() -> None:
    raw = raw_machine(MI210)
    raw["gpus"]["product"] = "Instinct MI220"
    machine = parse_machine(MI210, raw)
    from tests.compose.plan import Plan

    with pytest.raises(
        DescriptionError, match=r"gpus\.product: no 'Instinct MI220' among Instinct MI100, Instinct MI210"
    ):
        Plan(MI210, machine)


@pytest.mark.parametrize("cpus", [96, 384, 1536])
def test_machine_grows_to_so_many_cpus(cpus: int) -> None:
    tree = scaled(MI300X, cpus=cpus).tree
    assert tree.files["/sys/devices/system/cpu/online"] == f"0-{cpus - 1}\n"
    assert str(tree.files["/proc/cpuinfo"]).count("processor\t: ") == cpus
    assert len(tree.links["/sys/devices/system/cpu/cpu5/node0"]) > 0


def test_machine_grows_to_so_many_partitions_and_gpus() -> None:
    nodes = "/sys/devices/virtual/kfd/kfd/topology/nodes"
    assert len(scaled(MI300X, partitions=64).tree.listings()[nodes]) == 2 + 64
    big = scaled(MI300X, gpus=16)
    assert len(big.tree.listings()[nodes]) == 2 + 16
    assert {gpu.bdf[:4] for gpu in big.plan.gpus} == {"0000", "0001"}
    with pytest.raises(ValueError, match="no partition mode gives 24"):
        scaled(MI300X, partitions=24)
    with pytest.raises(ValueError, match="do not divide"):
        scaled(MI300X, cpus=97)


def test_growth_of_files_is_linear_in_cpus() -> None:
    counts = [len(scaled(MI300X, cpus=cpus).tree.files) for cpus in (96, 384, 1536)]
    assert counts[2] - counts[1] == pytest.approx(4 * (counts[1] - counts[0]), rel=0.05)


def test_composing_twice_gives_the_same_machine() -> None:
    assert compose(MI210).capture() == compose(MI210).capture()


def test_user_without_rights_is_denied_what_only_root_may_read() -> None:
    host = compose("w7900-2gpu-epyc9354").host
    assert host.read("/sys/class/dmi/id/product_serial") == Unknown("denied", "/sys/class/dmi/id/product_serial", None)
    assert isinstance(host.read("/dev/kmsg"), Unknown)
    config = host.read_bytes("/sys/bus/pci/devices/0000:03:00.0/config")
    assert isinstance(config, Known)
    assert len(config.value) == 64
    opened = host.probe_open("/dev/kfd")
    assert isinstance(opened, Known)
    assert opened.value.errno is None
    assert host.read("/sys/bus/pci/devices/0000:03:00.0/vbios_version") == Known(
        "113-D7070100-138\n", "/sys/bus/pci/devices/0000:03:00.0/vbios_version"
    )


def test_tools_without_a_driver_leave_without_a_word() -> None:
    (answer,) = compose(MI210, "driver-not-loaded").host.run([Command(argv=("rocm-smi", "--showtopo", "--json"))])
    assert isinstance(answer, Known)
    assert (answer.value.rc, answer.value.stdout) == (0, "")
    assert "Driver not initialized" in answer.value.stderr


def test_amd_smi_lists_partitions_by_function_and_names_an_in_tree_driver_its_way() -> None:
    (answer,) = compose("mi300x-8gpu-cpx-epyc9654x2").host.run([Command(argv=("amd-smi", "static", "--json"))])
    assert isinstance(answer, Known)
    listed = json.loads(answer.value.stdout)["gpu_data"]
    assert [gpu["bus"]["bdf"] for gpu in listed[:9]] == [f"0000:05:00.{n}" for n in range(8)] + ["0000:27:00.0"]
    (answer,) = compose("w7900-2gpu-epyc9354").host.run([Command(argv=("amd-smi", "version", "--json"))])
    assert isinstance(answer, Known)
    assert json.loads(answer.value.stdout)[0]["amdgpu_version"].startswith("Linuxversion6.14.0-29-generic(buildd@")


def test_mask_has_a_digit_for_every_four_possible_cpus() -> None:
    plan = scaled(MI300X, cpus=96).plan
    assert plan.mask([0, 48]) == "00000000,00010000,00000001"
    assert compose("mi300x-1vf-kvm").plan.mask([0, 23]) == "800001"
    assert cpu_list([0, 1, 2, 5, 7, 8]) == "0-2,5,7-8"
    assert cpu_list([]) == ""


def test_configuration_space_of_a_port_holds_its_link() -> None:
    space = config_space(
        vendor=0x1022,
        device=0x1483,
        class_code=0x060400,
        revision=0,
        subsystem=(0x1022, 0x1453),
        port_type="root-port",
        port_number=1,
        link=Link(8, 16.0, 16, 16.0),
    )
    at = 0x64
    assert space[0x34] == 0x50
    assert space[at] == 0x10
    capability, status = (
        int.from_bytes(space[at + 12 : at + 16], "little"),
        int.from_bytes(space[at + 18 : at + 20], "little"),
    )
    assert (capability & 15, capability >> 4 & 63) == (4, 16)
    assert (status & 15, status >> 4 & 63) == (4, 8)


def test_tree_follows_links_and_removes_folders() -> None:
    tree = Tree()
    tree.files["/a/b/c"] = "x"
    tree.links["/l"] = "a/b"
    tree.links["/a/up"] = "../l"
    assert tree.real("/a/up/c") == "/a/b/c"
    tree.remove("/a/b")
    assert tree.listings() == {"/": ("a", "l"), "/a": ("up",)}
    with pytest.raises(KeyError, match="no such file"):
        tree.remove("/a/b")


def test_masked_flags_leave_cpuid_as_it_is() -> None:
    """A kernel or hypervisor may hide AVX-512; what the silicon has is another matter."""
    host = compose("epyc9575fx2-cpu", "vnni-missing")
    flags = re.search(r"^flags\t\t: (.*)$", str(host.tree.files["/proc/cpuinfo"]), re.MULTILINE)
    assert flags is not None
    assert "avx512_vnni" not in flags[1].split()
    from tests.compose.cpuid import leaves

    assert leaves(host.plan)[0]["0x7.0"][2] >> 11 & 1 == 1


@pytest.mark.parametrize("level", ["quick", "standard"])
def test_a_right_that_an_acl_gives_lets_the_user_open(level: Level) -> None:
    host = compose("w7900-2gpu-epyc9354", "access-by-seat-only")
    found = judge("gpu.device-access", host.host, Expectations(level=level))
    assert {(f.id, f.status) for f in found} == {("gpu.device-access/session-only", "warn")}
    note = "opened and closed" if level == "standard" else None
    assert {e.note for f in found for e in f.evidence if e.source == "/dev/kfd"} == {note}


RIGHTS = st.integers(0, 7)
ENTRIES = st.builds(AclEntry, tag=st.sampled_from(("user", "group")), id=st.sampled_from((7, 8)), permissions=RIGHTS)


@given(
    mode=st.integers(0, 0o777),
    named=st.lists(ENTRIES, max_size=3, unique_by=lambda entry: (entry.tag, entry.id)),
    rights=st.tuples(RIGHTS, RIGHTS),
    uid=st.sampled_from((0, 7, 9)),
    groups=st.sets(st.sampled_from((7, 8, 9))),
)
def test_opens_follow_mode_owner_and_acl_as_access_is_judged(
    mode: int, named: list[AclEntry], rights: tuple[int, int], uid: int, groups: set[int]
) -> None:
    """Two readings of acl(5) that know nothing of each other agree."""
    group, mask = rights
    base = (
        AclEntry(tag="owner", id=None, permissions=mode >> 6 & 7),
        AclEntry(tag="owning-group", id=None, permissions=group),
        AclEntry(tag="mask", id=None, permissions=mask),
        AclEntry(tag="other", id=None, permissions=mode & 7),
    )
    acl = (*base, *named) if named else ()
    stat = Stat(kind="char", mode=mode, uid=9, gid=8, size=0, device=(1, 3), acl=acl, filesystem=None)
    who = Identity(uid=uid, user=None, groups=tuple(groups), group_names={}, node_name=None)
    judged = access(stat, User(uid=uid, user=None, groups=tuple(groups), is_reader=True))
    assert _may_open(stat, who) == judged.allowed


def test_a_second_fault_leaves_the_first_one_as_it_is() -> None:
    compose("epyc7763-cpu-nps4", "slice-held-down", "node-at-half-bandwidth")
    assert fault("slice-held-down").machine == {"selftest": {"cores": {"slices_held_down": [1]}}}
