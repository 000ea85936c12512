"""What hipMallocManaged gives on each GPU of this host."""

from __future__ import annotations

from collections.abc import Iterator

from amdcheck.api import (
    Evidence,
    Finding,
    Known,
    Unknown,
    Value,
    check,
    evidence,
    has_amd_gpu,
    passed,
    shown,
    skipped,
    undetermined,
    warned,
)
from amdcheck.facts.gpus import Gpu, Gpus
from amdcheck.facts.hmm import NORETRY, Hmm
from amdcheck.facts.kfd import TOPOLOGY, Kfd
from amdcheck.facts.platform import Platform
from amdcheck.knowledge.managed_memory import Xnack, has_svm, xnack_of
from amdcheck.knowledge.remedies import remedy

CHECK = "memory.managed-mode"


@check(CHECK, title="Managed memory", level="quick", required=False, applies=has_amd_gpu)
def managed_mode(gpus: Gpus, kfd: Kfd, hmm: Hmm, platform: Platform) -> Iterator[Finding]:
    """Which kind of memory a process gets from hipMallocManaged on this host, and why.

    Looks at the GPU's target, at the bit SVMAPI_SUPPORTED of its KFD node, at amdgpu's parameter noretry and, where
    the bit does not say, at the kernel's configuration. With XNACK off, which is the default, managed memory is pinned
    host memory: the GPU reads it over its link, nothing migrates, and malloc() memory is out of its reach. With XNACK
    on and HMM in the kernel, pages move to whoever touches them. On MI300A there is one memory, and nothing has to
    move.

    - gfx90a, gfx942, gfx950: each process chooses, by HSA_XNACK=1.
    - gfx900, gfx906, gfx908: chosen for all at boot, by amdgpu.noretry=0.
    - RDNA (gfx101x to gfx120x): never. One such GPU in a process switches XNACK off for all of that process.

    "Managed memory without migration" is therefore the slow state, not a safe one: keep weights and KV cache in
    hipMalloc memory and use managed memory on purpose. The check warns where a GPU that could migrate cannot, and
    where XNACK is forced on every process. It is advisory: serving does not depend on managed memory.

    Source: Linux 6.12 amdkfd (kfd_process_xnack_mode, kfd_topology) and amdgpu_gmc; ROCm documentation on unified
    memory.
    """
    for gpu in gpus.devices:
        yield _judged(gpu, kfd, hmm, platform.os_id.or_none())


def _judged(gpu: Gpu, kfd: Kfd, hmm: Hmm, os_id: str | None) -> Finding:
    if isinstance(gpu.driver, Unknown) and gpu.driver.reason == "absent":
        return skipped(CHECK, gpu.subject, "No driver is bound to this GPU: nothing can be allocated on it.")
    if isinstance(gpu.gfx, Unknown):
        return undetermined(CHECK, gpu.subject, "The GPU's target could not be read.", because=gpu.gfx)
    row = xnack_of(gpu.gfx.value)
    if row is None:
        text = f"{gpu.gfx.value} is newer than the table: how it handles managed memory is not known here."
        return warned(
            f"{CHECK}/not-in-table", gpu.subject, text, evidence(gpu.gfx), remedy=remedy(f"{CHECK}/not-in-table")
        )
    if row.mode == "never" or (gpu.is_virtual_function and not row.vf):
        who = f"{gpu.gfx.value} as a virtual function" if row.mode != "never" else gpu.gfx.value
        return _pinned(gpu, f"{who} has no XNACK")
    return _with_xnack(gpu, gpu.gfx.value, row, _capability(gpu, kfd), hmm, os_id)


def _pinned(gpu: Gpu, why: str, *seen: Evidence) -> Finding:
    text = f"hipMallocManaged gives pinned host memory that never migrates: {why}."
    return passed(CHECK, gpu.subject, text, evidence(gpu.gfx), *seen, actual="pinned host memory")


def _with_xnack(gpu: Gpu, gfx: str, row: Xnack, capability: Value[int], hmm: Hmm, os_id: str | None) -> Finding:
    """A GPU that can take page faults: does the kernel let it, and who decides."""
    if row.mode == "boot" and hmm.noretry.or_none() in (-1, 1):
        return _pinned(gpu, f"{gfx} has XNACK only when booted with amdgpu.noretry=0", evidence(hmm.noretry))
    svm = _svm(capability, hmm)
    for value in (svm, hmm.noretry):
        if isinstance(value, Unknown):
            text = "Whether managed memory migrates could not be determined."
            return undetermined(CHECK, gpu.subject, text, evidence(gpu.gfx), because=value)
    seen = (evidence(gpu.gfx), *_seen(capability, hmm))
    if not svm.or_none():
        return warned(
            f"{CHECK}/no-svm",
            gpu.subject,
            f"{gfx} could migrate managed memory, but the kernel offers it no HMM: it stays pinned host memory.",
            *seen,
            expected="HMM in the kernel",
            actual="pinned host memory",
            remedy=remedy(f"{CHECK}/no-svm"),
        )
    if hmm.noretry.or_none() == 0 and row.mode != "retry":
        return warned(
            f"{CHECK}/retry-forced",
            gpu.subject,
            "amdgpu.noretry=0 switches XNACK on for every process: programs built for xnack- do not start.",
            *seen,
            expected=f"{NORETRY} -1",
            actual="0",
            remedy=remedy(f"{CHECK}/retry-forced", os_id=os_id),
        )
    mode, text = _mode(gpu, row)
    return passed(CHECK, gpu.subject, text, *seen, actual=mode)


def _mode(gpu: Gpu, row: Xnack) -> tuple[str, str]:
    if gpu.row is not None and gpu.row.integrated:
        return "one memory", "hipMallocManaged gives the one memory that CPU and GPU share: nothing has to migrate."
    if row.mode == "retry":
        return "migrating", "hipMallocManaged gives memory whose pages migrate: XNACK is always on."
    text = (
        "hipMallocManaged gives pinned host memory; in a process with HSA_XNACK=1 its pages migrate to whoever"
        " touches them."
    )
    return "pinned host memory, migrating with HSA_XNACK=1", text


def _capability(gpu: Gpu, kfd: Kfd) -> Value[int]:
    """The `capability` of the device's first KFD node."""
    numbers = {partition.kfd_node for partition in gpu.partitions}
    node = next((node for node in kfd.nodes if node.id in numbers), None)
    if node is None:
        return Unknown("absent", f"{TOPOLOGY}/nodes", f"no node of {gpu.bdf}")
    if isinstance(node.properties, Unknown):
        return node.properties
    value = node.properties.value.get("capability")
    source = node.properties.source
    return Unknown("absent", source, "no capability") if value is None else Known(value, source)


def _svm(capability: Value[int], hmm: Hmm) -> Value[bool]:
    """Can this GPU's memory take part in migration: by the driver's word, else by the kernel's configuration."""
    if isinstance(capability, Known):
        return Known(has_svm(capability.value), capability.source)
    if hmm.offered is not None:
        return Known(hmm.offered, hmm.options.source)
    return capability


def _seen(capability: Value[int], hmm: Hmm) -> Iterator[Evidence]:
    if isinstance(capability, Known):
        yield shown(capability.source, f"0x{capability.value:08x}", note="capability")
    if isinstance(hmm.options, Known) and (isinstance(capability, Unknown) or not has_svm(capability.value)):
        yield shown(hmm.options.source, " ".join(f"{name}={value}" for name, value in hmm.options.value.items()))
    if isinstance(hmm.noretry, Known):
        yield evidence(hmm.noretry)
