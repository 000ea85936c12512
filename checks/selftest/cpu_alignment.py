"""selftest.cpu.alignment: what gives memory that begins on a cache line, and what does not."""

from __future__ import annotations

from collections.abc import Iterator

from amdcheck.api import (
    Evidence,
    Finding,
    Metric,
    Subject,
    Unknown,
    Value,
    check,
    evidence,
    passed,
    shown,
    skipped,
    undetermined,
    warned,
)
from amdcheck.facts.selftests import AlignmentSelfTest, Allocator, Count, Loads, Numpy, NumpyArrays, all_aligned
from amdcheck.knowledge.remedies import remedy

ID = "selftest.cpu.alignment"
LIBC = Subject(kind="package", id="libc")
NUMPY = Subject(kind="package", id="numpy")


@check(ID, title="64-byte alignment of host memory", level="standard", required=False)
def alignment(test: AlignmentSelfTest) -> Iterator[Finding]:
    """Shows what the C allocator and the judged Python's numpy give for 64 bytes, a cache line, and what works.

    Looks at: buffers from 64 bytes to 64 MiB by malloc, posix_memalign and aligned_alloc; arrays of the same sizes by
    numpy.empty in the interpreter of --python; whether numpy.ascontiguousarray moves them; and the two ways to an
    aligned array, tried in that interpreter. Beside it the time of the widest loads is measured by
    offset: 0, 1, 8, 16, 32 and 63 bytes behind a line, data in the first-level cache.

    Why: malloc promises 16 bytes. Its large blocks begin 16 bytes into a page, so the larger an array is, the more
    surely it is misaligned. Then every 64-byte load and every second 32-byte load straddles two cache lines, which
    costs twice the time and more while the data is in the first-level cache; the metrics load-…-at-OFFSET say what it
    is here, as multiples of an aligned load. Data that streams from memory hardly notices. Kernels that use aligned
    loads crash instead. numpy.ascontiguousarray is no cure: an array that is contiguous already is returned as it is.
    `flags.aligned` only means aligned to the element.

    What to do, in numpy, where it matters (small matrices used again and again, staging buffers):

      1. over-allocate and slice: raw = numpy.empty(n + 64, numpy.uint8); start = -raw.ctypes.data % 64;
         array = raw[start:start + n].view(dtype)
      2. an aligned allocator: numpy.frombuffer over memory of posix_memalign, or an allocation handler (NEP 49)

    In C and C++: aligned_alloc(64, n) with n rounded up to 64, or posix_memalign.

    That numpy and malloc do not align is normal and passes. A way that should align and does not is a warning.

    Source: measured by this self-test; the glibc manual, "Allocating Aligned Memory Blocks"; numpy NEP 49.
    """
    if isinstance(test.allocator, Unknown):
        yield undetermined(ID, LIBC, "the C allocator was not measured", because=test.allocator)
    else:
        yield _libc(test, test.allocator.value)
    if test.python is None:
        yield skipped(ID, NUMPY, "there is no Python to judge: name one with --python")
    elif isinstance(test.numpy, Unknown):
        yield undetermined(ID, NUMPY, f"the numpy of {test.python} was not measured", because=test.numpy)
    elif test.numpy.value.measured is None:
        lacks = shown(test.numpy_source, test.numpy.value.lacks or "")
        yield skipped(ID, NUMPY, f"{test.python} has no numpy that can be imported", lacks)
    else:
        yield _numpy(test, test.numpy.value, test.numpy.value.measured)


def _libc(test: AlignmentSelfTest, libc: Allocator) -> Finding:
    aligning = {"posix_memalign": libc.posix_memalign, "aligned_alloc": libc.aligned_alloc}
    seen = (
        shown(test.source, libc.name, note="the C allocator"),
        _told(test.source, "malloc", libc.malloc),
        *(_told(test.source, function, counts) for function, counts in aligning.items()),
        *((evidence(test.loads, note="cost of loads by offset"),) if isinstance(test.loads, Unknown) else ()),
    )
    broken = [function for function, counts in aligning.items() if not all_aligned(counts)]
    if broken:
        return warned(
            f"{ID}/allocator",
            LIBC,
            f"{' and '.join(broken)} of {libc.name} returned memory that is not aligned as asked",
            *seen,
            remedy=remedy(f"{ID}/allocator"),
        )
    plain = "here malloc does too" if all_aligned(libc.malloc) else "malloc does not"
    message = f"posix_memalign and aligned_alloc give 64-byte aligned memory; {plain}"
    return passed(ID, LIBC, message, *seen, metrics=_cost(test.loads))


def _numpy(test: AlignmentSelfTest, numpy: Numpy, arrays: NumpyArrays) -> Finding:
    ways = {"over-allocating and slicing": arrays.sliced, "memory of posix_memalign": arrays.allocated}
    seen = (
        shown(test.numpy_source, f"numpy {numpy.numpy}", note=f"Python {numpy.python}, allocator {numpy.handler}"),
        _told(test.numpy_source, "numpy.empty", arrays.empty),
        shown(
            test.numpy_source,
            f"{arrays.contiguous_same} of {arrays.contiguous_tried} arrays returned as they are",
            note="numpy.ascontiguousarray",
        ),
        *(_told(test.numpy_source, way, counts) for way, counts in ways.items()),
    )
    broken = [way for way, counts in ways.items() if not all_aligned(counts)]
    if broken:
        return warned(
            f"{ID}/no-way",
            NUMPY,
            f"in {test.python}, {' and '.join(broken)} did not give 64-byte aligned arrays",
            *seen,
            remedy=remedy(f"{ID}/no-way"),
        )
    if all_aligned(arrays.empty):
        return passed(ID, NUMPY, "numpy gives 64-byte aligned arrays by itself", *seen)
    return passed(ID, NUMPY, f"numpy does not align arrays to 64 bytes; {' and '.join(ways)} do", *seen)


def _told(source: str, function: str, counts: tuple[Count, ...]) -> Evidence:
    """How many buffers of each size began on a line. What chance decides is volatile; a promise that held is not."""
    if all_aligned(counts):
        sizes = f"{_size(counts[0].bytes)} to {_size(counts[-1].bytes)}"
        return shown(source, f"every buffer of {sizes} aligned", note=function)
    told = ", ".join(f"{_size(c.bytes)} {c.aligned}/{c.held}" for c in counts)
    return shown(source, f"aligned of held: {told}", note=function, volatile=True)


def _size(bytes: int) -> str:
    for unit, name in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if bytes >= unit:
            return f"{bytes // unit} {name}"
    return f"{bytes} B"


def _cost(loads: Value[Loads]) -> tuple[Metric, ...]:
    """What loads that are not aligned cost here, as multiples of an aligned one, data in the first-level cache."""
    if isinstance(loads, Unknown):
        return ()
    bits = 8 * loads.value.width
    return tuple(
        Metric(name=f"load-{bits}-bit-at-{offset}", value=round(cost, 2), unit="x", volatile=True)
        for offset, cost in loads.value.costs.items()
    )
