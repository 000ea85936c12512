"""Processes that begin at one moment: without a barrier in the time that counts, so that none waits for a late one."""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from amdcheck.selftest import stat
from amdcheck.selftest.isolate import Ended, Isolated, Record, all_ended
from amdcheck.selftest.reading import stolen_by_cpu

_BEGIN = struct.Struct("d")  # on CLOCK_MONOTONIC, 0: not yet
LOOK_S = 0.0005  # how often a process looks whether it is told
LEAD_S = 0.003  # from telling the moment to the moment, some looks


class Start(NamedTuple):
    """What a process shares with the one that started it: whether it is ready, and when all begin."""

    shared: mmap.mmap
    place: int
    ready_until: float

    def wait(self) -> float:
        """Say that this process is ready, sleep until all begin, and return that moment (time.monotonic)."""
        self.shared[_BEGIN.size + self.place] = 1
        while (begin := _BEGIN.unpack_from(self.shared)[0]) == 0:
            if time.monotonic() > self.ready_until + 1:
                raise TimeoutError("the other processes did not become ready")
            time.sleep(LOOK_S)
        time.sleep(max(0.0, begin - time.monotonic()))
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
    running, refused = dict[int, Isolated](), dict[int, Ended]()
    for place, (cpu, step) in enumerate(steps.items()):
        try:
            running[cpu] = Isolated(partial(step, Start(shared, place, ready_until)))
        except OSError as error:  # no more processes are allowed
            refused[cpu] = Ended(ended="failed", detail=f"{type(error).__name__}: {error}", result=None)
            shared[_BEGIN.size + place] = 1
    places = dict(zip(steps, range(len(steps)), strict=True))
    while time.monotonic() < ready_until and any(
        not shared[_BEGIN.size + places[cpu]] and one.runs for cpu, one in running.items()
    ):
        time.sleep(LOOK_S)
    before = stolen_by_cpu(stat.lines())
    begin = time.monotonic() + LEAD_S
    _BEGIN.pack_into(shared, 0, begin)
    time.sleep(max(0.0, begin + lasts_s - time.monotonic()))
    after = stolen_by_cpu(stat.lines())
    ended = refused | all_ended(running, began=began, deadline_s=deadline_s)
    stolen = {cpu: max(0.0, after[cpu] - before[cpu]) if cpu in before and cpu in after else None for cpu in steps}
    return {cpu: ended[cpu] for cpu in steps}, stolen
