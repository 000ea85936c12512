"""Signs that this host is meant to have AMD GPUs, whether or not one answers."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from amdcheck.facts.driver import Driver
from amdcheck.facts.gpus import Gpus
from amdcheck.facts.kernel_log import KernelLog
from amdcheck.facts.kfd import TOPOLOGY, Kfd
from amdcheck.facts.registry import fact
from amdcheck.facts.rocm import RocmInstalls
from amdcheck.host.protocol import Host
from amdcheck.model.expectations import Expectations
from amdcheck.model.finding import Evidence, evidence, shown
from amdcheck.model.text import counted
from amdcheck.model.value import Known, Unknown

EXPECTED_BY = "--expect-gpus or policy"


@fact
class GpuSigns(Struct, frozen=True, kw_only=True):
    """Each sign as evidence: amdgpu loaded or DKMS-installed, a ROCm root, /dev/kfd, a GPU node of the compute driver,
    --expect-gpus or the policy, this boot's kernel log naming a GPU that is gone. Empty: nothing says that GPUs are
    expected.

    `gone` are the GPUs that the log knows and a bus listing that was read does not; `unread` says which places
    could not be looked at, so that "no sign" is not said lightly. The log is not among them: often only root may read
    it, and it only adds to what the others say.
    """

    signs: tuple[Evidence, ...]
    gone: tuple[str, ...]
    unread: tuple[Unknown, ...]

    @classmethod
    def read(
        cls,
        host: Host,
        driver: Driver,
        rocm: RocmInstalls,
        log: KernelLog,
        kfd: Kfd,
        gpus: Gpus,
        expect: Expectations,
    ) -> GpuSigns:
        gone = _gone(log, gpus)
        return cls(
            signs=(*_expected(expect), *_software(driver, rocm), *_nodes(kfd), *_log_says(log, gone)),
            gone=gone,
            unread=tuple(
                value
                for value in (
                    driver.loaded,
                    driver.dkms_installed,
                    driver.kfd_device,
                    rocm.searched,
                    kfd.listing,
                    *kfd.unread,
                )
                if isinstance(value, Unknown) and value.reason != "absent"
            ),
        )


def gpus_expected(gpus: Gpus, driver: Driver, signs: GpuSigns) -> str | None:
    """Predicate: None where GPUs are there or should be, else the reason to skip."""
    if gpus.devices or signs.signs or driver.loaded.or_none():
        return None
    return "no AMD GPU is here, and nothing says that one should be"


def _expected(expect: Expectations) -> Iterator[Evidence]:
    if expect.gpus:
        yield shown(EXPECTED_BY, str(expect.gpus), note="GPUs expected")


def _software(driver: Driver, rocm: RocmInstalls) -> Iterator[Evidence]:
    if driver.loaded.or_none():
        yield evidence(driver.loaded.parse(lambda _: "amdgpu"), note="the driver is loaded")
    if driver.dkms_installed.or_none():
        yield evidence(driver.dkms_installed.parse(", ".join), note="the driver is installed by DKMS")
    if driver.kfd_device.or_none():
        yield shown("/dev/kfd", "present", note="the compute device node exists")
    for root in rocm.roots:
        if root.layout == "wheel":
            continue  # packages of one Python: a build machine has them too
        yield shown(
            root.root, root.version.or_none() or root.layout, note=f"ROCm is installed, found by {root.found_by}"
        )


def _nodes(kfd: Kfd) -> Iterator[Evidence]:
    nodes = len(kfd.gpu_nodes) + kfd.hidden
    if nodes:
        yield shown(f"{TOPOLOGY}/nodes", counted(nodes, "GPU node"), note="the compute driver lists GPUs")


def _gone(log: KernelLog, gpus: Gpus) -> tuple[str, ...]:
    """GPUs that this boot's log names and that are no longer on the bus."""
    if isinstance(gpus.listing, Unknown):
        return ()
    return tuple(bdf for bdf in sorted({*log.gone, *log.named}) if bdf not in gpus.listing.value)


def _log_says(log: KernelLog, gone: tuple[str, ...]) -> Iterator[Evidence]:
    lines = log.lines.or_none() or ()
    for bdf in gone:
        last = next((line for line in reversed(lines) if bdf in line), bdf)
        source = log.lines.source if isinstance(log.lines, Known) else "kernel log"
        note = f"this boot's kernel log names {bdf}, which is not on the bus"
        yield shown(source, last, note=note, volatile=True)
