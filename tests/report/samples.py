"""Reports made by hand: what the formats and the command line are tested on."""

from __future__ import annotations

from datetime import date, datetime, timezone

import msgspec

from amdcheck.model.finding import (
    HOST,
    Finding,
    Metric,
    Remedy,
    Step,
    Subject,
    Waived,
    evidence,
    failed,
    manual,
    passed,
    shown,
    skipped,
    undetermined,
    warned,
)
from amdcheck.model.report import (
    Bios,
    Counts,
    CpuSummary,
    DriverSummary,
    GpuSummary,
    HostSummary,
    Lost,
    MiopenSummary,
    PartitionSummary,
    PolicySummary,
    Report,
    RocmSummary,
    Run,
    Summary,
    Tool,
    Verdict,
)
from amdcheck.model.value import Known, Unknown

HOSTILE = "a\x1b[31mb\u202e[bold]c[/bold] <script>x</script> $(reboot) `id` | ::error::owned\nd\udc80 ##vso[task.x]"


def gpu(index: int) -> Subject:
    return Subject(kind="gpu", id=f"0000:{index:02x}:00.0")


def _titled(finding: Finding, title: str) -> Finding:
    return msgspec.structs.replace(finding, title=title, duration_ms=0.25)


def _remedy(*steps: Step, reference: str | None = None) -> Remedy:
    return Remedy(action="reset", owner="node", steps=steps, reference=reference)


def narrow_link(subject: Subject) -> Finding:
    folder = f"/sys/bus/pci/devices/{subject.id}"
    return _titled(
        failed(
            "pci.link-width/degraded",
            subject,
            "The link runs at x8 although the card and the slot both offer x16.",
            evidence(Known("8", f"{folder}/current_link_width")),
            evidence(Known("16", f"{folder}/max_link_width")),
            remedy=_remedy(
                Step(text="Move the work away and take the node out of service", argv=None, root=False, reboot=False),
                Step(
                    text="Look at the link's errors",
                    argv=("lspci", "-vvs", subject.id),
                    root=True,
                    reboot=False,
                ),
                Step(text="Reseat the card or the riser", argv=None, root=False, reboot=True),
                reference="PCI Express Base Specification, Link Status Register",
            ),
            expected="x16",
            actual="x8",
            metrics=(Metric(name="link.width", value=8.0, unit="lanes", volatile=False),),
        ),
        "PCIe link width",
    )


def wide_link(subject: Subject) -> Finding:
    source = f"/sys/bus/pci/devices/{subject.id}/current_link_width"
    return _titled(passed("pci.link-width", subject, "x16", evidence(Known("16", source))), "PCIe link width")


def balancing() -> Finding:
    return _titled(
        warned(
            "numa.balancing/enabled",
            HOST,
            "Automatic NUMA balancing is on: the kernel unmaps pages of a serving process to see who touches them, "
            "and GPU queues stall while it does.",
            evidence(Known("1", "/proc/sys/kernel/numa_balancing")),
            remedy=Remedy(
                action="configure",
                owner="node",
                steps=(
                    Step(
                        text="Turn it off now",
                        argv=("sysctl", "-w", "kernel.numa_balancing=0"),
                        root=True,
                        reboot=False,
                    ),
                    Step(
                        text="Keep it off: write kernel.numa_balancing=0 to /etc/sysctl.d/90-amdcheck.conf",
                        argv=None,
                        root=True,
                        reboot=False,
                    ),
                ),
                reference="Documentation/admin-guide/sysctl/kernel.rst",
            ),
            expected="0",
            actual="1",
        ),
        "Automatic NUMA balancing",
    )


def log_denied() -> Finding:
    return _titled(
        undetermined(
            "kernel.gpu-errors",
            HOST,
            "The kernel log could not be read.",
            because=Unknown("denied", "/dev/kmsg", "Operation not permitted"),
        ),
        "GPU errors in the kernel log",
    )


