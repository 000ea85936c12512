"""The children of the memory self-tests on this machine: exact, within what others leave, and blind to nothing."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from weakref import WeakSet

import msgspec
import pytest

from amdcheck.facts import readings as facts_readings
from amdcheck.facts.cpu_memory import AMOUNT, Sharing
from amdcheck.knowledge.selftests import limit
from amdcheck.selftest import chase, cpu_memory, cpu_pattern, idle, reading, room, sharing, triad
from amdcheck.selftest.buffer import Buffer
from amdcheck.selftest.isolate import isolated
from amdcheck.selftest.library import Library, load
from amdcheck.selftest.reading import PAUSES_S, TELL_AT_ONCE
from tests.selftest.conftest import missing, offered_flags, tool

CPUS = sorted(os.sched_getaffinity(0))
MIB = 1 << 20
PR_SET_THP_DISABLE = 41
ONE_WORKER = triad.Plan({0: CPUS[:1]}, {CPUS[0]: MIB}, {CPUS[0]: MIB})
STEPS = ("triad", "chase", "sharing")
pytestmark = pytest.mark.skipif(
    not {"avx2", "fma"} <= offered_flags(), reason="the triad is built from AVX2 and FMA, on x86-64"
)


def arguments(name: str) -> list[str]:
    cpus = ",".join(map(str, CPUS))
    words = ["standard", "allow-busy", "triad", "l1=32", "l2=1024", f"l3=16384:{cpus}", f"node0={cpus}"]
    return [sys.executable, "-I", "-m", "amdcheck.selftest", name, *words]


def said(argv: Sequence[str], *, before: Callable[[], object] | None = None) -> dict[str, Any]:
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, preexec_fn=before, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def is_exact(document: dict[str, Any]) -> None:
    """Every step of cpu.memory ran, all it compared was right, and all that was planted was noticed."""
    assert [document[step]["ended"] for step in STEPS] == ["returned"] * 3, document
    nodes = document["triad"]["result"]["nodes"]
    for part in (*nodes, document["sharing"]["result"]):
        assert part["compared"] > 0
        assert (part["wrong"], part["noticed"]) == (0, part["planted"])
    walked = document["chase"]["result"]
    assert sum(point["lost"] for point in walked["points"]) == 0
    assert (walked["planted"], walked["noticed"]) == (3, 3)


def ns(point: dict[str, Any]) -> float:
    return float(1e9 * point["reading"]["best_s"] / point["hops"])


def test_this_machine_s_memory_is_exact_and_slower_than_its_cache() -> None:
    if len(CPUS) < 2:
        pytest.skip("it takes two CPUs")
    document = said(arguments("cpu.memory"))
    is_exact(document)
    (node,) = document["triad"]["result"]["nodes"]
    assert node["cpus"] == idle.one_a_core(CPUS, most=32)
    assert node["array_kib"] == min(32 * 1024, 4 * (1024 + 16384 // len(node["cpus"])))
    assert node["no_room_kib"] is None
    written = len(node["cpus"]) * node["array_kib"] * 128
    apart = 2 * min(written, len(node["cpus"]) * triad.VERIFIED // 8)
    assert apart < node["compared"] <= apart + written  # by each kind of stores alone, and by the windows
    points = document["chase"]["result"]["points"]
    assert [(point["bytes"] // 1024, point["pages"]) for point in points] == [
        *((size, "huge") for size in (16, 512, 2048, 4096, 8192, 16384, 65536)),
        (65536, "small"),
    ]
    assert 3 * ns(points[0]) < ns(points[-2])
    distances = document["sharing"]["result"]["distances"]
    assert [d["bytes"] for d in distances] == [8, 64, 128]
    readings = [node["plain"], node["streaming"], *(thing["reading"] for thing in (*points, *distances))]
    assert all(1e8 < 1 / reading["cycle_s"] < 1e10 for reading in readings)


@pytest.mark.live
def test_the_standard_set_costs_little() -> None:
    """CPU time of all processes, the best of three. Beside other tests it would be disturbed, and look again."""
    spent = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        said(arguments("cpu.memory"))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(spent) < 2.5, spent  # some 0.6 on a quiet machine, twice that where neighbours are at work


# ---- What the machine lacks or forbids ----


@pytest.mark.parametrize(
    "mounts",
    ["mount -t tmpfs -o ro none /dev/shm", "mount -t tmpfs none /mnt && mount --bind /mnt /dev && : > /dev/null"],
    ids=["read-only", "absent"],
)
def test_shared_memory_is_not_needed(mounts: str) -> None:
    unshare = [tool("unshare", "util-linux"), "--mount", "sh", "-c"]
    if subprocess.run([*unshare, mounts], capture_output=True, check=False).returncode:
        pytest.skip("mounting is not allowed here")
    is_exact(said([*unshare, f'{mounts} && exec "$@"', "sh", *arguments("cpu.memory")]))


def test_a_process_that_is_forbidden_huge_pages_measures_without_and_says_so() -> None:
    libc = ctypes.CDLL(None)
    document = said(arguments("cpu.memory"), before=lambda: libc.prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0))
    is_exact(document)
    walked = document["chase"]["result"]
    if walked["allowed_huge"] is None or walked["huge_kib"] is None:
        missing("this kernel does not say whether a process may have huge pages")
    assert (walked["huge_kib"], walked["allowed_huge"]) == (0, False)


def test_two_cores_of_which_one_is_in_use_are_no_single_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = cpu_memory.parse(("standard",))
    for allowed, core, ended in (
        ({0, 1}, {0: (0,), 1: (1,)}, "busy"),
        ({0, 1}, {0: (0, 1), 1: (0, 1)}, "no-pair"),
        ({0, 1}, {}, "failed"),
        ({0}, {}, "no-pair"),
    ):
        monkeypatch.setattr(os, "sched_getaffinity", lambda pid, allowed=allowed: allowed)
        for module in (cpu_memory, sharing):
            monkeypatch.setattr(module, "known_core", core.get)
        assert cpu_memory._no_pair(asked)["ended"] == ended


def test_a_process_bound_to_one_cpu_has_no_pair() -> None:
    document = said(arguments("cpu.memory"), before=lambda: os.sched_setaffinity(0, CPUS[:1]))
    assert [document[step]["ended"] for step in STEPS] == ["returned", "returned", "no-pair"]
    assert document["triad"]["result"]["nodes"][0]["cpus"] == CPUS[:1]
    assert document["matrix"]["ended"] == "one-node"


def test_no_cpu_that_is_in_use_is_taken_unless_that_is_allowed() -> None:
    hogs = [
        subprocess.Popen([sys.executable, "-c", f"import os; os.sched_setaffinity(0, {{{cpu}}})\nwhile True: pass"])
        for cpu in CPUS
    ]
    try:
        time.sleep(0.3)
        for name in ("cpu.memory", "cpu.pattern"):
            document = said([word for word in arguments(name) if word != "allow-busy"])
            assert document["busy"].startswith("every CPU that amdcheck may run on is in use")
        disturbed = said(arguments("cpu.memory"))
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    assert disturbed["triad"]["result"]["nodes"][0]["wrong"] == 0
    reading = disturbed["triad"]["result"]["nodes"][0]["plain"]
    assert reading is None or reading["cpu_share"] < 0.95
    assert set(disturbed["sharers_busy"]) == set(CPUS) - {disturbed["chase"]["result"]["cpu"]}


@pytest.mark.live
@pytest.mark.usefixtures("alone")
@pytest.mark.skipif(len(CPUS) < 2, reason="it takes two CPUs")
def test_a_cpu_that_another_program_uses_is_told_with_its_node() -> None:
    """The self-test may run on one CPU, and somebody else is at work on the other."""
    mine, other = CPUS[:2]
    busy = f"import os; os.sched_setaffinity(0, {{{other}}})\nwhile True: pass"
    hog = subprocess.Popen([sys.executable, "-c", busy])
    try:
        time.sleep(0.3)
        argv = [*arguments("cpu.memory")[:-1], f"node0={mine}", f"node1={other}"]
        document = said(argv, before=lambda: os.sched_setaffinity(0, {mine}))
    finally:
        hog.kill()
        hog.wait()
    assert document["nodes_busy"] == {"1": [other]}


@contextmanager
def memory_limit(size: int) -> Iterator[Path]:
    """A control group with a memory limit, in version 1 or 2; skips where none can be made."""
    own = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    path = next((path for names, path in own.items() if "memory" in names.split(",")), None)
    if path is None:
        folder, limit = Path(f"/sys/fs/cgroup{own.get('', '')}"), "memory.max"
    else:
        folder, limit = Path(f"/sys/fs/cgroup/memory{path}"), "memory.limit_in_bytes"
    group = folder / f"amdcheck-test-{os.getpid()}"
    try:
        group.mkdir()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        try:
            (group / limit).write_text(str(size))
        except OSError as error:
            pytest.skip(f"no memory can be limited here: {error}")
        yield group
    finally:
        for _ in range(100):
            with suppress(OSError):
                group.rmdir()
                break
            time.sleep(0.02)


def in_group(group: Path) -> Callable[[], object]:
    return lambda: (group / "cgroup.procs").write_text(str(os.getpid()))


def test_a_control_group_with_little_memory_gets_small_arrays_and_no_process_is_killed() -> None:
    with memory_limit(800 * MIB) as group:
        document = said(arguments("cpu.memory"), before=in_group(group))
        assert all(document[step]["ended"] in ("returned", "no-pair") for step in STEPS), document
        walked, (node,) = document["chase"]["result"], document["triad"]["result"]["nodes"]
        assert 16 * 1024 <= walked["memory_kib"] <= 64 * 1024
        assert 3 * node["array_kib"] * len(node["cpus"]) <= 200 * 1024
        patterns = said(arguments("cpu.pattern"), before=in_group(group))
        assert [worker["ended"] for worker in patterns["workers"]] == ["returned"] * len(patterns["workers"])
        assert 0 < sum(worker["result"]["bytes"] for worker in patterns["workers"]) <= 200 * MIB


def test_a_control_group_without_memory_to_spare_is_told_and_nothing_dies() -> None:
    with memory_limit(40 * MIB) as group:
        document = said(arguments("cpu.memory"), before=in_group(group))
        assert document["chase"]["ended"] == "memory"
        assert document["chase"]["detail"].endswith("MiB may be taken without harm to others")
        assert document["triad"]["ended"] in ("memory", "returned")
        patterns = said(arguments("cpu.pattern"), before=in_group(group))
        assert {worker["ended"] for worker in patterns["workers"]} <= {"memory", "returned"}


def test_an_address_space_limit_is_told_and_nothing_dies() -> None:
    most = 200 * MIB
    document = said(arguments("cpu.memory"), before=lambda: resource.setrlimit(resource.RLIMIT_AS, (most, most)))
    assert {document[step]["ended"] for step in STEPS} <= {"memory", "returned", "no-pair", "failed"}
    assert document["chase"]["ended"] in ("memory", "returned")


# ---- What must be noticed ----


class Forging:
    """The library with some of its functions replaced."""

    def __init__(self, library: Library, **functions: Callable[..., object]) -> None:
        self._library = library
        self.__dict__.update(functions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)


def test_an_element_that_the_triad_gets_wrong_is_counted_and_told(library: Library) -> None:
    def wrong(**how: Any) -> object:
        return library.time_triad(**{**how, "wrong": 77 if how["wrong"] < 0 else how["wrong"]})

    found = triad.nodes(Forging(library, time_triad=wrong), ONE_WORKER, deadline_s=6.0)  # type: ignore[arg-type]
    (node,) = found["nodes"]
    # One by each kind of stores over all, and one in each part that the windows wrote.
    assert (node["wrong"], node["first_wrong"]) == (4, [{"cpu": CPUS[0], "element": 77}] * 3)
    assert node["compared"] == 3 * MIB // 8


def test_a_triad_whose_comparison_sees_nothing_notices_nothing(library: Library) -> None:
    forged = Forging(library, triad_differences=lambda a, count: (0, None))
    (node,) = triad.nodes(forged, ONE_WORKER, deadline_s=6.0)["nodes"]  # type: ignore[arg-type]
    assert (node["planted"], node["noticed"]) == (8, 0)


def test_a_triad_that_does_not_write_its_last_elements_is_wrong(library: Library) -> None:
    def short(**how: Any) -> object:
        return library.time_triad(**{**how, "count": how["count"] - 8})

    (node,) = triad.nodes(Forging(library, time_triad=short), ONE_WORKER, deadline_s=6.0)["nodes"]  # type: ignore[arg-type]
    assert node["wrong"] == 32  # of each part that the windows wrote, and of both kinds of stores


def test_a_sum_that_goes_wrong_on_the_way_to_another_node_is_counted(library: Library) -> None:
    def wrong(**how: Any) -> object:
        return library.time_triad(**{**how, "wrong": 5 if how["wrong"] < 0 else how["wrong"]})

    forged = Forging(library, time_triad=wrong, bind_memory=lambda node: True, node_of=lambda address: 0)
    (cell,) = triad.matrix(forged, {0: CPUS[0]}, MIB, deadline_s=6.0)["cells"]  # type: ignore[arg-type]
    told = cell["result"]
    assert (cell["ended"], told["wrong"], told["planted"]) == ("returned", 4, 8)
    assert told["reading"]["best_s"] > 0


def test_a_node_without_memory_is_left_out(library: Library, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triad, "room_on_node", lambda node: 0 if node == 7 else None)
    cells = triad.matrix(library, {0: CPUS[0], 7: CPUS[-1]}, MIB, deadline_s=6.0)["cells"]
    assert [(cell["cpu_node"], cell["memory_node"]) for cell in cells] == [(0, 0)]


def test_memory_of_a_node_that_is_not_there_is_refused(library: Library) -> None:
    cells = triad.matrix(library, {0: CPUS[0], 900: CPUS[-1]}, MIB, deadline_s=6.0)["cells"]
    ends = {(cell["cpu_node"], cell["memory_node"]): cell["ended"] for cell in cells}
    assert list(ends) == [(0, 0), (900, 900)]  # and nothing is asked for after that
    assert ends[900, 900] == "denied"
    assert ends[0, 0] in ("returned", "denied")  # a container may not bind memory at all


def test_windows_count_what_was_moved_inside_them_and_no_more(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triad, "WINDOW_S", 0.3)  # on a busy machine a worker may get no time in a short one
    (node,) = triad.nodes(library, triad.Plan({0: CPUS[:1]}, {CPUS[0]: 4 * MIB}, {CPUS[0]: 4 * MIB}), deadline_s=6.0)[
        "nodes"
    ]
    for kind in ("plain", "streaming"):
        assert node[kind]["slices"] == triad.ATTEMPTS
        assert 1e7 < 1 / node[kind]["best_s"] * 1e9 < 1e13  # bytes a second


def test_a_rate_is_counted_in_what_the_child_counted() -> None:
    assert AMOUNT == triad.AMOUNT


def test_a_window_of_too_few_chunks_tells_no_rate(library: Library) -> None:
    """As under emulation, where one chunk outlasts the window."""

    def slow(**how: Any) -> object:
        time.sleep(triad.WINDOW_S / 2)
        return library.time_triad(**how)

    (node,) = triad.nodes(Forging(library, time_triad=slow), ONE_WORKER, deadline_s=6.0)["nodes"]  # type: ignore[arg-type]
    assert (node["plain"], node["streaming"], node["wrong"]) == (None, None, 0)


def test_a_window_in_which_others_had_the_cpu_does_not_spoil_the_median() -> None:
    """Two of three windows moved nothing: the document stays one, and the median is no quicker than the best."""
    moved = [{"moved": m, "cpu_s": triad.WINDOW_S, "involuntary": 1, "cycle_s": None} for m in (0.0, 2e8, 0.0)]
    told = triad._reading([moved], stolen=None)
    assert told is not None
    reading = msgspec.convert(told, facts_readings.Reading)
    assert reading.best_s == pytest.approx(triad.AMOUNT * triad.WINDOW_S / 2e8)
    assert reading.median_s > 10 * reading.best_s


def test_arrays_are_looked_for_all_over() -> None:
    """A node that is full gives the first pages, and another one the rest."""
    library = load()
    asked = list[int]()

    def first_pages_at_home(address: int) -> int:
        asked.append(address)
        return 0 if len(asked) == 1 else 1

    forged = Forging(library, node_of=first_pages_at_home)
    (node,) = triad.nodes(forged, ONE_WORKER, deadline_s=6.0)["nodes"]  # type: ignore[arg-type]
    assert node["placed"] == [0, 1]


def test_a_cell_in_which_nothing_was_moved_is_told_as_late_and_is_the_last_round(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a worker that is ready after the windows: its result is none, and the document stays one."""
    monkeypatch.setattr(triad, "_reading", lambda windows, *, stolen: None)
    cells = triad.matrix(library, {0: CPUS[0]}, MIB, deadline_s=6.0)["cells"]
    if cells[0]["ended"] == "denied":
        pytest.skip("a container may not bind memory")
    why = "nothing was moved within the windows"
    assert cells == [{"cpu_node": 0, "memory_node": 0, "ended": "timeout", "detail": why, "result": None}]


