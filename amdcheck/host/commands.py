"""Running commands side by side, each with a deadline, and leaving nothing of them behind.

A command is forked here rather than through subprocess: that waits for exec, which blocks when the program lies on a
dead mount, and it waits for a killed child, which never dies when it sleeps in the kernel.
"""

from __future__ import annotations

import errno
import os
import re
import resource
import select
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NoReturn

from amdcheck.host.capture import command_key, selftest_key
from amdcheck.host.paths import bad_argv, utf8_text
from amdcheck.host.processes import Stuck, become_subreaper, children, die_with_parent, kill_tree
from amdcheck.host.protocol import Command, CommandResult, SelfTest, SelfTestResult
from amdcheck.model.value import Known, Unknown, Value

OUTPUT_LIMIT = 1 << 20  # bytes of stdout, and as many of stderr; the rest is read and dropped
DEATH_SECONDS = 1.0  # the longest wait for what was killed
_LEAST_SECONDS = 0.05  # what even a loaded machine takes to end a process that can be ended
_CHUNK = 1 << 16
_POLL_SECONDS = 0.01  # between looks at a child that closed its output, where the kernel has no pidfd
_NO_INTERPRETER = "the interpreter or loader that it names does not exist"
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def run_commands(commands: Sequence[Command]) -> tuple[Value[CommandResult], ...]:
    """Run commands side by side; the answers come in the order asked.

    A command that was started is Known, however it ended. It is `absent` when there is no such program, `denied` when
    it may not be executed, `failed` when the kernel will not. All that they started is ended with them.
    """
    if not commands:
        return ()
    become_subreaper()
    before = children()
    started = [_Child(command) for command in commands]
    running = [child for child in started if child.start()]
    poll = select.poll()
    for child in running:
        child.register(poll)
    patience = _Patience(DEATH_SECONDS)
    while running:
        now = time.monotonic()
        wait = max(0.0, min(child.next_look(now) for child in running))
        ready = {fd for fd, _ in poll.poll(wait * 1000 + 1)}
        running = [child for child in running if not child.step(ready, poll, patience)]
    _end_what_is_left(before, started, patience)
    return tuple(child.answer() for child in started)


@dataclass
class _Patience:
    """The seconds left for waiting, all in all, until what was killed is dead."""

    left_s: float

    def kill(self, pid: int) -> tuple[Stuck, ...]:
        """Kill a process and all below it; gives what does not die."""
        began = time.monotonic()
        stuck = kill_tree(pid, wait_s=max(self.left_s, _LEAST_SECONDS))
        self.left_s -= time.monotonic() - began
        return stuck


