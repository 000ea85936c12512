"""The native kernels, as Python sees them: found beside this package, bound by ctypes, absent in a pure install."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from typing import NamedTuple

from amdcheck import selftest
from amdcheck.selftest.buffer import Buffer, Pages

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


class Gemm:
    """One matrix product of the library: c[m][n] = a[m][k] * b[k][n], of any shape."""

    def __init__(self, library: ctypes.CDLL, name: str, handle: int) -> None:
        self._library = library
        self._handle = ctypes.c_void_p(handle)
        self.name = name
        self.size: int = library.amdcheck_gemm_size(self._handle)  # bytes of a number of a and b
        self.ports_operations: int = library.amdcheck_ports_operations(self._handle)

    def prepare(self, *, m: int, n: int, k: int, seed: int, pages: Pages = "huge") -> Product:
        """Operands and right answers for one shape. Raises MemoryError, ValueError for a dimension below 1."""
        return Product(self, m, n, k, seed, pages)

    def time_ports(self, repeats: int) -> float:
        """Seconds for `repeats` times `ports_operations` operations of this kind on registers alone."""
        seconds: float = self._library.amdcheck_time_ports(self._handle, repeats)
        return seconds


class Product:
    """Operands of one matrix product, its right answers, and the place for the kernel's answers."""

    def __init__(self, gemm: Gemm, m: int, n: int, k: int, seed: int, pages: Pages) -> None:
        if min(m, n, k) < 1 or k >= 1 << 24 or m * n >= 1 << 32:  # amdcheck_kernels.h says why
            raise ValueError(f"a matrix product of {m} x {n} x {k}")
        self.gemm = gemm
        self.shape = (m, n, k)
        self.words = m * n
        self.operations = 2 * m * n * k
        library = gemm._library
        self._a = Buffer(m * k * gemm.size, pages=pages)
        self._b = Buffer(k * n * gemm.size, pages=pages)
        self._c = Buffer(4 * self.words, pages=pages)
        self._want = Buffer(4 * self.words, pages=pages)
        self._where = (ctypes.c_uint32 * self.words)()
        self._workspace = Buffer(library.amdcheck_gemm_workspace(gemm._handle, m, n, k), pages=pages)
        done = library.amdcheck_gemm_operands(
            gemm._handle, seed, m, n, k, self._a.address, self._b.address, self._want.address
        )
        if done != 0:
            raise MemoryError

    def run(self, *, wrong: int = -1) -> float:
        """Compute c, whose word `wrong` the kernel shall flip. Returns seconds."""
        ctypes.memset(self._c.address, 0xA5, 4 * self.words)  # what is not written is not right
        seconds: float = self.gemm._library.amdcheck_gemm_run(
            self.gemm._handle, *self.shape, self._a.address, self._b.address, self._c.address,
            self._workspace.address, wrong,
        )  # fmt: skip
        return seconds

    def wrong_words(self) -> Sequence[int]:
        """The words of c that are not right, of the last run."""
        where = ctypes.cast(self._where, _WORDS)
        found = self.gemm._library.amdcheck_differences(
            ctypes.cast(self._c.address, _WORDS), ctypes.cast(self._want.address, _WORDS), self.words, where, self.words
        )
        return self._where[:found]

    def got(self, word: int) -> int:
        return ctypes.c_uint32.from_address(self._c.address + 4 * word).value

    def want(self, word: int) -> int:
        return ctypes.c_uint32.from_address(self._want.address + 4 * word).value


class Difference(ctypes.Structure):
    """A 64-bit word of memory that does not hold its pattern."""

    _fields_ = (("place", ctypes.c_uint64), ("got", ctypes.c_uint64), ("want", ctypes.c_uint64))
    place: int
    got: int
    want: int


class Pace(NamedTuple):
    """Seconds of a cycle of the core, and how many instructions that do nothing it began in one.

    Those are fewer while the other thread of the core works, be it another guest's, of which nothing else tells. None
    where the clock moved during the look, as it does after wide vectors, or something came between.
    """

    cycle_s: float
    issued: float | None


_CYCLE_REPEATS, _NOPS_REPEATS = 20, 100
_STEADY = 0.02  # two chains around a look differ by less, unless the clock moved
PATTERNS = (
    "walking-one",
    "walking-zero",
    "checkerboard",
    "place",
    "random",
    "random-inverted",
)  # enum amdcheck_pattern


