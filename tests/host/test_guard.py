"""GuardedHost: everything that may block is announced, and what blocked is not touched again."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from amdcheck.host.guard import FILE_SECONDS, GRACE_SECONDS, GuardedHost
from amdcheck.host.protocol import Command, Host, SelfTest
from amdcheck.model.value import Known, Unknown
from tests.memory_host import memory_host

GPU = "/sys/devices/pci0000:00/0000:03:00.0"


class Announcements:
    """Keeps what was announced."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, float]] = []
        self.open = 0

    def begin(self, what: str, seconds: float) -> None:
        self.begun.append((what, seconds))
        self.open += 1

    def end(self) -> None:
        self.open -= 1


class Untouchable:
    """Fails whatever is asked."""

    source = "live"

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"{name} was asked")


def guarded(
    inner: Host | None = None, *, paths: tuple[str, ...] = (), folders: tuple[str, ...] = ()
) -> tuple[GuardedHost, Announcements]:
    said = Announcements()
    inner = inner or memory_host({f"{GPU}/vendor": "0x1002\n"})
    return GuardedHost(inner, said, frozenset(paths), frozenset(folders)), said


QUESTIONS: dict[str, Callable[[Host, str], object]] = {
    "read": lambda host, path: host.read(path),
    "read_bytes": lambda host, path: host.read_bytes(path, limit=10),
    "entries": lambda host, path: host.entries(path),
    "link": lambda host, path: host.link(path),
    "resolve": lambda host, path: host.resolve(path),
    "stat": lambda host, path: host.stat(path),
    "probe_open": lambda host, path: host.probe_open(path),
}


@pytest.mark.parametrize("name", QUESTIONS)
def test_a_question_about_a_path_is_announced_and_passed_on(name: str) -> None:
    inner = memory_host({f"{GPU}/vendor": "0x1002\n"})
    host, said = guarded(inner)
    path = f"{GPU}/vendor"
    assert QUESTIONS[name](host, path) == QUESTIONS[name](inner, path)
    assert said.begun == [(path, FILE_SECONDS)]
    assert said.open == 0
    assert host.source == "capture"


@pytest.mark.parametrize("name", QUESTIONS)
def test_what_blocked_is_not_touched_again(name: str) -> None:
    untouchable: Host = Untouchable()  # type: ignore[assignment]
    host, said = guarded(untouchable, paths=(f"{GPU}/power1_average",), folders=(f"{GPU}/hwmon",))
    for path in (f"{GPU}/power1_average", f"{GPU}/hwmon/hwmon3/temp1_input"):
        answer = QUESTIONS[name](host, path)
        assert answer == Unknown("timeout", path, "blocked earlier in this run")
    assert said.begun == []


def test_neighbours_of_what_blocked_are_read() -> None:
    files = {f"{GPU}/vendor": "a", f"{GPU}/hwmon2/name": "b", f"{GPU}/hwmon/name": "c"}
    host, _ = guarded(memory_host(files), paths=(f"{GPU}/gpu_busy_percent",), folders=(f"{GPU}/hwmon",))
    assert host.read(f"{GPU}/vendor").or_none() == "a"
    assert host.read(f"{GPU}/hwmon2/name").or_none() == "b"
    assert host.read(f"{GPU}/hwmon/name").or_none() is None
    assert host.entries(GPU).or_none() == ("hwmon", "hwmon2", "vendor")


def test_commands_are_announced_with_the_longest_deadline() -> None:
    host, said = guarded()
    host.run([Command(argv=("rocm-smi", "a b"), timeout_s=3), Command(argv=("amd-smi",), timeout_s=7)])
    assert said.begun == [("command rocm-smi 'a b'; amd-smi", 7 + GRACE_SECONDS)]


def test_commands_that_blocked_are_not_run_again() -> None:
    untouchable: Host = Untouchable()  # type: ignore[assignment]
    commands = [Command(argv=("rocm-smi",)), Command(argv=("amd-smi",))]
    host, said = guarded(untouchable, paths=("command rocm-smi; amd-smi",))
    assert [isinstance(a, Unknown) and a.reason for a in host.run(commands)] == ["timeout", "timeout"]
    assert said.begun == []


def test_selftests_and_questions_about_the_machine() -> None:
    host, said = guarded()
    host.selftest(SelfTest(name="cpu_isa", params=("avx2",), timeout_s=5))
    host.identity()
    host.system()
    host.udev(["/dev/kfd"])
    assert [what for what, _ in said.begun] == [
        "selftest cpu_isa avx2",
        "process credentials",
        "psutil",
        "udev database",
    ]
    assert said.begun[0][1] == 5 + GRACE_SECONDS
    untouchable: Host = Untouchable()  # type: ignore[assignment]
    again, _ = guarded(untouchable, paths=tuple(what for what, _ in said.begun))
    for answer in (
        again.selftest(SelfTest(name="cpu_isa", params=("avx2",))),
        again.identity(),
        again.system(),
        again.udev(["/dev/kfd"]),
    ):
        assert isinstance(answer, Unknown)
        assert answer.reason == "timeout"


def test_an_announcement_ends_when_the_host_breaks() -> None:
    untouchable: Host = Untouchable()  # type: ignore[assignment]
    host, said = guarded(untouchable)
    for ask in QUESTIONS.values():
        with pytest.raises(AssertionError):
            ask(host, "/x")
    with pytest.raises(AssertionError):
        host.run([Command(argv=("x",))])
    assert said.open == 0


def test_the_guard_costs_little() -> None:
    """About a microsecond; the bound leaves room for a busy machine."""

    class Silent:
        def begin(self, what: str, seconds: float) -> None: ...
        def end(self) -> None: ...

    class Constant:
        source = "live"
        answer = Known("1", "/x")

        def read(self, path: str, *, limit: int = 0) -> Known[str]:
            return self.answer

    inner: Host = Constant()  # type: ignore[assignment]
    host = GuardedHost(inner, Silent(), frozenset({"/y"}), frozenset({"/z"}))
    best = 1.0
    for _ in range(20):
        began = time.perf_counter()
        for _ in range(1000):
            host.read("/sys/devices/system/cpu/cpu0/online")
        best = min(best, (time.perf_counter() - began) / 1000)
    assert best < 5e-6
