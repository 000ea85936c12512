"""What a Python's numpy gives for 64 bytes, and the two ways that work.

Run by the interpreter that is judged (any since 3.6), which need not have amdcheck: `PYTHON -I numpy_alignment.py`.
Prints one JSON document as its last line.
"""
# ruff: noqa: UP006, UP035, UP045 (types as Python 3.6 writes them)

import ctypes
import json
import platform
import sys
import weakref
from typing import Any, Callable, Dict, List, Optional

LINE = 64
# Bytes of an array, and how many are held at once; two pages of a large one are touched, the rest is address space.
SIZES = ((64, 32), (1024, 32), (4096, 32), (65536, 32), (1 << 20, 16), (4 << 20, 8), (64 << 20, 4))


def sliced(numpy: Any, size: int) -> Any:
    """The first way: a little too much memory, cut so that it begins on a line."""
    raw = numpy.empty(size + LINE, numpy.uint8)
    start = -raw.ctypes.data % LINE
    return raw[start : start + size]


def allocated(numpy: Any, libc: ctypes.CDLL, size: int) -> Any:
    """The second way: memory from posix_memalign, given back when the array and all its views are gone."""
    address = ctypes.c_void_p()
    if libc.posix_memalign(ctypes.byref(address), ctypes.c_size_t(LINE), ctypes.c_size_t(size)) or not address.value:
        raise MemoryError(f"posix_memalign of {size} bytes")
    buffer = (ctypes.c_uint8 * size).from_address(address.value)
    weakref.finalize(buffer, libc.free, address)
    return numpy.frombuffer(buffer, numpy.uint8)


def aligned(arrays: List[Any]) -> int:
    """How many begin on a line and can be written from end to end."""
    count = 0
    for array in arrays:
        array[0] = array[-1] = 1
        count += array.ctypes.data % LINE == 0
    return count


def counts(allocate: Callable[[int], Any]) -> List[Dict[str, int]]:
    """For each size: how many arrays were held at once, and how many of them begin on a line."""
    return [
        {"bytes": size, "held": held, "aligned": aligned([allocate(size) for _ in range(held)])} for size, held in SIZES
    ]


def measure(numpy: Any) -> Dict[str, Any]:
    libc = ctypes.CDLL(None)
    plain = [numpy.empty(size, numpy.uint8) for size, _ in SIZES]
    return {
        "empty": counts(lambda size: numpy.empty(size, numpy.uint8)),
        "sliced": counts(lambda size: sliced(numpy, size)),
        "allocated": counts(lambda size: allocated(numpy, libc, size)),
        "contiguous_tried": len(plain),
        "contiguous_same": sum(numpy.ascontiguousarray(array) is array for array in plain),
    }


def handler(numpy: Any) -> Optional[str]:
    """The name of numpy's allocator (NEP 49), None before numpy 1.22."""
    for holder in ("_core", "core"):
        try:
            name: str = getattr(numpy, holder).multiarray.get_handler_name()
            return name
        except AttributeError:
            continue
    return None


def main() -> None:
    document: Dict[str, Any] = {"test": "numpy_alignment", "python": platform.python_version(), "lacks": None}
    try:
        import numpy
    except Exception as error:  # an installation may break in any way
        document["lacks"] = f"{type(error).__name__}: {error}"
        document.update(numpy=None, handler=None, measured=None)
    else:
        document.update(numpy=numpy.__version__, handler=handler(numpy), measured=measure(numpy))
    sys.stdout.write(json.dumps(document) + "\n")


if __name__ == "__main__":
    main()