class Library:
    """The loaded library."""

    def __init__(self, path: str) -> None:
        self._library = library = ctypes.CDLL(path)
        _declare(library)

    def find(self, name: str) -> Kernel | None:
        """The kernel of that name, None when the library was built without it."""
        handle = self._library.amdcheck_find(name.encode())
        return None if handle is None else Kernel(self._library, name, handle)

    def find_gemm(self, name: str) -> Gemm | None:
        """The matrix product of that name, None when the library was built without it."""
        handle = self._library.amdcheck_find_gemm(name.encode())
        return None if handle is None else Gemm(self._library, name, handle)

    def time_imul(self, repeats: int) -> float | None:
        """Seconds for `repeats` times 100 dependent imul of three cycles each; None: no such loop."""
        return _known(self._library.amdcheck_time_imul(repeats))

    def time_add(self, repeats: int) -> float | None:
        """Seconds for `repeats` times 300 dependent additions of registers, one cycle each; None: no such loop."""
        return _known(self._library.amdcheck_time_add(repeats))

    def pace(self) -> Pace | None:
        """This CPU's clock and front end now, by some microseconds of each; None: no such loops."""
        before = self.time_imul(_CYCLE_REPEATS)
        nops = _known(self._library.amdcheck_time_nops(_NOPS_REPEATS))
        after = self.time_imul(_CYCLE_REPEATS)
        if not before or not nops or not after:  # none of these loops, or a clock that stands still for as long
            return None
        cycle_s = min(before, after) / (300 * _CYCLE_REPEATS)
        is_steady = max(before, after) < (1 + _STEADY) * min(before, after)
        return Pace(cycle_s, 100 * _NOPS_REPEATS * cycle_s / nops if is_steady else None)

    def triad_operands(self, b: int, c: int, count: int) -> None:
        """Fill two arrays of `count` doubles with integers."""
        self._library.amdcheck_triad_operands(b, c, count)

    def time_triad(self, *, non_temporal: bool, a: int, b: int, c: int, count: int, wrong: int = -1) -> float | None:
        """Seconds for a[i] = b[i] + 3 c[i] over `count` doubles (a multiple of eight, 64-byte aligned); None: no such
        loop. The lowest bit of element `wrong` is flipped.
        """
        return _known(self._library.amdcheck_time_triad(non_temporal, a, b, c, count, wrong))

    def triad_differences(self, a: int, count: int) -> tuple[int, int | None]:
        """How many elements are not right, and the first of them."""
        where = ctypes.c_uint64()
        found: int = self._library.amdcheck_triad_differences(a, count, ctypes.byref(where))
        return found, where.value if found else None

    def chase_link(self, base: int, lines: int) -> None:
        """Link `lines` lines of 64 bytes (a power of two, at least four) into one cycle that looks random."""
        self._library.amdcheck_chase_link(base, lines)

    def chase_differences(self, base: int, lines: int) -> int:
        """How many of the lines are not linked as `chase_link` links them."""
        found: int = self._library.amdcheck_chase_differences(base, lines)
        return found

    def time_chase(self, position: int, hops: int) -> tuple[float, int]:
        """Seconds for `hops` hops (a multiple of eight) along the links, and where they end."""
        at = ctypes.c_void_p(position)
        seconds: float = self._library.amdcheck_time_chase(ctypes.byref(at), hops)
        return seconds, at.value or 0

    def time_sharing(
        self, *, cpus: tuple[int, int], first: int, second: int, increments: int, missed: int = 0
    ) -> float | None:
        """Seconds in which two pinned threads count up the words at two addresses; None: not started or not pinned."""
        pair = (ctypes.c_int32 * 2)(*cpus)
        return _known(self._library.amdcheck_time_sharing(pair, first, second, increments, missed))

    def pattern_fill(self, address: int, words: int, *, pattern: str, seed: int, wrong: int = -1) -> None:
        """Fill `words` 64-bit words with a pattern of PATTERNS; the lowest bit of word `wrong` is flipped."""
        self._library.amdcheck_pattern_fill(address, words, PATTERNS.index(pattern), seed, wrong)

    def pattern_differences(
        self, address: int, words: int, *, pattern: str, seed: int, capacity: int = 8
    ) -> tuple[int, Sequence[Difference]]:
        """How many words do not hold the pattern, and the first of them."""
        first = (Difference * capacity)()
        found: int = self._library.amdcheck_pattern_differences(
            address, words, PATTERNS.index(pattern), seed, first, capacity
        )
        return found, first[: min(found, capacity)]

    def bind_memory(self, node: int) -> bool:
        """Take this thread's new pages from that NUMA node alone from now on. False: refused."""
        return bool(self._library.amdcheck_bind_memory(node) == 0)

    def node_of(self, address: int) -> int | None:
        """The NUMA node of a page that was touched, None when the kernel does not say."""
        node: int = self._library.amdcheck_node_of(address)
        return None if node < 0 else node

    def time_loads(self, *, width: int, address: int, size: int, passes: int) -> float | None:
        """Seconds for reading `size` bytes at `address` `passes` times by loads of `width` bytes; None: no such loads.

        The memory must belong to the caller, and `size` be a multiple of 8 * width.
        """
        return _known(self._library.amdcheck_time_loads(width, address, size, passes))

    def current_cpu(self) -> int:
        """The CPU that this thread runs on now, -1 when the kernel does not say."""
        cpu: int = self._library.amdcheck_current_cpu()
        return cpu

    def cpuid(self, leaf: int, subleaf: int) -> list[int]:
        """EAX, EBX, ECX and EDX; zeros on other machines than x86-64."""
        registers = (ctypes.c_uint32 * 4)()
        self._library.amdcheck_cpuid(leaf, subleaf, registers)
        return list(registers)

    def xgetbv(self) -> int:
        """XCR0's lower half; only where CPUID says that the operating system has enabled it."""
        xcr0: int = self._library.amdcheck_xgetbv()
        return xcr0