@dataclass
class _Stream:
    """One output pipe: what came so far, up to the limit."""

    fd: int
    data: bytearray = field(default_factory=bytearray)
    truncated: bool = False

    def take(self) -> bool:
        """Read what is there once; False at the end of the output."""
        try:
            chunk = os.read(self.fd, _CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        room = OUTPUT_LIMIT - len(self.data)
        self.truncated |= len(chunk) > room
        self.data += chunk[:room]
        return bool(chunk)


class _Child:
    """A command from fork to its end."""

    def __init__(self, command: Command) -> None:
        self._command = command
        self._key = command_key(command.argv)
        self._refused = bad_argv(command.argv, self._key)
        self._pid = 0
        self._pidfd = -1
        self._streams: dict[int, _Stream] = {}  # open ones, by descriptor
        self._stdout = self._stderr = self._error = _Stream(-1)
        self._began = self._ends = 0.0
        self._duration = 0.0
        self._rc: int | None = None
        self._timed_out = False
        self.stuck: list[Stuck] = []

    @property
    def pid(self) -> int:
        return self._pid

    def start(self) -> bool:
        """Fork; False when the command cannot be one."""
        if self._refused is not None:
            return False
        pipes: list[tuple[int, int]] = []
        self._began = time.monotonic()
        self._ends = self._began + self._command.timeout_s
        try:
            for _ in range(3):
                pipes.append(os.pipe())
            self._pid = os.fork()
        except OSError as error:  # no descriptors, no memory or no process left to have
            for fd in (end for pipe in pipes for end in pipe):
                os.close(fd)
            self._refused = Unknown("failed", self._key, errno.errorcode.get(error.errno or 0, str(error)))
            return False
        if self._pid == 0:
            _become(self._command.argv, *(theirs for _, theirs in pipes))
        for _, theirs in pipes:
            os.close(theirs)
        self._stdout, self._stderr, self._error = (_Stream(ours) for ours, _ in pipes)
        for stream in (self._stdout, self._stderr, self._error):
            os.set_blocking(stream.fd, False)
            self._streams[stream.fd] = stream
        return True

    def register(self, poll: select.poll) -> None:
        for fd in self._streams:
            poll.register(fd, select.POLLIN)
        try:
            self._pidfd = os.pidfd_open(self._pid)
        except OSError:  # before Linux 5.3, or forbidden
            return
        poll.register(self._pidfd, select.POLLIN)

    def next_look(self, now: float) -> float:
        """Seconds until something must be looked at even if no descriptor becomes ready."""
        left = self._ends - now
        return left if self._pidfd >= 0 else min(left, _POLL_SECONDS)

    def step(self, ready: set[int], poll: select.poll, patience: _Patience) -> bool:
        """Take what came; True when the command is over."""
        for fd in ready & self._streams.keys():
            if not self._streams[fd].take():
                poll.unregister(fd)
                os.close(self._streams.pop(fd).fd)
        ended = os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOHANG)
        if ended is not None:
            self._rc = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
            self._drain()
        elif time.monotonic() >= self._ends:
            self._timed_out = True
            self._drain()
            self.stuck += patience.kill(self._pid)
        else:
            return False
        self._duration = time.monotonic() - self._began
        self._close(poll)
        return True

    def _drain(self) -> None:
        """Take what the dead child left in its pipes; others may hold them open and go on writing."""
        for stream in self._streams.values():
            for _ in range(OUTPUT_LIMIT // _CHUNK + 1):
                before = len(stream.data)
                if not stream.take() or len(stream.data) == before:
                    break

    def _close(self, poll: select.poll) -> None:
        for fd in self._streams:
            poll.unregister(fd)
            os.close(fd)
        self._streams.clear()
        if self._pidfd >= 0:
            poll.unregister(self._pidfd)
            os.close(self._pidfd)

    def answer(self) -> Value[CommandResult]:
        if self._refused is not None:
            return self._refused
        if self._error.data:
            return _not_started(bytes(self._error.data), self._key)
        return Known(
            CommandResult(
                argv=self._command.argv,
                rc=self._rc,
                stdout=utf8_text(bytes(self._stdout.data)),
                stderr=utf8_text(bytes(self._stderr.data)),
                duration_s=self._duration,
                timed_out=self._timed_out,
                truncated=self._stdout.truncated or self._stderr.truncated,
                stuck=tuple(f"pid {process.pid} ({process.wchan})" for process in self.stuck),
            ),
            self._key,
        )


def _end_what_is_left(before: set[int], started: Sequence[_Child], patience: _Patience) -> None:
    """Kill what outlived its command: as a subreaper we were given it, whatever session it fled into."""
    seen = set(before)
    for _ in range(10):  # the children of a killed one come to us in turn
        named = {process.pid for child in started for process in child.stuck}
        left = children() - seen - named
        if not left:
            return
        for pid in left:
            owner = _owner(pid, started)
            owner.stuck += patience.kill(pid)
        seen |= left


def _owner(pid: int, started: Sequence[_Child]) -> _Child:
    """The command in whose session a process is; the first, when it left that."""
    try:
        session = os.getsid(pid)
    except OSError:
        session = 0
    return next((child for child in started if child.pid == session), started[0])


# In the child


def _become(argv: Sequence[str], stdout: int, stderr: int, error: int) -> NoReturn:
    """Turn this forked process into the command; what prevents that goes down the error pipe, which exec closes."""
    try:
        os.setsid()
        die_with_parent()
        null = os.open(os.devnull, os.O_RDONLY)
        for fd, standard in ((null, 0), (stdout, 1), (stderr, 2)):
            os.dup2(fd, standard)
        os.closerange(3, error)
        os.closerange(error + 1, 1 << 16)
        for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, and exec would pass that on
            signal.signal(ignored, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        _leave_no_core()
        os.chdir("/")
        os.write(error, _exec(argv).encode())
    except BaseException as problem:
        os.write(error, f"it could not be started: {type(problem).__name__}: {problem}".encode()[:512])
    finally:
        os._exit(127)


def _leave_no_core() -> None:
    """A limit of one byte: a crash leaves no core file, and a crash handler behind core_pattern is not started."""
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    limit = 0 if hard == 0 else 1
    resource.setrlimit(resource.RLIMIT_CORE, (limit, limit))


def _exec(argv: Sequence[str]) -> str:
    """Try the folders of PATH in turn, relative ones excepted, as execvp does; returns what prevented it."""
    environment = {**os.environ, "LC_ALL": "C"}
    folders = [folder for folder in environment.get("PATH", _DEFAULT_PATH).split(":") if folder.startswith("/")]
    environment["PATH"] = ":".join(folders)
    words = [word.encode() for word in argv]
    programs = [argv[0]] if "/" in argv[0] else [f"{folder}/{argv[0]}" for folder in folders]
    prevented = "ENOENT"
    for program in programs:
        try:
            os.execve(program.encode("utf-8", "surrogateescape"), words, environment)
        except FileNotFoundError:
            if os.path.exists(program):
                return _NO_INTERPRETER
        except NotADirectoryError:
            pass
        except PermissionError as error:
            prevented = errno.errorcode.get(error.errno or 0, "EACCES")
        except OSError as error:
            return errno.errorcode.get(error.errno or 0, str(error.errno))
    return prevented


def _not_started(name: bytes, key: str) -> Unknown:
    """What kept the kernel from starting the program, from the errno that the child sent."""
    text = utf8_text(name)
    if text == "ENOENT":
        return Unknown("absent", key, "no such program")
    if text in ("EACCES", "EPERM"):
        return Unknown("denied", key, f"{text}: it may not be executed")
    return Unknown("failed", key, text)


# Self-tests

# By our own path, in our own order; what the user's packages add to the interpreter itself comes with their folder.
_BY_OUR_PATH = (
    "import os, site, sys; sys.path[:] = sys.argv.pop(1).split(os.pathsep); users = site.getusersitepackages(); "
    "users in sys.path and site.addsitedir(users); "
    "from amdcheck.selftest.__main__ import main; sys.exit(main(sys.argv[1:]))"
)
_SELFTEST_NAME = re.compile(r"[a-z0-9]+([._-][a-z0-9]+)*")


def run_selftest(test: SelfTest) -> Value[SelfTestResult]:
    """Run a self-test in a child of our own interpreter, or its stand-alone program in the interpreter it judges."""
    key = selftest_key(test.name, test.params, test.python)
    if not _SELFTEST_NAME.fullmatch(test.name):
        return Unknown("failed", key, "not the name of a self-test")
    if test.python is None:
        argv = [sys.executable, "-I", *_own_child(), test.name, *test.params]
    else:
        program = _foreign_program(test.name)
        if program is None:
            return Unknown("absent", key, "this installation has no such self-test")
        argv = [test.python, "-I", program, *test.params]
    (answer,) = run_commands([Command(argv=tuple(argv), timeout_s=test.timeout_s)])
    if isinstance(answer, Unknown):
        return Unknown(answer.reason, key, answer.detail)
    return Known(SelfTestResult(name=test.name, params=test.params, python=test.python, result=answer.value), key)


def _own_child() -> tuple[str, ...]:
    """How an isolated interpreter is told to run our self-tests.

    It leaves out the user's packages and PYTHONPATH, from which we may have come ourselves: then it is told our path.
    """
    import site

    ours = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    named = map(os.path.abspath, filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)))
    left_out = {ours, *named, *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])}
    if left_out.difference(site.getsitepackages()).isdisjoint(sys.path):
        return ("-m", "amdcheck.selftest")
    return ("-c", _BY_OUR_PATH, os.pathsep.join(filter(os.path.isabs, sys.path)))


def _foreign_program(name: str) -> str | None:
    """The file of a self-test that another interpreter can run: it imports nothing of ours."""
    from importlib.resources import files

    program = files("amdcheck.selftest").joinpath("foreign").joinpath(f"{name}.py")
    return str(program) if program.is_file() else None
