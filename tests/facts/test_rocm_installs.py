"""ROCm installations of every layout, as their files show them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amdcheck.facts.rocm import RocmInstalls, RocmRoot, release_number
from amdcheck.host.capture import Outcome
from amdcheck.model.expectations import Expectations
from amdcheck.model.value import Known, Unknown
from tests.judge import read_fact
from tests.memory_host import memory_host


def installs(
    files: dict[str, str],
    *,
    links: dict[str, str] | None = None,
    outcomes: dict[str, Outcome] | None = None,
    rocm_root: str | None = None,
    python: str | None = None,
) -> RocmInstalls:
    host = memory_host(files, links=links or {}, outcomes=outcomes or {})
    return read_fact(RocmInstalls, host, Expectations(level="quick", rocm_root=rocm_root, python=python))


def only(read: RocmInstalls) -> RocmRoot:
    (root,) = read.roots
    return root


def legacy(version: str, build: str = "") -> dict[str, str]:
    return {f"/opt/rocm-{version}/.info/version": f"{version}{build}\n", f"/opt/rocm-{version}/bin/rocminfo": ""}


def test_legacy_root_behind_the_alternatives_link() -> None:
    links = {"/opt/rocm": "/etc/alternatives/rocm", "/etc/alternatives/rocm": "/opt/rocm-6.3.3"}
    root = only(installs(legacy("6.3.3", "-74"), links=links))
    assert root.root == "/opt/rocm-6.3.3"
    assert root.links == ("/opt/rocm",)
    assert root.version == Known("6.3.3", "/opt/rocm-6.3.3/.info/version")
    assert (root.build, root.layout) == ("74", "legacy")


def test_two_releases_side_by_side_are_two_roots() -> None:
    read = installs({**legacy("6.2.4"), **legacy("6.4.1")}, links={"/opt/rocm": "/opt/rocm-6.4.1"})
    assert [(root.root, root.version.or_none(), root.links) for root in read.roots] == [
        ("/opt/rocm-6.2.4", "6.2.4", ()),
        ("/opt/rocm-6.4.1", "6.4.1", ("/opt/rocm",)),
    ]


def test_container_image_with_a_real_folder_opt_rocm() -> None:
    root = only(installs({"/opt/rocm/.info/version": "6.4.1-83\n", "/opt/rocm/lib/libamdhip64.so": ""}))
    assert (root.root, root.version.or_none(), root.layout) == ("/opt/rocm", "6.4.1", "legacy")


def test_version_rocm_wins_over_version() -> None:
    files = {"/opt/rocm-5.7.1/.info/version-rocm": "5.7.1-63\n", "/opt/rocm-5.7.1/.info/version": "5.7.1\n"}
    root = only(installs(files))
    assert root.version == Known("5.7.1", "/opt/rocm-5.7.1/.info/version-rocm")
    assert root.build == "63"


def test_core_layout_since_7_14_with_links_of_update_alternatives() -> None:
    files = {"/opt/rocm/core-10.0/.info/version": "10.0.0\n", "/opt/rocm/core-10.0/bin/rocminfo": ""}
    links = {"/opt/rocm/core": "core-10.0", "/opt/rocm/bin": "/opt/rocm/core-10.0/bin"}
    root = only(installs(files, links=links))
    assert (root.root, root.version.or_none(), root.layout) == ("/opt/rocm/core-10.0", "10.0.0", "core")
    assert root.links == ("/opt/rocm", "/opt/rocm/core")


def test_two_core_releases_in_one_folder() -> None:
    files = {
        "/opt/rocm/core-7.14/.info/version": "7.14.0\n",
        "/opt/rocm/core-10.0/.info/version": "10.0.0\n",
        "/opt/rocm/core-10.0/bin/rocminfo": "",
    }
    read = installs(files, links={"/opt/rocm/core": "core-10.0", "/opt/rocm/bin": "core-10.0/bin"})
    assert [(root.version.or_none(), root.links) for root in read.roots] == [
        ("10.0.0", ("/opt/rocm", "/opt/rocm/core")),
        ("7.14.0", ()),
    ]


def test_preview_layout_with_a_folder_core_without_a_number() -> None:
    root = only(installs({"/opt/rocm/core/.info/version": "7.11.0\n"}))
    assert (root.root, root.version.or_none(), root.layout) == ("/opt/rocm/core", "7.11.0", "core")


def test_legacy_and_core_beside_each_other() -> None:
    read = installs({**legacy("6.4.1"), "/opt/rocm/core-7.14/.info/version": "7.14.0"})
    assert [root.layout for root in read.roots] == ["legacy", "core"]


def test_debian_packages_its_rocm_in_usr() -> None:
    lib = "/usr/lib/x86_64-linux-gnu"
    files = {"/usr/bin/rocminfo": "", "/usr/bin/rocm-smi": "", f"{lib}/libamdhip64.so.5.2.21153": ""}
    root = only(installs(files, links={f"{lib}/libamdhip64.so.5": "libamdhip64.so.5.2.21153"}))
    assert (root.root, root.layout, root.version.or_none()) == ("/usr", "distribution", "5.2")


def test_hip_of_10_0_does_not_tell_the_rocm_release() -> None:
    files = {"/usr/bin/rocminfo": "", "/usr/lib64/libamdhip64.so.7.15.26001": ""}
    root = only(installs(files, links={"/usr/lib64/libamdhip64.so.7": "libamdhip64.so.7.15.26001"}))
    assert isinstance(root.version, Unknown)


def test_monitoring_tools_alone_are_no_installation() -> None:
    files = {"/usr/bin/rocm-smi": "", "/usr/lib/x86_64-linux-gnu/librocm_smi64.so.1.0": "", "/opt/x/y": ""}
    assert installs(files).roots == ()


def test_hip_library_of_a_communication_library_is_no_installation() -> None:
    lib = "/usr/lib/x86_64-linux-gnu"
    files = {f"{lib}/libamdhip64.so.5.7.31921": ""}
    assert installs(files, links={f"{lib}/libamdhip64.so.5": "libamdhip64.so.5.7.31921"}).roots == ()


def test_wheels_of_the_judged_python() -> None:
    site = "/srv/env/lib/python3.12/site-packages"
    files = {
        f"{site}/_rocm_sdk_core/bin/amd-smi": "",
        f"{site}/rocm_sdk_core-7.11.0.dist-info/METADATA": "",
        "/srv/env/bin/python": "",
    }
    root = only(installs(files, python="/srv/env/bin/python"))
    assert (root.layout, root.version.or_none()) == ("wheel", "7.11.0")
    assert root.root == f"{site}/_rocm_sdk_core"
    assert installs(files).roots == ()  # no interpreter was named, and /srv is no usual place


def test_wheels_in_the_environment_of_a_container_image() -> None:
    site = "/opt/venv/lib/python3.12/site-packages"
    files = {f"{site}/_rocm_sdk_core/lib/x": "", f"{site}/rocm_sdk_core-7.9.0rc1.dist-info/RECORD": ""}
    assert only(installs(files)).version.or_none() == "7.9.0rc1"


def test_rocm_option_names_the_only_root_that_is_judged() -> None:
    files = {**legacy("6.2.4"), **legacy("6.4.1"), "/data/rocm/.info/version": "6.4.4\n", "/data/rocm/bin/x": ""}
    assert only(installs(files, rocm_root="/data/rocm/")).root == "/data/rocm"
    assert only(installs(files, rocm_root="/opt/rocm-6.2.4")).version.or_none() == "6.2.4"


def test_rocm_option_that_leads_nowhere() -> None:
    read = installs(legacy("6.4.1"), rocm_root="/opt/rocm-9.9")
    assert read.roots == ()
    assert [(broken.path, broken.leads, broken.why.reason) for broken in read.broken] == [
        ("/opt/rocm-9.9", (), "absent")
    ]


def test_dangling_link_after_an_uninstall() -> None:
    links = {"/opt/rocm": "/etc/alternatives/rocm", "/etc/alternatives/rocm": "/opt/rocm-6.2.0"}
    read = installs({"/opt/x/y": "", "/etc/x": ""}, links=links)
    assert read.roots == ()
    assert [(broken.path, broken.leads) for broken in read.broken] == [
        ("/opt/rocm", ("/etc/alternatives/rocm", "/opt/rocm-6.2.0"))
    ]


def test_folder_left_behind_by_an_uninstall_is_no_installation() -> None:
    assert installs({"/opt/rocm-6.0.0/share/doc/x": ""}).roots == ()


def test_root_without_a_version_file() -> None:
    root = only(installs({"/opt/rocm-6.2.0/bin/rocminfo": ""}))
    assert isinstance(root.version, Unknown)
    assert root.version.reason == "absent"


def test_stripped_image_is_told_by_the_name_of_its_library() -> None:
    files = {"/opt/rocm-6.2.0/lib/libhsa-runtime64.so.1.14.60204": ""}
    links = {"/opt/rocm-6.2.0/lib/libhsa-runtime64.so.1": "libhsa-runtime64.so.1.14.60204"}
    root = only(installs(files, links=links))
    assert root.version == Known("6.2.4", "/opt/rocm-6.2.0/lib/libhsa-runtime64.so.1.14.60204")


@pytest.mark.parametrize("text", ["", "<html>", "latest", "6", "6.3.3 evil; rm -rf /"])
def test_version_file_with_something_else_in_it(text: str) -> None:
    root = only(installs({"/opt/rocm-6.3.3/.info/version": text}))
    assert isinstance(root.version, Unknown)
    assert root.version.reason == "failed"


def test_root_that_may_not_be_read() -> None:
    root = only(installs({"/opt/x/y": ""}, outcomes={"/opt/rocm-6.3.3": "denied"}))
    assert isinstance(root.version, Unknown)
    assert root.version.reason == "denied"


def test_other_names_in_opt_are_passed_over() -> None:
    assert installs({"/opt/rocm-llvm/bin/clang": "", "/opt/rocmake/bin/x": "", "/opt/amdgpu/lib/x": ""}).roots == ()


def test_listing_of_opt_is_unknown_where_it_was_not_recorded() -> None:
    read = read_fact(RocmInstalls, memory_host({"/proc/version": "x"}, complete=False))
    assert isinstance(read.searched, Unknown)
    assert read.roots == ()


@pytest.mark.parametrize(
    ("library", "release"),
    [
        ("/x/libMIOpen.so.1.0.60303", "6.3.3"),
        ("/x/libMIOpen.so.1.0.71400", "7.14.0"),
        ("/x/libMIOpen.so.1.0.100000", "10.0.0"),
        ("/x/libMIOpen.so.1.0", None),
        ("/x/libamdhip64.so.5.2.21153", "2.11.53"),  # a build counter: only libraries numbered by release are asked
    ],
)
def test_release_at_the_end_of_a_library(library: str, release: str | None) -> None:
    assert release_number(library) == release


@given(st.text(max_size=60))
def test_no_version_text_breaks_the_fact(text: str) -> None:
    installs({"/opt/rocm-6.3.3/.info/version": text})
