"""selftest.cpu.alignment: what the C allocator gives for 64 bytes, and what a load across two lines costs here.

Parameter: the widest load that the kernel offers, in bytes (16, 32 or 64).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from amdcheck.selftest.isolate import Record, isolated
from amdcheck.selftest.library import LibraryMissing, load

LINE = 64
# Bytes of a buffer, and how many are held at once; they are never touched and cost address space alone.
SIZES = ((64, 32), (1024, 32), (4096, 32), (65536, 32), (1 << 20, 16), (4 << 20, 8), (64 << 20, 4))
DEADLINE_S = 3.0

BUFFER = 8 << 10  # fits into every first-level cache
# Bytes behind a line: aligned, a byte and a double off, where glibc's large blocks begin (16, behind the allocator's
# header), half a line, and one byte before the next.
OFFSETS = (0, 1, 8, 16, 32, 63)
PASSES = 200  # a few microseconds, far below a scheduler's tick
READINGS = 40  # the shortest counts: whatever else runs can only make a reading longer

# Functions by which an allocator that replaced libc's is told.
REPLACEMENTS = {"mallctl": "jemalloc", "MallocExtension_GetNumericProperty": "tcmalloc", "mi_version": "mimalloc"}


def run(params: tuple[str, ...]) -> Record:
    """Ask the allocator, then time loads."""
    width = int(params[0]) if params else 16
    return {
        "allocator": isolated(allocator, deadline_s=DEADLINE_S),
        "loads": isolated(lambda: loads(width), deadline_s=DEADLINE_S),
    }


def allocator() -> Record:
    """For each function and size: how many of the buffers that are held at once begin on a line."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = libc.aligned_alloc.restype = ctypes.c_void_p
    libc.malloc.argtypes = [ctypes.c_size_t]
    libc.aligned_alloc.argtypes = [ctypes.c_size_t, ctypes.c_size_t]
    libc.posix_memalign.argtypes = [ctypes.POINTER(ctypes.c_void_p), ctypes.c_size_t, ctypes.c_size_t]
    libc.free.argtypes = [ctypes.c_void_p]
    libc.free.restype = None

    def posix_memalign(size: int) -> int | None:
        address = ctypes.c_void_p()
        return None if libc.posix_memalign(ctypes.byref(address), LINE, size) else address.value

    def counts(allocate: Callable[[int], int | None]) -> list[Record]:
        return [{"bytes": size, "held": held, "aligned": _aligned(allocate, size, held)} for size, held in SIZES]

    def _aligned(allocate: Callable[[int], int | None], size: int, held: int) -> int:
        addresses = [allocate(size) for _ in range(held)]
        for address in addresses:
            libc.free(address)
        if None in addresses:
            raise MemoryError
        return sum(address % LINE == 0 for address in addresses if address is not None)

    return {
        "name": _name(libc),
        "malloc": counts(libc.malloc),
        "posix_memalign": counts(posix_memalign),
        "aligned_alloc": counts(lambda size: libc.aligned_alloc(LINE, size)),
    }


def _name(libc: ctypes.CDLL) -> str:
    """glibc 2.36, musl's libc (which does not say its version), or the allocator loaded before it."""
    for function, name in REPLACEMENTS.items():
        if hasattr(libc, function):
            return name
    try:
        version = libc.gnu_get_libc_version
    except AttributeError:
        return "libc"
    version.restype = ctypes.c_char_p
    return f"glibc {version().decode()}"


def loads(width: int) -> Record:
    """Seconds of one load of `width` bytes, from buffers that begin so many bytes behind a line.

    Raises LibraryMissing without the native kernels.
    """
    library = load()
    raw = ctypes.create_string_buffer(BUFFER + 2 * LINE)
    ctypes.memset(raw, 1, len(raw))  # an untouched page is not memory yet
    start = ctypes.addressof(raw)
    start += -start % LINE

    def shortest(address: int) -> float:
        readings = [
            library.time_loads(width=width, address=address, size=BUFFER, passes=PASSES) for _ in range(READINGS)
        ]
        known = [seconds for seconds in readings if seconds is not None]
        if not known:
            raise LibraryMissing(f"no loads of {width} bytes in this build")
        return min(known) / (PASSES * BUFFER / width)

    by_offset = [{"offset": offset, "seconds": shortest(start + offset)} for offset in OFFSETS]
    return {"width": width, "by_offset": by_offset}
