"""What kind of machine: kernel, distribution, hypervisor, container, each with what gives it away."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from amdcheck.facts.platform import Platform
from amdcheck.model.value import Known, Unknown
from tests.corpus import needs_corpus
from tests.facts.recorded import host_of, tree, trees
from tests.facts.small_machine import DMI, ZEN3, machine
from tests.gpu_hosts import IN_DOCKER
from tests.judge import read_fact
from tests.memory_host import memory_host

GUEST = {"/proc/cpuinfo": machine(flags=f"{ZEN3} hypervisor")["/proc/cpuinfo"]}
METAL = {"/proc/cpuinfo": machine()["/proc/cpuinfo"]}


def platform_of(files: dict[str, str], **more: dict[str, str]) -> Platform:
    return read_fact(Platform, memory_host(files, **more))  # type: ignore[arg-type]


@needs_corpus
@pytest.mark.parametrize(
    ("name", "machine_name", "kernel", "virtualization"),
    [
        ("ctl-nvidia-dgx-gb10-arm", "aarch64", "6.17.0-1014-nvidia", None),
        ("ctl-power9-nvidia-gpu-numa-nodes", "ppc64le", "4.14.0-49.el7a.bz1553205.page_fault_hang.ppc64le", None),
        ("ctl-intel-offline-cpu0-node0", "x86_64", "3.10.0-957.el7.x86_64", None),
        ("opteron6272-r815-full-fsroot+cpuid", "x86_64", "4.1.0-2-amd64", None),
        ("ctl-arm64-graviton-ghw", "aarch64", None, None),
        ("ctl-kvm-offline-cpus-ghw", "x86_64", None, "vm-other"),
        ("ctl-vbox-win-vm", "x86_64", None, "oracle"),  # lscpu's expected text: Hypervisor vendor: Oracle
        ("epyc7451-2s-8node", "x86_64", None, None),
        ("ctl-fake-hetero-cpu-numa", None, None, None),
    ],
)
def test_recorded_machine(name: str, machine_name: str | None, kernel: str | None, virtualization: str | None) -> None:
    platform = read_fact(Platform, host_of(tree(name)))
    assert platform.machine.or_none() == machine_name
    assert platform.kernel.or_none() == kernel
    assert platform.virtualization == virtualization


@needs_corpus
def test_no_recorded_machine_is_called_a_container() -> None:
    assert [path.name for path in trees() if read_fact(Platform, host_of(path)).container] == []


def test_a_server_in_full() -> None:
    platform = platform_of(
        METAL
        | {
            "/proc/sys/kernel/arch": "x86_64\n",
            "/proc/sys/kernel/osrelease": "6.8.0-60-generic\n",
            "/proc/sys/kernel/hostname": "node17\n",
            "/proc/sys/kernel/random/boot_id": "5f0c9d1e-0000-4000-8000-000000000000\n",
            "/etc/os-release": 'PRETTY_NAME="Ubuntu 24.04.2 LTS"\nNAME="Ubuntu"\nID=ubuntu\n',
            "/etc/machine-id": "0123456789abcdef0123456789abcdef\n",
            "/proc/uptime": "12345.67 99999.00\n",
            "/proc/cmdline": "BOOT_IMAGE=/vmlinuz iommu=pt\n",
            "/proc/self/cgroup": "0::/user.slice/user-1000.slice/session-3.scope\n",
            f"{DMI}/sys_vendor": "Supermicro\n",
            f"{DMI}/product_name": "AS-8125GS-TNMR2\n",
            f"{DMI}/bios_vendor": "American Megatrends International, LLC.\n",
            f"{DMI}/bios_version": "3.1\n",
            f"{DMI}/bios_date": "01/15/2025\n",
        }
    )
    assert platform.machine == Known("x86_64", "/proc/sys/kernel/arch")
    assert platform.os == Known("Ubuntu 24.04.2 LTS", "/etc/os-release")
    assert platform.os_id.or_none() == "ubuntu"
    assert platform.hostname.or_none() == "node17"
    assert platform.uptime_s == Known(12345.67, "/proc/uptime")
    assert platform.command_line.or_none() == "BOOT_IMAGE=/vmlinuz iommu=pt"
    assert platform.product == Known("AS-8125GS-TNMR2", f"{DMI}/product_name")
    assert (platform.bios_version.or_none(), platform.bios_date.or_none()) == ("3.1", "01/15/2025")
    assert (platform.virtualization, platform.virtualization_evidence) == (
        None,
        Known("no hypervisor flag", "/proc/cpuinfo"),
    )
    assert platform.container is None
    assert platform.container_evidence.or_none() == "0::/user.slice/user-1000.slice/session-3.scope\n"


@pytest.mark.parametrize(
    ("vendor", "product", "name"),
    [
        ("QEMU", "Standard PC (Q35 + ICH9, 2009)", "qemu"),
        ("Red Hat", "KVM", "kvm"),
        ("OpenStack Foundation", "OpenStack Nova", "kvm"),
        ("VMware, Inc.", "VMware7,1", "vmware"),
        ("Microsoft Corporation", "Virtual Machine", "hyperv"),
        ("innotek GmbH", "VirtualBox", "oracle"),
        ("Xen", "HVM domU", "xen"),
        ("Amazon EC2", "g4ad.xlarge", "amazon"),
        ("Google", "Google Compute Engine", "google"),
        ("Somebody", "Something", "vm-other"),
    ],
)
def test_hypervisor_by_dmi(vendor: str, product: str, name: str) -> None:
    platform = platform_of(GUEST | {f"{DMI}/sys_vendor": vendor + "\n", f"{DMI}/product_name": product + "\n"})
    assert platform.virtualization == name
    expected = ("hypervisor flag", "/proc/cpuinfo") if name == "vm-other" else (f"{vendor} {product}", DMI)
    assert platform.virtualization_evidence == Known(*expected)


@pytest.mark.parametrize(
    ("vendor", "product"),
    [("Microsoft Corporation", "Surface Laptop 5"), ("Amazon EC2", "c5.metal"), ("Google", "Google Compute Engine")],
)
def test_a_clouds_bare_metal_and_a_makers_laptop_are_no_guests(vendor: str, product: str) -> None:
    platform = platform_of(METAL | {f"{DMI}/sys_vendor": vendor + "\n", f"{DMI}/product_name": product + "\n"})
    assert platform.virtualization is None
    assert platform.virtualization_evidence == Known("no hypervisor flag", "/proc/cpuinfo")


def test_a_guest_that_hides_the_flag_is_told_by_dmi() -> None:
    """QEMU with -cpu host,-hypervisor."""
    platform = platform_of(METAL | {f"{DMI}/sys_vendor": "QEMU\n", f"{DMI}/product_name": "Standard PC\n"})
    assert platform.virtualization == "qemu"


def test_xen_guest_and_xens_first_domain() -> None:
    domain = GUEST | {"/sys/hypervisor/type": "xen\n"}
    assert platform_of(domain).virtualization == "xen"
    first = platform_of(domain | {"/proc/xen/capabilities": "control_d\n"})
    assert (first.virtualization, first.virtualization_evidence) == (None, Known("control_d", "/proc/xen/capabilities"))


@pytest.mark.parametrize("release", ["5.15.167.4-microsoft-standard-WSL2", "4.4.0-19041-Microsoft"])
def test_wsl(release: str) -> None:
    platform = platform_of(GUEST | {"/proc/sys/kernel/osrelease": release + "\n"})
    assert (platform.virtualization, platform.virtualization_evidence.or_none()) == ("wsl", release)


def test_azures_kernel_is_not_wsl() -> None:
    platform = platform_of(
        GUEST | {"/proc/sys/kernel/osrelease": "6.8.0-1015-azure\n", f"{DMI}/product_name": "Virtual Machine\n"}
    )
    assert platform.virtualization == "hyperv"


def test_nothing_read_says_neither_bare_metal_nor_guest() -> None:
    platform = platform_of({})
    assert platform.virtualization is None
    assert isinstance(platform.virtualization_evidence, Unknown)


@pytest.mark.parametrize(
    ("files", "name", "source"),
    [
        (IN_DOCKER, "docker", "/.dockerenv"),
        ({"/run/.containerenv": 'engine="podman"\n'}, "podman", "/run/.containerenv"),
        (
            {"/.singularity.d/runscript": "", "/proc/self/mounts": "tmpfs /etc/group tmpfs rw 0 0\n"},
            "apptainer",
            "/.singularity.d",
        ),
        (
            IN_DOCKER | {"/var/run/secrets/kubernetes.io/serviceaccount/namespace": "default"},
            "kubernetes",
            "/var/run/secrets/kubernetes.io",
        ),
        ({"/proc/1/environ": "PATH=/bin\0container=lxc\0HOME=/\0"}, "lxc", "/proc/1/environ"),
        ({"/run/systemd/container": "systemd-nspawn\n"}, "systemd-nspawn", "/run/systemd/container"),
        ({"/proc/self/cgroup": "12:cpu:/docker/0123abcd\n"}, "docker", "/proc/self/cgroup"),
        (
            {"/proc/self/cgroup": "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-1.scope\n"},
            "kubernetes",
            "/proc/self/cgroup",
        ),
        ({"/proc/self/cgroup": "0::/machine.slice/libpod-0123.scope/container\n"}, "podman", "/proc/self/cgroup"),
        ({"/proc/self/cgroup": "0::/lxc.payload.c1/init.scope\n"}, "lxc", "/proc/self/cgroup"),
        ({"/proc/self/cgroup": "0::/system.slice/cri-containerd-0123.scope\n"}, "containerd", "/proc/self/cgroup"),
    ],
)
def test_container(files: dict[str, str], name: str, source: str) -> None:
    platform = platform_of(METAL | files)
    assert platform.container == name
    assert isinstance(platform.container_evidence, Known)
    assert platform.container_evidence.source == source


@pytest.mark.parametrize(
    "files",
    [
        {"/proc/self/cgroup": "0::/system.slice/docker.service\n"},
        {"/proc/self/cgroup": "0::/system.slice/containerd.service\n"},
        {"/proc/1/environ": "HOME=/\0notcontainer=lxc\0"},
        {"/proc/1/environ": "container=; rm -rf /\0"},
        {"/.dockerenv": "", "/proc/self/mounts": "/dev/vda1 / ext4 rw 0 0\ntmpfs /run tmpfs rw 0 0\n"},
        {"/.singularity.d/runscript": "", "/proc/self/mounts": "tmpfs / tmpfs rw 0 0\n\nbroken\n"},
        {"/.dockerenv": ""},
    ],
    ids=lambda files: "+".join(files),
)
def test_a_host_that_runs_containers_or_was_made_from_an_image_is_none(files: dict[str, str]) -> None:
    assert platform_of(METAL | files).container is None


def test_an_environment_that_only_root_may_read_leaves_the_cgroup() -> None:
    platform = platform_of(METAL | {"/proc/self/cgroup": "0::/docker/abc\n"}, outcomes={"/proc/1/environ": "denied"})
    assert platform.container == "docker"


@pytest.mark.parametrize(
    ("text", "os"),
    [
        ('PRETTY_NAME="SUSE Linux Enterprise Server 15 SP6"\nID="sles"\n', "SUSE Linux Enterprise Server 15 SP6"),
        ("PRETTY_NAME='A \"quoted\" one'\n", 'A "quoted" one'),
        ('PRETTY_NAME="cost \\$5"\n', "cost $5"),
    ],
)
def test_os_release_quoting(text: str, os: str) -> None:
    assert platform_of({"/usr/lib/os-release": text}).os == Known(os, "/usr/lib/os-release")


def test_power_without_a_word_on_its_byte_order_is_unknown() -> None:
    text = "processor\t: 0\ncpu\t\t: POWER9, altivec supported\n"
    platform = platform_of({"/proc/cpuinfo": text})
    assert platform.machine == Unknown("absent", "/proc/sys/kernel/arch")
    assert platform_of({"/proc/cpuinfo": text, "/proc/version": "Linux version 5.14.ppc64le (x)\n"}).machine == Known(
        "ppc64le", "/proc/cpuinfo"
    )


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "/proc/uptime",
                "/etc/os-release",
                "/proc/version",
                "/proc/self/cgroup",
                "/proc/1/environ",
                "/proc/hwloc-nofile-info",
            ]
        ),
        st.text(max_size=60) | st.sampled_from(["nan", "inf", "1e400", "-5", "Architecture:", "container=\0"]),
    )
)
def test_no_text_breaks_the_reader(files: dict[str, str]) -> None:
    host = memory_host({path: text.encode("utf-8", "surrogatepass") for path, text in files.items()})
    platform = read_fact(Platform, host)
    assert platform.uptime_s.or_none() is None or 0 <= (platform.uptime_s.or_none() or 0) < 1e10
