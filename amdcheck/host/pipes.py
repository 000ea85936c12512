"""Waiting for what other processes write into pipes."""

from __future__ import annotations

import select
from collections.abc import Iterable


def readable(pipes: Iterable[int], seconds: float) -> set[int]:
    """Those of these descriptors from which something can be read, or their end, within so many seconds.

    By poll(): select() takes no descriptor beyond 1023, and a caller may leave us with as many.
    """
    poll = select.poll()
    for pipe in pipes:
        poll.register(pipe, select.POLLIN)
    return {pipe for pipe, _ in poll.poll(1000 * max(0.0, seconds))}