def determinism() -> Finding:
    return _titled(
        manual(
            "cpu.determinism/look",
            HOST,
            "Power determinism cannot be read from the running system.",
            remedy=Remedy(
                action="configure",
                owner="setup",
                steps=(
                    Step(
                        text="In the BIOS set Determinism Slider to Power and look at it after each update",
                        argv=None,
                        root=False,
                        reboot=True,
                    ),
                ),
                reference=None,
            ),
        ),
        "BIOS determinism",
    )


def waived_acs() -> Finding:
    finding = warned(
        "pci.acs/redirect",
        HOST,
        "Peer traffic is redirected through the root complex.",
        evidence(Known("RedirectEn+", "/sys/bus/pci/devices/0000:02:00.0/config")),
        remedy=_remedy(Step(text="Turn ACS off in the BIOS", argv=None, root=False, reboot=True)),
    )
    return _titled(
        msgspec.structs.replace(finding, waived=Waived(reason="XGMI only host", until=date(2027, 3, 31))),
        "ACS redirection",
    )


def passes() -> tuple[Finding, ...]:
    cpuinfo = "/proc/cpuinfo"
    return (
        _titled(
            passed("cpu.vendor", HOST, "AMD EPYC", evidence(Known("AuthenticAMD", cpuinfo), note="every CPU")),
            "CPU vendor",
        ),
        _titled(passed("cpu.isa", HOST, "AVX-512, VNNI", shown(cpuinfo, "avx512f avx512_vnni")), "Instruction sets"),
        _titled(
            passed("numa.layout", HOST, "2 nodes", evidence(Known("0-1", "/sys/devices/system/node/online"))), "Nodes"
        ),
        _titled(
            passed("gpu.driver-loaded", HOST, "amdgpu", evidence(Known("live", "/sys/module/amdgpu/initstate"))),
            "Driver loaded",
        ),
    )


def skips() -> tuple[Finding, ...]:
    return (_titled(skipped("miopen.database", HOST, "MIOpen is not installed"), "MIOpen databases"),)


def gpu_summary(index: int) -> GpuSummary:
    return GpuSummary(
        bdf=gpu(index).id,
        slot=f"{index}",
        serial=None,
        unique_id=f"{index:016x}",
        product="Instinct MI300X",
        gfx="gfx942",
        vram_mib=196_592,
        vbios="113-M3000100-102",
        firmware={"mec": "0x9a"},
        compute_partition="SPX",
        memory_partition="NPS1",
        partitions=(PartitionSummary(kfd_node=index + 1, render_minor=127 + index),),
    )


def host(*, gpus: int = 8, name: str = "gpu-node-07") -> HostSummary:
    return HostSummary(
        id="5f1d2c",
        name=name,
        node=None,
        boot_id="0b1c",
        uptime_s=86_400.5,
        os="Ubuntu 22.04.5 LTS",
        kernel="5.15.0-130-generic",
        virtualization=None,
        container=None,
        bios=Bios(vendor="Dell Inc.", version="2.1.3", date="08/01/2026"),
        cpu=CpuSummary(
            vendor="AuthenticAMD",
            model="AMD EPYC 9654 96-Core Processor",
            family=25,
            sockets=2,
            cores=192,
            threads=384,
            numa_nodes=2,
            l3_kib_per_slice=(32_768,) * 24,
            isa=("avx2", "avx512f"),
        ),
        memory_mib=1_547_776,
        driver=DriverSummary(kind="dkms", version="6.14.14", srcversion="ABC"),
        rocm=(RocmSummary(root="/opt/rocm-6.4.1", version="6.4.1", found_by="/opt/rocm/.info/version", in_use=None),),
        miopen=(MiopenSummary(root="/opt/rocm-6.4.1", version="3.4.0"),),
        gpus=tuple(gpu_summary(i + 1) for i in range(gpus)),
    )


def bare_host() -> HostSummary:
    """A host of which nothing could be read."""
    return HostSummary(
        id=None,
        name=None,
        node=None,
        boot_id=None,
        uptime_s=None,
        os=None,
        kernel=None,
        virtualization=None,
        container=None,
        bios=Bios(vendor=None, version=None, date=None),
        cpu=CpuSummary(
            vendor=None,
            model=None,
            family=None,
            sockets=None,
            cores=None,
            threads=None,
            numa_nodes=None,
            l3_kib_per_slice=(),
            isa=(),
        ),
        memory_mib=None,
        driver=DriverSummary(kind=None, version=None, srcversion=None),
        rocm=(),
        miopen=(),
        gpus=(),
    )


