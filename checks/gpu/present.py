"""Are the GPUs there that this machine is meant to have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from amdcheck.api import (
    HOST,
    Evidence,
    Expectations,
    Finding,
    Known,
    Remedy,
    Subject,
    Unknown,
    check,
    evidence,
    failed,
    passed,
    shown,
    skipped,
    undetermined,
    warned,
)
from amdcheck.facts.driver import Driver
from amdcheck.facts.gpus import Gpu, Gpus
from amdcheck.facts.kernel_log import KernelLog
from amdcheck.facts.kfd import TOPOLOGY
from amdcheck.facts.pci import PciTree
from amdcheck.facts.platform import Platform
from amdcheck.facts.presence import EXPECTED_BY, GpuSigns
from amdcheck.knowledge.gpus import GpuProduct, products
from amdcheck.knowledge.remedies import remedy, remedy_in_guest
from amdcheck.knowledge.tables import TABLES_DATE
from amdcheck.model.text import counted

ID = "gpu.present"


@check(ID, title="AMD GPUs present", level="quick")
def present(
    gpus: Gpus,
    signs: GpuSigns,
    pci: PciTree,
    log: KernelLog,
    driver: Driver,
    platform: Platform,
    expect: Expectations,
) -> Iterator[Finding]:
    """Whether the GPUs are there that this machine is meant to have, and whether the driver drives each of them.

    Counts AMD GPUs on the PCI bus (/sys/bus/pci/devices): vendor 1002 with a row of the product table, or any display
    controller or accelerator that amdgpu drives, failed to start, or drives others of the same id; never by class
    alone, for MI50 to MI250 are 0380, MI300 1200 and Radeon 0300. A device is what has a PCI address: on MI250 and
    MI250X a GCD, so that a node of four modules has eight, as ROCm, Slurm and Kubernetes count. Partitions of a device
    do not count. Integrated GPUs, and those before gfx9, are not judged. Where no bus listing can be read, the GPU
    nodes of the KFD count.

    How many are meant to be there is said by --expect-gpus or the policy, else by the board: MI300X, MI308X, MI325X,
    MI350X and MI355X come eight to a baseboard (in a virtual machine or container fewer may be meant, so that is a
    warning there). GPUs that are gone altogether are noticed by what they left behind: the driver, its DKMS package,
    a ROCm installation, /dev/kfd, a node of the compute driver, or this boot's kernel log naming a GPU that the bus no
    longer shows. A node of the compute driver whose address is not on the bus is a GPU that was lost while in use.
    A GPU that is still listed is lost too, where the log says that it left the bus, could not be reset or has more bad
    pages than the driver accepts, and no later line that it came up or was reset. GPUs that another driver holds, such
    as vfio-pci, count for no expected number.

    A GPU that falls off the bus or does not start takes its share of a model with it: tensor-parallel serving stops,
    and a scheduler that counts nodes does not see it.

    A product that is newer than the table is counted, and judged by what needs no table.

    Source: Linux amdgpu_drv.c, amdgpu_device.c and the ABI of power/runtime_status; recorded machines; AMD's platform
    documents for the baseboards. On one source rests what the log says of a GPU that left the bus.
    """
    if gpus.devices:
        yield _counted(gpus, signs, platform, expect)
        yield from _not_driven(gpus, driver, log, expect)
        yield from _dead(gpus, pci, log)
        yield from _of_another_target(gpus, expect)
        yield from _not_in_table(gpus)
    else:
        yield _none_there(gpus, signs, log, expect)
    yield from _off_bus(gpus)


def _none_there(gpus: Gpus, signs: GpuSigns, log: KernelLog, expect: Expectations) -> Finding:
    listing = gpus.listing
    if isinstance(listing, Unknown):
        message = "The listing of PCI devices could not be read, so that GPUs may be there or not."
        return undetermined(ID, HOST, message, *signs.signs, because=listing, outcome="unreadable")
    if gpus.unidentified:
        return _may_be_more(gpus, signs, "No AMD GPU is known to be there")
    others = "".join(f"; {n.bdf} ({n.device_id}) is {n.reason}" for n in gpus.not_judged[:4])
    seen = shown(listing.source, f"{counted(len(listing.value), 'device')}, none of them a GPU to judge{others}")
    # An integrated GPU that amdgpu drives explains the driver and the ROCm that are there for it, and neither an
    # expectation nor a GPU that the log or the compute driver knows.
    missed = expect.gpus or signs.gone or gpus.off_bus
    explained = any(other.driver == "amdgpu" for other in gpus.not_judged) and not missed
    none = "No AMD GPU to judge is on the PCI bus"
    if expect.gpus == 0:
        return skipped(ID, HOST, f"{none}, and none is expected ({EXPECTED_BY}){others}.", seen, *signs.signs)
    if not signs.signs and signs.unread:
        message = f"{none}, and whether one is expected could not be read{others}."
        return undetermined(ID, HOST, message, seen, because=signs.unread[0])
    if not signs.signs or explained:
        why = "what is installed serves another GPU" if signs.signs else "nothing says that one is expected"
        log_unread = (evidence(log.lines),) if isinstance(log.lines, Unknown) else ()
        return skipped(ID, HOST, f"{none}, and {why}{others}.", seen, *signs.signs, *log_unread)
    return failed(
        f"{ID}/none",
        HOST,
        f"AMD GPUs are expected, and none is on the PCI bus{others}.",
        seen,
        *signs.signs,
        expected=_wanted(expect.gpus) if expect.gpus else "at least one GPU, by what is installed",
        actual="none",
        remedy=remedy(f"{ID}/none"),
    )


def _may_be_more(gpus: Gpus, signs: GpuSigns, there: str, *what: Evidence, expected: str | None = None) -> Finding:
    """Functions on the bus that do not say what they are: each may be the GPU that is missed."""
    bdf, why = next(iter(gpus.unidentified.items()))
    silent = counted(
        len(gpus.unidentified), "PCI device does not say what it is", "PCI devices do not say what they are"
    )
    message = f"{there}; {silent} ({bdf}), one may be a GPU."
    return undetermined(ID, HOST, message, *what, *signs.signs, because=why, outcome="unreadable", expected=expected)


def _counted(gpus: Gpus, signs: GpuSigns, platform: Platform, expect: Expectations) -> Finding:
    """By the number that somebody named, else by what the host itself says."""
    if expect.gpus is not None:
        return _against(expect.gpus, gpus, signs, platform)
    usable = [gpu for gpu in gpus.devices if not gpu.hidden]
    kept_away = _kept_away(gpus, platform)
    what = _listing(gpus)
    if signs.gone:
        known = "that this boot's kernel log names"
        gone = counted(len(signs.gone), f"GPU {known} is", f"GPUs {known} are")
        message = f"{gone} no longer on the bus."
        return failed(
            f"{ID}/fewer", HOST, message, what, *signs.signs, actual=str(len(usable)), remedy=remedy(f"{ID}/fewer")
        )
    short = _short_of_board(gpus)
    if short is not None:
        return _fewer_than_board(short, what, platform)
    if gpus.unidentified:
        return _may_be_more(gpus, signs, f"GPUs are there: {_names(usable)}{kept_away}", what)
    if not usable:
        names, confined = _names(gpus.devices), platform.confined
        message = f"GPUs are on the bus, but the device cgroup keeps all of them from {confined}: {names}."
        return warned(f"{ID}/hidden", HOST, message, what, remedy=remedy(f"{ID}/hidden"))
    return passed(ID, HOST, f"GPUs are there: {_names(usable)}{kept_away}.", what)


def _against(number: int, gpus: Gpus, signs: GpuSigns, platform: Platform) -> Finding:
    usable = [gpu for gpu in gpus.devices if not gpu.hidden and _holder(gpu) is None]
    what, wanted, actual = _listing(gpus), _wanted(number), str(len(usable))
    kept_away = _kept_away(gpus, platform) + _held(gpus)
    there = f"{len(usable)} of {number} expected GPUs are there{kept_away}"
    if len(usable) < number <= len(usable) + len(gpus.unidentified):
        return _may_be_more(gpus, signs, there, what, expected=wanted)
    if len(usable) < number:
        fix = _fix_of_fewer(number - len(usable), gpus)
        message = f"{there}{_partitions(usable, number)}."
        return failed(f"{ID}/fewer", HOST, message, what, *signs.signs, expected=wanted, actual=actual, remedy=fix)
    if len(usable) > number:
        there = counted(len(usable), "GPU is there", "GPUs are there")
        message = f"{there}, {counted(number, 'is expected', 'are expected')}{_modules(gpus)}."
        fix = remedy(f"{ID}/more")
        return warned(f"{ID}/more", HOST, message, what, expected=wanted, actual=actual, remedy=fix)
    there = "The expected GPU is there" if number == 1 else f"All {number} expected GPUs are there"
    named = f"{there}: {_names(usable)}" if usable else "No GPU is expected, and none is here"
    return passed(ID, HOST, f"{named}{kept_away}.", what, expected=wanted)


def _fix_of_fewer(missing: int, gpus: Gpus) -> Remedy:
    """Where the device cgroup or another driver keeps the rest, nothing is wrong with the node."""
    held = [gpu.bdf for gpu in gpus.devices if _holder(gpu) is not None]
    if held and missing <= gpus.kept_away + len(held):
        return remedy(f"{ID}/other-driver", bdf=held[0])
    return remedy(f"{ID}/hidden" if missing <= gpus.kept_away else f"{ID}/fewer")


def _short_of_board(gpus: Gpus) -> tuple[GpuProduct, int, int] | None:
    """Row, count and baseboard of a product whose board is not complete, whatever the unread devices are."""
    unread = len(gpus.unidentified) + sum(isinstance(gpu.device_id, Unknown) for gpu in gpus.devices)
    for product, count in Counter(gpu.product for gpu in gpus.devices).items():
        row = products()[product] if product is not None else None
        if row is not None and row.baseboard is not None and count + unread < row.baseboard:
            return row, count, row.baseboard
    return None


def _fewer_than_board(short: tuple[GpuProduct, int, int], what: Evidence, platform: Platform) -> Finding:
    row, count, baseboard = short
    message = f"{count} x {row.name} on a baseboard of {baseboard}."
    expected = f"{baseboard} GPUs (product table: baseboard of {row.name})"
    if platform.is_bare_metal and row.may_fail("baseboard"):
        return failed(
            f"{ID}/fewer",
            HOST,
            message,
            what,
            evidence(platform.virtualization_evidence, note="bare metal"),
            expected=expected,
            actual=str(count),
            remedy=remedy(f"{ID}/fewer"),
        )
    where = platform.container or platform.virtualization
    note = f"in a guest or container ({where}) fewer may be meant" if where else "whether this is bare metal is unknown"
    if platform.is_bare_metal:
        note = "that its board has so many is not verified"
    read = platform.container_evidence if platform.container else platform.virtualization_evidence
    return warned(
        f"{ID}/fewer",
        HOST,
        f"{message} {note[0].upper()}{note[1:]}.",
        what,
        evidence(read, note=note),
        expected=expected,
        actual=str(count),
        remedy=remedy(f"{ID}/fewer") if where is None else remedy_in_guest(f"{ID}/fewer"),
    )


def _off_bus(gpus: Gpus) -> Iterator[Finding]:
    """GPUs that the compute driver still has, whatever number is expected: one taken away in order is unbound first."""
    for bdf in gpus.off_bus:
        yield failed(
            f"{ID}/off-bus",
            Subject(kind="gpu", id=bdf),
            f"The compute driver lists a GPU at {bdf}, which is not on the PCI bus.",
            shown(f"{TOPOLOGY}/nodes", f"a node at {bdf}"),
            shown(gpus.listing.source, f"no {bdf}"),
            expected="on the bus",
            actual="off the bus",
            remedy=remedy(f"{ID}/off-bus"),
        )


def _not_driven(gpus: Gpus, driver: Driver, log: KernelLog, expect: Expectations) -> Iterator[Finding]:
    """GPUs on the bus that amdgpu does not drive. With no driver at all, gpu.driver-loaded says it once.

    Where a number is expected, that says whether those that another driver holds are missed.
    """
    for gpu in gpus.devices:
        bound = gpu.driver
        if not gpu.on_bus or bound.or_none() == "amdgpu":
            continue
        if isinstance(bound, Known):
            if expect.gpus is not None:
                continue
            yield warned(
                f"{ID}/other-driver",
                gpu.subject,
                f"{gpu.label} is bound to {bound.value}, not to amdgpu.",
                evidence(bound),
                expected="amdgpu",
                actual=bound.value,
                remedy=remedy(f"{ID}/other-driver", bdf=gpu.bdf),
            )
        elif driver.loaded.or_none() is False:
            continue
        elif bound.reason == "absent":
            line = log.about(gpu.bdf, "probe-failed", "bad-pages", "bar-space", "lost-from-bus")
            said = (shown(log.lines.source, line, volatile=True),) if line else ()
            yield failed(
                f"{ID}/unbound",
                gpu.subject,
                f"{gpu.label} is on the bus, but no driver is bound to it.",
                evidence(bound),
                *said,
                expected="amdgpu",
                actual="no driver",
                remedy=remedy(f"{ID}/unbound", bdf=gpu.bdf),
            )
        else:
            message = f"Which driver {gpu.label} is bound to could not be read."
            yield undetermined(ID, gpu.subject, message, because=bound, expected="amdgpu")


def _dead(gpus: Gpus, pci: PciTree, log: KernelLog) -> Iterator[Finding]:
    """GPUs that are listed and that amdgpu holds, and that answer no more."""
    for gpu in gpus.devices:
        line, device = log.gone.get(gpu.bdf), pci.devices.get(gpu.bdf)
        if gpu.is_undriven:
            continue
        if line is not None:
            yield failed(
                f"{ID}/lost",
                gpu.subject,
                f"{gpu.label} is still listed, but this boot's kernel log says that it is lost.",
                shown(log.lines.source, line, volatile=True),
                remedy=remedy(f"{ID}/lost", bdf=gpu.bdf),
            )
        if device is not None and device.runtime_status.or_none() == "error":
            yield failed(
                f"{ID}/power-error",
                gpu.subject,
                f"Changing the power state of {gpu.label} failed: the kernel refuses to wake it for any program.",
                evidence(device.runtime_status),
                expected="active or suspended",
                actual="error",
                remedy=remedy(f"{ID}/power-error", bdf=gpu.bdf),
            )
        # Integrated ones share the processor's memory, and may well say that they have none of their own.
        if gpu.vram_bytes.or_none() == 0 and gpu.product is not None and not products()[gpu.product].integrated:
            yield failed(
                f"{ID}/no-memory",
                gpu.subject,
                f"{gpu.label} is driven and has no memory of its own.",
                evidence(gpu.vram_bytes),
                expected="some GiB",
                actual="0",
                remedy=remedy(f"{ID}/no-memory", bdf=gpu.bdf),
            )


def _not_in_table(gpus: Gpus) -> Iterator[Finding]:
    for gpu in gpus.devices:
        if isinstance(gpu.device_id, Unknown):
            message = f"Which product the GPU at {gpu.bdf} is could not be read."
            yield undetermined(ID, gpu.subject, message, because=gpu.device_id, outcome="unreadable")
        elif gpu.product is None:
            label = f"{gpu.label} ({gpu.gfx.or_none() or 'unknown target'})"
            yield warned(
                f"{ID}/not-in-table",
                gpu.subject,
                f"{label} is not in the product table of {TABLES_DATE}.",
                evidence(gpu.device_id),
                remedy=remedy(f"{ID}/not-in-table"),
            )


def _of_another_target(gpus: Gpus, expect: Expectations) -> Iterator[Finding]:
    """GPUs that are not of the target that the policy expects; of one that does not say it is unknown."""
    for gpu in gpus.devices if expect.gfx is not None else ():
        if isinstance(gpu.gfx, Unknown):
            message = f"Whether {gpu.label} is of target {expect.gfx} could not be read."
            yield undetermined(ID, gpu.subject, message, because=gpu.gfx, expected=expect.gfx)
        elif gpu.gfx.value != expect.gfx:
            yield failed(
                f"{ID}/other-target",
                gpu.subject,
                f"{gpu.label} is of target {gpu.gfx.value}, not {expect.gfx}.",
                evidence(gpu.gfx),
                expected=f"{expect.gfx} (policy)",
                actual=gpu.gfx.value,
                remedy=remedy(f"{ID}/other-target"),
            )


def _listing(gpus: Gpus) -> Evidence:
    """What was counted, and where."""
    on_bus = isinstance(gpus.listing, Known)
    note = None if on_bus else "no bus listing could be read; counted are the devices of KFD nodes"
    value = "; ".join(
        f"{gpu.bdf} {gpu.label}" + (f" ({holder})" if (holder := _holder(gpu)) else "") for gpu in gpus.devices
    )
    if gpus.off_bus:
        note = f"the compute driver still has nodes for {', '.join(gpus.off_bus)}"
    return shown(gpus.listing.source if on_bus else f"{TOPOLOGY}/nodes", value, note=note)


def _wanted(gpus: int) -> str:
    return f"{counted(gpus, 'GPU')} ({EXPECTED_BY})"


def _names(gpus: Iterable[Gpu]) -> str:
    counts = Counter(gpu.label for gpu in gpus)
    return ", ".join(f"{count} x {name}" for name, count in counts.items())


def _kept_away(gpus: Gpus, platform: Platform) -> str:
    return f"; the device cgroup keeps {gpus.kept_away} more from {platform.confined}" if gpus.kept_away else ""


def _holder(gpu: Gpu) -> str | None:
    """The driver other than amdgpu that has the GPU."""
    return gpu.driver.value if isinstance(gpu.driver, Known) and gpu.driver.value != "amdgpu" else None


def _held(gpus: Gpus) -> str:
    counts = Counter(holder for gpu in gpus.devices if (holder := _holder(gpu)) is not None)
    return "".join(f"; {holder} holds {count} more" for holder, count in counts.items())


def _partitions(gpus: list[Gpu], expected: int) -> str:
    """A hint where the expectation counts partitions."""
    partitions = sum(len(gpu.partitions) for gpu in gpus)
    return f"; they have {partitions} partitions, which do not count" if partitions == expected else ""


def _modules(gpus: Gpus) -> str:
    twins = {gpu.label for gpu in gpus.devices if gpu.row is not None and gpu.row.gcds > 1}
    return f"; each {' and '.join(sorted(twins))} module counts as two" if twins else ""
