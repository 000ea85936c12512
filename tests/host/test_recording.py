"""What was recorded is replayed: the same values, the same reasons, whatever was asked and in whatever order."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from amdcheck.facts.miopen_user import MiopenUser
from amdcheck.facts.platform import Platform
from amdcheck.host.capture import Capture, Manifest
from amdcheck.host.capture_file import decode, encode
from amdcheck.host.live import LiveHost
from amdcheck.host.open import open_host
from amdcheck.host.protocol import (
    Command,
    CommandResult,
    Host,
    OpenOutcome,
    SelfTest,
    SelfTestResult,
    Stat,
    SystemAnswers,
    UdevDevice,
)
from amdcheck.host.recording import Recorded, RecordingHost, merge
from amdcheck.host.snapshot import SnapshotHost
from amdcheck.model.expectations import Expectations
from amdcheck.model.value import Known, Unknown
from tests.host.test_trees import PATHS, pack, write_tree
from tests.judge import read_fact
from tests.memory_host import memory_host

MANIFEST = Manifest(
    created=datetime(2026, 5, 6, 7, 8, 9, tzinfo=timezone.utc),
    amdcheck="0",
    source="live",
    redacted=False,
    level="standard",
    expectations=None,
    identity=None,
    system=None,
)
ENCODER, DECODER = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder(Recorded)
Question = Callable[[Host], object]


def written_and_read(recorders: Sequence[RecordingHost | Recorded]) -> Capture:
    """A capture from deltas that crossed a process boundary and a file."""
    deltas = [taken.take() if isinstance(taken, RecordingHost) else taken for taken in recorders]
    sent = [DECODER.decode(ENCODER.encode(delta)) for delta in deltas]
    return decode(io.BytesIO(encode(merge(sent, MANIFEST))), name="FILE")


def same(answer: object, replayed: object) -> bool:
    """Equal values and sources; of unknowns the reason and source, for the detail may be lost."""
    if isinstance(answer, tuple):
        return isinstance(replayed, tuple) and all(map(same, answer, replayed)) and len(answer) == len(replayed)
    if isinstance(answer, Unknown):
        return isinstance(replayed, Unknown) and (answer.reason, answer.source) == (replayed.reason, replayed.source)
    return answer == replayed


def check_replay(host: Host, questions: Sequence[Question], *, takes: int = 1) -> Capture:
    recorder = RecordingHost(host)
    answers, deltas = [], []
    for number, question in enumerate(questions):
        answers.append(question(recorder))
        if number % takes == 0:
            deltas.append(recorder.take())
    capture = written_and_read([*deltas, recorder])
    replay = SnapshotHost(capture)
    for question, answer in zip(questions, answers, strict=True):
        assert same(answer, question(replay)), (answer, question(replay))
    return capture


def path_question(name: str, path: str, limit: int) -> Question:
    def ask(host: Host) -> object:
        method = getattr(host, name)
        return method(path, limit=limit) if name in ("read", "read_bytes") else method(path)

    return ask


def run_question(commands: tuple[tuple[str, ...], ...]) -> Question:
    return lambda host: host.run([Command(argv=argv) for argv in commands])


def udev_question(nodes: tuple[str, ...]) -> Question:
    return lambda host: host.udev(nodes)


def selftest_question(name: str, params: tuple[str, ...], python: str | None) -> Question:
    return lambda host: host.selftest(SelfTest(name=name, params=params, python=python))


ARGVS = st.sampled_from([("rocm-smi", "--json"), ("amd-smi",), ("sh", "-c", "a 'b' c"), ("bad\0",), (), ("lscpu",)])
NODES = st.sampled_from(["/dev/kfd", "/dev/dri/renderD128", "/dev/gone", "bad"])


def questions(paths: Sequence[str], *, steady_only: bool = False) -> st.SearchStrategy[list[Question]]:
    """Any questions, these paths among them, in any order and repeated; `steady_only`: none whose answer changes."""
    operations = ["read", "read_bytes", "entries", "link", "resolve", "stat", "probe_open"]
    about_path = st.builds(
        path_question,
        st.sampled_from(operations),
        st.sampled_from(list(paths)),
        st.sampled_from([1, 2, 3, 5, 8, 1 << 20]),
    )
    return st.lists(
        st.one_of(
            about_path,
            about_path,
            about_path,
            st.builds(run_question, st.lists(ARGVS, max_size=3).map(tuple)),
            st.builds(udev_question, st.lists(NODES, max_size=3).map(tuple)),
            st.builds(
                selftest_question,
                st.sampled_from(["cpu_isa", "bad\0"]),
                st.just(("avx2",)),
                st.sampled_from([None, "p"]),
            ),
            st.just(lambda host: host.identity()),
            st.just(lambda host: host.identity() if steady_only else host.system()),
        ),
        max_size=40,
    )


MEMORY_PATHS = [
    "/sys/bus/pci/devices/B/vendor",
    "/sys/bus/pci/devices/B",
    "/sys/bus/pci/devices",
    "/sys/devices/B/vendor",
    "/sys/devices/B/rom",
    "/sys/devices/B/gone",
    "/sys/kernel/debug/dri",
    "/sys/kernel/debug",
    "/sys/slow",
    "/dev/kfd",
    "/loop",
    "/é",
    "/",
    "/sys/devices/../devices/B/vendor",
    "relative",
    "/a\0",
    "/\udcff",
]


def every_kind(*, complete: bool) -> SnapshotHost:
    result = CommandResult(
        argv=("rocm-smi", "--json"), rc=1, stdout="\\xff\0", stderr="e", duration_s=1, timed_out=False
    )
    return memory_host(
        {"/sys/devices/B/vendor": "0x1002\n", "/sys/devices/B/rom": b"\xff\0ab\xc3", "/é": "größer"},
        links={"/sys/bus/pci/devices/B": "../../../devices/B", "/loop": "/loop"},
        outcomes={"/sys/kernel/debug": "denied", "/sys/slow": "timeout"},
        complete=complete,
        stats={
            "/dev/kfd": Stat(kind="char", mode=0o660, uid=0, gid=9, size=0, device=(1, 2), acl=(), filesystem=16914836)
        },
        opens={"/dev/kfd": OpenOutcome(errno="EPERM")},
        udev=[UdevDevice(node="/dev/kfd", properties={"A": "b"}, tags=("t",))],
        unanswered={
            "udev": {"/dev/gone": "absent"},
            "run": {"amd-smi": "absent"},
            "selftest": {"cpu_isa avx2": "failed"},
        },
        commands=[result, msgspec.structs.replace(result, argv=("sh", "-c", "a 'b' c"), timed_out=True, stuck=("p",))],
        selftests=[SelfTestResult(name="cpu_isa", params=("avx2",), python="p", result=result)],
        system=SystemAnswers(
            logical_cpus=1, physical_cores=None, memory_bytes=2, available_bytes=3, load_1m=0.25, boot_time=4.5
        ),
    )


@settings(max_examples=150, deadline=None)
@given(questions(MEMORY_PATHS), st.booleans(), st.integers(1, 5))
def test_any_questions_to_a_recording_replay(asked: list[Question], complete: bool, takes: int) -> None:
    check_replay(every_kind(complete=complete), asked, takes=takes)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(questions(PATHS), st.integers(1, 5))
def test_any_questions_to_a_folder_replay(trees: tuple[Path, Path], asked: list[Question], takes: int) -> None:
    check_replay(open_host(trees[0]), asked, takes=takes)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(questions(PATHS))
def test_any_questions_to_an_archive_replay(trees: tuple[Path, Path], asked: list[Question]) -> None:
    check_replay(open_host(trees[1]), asked)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_questions_to_a_live_machine_replay(trees: tuple[Path, Path], data: st.DataObject) -> None:
    root = trees[0]
    paths = [f"{root}{path}" if path.startswith("/") else path for path in PATHS]
    paths += ["/dev/null", "/dev/gone", "/proc/version", str(root / "fifo")]
    check_replay(LiveHost(level="quick"), data.draw(questions(paths, steady_only=True)))


@pytest.fixture(scope="module")
def trees(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    tmp = tmp_path_factory.mktemp("trees")
    (tmp / "tree").mkdir()
    write_tree(
        tmp / "tree", {"sys/bus/pci/devices/0000:03:00.0": "../../../devices/pci0000:00/0000:00:01.1/0000:03:00.0"}
    )
    os.symlink("/opt/rocm-6.4.0", tmp / "tree" / "opt" / "rocm")
    os.mkfifo(tmp / "tree" / "fifo")
    return tmp / "tree", pack(tmp / "tree", tmp / "a.tar", "w")


def recorded(*questions: Question, host: Host | None = None) -> Capture:
    return check_replay(host or every_kind(complete=True), questions)


def test_a_recorded_file_stands_under_its_path_as_published() -> None:
    capture = recorded(
        lambda host: host.read("/sys/bus/pci/devices/B/vendor"), lambda host: host.read("/sys/devices/B/rom")
    )
    assert capture.files["/sys/bus/pci/devices/B/vendor"] == "0x1002\n"
    assert set(capture.files) == {"/sys/bus/pci/devices/B/vendor", "/sys/devices/B/rom"}
    assert capture.unanswered == {}


def test_a_path_without_any_answer_has_one_outcome() -> None:
    capture = recorded(
        lambda host: host.read("/sys/gone"),
        lambda host: host.stat("/sys/gone"),
        lambda host: host.entries("/sys/kernel/debug"),
        lambda host: host.read("/sys/slow"),
        lambda host: host.link("/sys/devices/B/vendor"),
        lambda host: host.read("/sys/devices"),
        lambda host: host.entries("/sys/devices"),
    )
    assert capture.outcomes == {"/sys/gone": "absent", "/sys/kernel/debug": "denied", "/sys/slow": "timeout"}
    assert capture.unanswered == {"link": {"/sys/devices/B/vendor": "absent"}, "read": {"/sys/devices": "failed"}}


def test_what_was_not_asked_is_not_recorded() -> None:
    replay = SnapshotHost(recorded(lambda host: host.read("/sys/devices/B/vendor")))
    for answer in (
        replay.read("/sys/devices/B/rom"),
        replay.entries("/sys/devices"),
        replay.stat("/sys/devices/B/vendor"),
        replay.resolve("/sys/devices/B/vendor"),
        replay.link("/sys/devices/B/vendor"),
        replay.read("/sys/devices/B/../B/vendor"),
        replay.system(),
        replay.identity(),
    ):
        assert isinstance(answer, Unknown)
        assert answer.reason == "not-recorded"


def test_the_longest_piece_of_a_file_is_kept_and_known_to_be_one() -> None:
    path = "/sys/devices/B/vendor"
    replay = SnapshotHost(recorded(lambda host: host.read(path, limit=2), lambda host: host.read(path, limit=4)))
    assert replay.read(path, limit=4).or_none() == "0x10"
    assert isinstance(replay.read(path), Unknown)
    whole = SnapshotHost(recorded(lambda host: host.read(path, limit=2), lambda host: host.read(path)))
    assert whole.read(path).or_none() == "0x1002\n"
    early = SnapshotHost(recorded(lambda host: host.read(path), lambda host: host.read(path, limit=2)))
    assert early.read(path).or_none() == "0x1002\n"


def test_a_later_worker_has_the_last_word() -> None:
    path = "/sys/devices/B/vendor"
    first, second = RecordingHost(every_kind(complete=True)), RecordingHost(memory_host({}, outcomes={path: "timeout"}))
    first.read(path)
    second.read(path)
    deltas = [first.take(), second.take()]
    hung = SnapshotHost(written_and_read(deltas)).read(path)
    assert isinstance(hung, Unknown)
    assert hung.reason == "timeout"
    assert SnapshotHost(written_and_read(deltas[::-1])).read(path).or_none() == "0x1002\n"


def test_identity_and_system_stand_in_the_manifest() -> None:
    capture = recorded(lambda host: host.identity(), lambda host: host.system())
    assert capture.manifest.identity is not None
    assert capture.manifest.system is not None
    assert capture.manifest.source == "live"


def test_taking_empties_the_recorder() -> None:
    recorder = RecordingHost(every_kind(complete=True))
    assert isinstance(recorder.read("/é"), Known)
    assert recorder.source == "capture"
    assert recorder.take().files == {"/é": "größer".encode()}
    assert recorder.take() == Recorded()


# -- environments ------------------------------------------------------------------------------------------------------

ENVIRON = (
    b"HOME=/srv/serve\0container=podman\0MIOPEN_USER_DB_PATH=/var/lib/miopen\0HSA_XNACK=1\0"
    b"VLLM_MAX_NUM_BATCHED_TOKENS=8192\0HF_TOKEN=s3cret-1\0VLLM_API_KEY=s3cret-2\0"
    b"DATABASE_URL=postgres://u:s3cret-3@db/x\0LD_PRELOAD=s3cret-4.so\0s3cret-5 written over it\0s3cret6\0"
    b"-s3cret-7=1\0SPLIT=s3cret\n-8\0\xffS3=s3cret-9\0LAST=s3cret-10"
)


@pytest.mark.parametrize("path", ["/proc/1/environ", "/proc/4242/environ", "/proc/self/task/7/environ"])
@pytest.mark.parametrize("limit", [1 << 20, len(ENVIRON)])
def test_no_secret_of_an_environment_gets_into_a_capture(path: str, limit: int) -> None:
    recorder = RecordingHost(memory_host({path: ENVIRON}))
    assert recorder.read_bytes(path, limit=limit) == Known(ENVIRON, path)  # the run itself sees all of it
    capture = written_and_read([recorder])
    assert "s3cret" not in msgspec.json.encode(capture).decode()
    assert capture.files[path] == (
        "HOME=/srv/serve\0container=podman\0MIOPEN_USER_DB_PATH=/var/lib/miopen\0HSA_XNACK=1\0"
        "VLLM_MAX_NUM_BATCHED_TOKENS=8192\0HF_TOKEN\0VLLM_API_KEY\0DATABASE_URL\0LD_PRELOAD\0SPLIT\0LAST\0"
    )


def test_replay_finds_in_a_reduced_environment_what_the_facts_read() -> None:
    files: dict[str, str | bytes] = {
        "/proc/1/environ": ENVIRON,
        "/proc/7/environ": ENVIRON,
        "/proc/7/status": "Uid:\t1200\t1200\t1200\t1200\nGid:\t1200\t1200\t1200\t1200\nGroups:\t109\n",
        "/etc/passwd": "serve:x:1200:1200::/home/serve:/bin/sh\n",
        "/proc/self/cgroup": "0::/\n",
    }
    recorder = RecordingHost(memory_host(files))
    of_seven = Expectations(level="quick", pid=7)
    user, platform = read_fact(MiopenUser, recorder, of_seven), read_fact(Platform, recorder, of_seven)
    replay = SnapshotHost(written_and_read([recorder]))
    assert read_fact(MiopenUser, replay, of_seven) == user
    assert read_fact(Platform, replay, of_seven) == platform
    assert (user.home.or_none(), user.xnack, platform.container) == ("/srv/serve", True, "podman")
    assert user.folders[0].path == "/var/lib/miopen"
