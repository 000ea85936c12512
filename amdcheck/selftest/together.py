"""Processes that begin at one moment: without a barrier in the time that counts, so that none waits for a late one."""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from amdcheck.selftest import stat
from amdcheck.selftest.isolate import Ended, Record, all_ended, started
from amdcheck.selftest.reading import RAISE_S, has_governor, stolen_by_cpu

_BEGIN = struct.Struct("d")  # on CLOCK_MONOTONIC, 0: not yet
LOOK_S = 0.0005  # how often a process looks whether it is told
LEAD_S = 0.003  # from telling the moment to the moment, some looks


class Start(NamedTuple):
    """What a process shares with the one that started it: whether it is ready, and when all begin."""

    shared: mmap.mmap
    place: int
    ready_until: float

    @property
    def is_ready(self) -> bool:
        return self.shared[_BEGIN.size + self.place] != 0

    def wait(self) -> float:
        """Say that this process is ready, wait until all begin, and return that moment (time.monotonic).

        Where a governor sets the clock, the last of it is spent at work: a core that sleeps before begins at a low one.
        """
        self.shared[_BEGIN.size + self.place] = 1
        while (begin := _BEGIN.unpack_from(self.shared)[0]) == 0:
            if time.monotonic() > self.ready_until + 1:
                raise TimeoutError("the other processes did not become ready")
            time.sleep(LOOK_S)
        while (left := begin - time.monotonic()) > 0:
            if not has_governor():
                time.sleep(left)
        return float(begin)


def together(
    steps: Mapping[int, Callable[[Start], Record]], *, ready_s: float, lasts_s: float, deadline_s: float
) -> tuple[dict[int, Ended], dict[int, float | None]]:
    """Run steps by CPU; each pins itself, waits for its start, and has work for `lasts_s` seconds from then.

    They begin when all are ready, or after `ready_s`. Returns how each ended, at most `deadline_s` from now, and the
    seconds that the hypervisor took from each CPU meanwhile, None where /proc/stat does not say.
    """
    shared = mmap.mmap(-1, _BEGIN.size + len(steps))
    began = time.monotonic()
    ready_until = began + ready_s
    starts = {cpu: Start(shared, place, ready_until) for place, cpu in enumerate(steps)}
    running, refused = started({cpu: partial(step, starts[cpu]) for cpu, step in steps.items()})
    while time.monotonic() < ready_until and any(not starts[cpu].is_ready and one.runs for cpu, one in running.items()):
        time.sleep(LOOK_S)
    before = stolen_by_cpu(stat.lines())
    begin = time.monotonic() + LEAD_S + (RAISE_S if has_governor() else 0)
    _BEGIN.pack_into(shared, 0, begin)
    time.sleep(max(0.0, begin + lasts_s - time.monotonic()))
    after = stolen_by_cpu(stat.lines())
    ended = refused | all_ended(running, began=began, deadline_s=deadline_s)
    stolen = {cpu: max(0.0, after[cpu] - before[cpu]) if cpu in before and cpu in after else None for cpu in steps}
    return {cpu: ended[cpu] for cpu in steps}, stolen
