"""The native kernels, as Python sees them: found beside this package, bound by ctypes, absent in a pure install."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from importlib.resources import as_file, files

NAME = "libamdcheck_kernels.so"
_WORDS = ctypes.POINTER(ctypes.c_uint32)


class LibraryMissing(Exception):
    """There is no native library; the text says why and what to do."""


class Kernel:
    """One kernel of the library: a register tile of `registers` accumulators of `lanes` 32-bit words."""

    def __init__(self, library: ctypes.CDLL, name: str, handle: int) -> None:
        self._library = library
        self._handle = ctypes.c_void_p(handle)
        self.name = name
        self.registers: int = library.amdcheck_registers(self._handle)
        self.lanes: int = library.amdcheck_lanes(self._handle)
        self.steps: int = library.amdcheck_steps(self._handle)

    @property
    def words(self) -> int:
        """The words of one block's answer."""
        return self.registers * self.lanes

    def prepare(self, *, blocks: int, seed: int) -> Workload:
        """Operands for `blocks` tiles and their right answers, computed one integer at a time."""
        return Workload(self, blocks, seed)


class Workload:
    """Operands, right answers and the place for the kernel's answers."""

    def __init__(self, kernel: Kernel, blocks: int, seed: int) -> None:
        self.kernel = kernel
        self.blocks = blocks
        self.words = blocks * kernel.words
        self._a = (ctypes.c_uint32 * (blocks * kernel.steps * kernel.registers))()
        self._b = (ctypes.c_uint32 * (blocks * kernel.steps * kernel.lanes))()
        self._want = (ctypes.c_uint32 * self.words)()
        self._got = (ctypes.c_uint32 * self.words)()
        self._where = (ctypes.c_uint32 * self.words)()
        kernel._library.amdcheck_operands(kernel._handle, seed, blocks, self._a, self._b, self._want)

    def run(self, *, wrong: int = -1) -> Sequence[int]:
        """Run the kernel; `wrong` is the word whose lowest bit it shall flip. Returns the words that are wrong."""
        library = self.kernel._library
        ctypes.memset(self._got, 0xA5, ctypes.sizeof(self._got))  # what is not written is not right
        library.amdcheck_run(self.kernel._handle, self._a, self._b, self.blocks, wrong, self._got)
        found = library.amdcheck_differences(self._got, self._want, self.words, self._where, self.words)
        return self._where[:found]

    def got(self, word: int) -> int:
        return self._got[word]

    def want(self, word: int) -> int:
        return self._want[word]


class Library:
    """The loaded library."""

    def __init__(self, path: str) -> None:
        self._library = library = ctypes.CDLL(path)
        library.amdcheck_find.restype = ctypes.c_void_p
        library.amdcheck_find.argtypes = [ctypes.c_char_p]
        for shape in (library.amdcheck_registers, library.amdcheck_lanes, library.amdcheck_steps):
            shape.restype = ctypes.c_uint32
            shape.argtypes = [ctypes.c_void_p]
        library.amdcheck_operands.restype = None
        library.amdcheck_operands.argtypes = [
            ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, _WORDS, _WORDS, _WORDS,
        ]  # fmt: skip
        library.amdcheck_run.restype = None
        library.amdcheck_run.argtypes = [
            ctypes.c_void_p, _WORDS, _WORDS, ctypes.c_uint32, ctypes.c_int32, _WORDS,
        ]  # fmt: skip
        library.amdcheck_differences.restype = ctypes.c_uint32
        library.amdcheck_differences.argtypes = [_WORDS, _WORDS, ctypes.c_uint32, _WORDS, ctypes.c_uint32]
        library.amdcheck_time_loads.restype = ctypes.c_double
        library.amdcheck_time_loads.argtypes = [
            ctypes.c_uint32, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32,
        ]  # fmt: skip
        library.amdcheck_current_cpu.restype = ctypes.c_int32
        library.amdcheck_current_cpu.argtypes = []

    def find(self, name: str) -> Kernel | None:
        """The kernel of that name, None when the library was built without it."""
        handle = self._library.amdcheck_find(name.encode())
        return None if handle is None else Kernel(self._library, name, handle)

    def time_loads(self, *, width: int, address: int, size: int, passes: int) -> float | None:
        """Seconds for reading `size` bytes at `address` `passes` times by loads of `width` bytes; None: no such loads.

        The memory must belong to the caller, and `size` be a multiple of 8 * width.
        """
        seconds: float = self._library.amdcheck_time_loads(width, address, size, passes)
        return None if seconds < 0 else seconds

    def current_cpu(self) -> int:
        """The CPU that this thread runs on now, -1 when the kernel does not say."""
        cpu: int = self._library.amdcheck_current_cpu()
        return cpu


def load() -> Library:
    """Load the native kernels.

    Raises LibraryMissing where the package was installed without a compiler, or the library does not load here.
    """
    resource = files("amdcheck.selftest") / NAME
    if not resource.is_file():
        raise LibraryMissing(
            f"amdcheck was installed without its native kernels for {os.uname().machine}: "
            "no C compiler was there; install one and reinstall amdcheck"
        )
    with as_file(resource) as path:
        try:
            return Library(str(path))
        except (OSError, AttributeError) as error:
            raise LibraryMissing(f"the native kernels do not load: {error}") from error
