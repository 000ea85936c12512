"""Ending processes for good: a process, all it started, and what escaped from it."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import NamedTuple

_PR_SET_PDEATHSIG = 1
_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_MANY_DESCRIPTORS = 1 << 16


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


def adopt_orphans() -> None:
    """Become a subreaper, unless the caller left us children, as a shell does that runs us by `exec` with jobs in the
    background: what those leave behind would come to us, and be ended as if it had escaped from what we started.
    """
    if not children():
        become_subreaper()


def die_with_parent() -> None:
    """Be killed when the parent dies."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def let_go_of_the_caller(keep: int) -> None:
    """In a forked child that may block for ever: hold nothing of the caller's but the descriptor `keep`.

    Standard streams go to /dev/null, signals are answered as usual, and it dies with its parent.
    """
    os.setsid()
    die_with_parent()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE, signal.SIGALRM):
        signal.signal(number, signal.SIG_DFL)
    for fd in _open_descriptors():
        if fd > 2 and fd != keep:
            with suppress(OSError):
                os.close(fd)
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    if null > 2:
        os.close(null)


def _open_descriptors() -> Iterable[int]:
    """Those that are open; where /proc is not mounted, every number there can be."""
    try:
        return map(int, os.listdir("/proc/self/fd"))
    except OSError:
        return range(min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], _MANY_DESCRIPTORS))


def leave_no_core() -> None:
    """No core file and no entry in a crash collector when this process dies."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _prctl(_PR_SET_DUMPABLE, 0)


def signal_name(number: int) -> str:
    """SIGSEGV for 11; a number where it has no name here."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class _Entry(NamedTuple):
    parent: int
    session: int
    state: str


def _entry(pid: int) -> _Entry | None:
    """Parent, session and state of a process from /proc/PID/stat; None when there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            text = file.read(4096)
    except OSError:
        return None
    # The command name is in parentheses and may hold any byte, so count from the last one.
    fields = text[text.rindex(b")") + 2 :].split()
    return _Entry(int(fields[1]), int(fields[3]), fields[0].decode())


def children_of(pid: int) -> set[int]:
    """The direct children of a process, dead ones too; orphans that a subreaper was given among them.

    Asks the process for its children, for a large machine has thousands of others to look through.
    """
    try:
        lists = []
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                lists.append(file.read())
        return {int(child) for child in b" ".join(lists).split()}
    except OSError:
        if _entry(pid) is None or os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
            return set()
    # a kernel without CONFIG_PROC_CHILDREN
    everyone = ((int(name), _entry(int(name))) for name in os.listdir("/proc") if name.isdigit())
    return {child for child, entry in everyone if entry is not None and entry.parent == pid}


def children() -> set[int]:
    """Our own direct children."""
    return children_of(os.getpid())


def descendants(roots: Iterable[int]) -> set[int]:
    """The processes among `roots` that are there, and every one below them."""
    found = {pid for pid in roots if _entry(pid) is not None}
    look_at = list(found)
    while look_at:
        fresh = children_of(look_at.pop()) - found
        found |= fresh
        look_at += fresh
    return found


def escaped_children() -> set[int]:
    """Our children in sessions of their own: among them are those that forked twice below us and were orphaned."""
    session = os.getsid(0)
    entries = ((pid, _entry(pid)) for pid in children())
    return {pid for pid, entry in entries if entry is not None and entry.session != session}


def kill_tree(root: int, *, wait_s: float = 1.0, escaped_but: Collection[int] | None = None) -> tuple[Stuck, ...]:
    """Kill `root` and all below it, and reap what are our children; wait at most `wait_s` seconds.

    `escaped_but` holds the escaped children that were there before `root`: any other one is of its making, and is
    killed too. Everything is stopped before it is killed, so that it cannot fork its way out. Returns those that did
    not die.
    """
    ours = {root}
    end = time.monotonic() + wait_s
    if _entry(os.getpid()) is None:
        return _kill_unseen(root, end)
    while True:
        alive = descendants(ours)
        if escaped_but is not None:
            alive |= descendants(escaped_children().difference(escaped_but))
        fresh = alive - ours
        ours |= alive
        for pid in fresh:
            _send(pid, signal.SIGSTOP)
        if fresh and time.monotonic() < end:
            continue  # one that was not stopped yet may have forked
        for pid in alive:
            _send(pid, signal.SIGKILL)
            if _reap(pid):
                ours.discard(pid)  # its number may soon be another's
        entries = ((pid, _entry(pid)) for pid in sorted(alive))
        # A zombie is dead; it belongs to a parent that will reap it.
        left = [(pid, entry.state) for pid, entry in entries if entry is not None and entry.state not in "ZX"]
        if not left:
            return ()
        if time.monotonic() >= end:
            return tuple(Stuck(pid, state, wchan(pid)) for pid, state in left)
        time.sleep(0.005)


def _kill_unseen(root: int, end: float) -> tuple[Stuck, ...]:
    """Where /proc is not mounted nobody knows who is below: kill the child and its group; the rest dies with it."""
    while True:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(root, signal.SIGKILL)
        _send(root, signal.SIGKILL)
        if _reap(root):
            return ()
        if time.monotonic() >= end:
            return (Stuck(root, "?", "?"),)
        time.sleep(0.005)


def state_of(pid: int) -> str | None:
    """The state of a process as ps shows it (R runs or could, D and S sleep); None when there is no such process."""
    entry = _entry(pid)
    return None if entry is None else entry.state


def has_ended(child: int) -> bool:
    """Whether a child of ours is dead, asked of the kernel itself: /proc may not be mounted. It stays to be reaped."""
    try:
        return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return True


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


def _reap(pid: int) -> bool:
    """Take a dead child's exit code; False when it is alive or not ours."""
    with suppress(ChildProcessError, InterruptedError):
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    return False
