"""What a MIOpen library says of itself: `miopenGetVersion`, in a child because loading it pulls in the HIP runtime."""

from __future__ import annotations

import ctypes

from amdcheck.selftest.isolate import Record, isolated

# Loading reads some hundred megabytes from a cold disk.
_DEADLINE_S = 8.0


def run(params: tuple[str, ...]) -> Record:
    """`params` is the path of one libMIOpen. The call exists since MIOpen 2.3 and needs no GPU."""
    if len(params) != 1:
        return {"ended": "failed", "detail": "one parameter: the library's path", "result": None}
    return {**isolated(lambda: _version(params[0]), deadline_s=_DEADLINE_S)}


def _version(path: str) -> Record:
    get_version = ctypes.CDLL(path).miopenGetVersion
    get_version.argtypes = [ctypes.POINTER(ctypes.c_size_t)] * 3
    get_version.restype = ctypes.c_int
    fields = [ctypes.c_size_t(), ctypes.c_size_t(), ctypes.c_size_t()]
    status = get_version(*(ctypes.byref(field) for field in fields))
    if status != 0:
        raise RuntimeError(f"miopenGetVersion returned {status}")
    return {"version": ".".join(str(field.value) for field in fields)}