def shares(seconds: float | None, share: float = 1.0) -> dict[str, Any] | None:
    return None if seconds is None else {"best_s": seconds, "cpu_share": share}


def node(
    seconds: float | None, *, number: int = 0, cpus: int = 2, share: float = 1.0, wrong: int = 0, died: int = 0
) -> dict[str, Any]:
    told = {"node": number, "cpus": range(cpus), "died": died * [{"cpu": 0}], "no_room_kib": None}
    told |= {"plain": shares(seconds, share), "streaming": shares(seconds, share)}
    return told | {"compared": 9, "wrong": wrong, "planted": 8, "noticed": 8}


@pytest.mark.parametrize(
    ("looks", "told"),
    [
        ([(1.0, 1.0)], (1.0, 1.0)),
        ([(1.0, 1.3)], (1.0, 1.3)),
        ([(1.0, 1.5), (1.0, 1.1)], (1.0, 1.1)),  # somebody used that node's memory for a moment
        (6 * [(1.0, 1.5)], (1.0, 1.5)),
        ([(1.0, None), (1.0, 1.0)], (1.0, 1.0)),  # who was late is waited for
        # Somebody uses the other node's memory later: that makes the slow one no better.
        ([(1.0, 1.5), (1.6, 1.6), *4 * [(1.5, 1.5)]], (1.0, 1.5)),
    ],
)
def test_a_node_far_behind_the_others_is_looked_at_again_and_each_is_told_at_its_best(
    looks: list[tuple[float | None, float | None]],
    told: tuple[float, float],
    library: Library,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = iter([node(seconds, number=number) for look in looks for number, seconds in enumerate(look)])
    monkeypatch.setattr(reading, "PAUSES_S", len(PAUSES_S) * (0.0,))
    monkeypatch.setattr(triad, "together", lambda steps, **how: ({}, {}))
    monkeypatch.setattr(triad, "_node", lambda *whatever: next(given))
    plan = triad.Plan({0: (0, 1), 1: (2, 3)}, dict.fromkeys(range(4), MIB), dict.fromkeys(range(4), MIB))
    found = triad.nodes(library, plan, deadline_s=6.0)["nodes"]
    assert next(given, None) is None
    assert tuple(one["streaming"]["best_s"] for one in found) == told


def test_a_disturbed_look_at_a_node_is_not_told_instead_of_one_that_is_not() -> None:
    best = triad._Best(("node",), ("plain", "streaming"))
    slow = node(1.5, number=1)
    assert best.judged(triad._judged_nodes, [node(1.0), slow]).rate < 1
    assert best.judged(triad._judged_nodes, [node(2.0, share=0.5), node(1.4, number=1, share=0.5)]).rate < 1
    assert best.records == [node(1.0), slow]


def test_nodes_are_held_against_those_with_as_many_cpus_and_what_went_wrong_is_told_at_once() -> None:
    fewer = [node(1.0, number=0), node(1.0, number=1), node(2.0, number=2, cpus=1)]
    assert triad._judged_nodes(fewer).rate >= 1
    assert triad._judged_nodes([node(1.0)]).rate >= 1
    assert triad._judged_nodes([node(1.0, share=0.5)]).cpu_share < 1
    for bad in (node(2.0, number=1, wrong=1), node(2.0, number=1, died=1)):
        best = triad._Best(("node",), ("plain", "streaming"))
        assert best.judged(triad._judged_nodes, [node(1.0), node(1.5, number=1)]) < TELL_AT_ONCE
        assert best.judged(triad._judged_nodes, [node(3.0), bad]) == TELL_AT_ONCE
        assert best.records == [node(3.0), bad]


def cells(remote_s: float, *, local_s: float = 1.0, wrong: int = 0) -> list[dict[str, Any]]:
    result = {"compared": 9, "wrong": wrong, "planted": 8, "noticed": 8}
    local, remote = ({**result, "reading": shares(seconds)} for seconds in (local_s, remote_s))
    pairs = [(cpu, to) for cpu in (0, 1) for to in (0, 1)]
    return [{"cpu_node": cpu, "memory_node": to, "result": local if cpu == to else remote} for cpu, to in pairs]


@pytest.mark.parametrize(
    ("looks", "told"),
    [
        ([cells(1.5)], cells(1.5)),
        ([cells(0.9)], cells(0.9)),
        ([cells(1.1, local_s=1.5), cells(1.2)], cells(1.1)),  # somebody used each node's own memory for a moment
        ([cells(0.7), cells(0.75), *4 * [cells(0.7)]], cells(0.7)),
        ([cells(0.7), *5 * [cells(1.5)]], cells(0.7)),  # somebody uses the way between them later
        ([cells(0.7, wrong=1)], cells(0.7, wrong=1)),
    ],
)
def test_memory_of_another_node_that_seems_faster_is_looked_at_again(
    looks: list[list[dict[str, Any]]],
    told: list[dict[str, Any]],
    library: Library,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = iter(looks)
    monkeypatch.setattr(reading, "PAUSES_S", len(PAUSES_S) * (0.0,))
    monkeypatch.setattr(triad, "_rounds", lambda *whatever, deadline_s: next(given))
    assert triad.matrix(library, {0: 0, 1: 1}, MIB, deadline_s=6.0)["cells"] == told
    assert next(given, None) is None


def test_a_walk_ends_where_it_is_computed_to(library: Library) -> None:
    line = 0
    for hops in range(200):
        assert chase.after(0, hops, 1024) == line
        line = (line * chase.MULTIPLIER + chase.INCREMENT) % 1024
    assert chase.after(17, 1024, 1024) == 17


@pytest.mark.parametrize("short", [True, False])
def test_cycles_that_are_linked_short_are_lost(library: Library, short: bool) -> None:
    def link(base: int, lines: int) -> None:
        library.chase_link(base, lines)
        if short:
            ctypes.c_void_p.from_address(base + 64 * chase.after(0, 2, lines)).value = base

    caches = (32, 256, 2048)
    result = chase.judge(Forging(library, chase_link=link), CPUS[0], caches, "standard")  # type: ignore[arg-type]
    assert (sum(point["lost"] for point in result["points"]) > 0) == short
    assert result["noticed"] == (0 if short else result["planted"])


def test_no_more_memory_is_held_at_once_than_there_was_room_for(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = WeakSet[Buffer]()
    most = 0

    class Counted(Buffer):
        def __init__(self, size: int, **how: Any) -> None:
            nonlocal most
            super().__init__(size, **how)
            held.add(self)
            most = max(most, sum(buffer.size for buffer in held))

    monkeypatch.setattr(chase, "Buffer", Counted)
    walked = chase.judge(library, CPUS[0], (32, 256, 2048), "standard")
    assert most == walked["memory_kib"] << 10


def test_sizes_stay_within_the_caches_that_are_known() -> None:
    kib = 1024
    assert chase.sizes(32 * kib, 512 * kib, 16 * MIB, 64 * MIB, "standard") == tuple(
        size * kib for size in (16, 256, 1024, 2048, 4096, 8192, 16384, 65536)
    )
    assert chase.sizes(None, None, None, 64 * MIB, "standard") == (64 * MIB,)
    assert chase.sizes(48 * kib, 2048 * kib, 96 * MIB, 128 * MIB, "standard") == tuple(
        size * kib for size in (16, 1024, 4096, 8192, 16384, 32768, 65536, 131072)
    )
    assert chase.sizes(32 * kib, 512 * kib, 16 * MIB, 16 * MIB, "standard")[-1] == 16 * MIB
    assert len(chase.sizes(32 * kib, 512 * kib, 16 * MIB, 512 * MIB, "deep")) == 18


def test_huge_pages_are_counted_of_the_buffer_alone() -> None:
    smaps = [
        "7f0000000000-7f0000200000 rw-p 00000000 00:00 0",
        "AnonHugePages:      2048 kB",
        "7f0000200000-7f0000600000 rw-p 00000000 00:00 0",
        "Size:               4096 kB",
        "AnonHugePages:      4096 kB",
        "VmFlags: rd wr mr mw me ac sd hg",
    ]
    assert chase.huge_kib(smaps, 0x7F0000200000, 4 * MIB) == 4096
    assert chase.huge_kib(smaps, 0x7F0000000000, 6 * MIB) == 6144
    assert chase.huge_kib(smaps, 0x7F0000800000, MIB) is None


@pytest.mark.skipif(len(CPUS) < 2, reason="it takes two CPUs")
def test_additions_that_get_lost_are_counted(library: Library) -> None:
    def losing(**how: Any) -> object:
        return library.time_sharing(**{**how, "missed": how["missed"] + 1})

    found = sharing.judge(Forging(library, time_sharing=losing), (CPUS[0], CPUS[1]))  # type: ignore[arg-type]
    assert found["wrong"] == found["compared"] / 2
    assert found["noticed"] == 0


def look(*medians: float, best: float = 1e-9, share: float = 1.0) -> dict[str, Any]:
    reading = {
        "best_s": best,
        "slices": 3,
        "attempts": 1,
        "cpu_share": share,
        "involuntary": 0,
        "stolen_s": None,
        "cycle_s": None,
        "issued": None,
    }
    distances = [{"bytes": 8 << at, "reading": {**reading, "median_s": m}} for at, m in enumerate(medians)]
    found = {"compared": 6, "wrong": 0, "planted": 2, "noticed": 2}
    return {"cpus": (0, 1), "increments": 10, "distances": distances, **found}


SHARED, SLOW_BETWEEN, CLEAR = look(1.1, 1.0, 1.0), look(2.0, 1.9, 1.0), look(6.0, 2.0, 1.0)


@pytest.mark.parametrize(
    ("looks", "told", "taken"),
    [
        ([CLEAR], CLEAR, 1),
        ([SLOW_BETWEEN], SLOW_BETWEEN, 1),  # against the farthest words, whatever is between
        ([SHARED, SHARED, CLEAR], CLEAR, 3),
        ([SHARED, look(1.2, 1.0, 1.0), *4 * [SHARED]], look(1.2, 1.0, 1.0), 6),
        ([look(9.0, 1.0, 1.0, share=0.5), SHARED, CLEAR], CLEAR, 3),  # who did not run together met no contention
        ([look(9.0, 1.0, 1.0, share=0.5), *5 * [SHARED]], SHARED, 6),
    ],
)
def test_looks_are_taken_until_what_is_judged_is_clear(
    looks: list[dict[str, Any]], told: dict[str, Any], taken: int, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "PAUSES_S", len(PAUSES_S) * (0.0,))
    given = iter(looks)
    monkeypatch.setattr(sharing, "_look", lambda library, cpus: next(given))
    found = sharing.judge(library, (0, 1))
    assert (found["distances"], found["compared"]) == (told["distances"], 6 * taken)
    judged = msgspec.convert(msgspec.to_builtins(found), Sharing)
    share, rate = sharing._judged(found)
    assert (share >= 1, rate >= 1) == (not judged.disturbed, judged.factor >= limit("sharing-factor").value)


def test_a_pair_is_of_two_cores_of_one_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "known_core", lambda cpu: str(cpu % 8))  # 8 cores of two threads
    assert sharing.pair([0, 8, 1], []) == (0, 1)
    assert sharing.pair([0, 8], []) is None
    assert sharing.pair([0, 4, 5], [range(4), range(4, 8)]) == (4, 5)
    assert sharing.pair([0, 4], [range(4), range(4, 8)]) == (0, 4)
    assert sharing.pair([3], []) is None
    monkeypatch.setattr(sharing, "known_core", lambda cpu: None)  # they may be threads of one core, as far as is known
    assert sharing.pair([0, 1, 2, 3], []) is None


def test_a_bit_that_flips_in_the_second_block_is_told_with_its_offset(library: Library) -> None:
    flips = 7
    fills = 0

    def fill(address: int, words: int, **how: Any) -> None:
        nonlocal fills
        library.pattern_fill(address, words, **how)
        fills += 1
        if fills == 1 + len(cpu_pattern.PASSES) + 5:  # after a trial, the fifth pass over the second block
            ctypes.c_uint64.from_address(address + 8 * flips).value ^= 1 << 40

    forged = Forging(library, pattern_fill=fill)
    block = cpu_pattern.TRIAL
    result = cpu_pattern.judge(forged, CPUS[0], 2 * block, budget_s=30, least=block, block=block)  # type: ignore[arg-type]
    assert (result["bytes"], result["wrong"]) == (2 * block, 1)
    assert result["compared"] == 2 * len(cpu_pattern.PASSES) * block // 8
    (word,) = result["first_wrong"]
    assert (word["pattern"], word["offset"]) == ("random", block + 8 * flips)
    assert int(word["got"], 16) ^ int(word["want"], 16) == 1 << 40
    assert (result["planted"], result["noticed"]) == (4 * len(cpu_pattern.PASSES),) * 2


def test_every_bit_of_a_word_is_written_both_ways(library: Library) -> None:
    buffer = Buffer(4096)
    ones, zeros = [0] * 512, [0] * 512
    for pattern, seed in cpu_pattern.PASSES:
        library.pattern_fill(buffer.address, 512, pattern=pattern, seed=seed)
        words = (ctypes.c_uint64 * 512).from_address(buffer.address)
        ones = [seen | word for seen, word in zip(ones, words, strict=True)]
        zeros = [seen | ~word & cpu_pattern.ONES for seen, word in zip(zeros, words, strict=True)]
    assert set(ones) == set(zeros) == {cpu_pattern.ONES}


def test_a_worker_begins_no_block_that_it_could_not_end(library: Library) -> None:
    block = cpu_pattern.TRIAL
    most = 100 * block
    assert cpu_pattern.judge(library, CPUS[0], most, budget_s=0, least=2 * block, block=most)["bytes"] == 2 * block


def test_without_room_for_a_block_there_is_no_test(library: Library) -> None:
    ended = isolated(lambda: cpu_pattern.judge(library, CPUS[0], 127 * MIB), deadline_s=5)
    assert (ended["ended"], ended["result"]) == ("memory", None)
    assert ended["detail"] == "127 MiB may be taken without harm to others, and a block is 128"


@pytest.mark.parametrize(
    ("mib_there", "workers"), [(90_000, 64), (16_384, 64), (1024, 4), (1000, 3), (200, 1), (100, 1)]
)
def test_there_are_no_more_workers_than_blocks_larger_than_any_cache(
    mib_there: int, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With many small blocks, those of the eight cores of a slice would stay in its 96 MiB."""
    shares = []

    def judge(library: Library, cpu: int, share: int) -> dict[str, Any]:
        shares.append(share)
        return {}

    monkeypatch.setattr(cpu_pattern, "room", lambda: mib_there * MIB)
    monkeypatch.setattr(cpu_pattern, "idle_cpus", lambda allow_busy: range(384))
    monkeypatch.setattr(cpu_pattern, "one_a_core", lambda cpus, most: list(cpus[:most]))
    monkeypatch.setattr(cpu_pattern, "started", lambda steps: ({cpu: step() for cpu, step in steps.items()}, {}))
    monkeypatch.setattr(cpu_pattern, "judge", judge)
    monkeypatch.setattr(cpu_pattern, "be_first_to_go", lambda: None)
    monkeypatch.setattr(cpu_pattern, "all_ended", lambda steps, began, deadline_s: {cpu: {} for cpu in steps})
    assert len(cpu_pattern.run(())["workers"]) == workers
    assert shares == [mib_there * MIB // workers] * workers


# ---- Who works, and with how much ----


def asked(*words: str) -> cpu_memory.Asked:
    return cpu_memory.parse(words)


def test_parameters_say_what_the_machine_is() -> None:
    given = asked("deep", "allow-busy", "triad", "l1=32", "l2=512", "l3=16384:0-1,4;8192:2", "node0=0-1", "node1=2,4-5")
    assert given == cpu_memory.Asked(
        "deep", True, True, 32, 512, [(16384, (0, 1, 4)), (8192, (2,))], {0: (0, 1), 1: (2, 4, 5)}
    )
    assert asked() == cpu_memory.Asked("standard", False, False, None, None, [], {})


def mib(sizes: Mapping[int, int]) -> dict[int, float]:
    return {cpu: size / MIB for cpu, size in sizes.items()}


def test_arrays_are_four_times_the_share_of_the_slice_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle, "core_of", str)
    plan = cpu_memory.workers(asked("l2=1024", "l3=32768:0-7;65536:8-15", "node0=0-15"), range(16))
    assert plan.node_cpus == {0: list(range(16))}
    assert mib(plan.array) == {**dict.fromkeys(range(8), 20), **dict.fromkeys(range(8, 16), 32)}
    assert mib(plan.least) == {**dict.fromkeys(range(8), 10), **dict.fromkeys(range(8, 16), 18)}
    assert mib(cpu_memory.workers(asked("node0=0"), [0]).array) == {0: 32}
    assert mib(cpu_memory.workers(asked("deep", "l3=98304:0-7"), [3, 0]).array) == {0: 192, 3: 192}


@pytest.mark.parametrize("level", ["standard", "deep"])
@pytest.mark.parametrize(
    ("slices", "kib", "cpus"),
    [
        pytest.param(1, 98304, [0], id="one idle core of a stacked cache"),
        pytest.param(1, 98304, range(8), id="all cores of a stacked cache"),
        pytest.param(24, 98304, range(192), id="a machine of stacked caches, thinned out"),
        pytest.param(24, 32768, range(384), id="384 cores"),
        pytest.param(24, 32768, range(0, 384, 16), id="one idle core of each slice"),
    ],
)
def test_what_the_workers_of_a_slice_read_is_four_times_the_slice(
    level: str, slices: int, kib: int, cpus: Sequence[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few of its cores are idle, however little room there is: else it is the slice that is measured."""
    monkeypatch.setattr(idle, "core_of", str)
    each = (max(cpus) + slices) // slices
    parts = [range(part * each, (part + 1) * each) for part in range(slices)]
    words = ";".join(f"{kib}:{part[0]}-{part[-1]}" for part in parts)
    plan = cpu_memory.workers(asked(level, f"l3={words}", f"node0=0-{max(cpus)}"), cpus)
    for part in parts:
        read = [2 * plan.least[cpu] for cpu in part if cpu in plan.least]
        assert not read or sum(read) >= 4 * kib << 10
    assert all(plan.array[cpu] >= size for cpu, size in plan.least.items())


@pytest.mark.parametrize(
    ("mib_there", "array_kib", "no_room_kib"),
    [(12, 4096, None), (11, 2048, None), (6, 2048, None), (5, 1024, 2048)],
)
def test_arrays_for_which_there_is_no_room_tell_no_rate(
    mib_there: int, array_kib: int, no_room_kib: int | None, library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "room", lambda: mib_there * MIB)
    (node,) = triad.nodes(library, triad.Plan({0: CPUS[:1]}, {CPUS[0]: 4 * MIB}, {CPUS[0]: 2 * MIB}), deadline_s=6.0)[
        "nodes"
    ]
    assert (node["array_kib"], node["no_room_kib"]) == (array_kib, no_room_kib)
    if no_room_kib is not None:
        assert (node["plain"], node["streaming"]) == (None, None)
    assert node["wrong"] == 0
    assert 2 < node["compared"] / (array_kib * 128) <= 3
    monkeypatch.setattr(room, "room", lambda: 2 * MIB)
    with pytest.raises(MemoryError, match="3 MiB are needed, and 2 MiB may be taken"):
        triad.nodes(library, ONE_WORKER, deadline_s=6.0)


def test_the_matrix_takes_what_there_is_room_for_and_arrays_larger_than_a_slice(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = []

    def matrix(library: Library, node_cpu: dict[int, int], size: int, *, deadline_s: float) -> dict[str, Any]:
        sizes.append(size)
        return {}

    monkeypatch.setattr(cpu_memory, "isolated", lambda step, deadline_s: step())
    monkeypatch.setattr(triad, "matrix", matrix)
    for words in (["l2=1024", "l3=98304:0-7;98304:8-15"], ["l2=512", "l3=8192:0-7;8192:8-15"]):
        cpu_memory._matrix(library, asked(*words), {0: 0, 1: 8}, 8.0)
    assert sizes == [194 * MIB, 32 * MIB]


def test_a_matrix_without_room_is_told_before_any_memory_is_taken(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "room", lambda: 5 * MIB)
    with pytest.raises(MemoryError, match="6 MiB are needed, and 5 MiB may be taken"):
        triad.matrix(library, {0: CPUS[0], 900: CPUS[-1]}, MIB, deadline_s=6.0)


def test_one_thread_of_each_core_works_and_nodes_in_use_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle, "core_of", lambda cpu: str(cpu % 4))
    plan = cpu_memory.workers(asked("node0=0-1,4-5", "node1=2-3,6-7", "node2="), [5, 4, 0])
    assert plan.node_cpus == {0: [0, 5]}
    assert idle.one_a_core(range(100), most=32) == [0, 1, 2, 3]


def test_many_cores_are_thinned_out_evenly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle, "core_of", str)
    assert idle.one_a_core(range(96), most=32) == list(range(0, 96, 3))
    assert [len(idle.one_a_core(range(cores), most=32)) for cores in (31, 33, 48, 100)] == [31, 32, 32, 32]
    assert idle.one_a_core(range(5), most=3) == [0, 1, 3]


# ---- Room ----


def tree(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


GIB = 1 << 30
MEMINFO = f"MemTotal: {64 * MIB} kB\nMemAvailable:   {16 * MIB} kB\n"


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("0::/\n", {}, 4 * GIB),
        ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/b/memory.current": "7\n"}, 4 * GIB),
        (
            "0::/a/b\n",
            {
                "a/memory.max": f"{4 * GIB}\n",
                "a/memory.current": f"{3 * GIB}\n",
                "a/memory.stat": f"anon 5\ninactive_file {GIB}\n",
                "a/b/memory.max": "max\n",
                "a/b/memory.current": "1\n",
            },
            GIB // 2,
        ),
        ("0::/not/visible\n", {"memory.max": f"{GIB}\n", "memory.current": "0\n"}, GIB // 4),
        (
            "0::/a\n",
            {"a/memory.max": "max\n", "a/memory.high": f"{2 * GIB}\n", "a/memory.current": f"{GIB}\n"},
            GIB // 4,
        ),
        (
            "5:cpu:/\n4:memory:/a\n0::/\n",
            {"memory/a/memory.limit_in_bytes": f"{GIB}\n", "memory/a/memory.usage_in_bytes": f"{GIB + 5}\n"},
            0,
        ),
        (
            "4:memory:/a\n",
            {"memory/a/memory.limit_in_bytes": "9223372036854771712\n", "memory/a/memory.usage_in_bytes": "1\n"},
            4 * GIB,
        ),
    ],
    ids=["none", "max", "parent-with-page-cache", "invisible-path", "slowed-down", "v1-full", "v1-unlimited"],
)
def test_a_quarter_of_the_least_that_is_left_may_be_taken(
    groups: str, files: dict[str, str], expected: int, tmp_path: Path
) -> None:
    mounts = [("cgroup2", tmp_path / "cgroup", "rw"), ("cgroup", tmp_path / "cgroup" / "memory", "rw,memory")]
    told = "".join(f"31 22 0:28 / {point} rw - {kind} {kind} {options}\n" for kind, point, options in mounts)
    tree(tmp_path / "proc", {"meminfo": MEMINFO, "self/cgroup": groups, "self/mountinfo": told})
    tree(tmp_path / "cgroup", files)
    assert room.room(proc=tmp_path / "proc") == expected


def test_where_nothing_says_how_much_there_is_nothing_is_taken(tmp_path: Path) -> None:
    assert room.room(proc=tmp_path) == 0


def test_a_node_gives_a_quarter_of_what_is_free_or_cache(tmp_path: Path) -> None:
    tree(
        tmp_path, {"node3/meminfo": "Node 3 MemTotal: 9 kB\nNode 3 MemFree:   300 kB\nNode 3 Inactive(file):  100 kB\n"}
    )
    assert room.room_on_node(3, nodes=tmp_path) == 100 * 1024
    assert room.room_on_node(4, nodes=tmp_path) is None


def test_the_child_is_the_first_that_the_kernel_ends() -> None:
    program = (
        "from amdcheck.selftest.room import be_first_to_go; be_first_to_go();"
        "print(open('/proc/self/oom_score_adj').read())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "1000"


def test_each_kind_of_stores_has_its_own_windows() -> None:
    """What stores past the caches moved is not told of the plain ones."""
    moved = {True: 2e8, False: 1e8}
    windows = [
        {"moved": moved[kind], "cpu_s": triad.WINDOW_S, "involuntary": 0, "cycle_s": None}
        for kind in triad.ATTEMPTS * triad.KINDS
    ]
    counts = {"compared": 1, "wrong": 0, "planted": 1, "noticed": 1, "first_wrong": []}
    ended = {0: {"ended": "returned", "detail": None, "result": {"windows": windows, "placed": [0], **counts}}}
    node = triad._node(0, [0], {0: 1 << 20}, {0: 1 << 20}, ended, {0: 0.0})  # type: ignore[arg-type]
    assert node["plain"]["best_s"] == pytest.approx(2 * node["streaming"]["best_s"])


def test_plain_stores_come_last_so_that_what_they_wrote_is_what_the_windows_leave(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran: list[bool] = []

    class Recorded(triad._Arrays):
        def run(self, *, non_temporal: bool, offset: int = 0, size: int = triad.CHUNK, wrong: int = -1) -> None:
            ran.append(non_temporal)
            super().run(non_temporal=non_temporal, offset=offset, size=size, wrong=wrong)

        def verify(self) -> dict[str, Any]:
            return {"ran": list(ran)}

    class Now:
        def wait(self) -> float:
            return time.monotonic()

    monkeypatch.setattr(triad, "_Arrays", Recorded)
    monkeypatch.setattr(triad, "pin", lambda cpu: None)
    told = triad._work(load(), 0, triad.LEAST_ARRAY, Now())  # type: ignore[arg-type]
    assert told["ran"][0] is True
    assert told["ran"][-1] is False