def _known(seconds: float) -> float | None:
    """A time, or None for the -1 of a loop that the library was built without."""
    return None if seconds < 0 else seconds


def _declare(library: ctypes.CDLL) -> None:
    """Tell ctypes the types of amdcheck_kernels.h. Raises AttributeError for a library of another version."""
    pointer, size, count = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32
    number, place, seconds = ctypes.c_int32, ctypes.c_int64, ctypes.c_double
    for name, result, arguments in (
        ("find", pointer, (ctypes.c_char_p,)),
        ("registers", count, (pointer,)),
        ("lanes", count, (pointer,)),
        ("steps", count, (pointer,)),
        ("operands", None, (pointer, size, count, _WORDS, _WORDS, _WORDS)),
        ("run", None, (pointer, _WORDS, _WORDS, count, number, _WORDS)),
        ("differences", count, (_WORDS, _WORDS, count, _WORDS, count)),
        ("find_gemm", pointer, (ctypes.c_char_p,)),
        ("gemm_size", count, (pointer,)),
        ("gemm_operands", number, (pointer, size, size, size, size, pointer, pointer, pointer)),
        ("gemm_workspace", size, (pointer, size, size, size)),
        ("gemm_run", seconds, (pointer, size, size, size, pointer, pointer, pointer, pointer, place)),
        ("ports_operations", size, (pointer,)),
        ("time_ports", seconds, (pointer, size)),
        ("time_imul", seconds, (size,)),
        ("time_add", seconds, (size,)),
        ("time_nops", seconds, (size,)),
        ("time_loads", seconds, (count, pointer, count, count)),
        ("time_triad", seconds, (number, pointer, pointer, pointer, size, place)),
        ("triad_operands", None, (pointer, pointer, size)),
        ("triad_differences", size, (pointer, size, ctypes.POINTER(size))),
        ("chase_link", None, (pointer, size)),
        ("chase_differences", size, (pointer, size)),
        ("time_chase", seconds, (ctypes.POINTER(pointer), size)),
        ("time_sharing", seconds, (ctypes.POINTER(number), pointer, pointer, size, size)),
        ("pattern_fill", None, (pointer, size, number, size, place)),
        ("pattern_differences", size, (pointer, size, number, size, ctypes.POINTER(Difference), size)),
        ("bind_memory", number, (number,)),
        ("node_of", number, (pointer,)),
        ("current_cpu", number, ()),
        ("cpuid", None, (count, count, _WORDS)),
        ("xgetbv", count, ()),
    ):
        function = getattr(library, f"amdcheck_{name}")
        function.restype, function.argtypes = result, arguments


def load() -> Library:
    """Load the native kernels.

    Raises LibraryMissing where the package was installed without a compiler, or the library does not load here.
    """
    # Not importlib.resources: it takes as long to start as a kernel runs.
    path = next((path for folder in selftest.__path__ if os.path.isfile(path := os.path.join(folder, NAME))), None)
    if path is None:
        raise LibraryMissing(
            f"amdcheck was installed without its native kernels for {os.uname().machine}: "
            "no C compiler was there; install one and reinstall amdcheck"
        )
    try:
        return Library(path)
    except (OSError, AttributeError) as error:
        raise LibraryMissing(f"the native kernels do not load: {error}") from error
