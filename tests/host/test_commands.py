"""Commands end in time whatever they do, and nothing of them is left."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from amdcheck.host.commands import OUTPUT_LIMIT, run_commands, run_selftest
from amdcheck.host.processes import children
from amdcheck.host.protocol import Command, CommandResult, SelfTest
from amdcheck.model.value import Known, Unknown
from tests.cli.command import ROOT
from tests.standins.hungfs import hungfs


def ran(*argv: str, timeout_s: float = 10.0) -> CommandResult:
    (answer,) = run_commands([Command(argv=argv, timeout_s=timeout_s)])
    assert isinstance(answer, Known), answer
    return answer.value


def refused(*argv: str) -> Unknown:
    (answer,) = run_commands([Command(argv=argv)])
    assert isinstance(answer, Unknown), answer
    return answer


def script(path: Path, text: str) -> str:
    path.write_text(text)
    path.chmod(0o755)
    return str(path)


def sh(text: str, *, timeout_s: float = 10.0) -> CommandResult:
    return ran("sh", "-c", text, timeout_s=timeout_s)


FOREVER = f"4711.{os.getpid()}"  # seconds that no other process on this machine sleeps


def alive(marker: str) -> list[str]:
    """Processes whose command line holds the marker."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = Path(f"/proc/{name}/cmdline").read_bytes()
        except OSError:
            continue
        if marker.encode() in line and int(name) != os.getpid():
            found.append(name)
    return found


def test_output_status_and_source() -> None:
    (answer,) = run_commands([Command(argv=("sh", "-c", "echo out; echo err >&2; exit 3"))])
    assert isinstance(answer, Known)
    assert answer.source == "sh -c 'echo out; echo err >&2; exit 3'"
    result = answer.value
    assert (result.rc, result.stdout, result.stderr) == (3, "out\n", "err\n")
    assert not result.timed_out
    assert not result.truncated
    assert result.stuck == ()


def test_output_that_is_no_text() -> None:
    assert sh(r"printf '\377\001'").stdout == "\\xff\x01"


def test_killed_by_a_signal() -> None:
    assert sh("kill -SEGV $$").rc == -signal.SIGSEGV


def test_what_cannot_be_started_says_why(tmp_path: Path) -> None:
    garbage = script(tmp_path / "garbage", "\x7fELF garbage")
    orphan = script(tmp_path / "orphan", "#!/no/such/interpreter\n")
    plain = tmp_path / "plain"
    plain.write_text("echo hi")
    assert refused("there-is-no-such-program").reason == "absent"
    assert refused(str(tmp_path / "gone")).reason == "absent"
    assert (refused(garbage).reason, refused(garbage).detail) == ("failed", "ENOEXEC")
    assert refused(orphan).reason == "failed"
    assert "interpreter" in str(refused(orphan).detail)
    assert refused(str(plain)).reason == "denied"
    assert refused(str(tmp_path)).reason == "denied"
    assert refused("").reason == refused("a\0b").reason == refused("echo", "\udcff").reason == "failed"
    assert refused().reason == "failed"


def test_path_is_searched_without_relative_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path / "tool", "#!/bin/sh\necho wrong\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f".::{os.environ['PATH']}")
    assert refused("tool").reason == "absent"
    monkeypatch.setenv("PATH", f"{tmp_path}/gone:{tmp_path}:/usr/bin:/bin")
    assert ran("tool").stdout == "wrong\n"


def test_the_child_has_a_clean_surrounding() -> None:
    inherited = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(inherited, True)
    try:
        text = sh(
            "echo $LC_ALL; pwd; readlink /proc/self/fd/0; ls /proc/self/fd | wc -l; ulimit -c; cat; kill -PIPE $$"
        )
    finally:
        os.close(inherited)
    locale, folder, stdin, count, _core = text.stdout.splitlines()
    assert (locale, folder, stdin) == ("C", "/", "/dev/null")
    assert int(count) == 4  # 0 to 2, and the listing itself
    assert text.rc == -signal.SIGPIPE
    assert ran(sys.executable, "-c", "import os; print(os.getsid(0) == os.getpid())").stdout == "True\n"


