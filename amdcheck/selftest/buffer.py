"""Memory for a self-test: aligned, its pages huge or small as asked, and given back when it is dropped."""

from __future__ import annotations

import ctypes
import mmap
from contextlib import suppress
from typing import Literal

HUGE = 2 << 20  # the size of a huge page on x86-64, and of a PMD on aarch64 with pages of 4 KiB
Pages = Literal["huge", "small"]


class Buffer:
    """`size` bytes that begin on a huge page's boundary, untouched: whoever writes first decides the NUMA node.

    With pages "huge" the kernel is asked for transparent huge pages and may still give small ones; with "small" it is
    asked not to. Raises MemoryError.
    """

    def __init__(self, size: int, *, pages: Pages = "huge") -> None:
        self.size = size
        try:
            self._map = mmap.mmap(-1, size + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        except OSError as error:
            raise MemoryError from error
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self.address = start + -start % HUGE
        advice = getattr(mmap, "MADV_HUGEPAGE" if pages == "huge" else "MADV_NOHUGEPAGE", None)
        if advice is not None:
            with suppress(OSError):  # a kernel without transparent huge pages gives small ones
                self._map.madvise(advice)
