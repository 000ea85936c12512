"""Ending processes for good: a process, all it started, and what escaped from it."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


class Stuck(NamedTuple):
    """A process that SIGKILL did not end: it sleeps uninterruptibly in the kernel function `wchan`."""

    pid: int
    state: str
    wchan: str


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def become_subreaper() -> None:
    """Orphans of our descendants become our children, so that none escapes by forking twice."""
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def die_with_parent() -> None:
    """Be killed when the parent dies."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class _Entry(NamedTuple):
    parent: int
    session: int
    state: str


def _table() -> dict[int, _Entry]:
    """Parent, session and state of every process, from /proc/PID/stat."""
    table = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                text = file.read(4096)
        except OSError:
            continue
        # The command name is in parentheses and may hold any byte, so count from the last one.
        fields = text[text.rindex(b")") + 2 :].split()
        table[int(name)] = _Entry(int(fields[1]), int(fields[3]), fields[0].decode())
    return table


def descendants(roots: Iterable[int], known: Iterable[int] = ()) -> set[int]:
    """Every process below `roots`, those in a session that one of them leads or led, and what is left of `known`."""
    return _descendants(_table(), {*roots, *known})


def _descendants(table: Mapping[int, _Entry], lineage: set[int]) -> set[int]:
    """`lineage` may name processes that are dead: a session outlives the one that made it."""
    lineage = set(lineage)
    while True:
        more = {p for p, e in table.items() if p not in lineage and (e.parent in lineage or e.session in lineage)}
        if not more:
            return lineage & table.keys()
        lineage |= more


def children() -> set[int]:
    """Our direct children, dead ones too; orphans that a subreaper was given among them."""
    try:
        lists = []
        for thread in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{thread}/children", "rb") as file:
                lists.append(file.read())
        return {int(pid) for pid in b" ".join(lists).split()}
    except OSError:  # a kernel without CONFIG_PROC_CHILDREN
        me = os.getpid()
        return {pid for pid, entry in _table().items() if entry.parent == me}


def escaped_children() -> set[int]:
    """Our children in sessions of their own: among them are those that forked twice below us and were orphaned."""
    return _escaped(_table())


def _escaped(table: Mapping[int, _Entry]) -> set[int]:
    me, session = os.getpid(), os.getsid(0)
    return {pid for pid, entry in table.items() if entry.parent == me and entry.session != session}


def kill_tree(root: int, *, wait_s: float = 1.0, escaped_but: Collection[int] | None = None) -> tuple[Stuck, ...]:
    """Kill `root`, its session and all below it, and reap what are our children; wait at most `wait_s` seconds.

    `escaped_but` holds the escaped children that were there before `root`: any other one is of its making, and is
    killed too. Everything is stopped before it is killed, so that it cannot fork its way out. Returns those that did
    not die.
    """
    ours = {root}
    end = time.monotonic() + wait_s
    while True:
        table = _table()
        alive = _descendants(table, ours)
        if escaped_but is not None:
            alive |= _escaped(table).difference(escaped_but)
        fresh = alive - ours
        ours |= alive
        for pid in fresh:
            _send(pid, signal.SIGSTOP)
        if fresh and time.monotonic() < end:
            continue  # one that was not stopped yet may have forked
        for pid in alive:
            _send(pid, signal.SIGKILL)
            _reap(pid)
        # A zombie is dead; it belongs to a parent that will reap it.
        left = [pid for pid in sorted(alive) if table[pid].state not in "ZX"]
        if not left or time.monotonic() >= end:
            return tuple(Stuck(pid, table[pid].state, wchan(pid)) for pid in left)
        time.sleep(0.005)


def wchan(pid: int) -> str:
    """The kernel function a process sleeps in, `?` where it cannot be read."""
    try:
        with open(f"/proc/{pid}/wchan") as file:
            return file.read(100).strip() or "?"
    except OSError:
        return "?"


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _reap(pid: int) -> None:
    with suppress(ChildProcessError, InterruptedError):
        os.waitpid(pid, os.WNOHANG)