def test_a_core_is_not_written() -> None:
    text = ran(sys.executable, "-c", "import resource; print(*resource.getrlimit(resource.RLIMIT_CORE))").stdout
    assert all(0 <= int(limit) <= 1 for limit in text.split())
    assert resource.getrlimit(resource.RLIMIT_CORE)[1] != 1, "our own limit must stay"


def test_commands_run_side_by_side_and_answer_in_order() -> None:
    began = time.monotonic()
    answers = run_commands([Command(argv=("sh", "-c", f"sleep {s}; echo {s}")) for s in ("0.6", "0.3", "0.5")])
    assert time.monotonic() - began < 1.2
    assert [answer.value.stdout for answer in answers if isinstance(answer, Known)] == ["0.6\n", "0.3\n", "0.5\n"]


def test_one_that_hangs_does_not_keep_the_others() -> None:
    quick, slow = run_commands(
        [Command(argv=("echo", "hi"), timeout_s=10), Command(argv=("sleep", FOREVER), timeout_s=0.3)]
    )
    assert isinstance(quick, Known)
    assert isinstance(slow, Known)
    assert quick.value.stdout == "hi\n"
    assert slow.value.timed_out
    assert slow.value.rc is None
    assert slow.value.duration_s < 1.0
    assert alive(FOREVER) == []


def test_a_stubborn_command_is_ended() -> None:
    result = sh("trap '' TERM INT HUP; echo started; while :; do sleep 0.1; done", timeout_s=0.5)
    assert result.timed_out
    assert result.stdout == "started\n"


def test_a_flood_costs_neither_memory_nor_time() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = ran("head", "-c", "1000000000", "/dev/zero", timeout_s=20)
    assert result.truncated
    assert len(result.stdout) == OUTPUT_LIMIT
    endless = ran("yes", timeout_s=0.5)
    assert endless.timed_out
    assert endless.truncated
    assert endless.duration_s < 1.5
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10  # KiB


def test_a_child_left_in_the_background_is_ended_and_not_waited_for() -> None:
    result = sh(f"sleep {FOREVER} & echo done")
    assert (result.rc, result.stdout) == (0, "done\n")
    assert result.duration_s < 2
    assert alive(FOREVER) == []


def test_a_daemon_in_a_session_of_its_own_is_ended() -> None:
    fork_twice = (
        "import os, time\n"
        "if os.fork() == 0:\n"
        "    os.setsid()\n"
        "    if os.fork() == 0:\n"
        "        os.setsid()\n"
        f"        time.sleep({FOREVER})\n"
        "    os._exit(0)\n"
        "print('started', flush=True)\n"
        "time.sleep({seconds})\n"
    )
    for seconds, timed_out in ((0.2, False), (60, True)):
        result = ran(sys.executable, "-c", fork_twice.replace("{seconds}", str(seconds)), timeout_s=1.0)
        assert result.stdout == "started\n"
        assert result.timed_out is timed_out
        assert alive(FOREVER) == []


def test_no_process_is_left_and_no_stranger_is_ended() -> None:
    stranger = os.fork()
    if stranger == 0:
        time.sleep(60)
        os._exit(0)
    try:
        sh(f"sleep {FOREVER} & setsid sleep {FOREVER} & exit 0")
        assert os.waitpid(stranger, os.WNOHANG) == (0, 0)
        assert stranger in children()
        assert alive(FOREVER) == []
    finally:
        os.kill(stranger, signal.SIGKILL)
        os.waitpid(stranger, 0)