def count(findings: tuple[Finding, ...]) -> Counts:
    standing = [f.status for f in findings if f.waived is None]
    return Counts(
        pass_=standing.count("pass"),
        warn=standing.count("warn"),
        fail=standing.count("fail"),
        unknown=standing.count("unknown"),
        skip=standing.count("skip"),
        manual=standing.count("manual"),
        waived=len(findings) - len(standing),
    )


def report(
    *findings: Finding,
    verdict: Verdict = "ready",
    exit_code: int = 0,
    headline: str = "Ready: 8 × Instinct MI300X.",
    reason: str = "",
    lost: tuple[Lost, ...] = (),
    not_selected: tuple[str, ...] = (),
    machine: HostSummary | None = None,
    deadline_hit: bool = False,
) -> Report:
    return Report(
        schema="amdcheck.report/1",
        tool=Tool(name="amdcheck", version="0.1.0", tables_date=date(2026, 11, 30)),
        run=Run(
            id="01JDX",
            started=datetime(2026, 11, 30, 12, 0, 0, tzinfo=timezone.utc),
            duration_s=4.25,
            level="standard",
            source="live",
            privileged=not lost,
            lost=lost,
            not_selected=not_selected,
            deadline_hit=deadline_hit,
        ),
        host=machine or host(),
        policy=PolicySummary(profile="node-gpu", file=None, expect={}, date=date(2026, 11, 30)),
        summary=Summary(
            verdict=verdict,
            exit_code=exit_code,
            counts=count(findings),
            headline=headline,
            drain=verdict == "not-ready",
            reason=reason,
        ),
        findings=findings,
    )


def ready() -> Report:
    return report(*passes(), *(wide_link(gpu(i)) for i in range(1, 9)), *skips())


def narrow_links() -> Report:
    """Eight MI300X, three of them on a link of half the width, seen by a user who is not root."""
    return report(
        *(narrow_link(gpu(i)) for i in range(1, 4)),
        *(wide_link(gpu(i)) for i in range(4, 9)),
        balancing(),
        log_denied(),
        determinism(),
        waived_acs(),
        *passes(),
        *skips(),
        verdict="not-ready",
        exit_code=1,
        headline="Not ready: PCIe link width on 3 GPUs, and 1 warning. 1 check needs root: sudo amdcheck all",
        reason="pci.link-width/degraded on 0000:01:00.0 (x8, expected x16), and 3 more",
        lost=(Lost(check="kernel.gpu-errors", needs="root", source="/dev/kmsg"),),
        not_selected=("selftest.cpu.triad",),
    )


def no_amd() -> Report:
    """A host on which nothing of AMD was found and nothing could be read."""
    return report(
        *skips(),
        verdict="undetermined",
        exit_code=3,
        headline="Undetermined: no AMD CPU and no AMD GPU found.",
        reason="no AMD hardware found",
        machine=bare_host(),
    )


def hostile() -> Report:
    """Every string that a host can choose tries to do something."""
    subject = Subject(kind="gpu", id=HOSTILE)
    bad = failed(
        "gpu.present/none",
        subject,
        f"::error::{HOSTILE}",
        evidence(Known(HOSTILE, f"::set-output name={HOSTILE}")),
        remedy=_remedy(Step(text=f"::warning::{HOSTILE}", argv=("ls", HOSTILE), root=True, reboot=False)),
        expected=HOSTILE,
        actual="::endgroup::",
    )
    return report(
        _titled(bad, HOSTILE),
        verdict="not-ready",
        exit_code=1,
        headline=f"::error::{HOSTILE}".encode("utf-8", "backslashreplace").decode(),
        machine=host(name=HOSTILE, gpus=1),
    )


SAMPLES = {"ready": ready, "narrow_links": narrow_links, "no_amd": no_amd, "hostile": hostile}