def test_a_child_that_sleeps_in_the_kernel_is_named_and_not_waited_for() -> None:
    with hungfs({"power1_average": None}) as folder:
        file = folder / "power1_average"
        began = time.monotonic()
        (hung, fine) = run_commands(
            [Command(argv=("cat", str(file)), timeout_s=0.5), Command(argv=("echo", "fine"), timeout_s=5)]
        )
        assert time.monotonic() - began < 0.5 + 1.0 + 0.5
        assert isinstance(hung, Known)
        assert isinstance(fine, Known)
        assert fine.value.stdout == "fine\n"
        assert hung.value.timed_out
        assert hung.value.rc is None
        (stuck,) = hung.value.stuck
        pid = int(stuck.split()[1])
        assert stuck.startswith(f"pid {pid} (")
        assert stuck != f"pid {pid} (?)"
    os.waitpid(pid, 0)


def test_a_program_that_lies_on_a_dead_mount_does_not_keep_us() -> None:
    with hungfs({"rocm-smi": None}) as folder:
        began = time.monotonic()
        (answer,) = run_commands([Command(argv=(f"{folder}/rocm-smi",), timeout_s=0.3)])
        assert time.monotonic() - began < 2
        assert isinstance(answer, Known)
        assert answer.value.timed_out
        (stuck,) = answer.value.stuck
    os.waitpid(int(stuck.split()[1]), 0)


def test_an_unknown_selftest_is_refused_before_anything_starts() -> None:
    for name in ("../x", "cpu isa", "", "-c"):
        answer = run_selftest(SelfTest(name=name))
        assert isinstance(answer, Unknown)
        assert answer.reason == "failed"
    foreign = run_selftest(SelfTest(name="no_such_test", python=sys.executable))
    assert isinstance(foreign, Unknown)
    assert foreign.reason == "absent"


def test_a_selftest_runs_in_our_isolated_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(ROOT)])
    monkeypatch.delenv("PYTHONPATH", raising=False)
    answer = run_selftest(SelfTest(name="no_such_test", params=("1",)))
    assert isinstance(answer, Known)
    assert answer.value.result.argv == (sys.executable, "-I", "-m", "amdcheck.selftest", "no_such_test", "1")
    assert answer.value.result.rc != 0


@pytest.mark.parametrize("where", ["PYTHONPATH", "user"])
def test_a_selftest_finds_amdcheck_where_only_this_user_has_it(where: str, tmp_path: Path) -> None:
    """An isolated interpreter leaves out PYTHONPATH and the user's packages, where `pip install --user` puts them."""
    if where == "user":
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        packages = tmp_path / "lib" / version / "site-packages"
        packages.mkdir(parents=True)
        (packages / "ours.pth").write_text(f"{ROOT}\n")
        env = {"PYTHONUSERBASE": str(tmp_path)}
    else:
        env = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    msgspec = find_spec("msgspec")
    assert msgspec is not None
    assert msgspec.origin is not None
    program = (
        f"import sys; sys.path.append({str(Path(msgspec.origin).parents[1])!r})\n"
        "from amdcheck.host.commands import run_selftest\n"
        "from amdcheck.host.protocol import SelfTest\n"
        "print(run_selftest(SelfTest(name='no_such_test')).value.result.stderr)\n"
    )
    bare = os.path.realpath(sys.executable)  # not that of the virtual environment, which has no packages of users
    done = subprocess.run([bare, "-c", program], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("usage: python -m amdcheck.selftest NAME"), done.stdout + done.stderr


def test_no_process_to_be_had_is_an_answer() -> None:
    """A user's limit of processes does not bind root, so another user asks."""
    program = (
        "import os, resource\n"
        "from amdcheck.host.commands import run_commands\n"
        "from amdcheck.host.protocol import Command\n"
        "run_commands([Command(argv=('true',))])  # whatever it imports, while that may be read\n"
        "os.setgid(65534)\n"
        "os.setuid(65534)\n"
        "resource.setrlimit(resource.RLIMIT_NPROC, (0, 0))\n"
        "print(run_commands([Command(argv=('true',))]))\n"
    )
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "reason='failed'" in done.stdout
    assert "EAGAIN" in done.stdout
