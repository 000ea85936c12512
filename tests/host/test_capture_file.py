"""The capture file: it comes back as it was written, and nothing that is not one is taken for one."""

from __future__ import annotations

import contextlib
import io
import json
import lzma
import random
import time
from collections.abc import Iterator

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amdcheck.host import capture_file
from amdcheck.host.capture import Capture
from amdcheck.host.capture_file import DEPTH_LIMIT, ENTRIES_LIMIT, decode, encode
from amdcheck.host.snapshot import SnapshotHost
from amdcheck.model.errors import InputError
from amdcheck.model.value import Known
from tests.memory_host import memory_capture

SMALL = memory_capture({"/proc/version": "Linux\n", "/sys/rom": b"\xff\0"}, outcomes={"/sys/kernel/debug": "denied"})
DOCUMENT = msgspec.json.encode(SMALL)


def refused(data: bytes) -> str:
    """The one sentence with which a file is refused."""
    with pytest.raises(InputError) as error:
        decode(io.BytesIO(data), name="FILE")
    sentence = str(error.value)
    assert sentence.startswith("FILE: ")
    assert "\n" not in sentence
    assert sentence.isprintable()
    return sentence


def changed(**members: object) -> bytes:
    return json.dumps(json.loads(DOCUMENT) | members).encode()


def expecting(**expectations: object) -> bytes:
    return changed(manifest=json.loads(DOCUMENT)["manifest"] | {"expectations": expectations})


def test_a_link_with_more_dots_than_it_is_deep_leads_where_the_kernel_says() -> None:
    recorded = memory_capture({"/opt/rocm-6.4.1/x": "y"}, links={"/opt/rocm": "../../../opt/rocm-6.4.1"})
    host = SnapshotHost(decode(io.BytesIO(encode(recorded)), name="FILE"))
    assert host.read("/opt/rocm/x") == Known("y", "/opt/rocm/x")


def test_it_comes_back_compressed_and_plain() -> None:
    data = encode(SMALL)
    assert data.startswith(b"\xfd7zXZ\0")
    assert decode(io.BytesIO(data), name="FILE") == SMALL
    assert decode(io.BytesIO(DOCUMENT), name="FILE") == SMALL


def test_pieces_that_were_compressed_apart_are_counted_once() -> None:
    pieces = [*(DOCUMENT[place : place + 1] for place in range(len(DOCUMENT))), *[b" "] * 2000]
    data = b"".join(map(lzma.compress, pieces))
    assert len(data) < 1 << 20
    assert decode(io.BytesIO(data), name="FILE") == SMALL


def test_bytes_that_are_no_text_are_base64_as_published() -> None:
    raw = json.loads(DOCUMENT)
    assert raw["files"] == {"/proc/version": "Linux\n", "/sys/rom": {"base64": "/wA="}}
    assert raw["outcomes"] == {"/sys/kernel/debug": "denied"}
    assert raw["schema"] == "amdcheck.capture/1"
    assert raw["manifest"]["created"] == "2026-01-02T03:04:05Z"


def test_published_members_are_enough() -> None:
    raw = json.loads(DOCUMENT)
    for addition in ("real_paths", "resolved", "unanswered", "cut", "unfinished"):
        del raw[addition]
    assert decode(io.BytesIO(json.dumps(raw).encode()), name="FILE").files == SMALL.files


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "is no capture"),
        (b"{}", "without a schema"),
        (b"[]", "is no capture"),
        (b"{", "is no capture"),
        (b"]" * 10, "closes what was never opened"),
        (DOCUMENT[:-1], "is no capture"),
        (DOCUMENT + b"x", "is no capture"),
        (DOCUMENT.replace(b"capture/1", b"capture/2"), "amdcheck.capture/2; this version reads amdcheck.capture/1"),
        (DOCUMENT.replace(b"capture/1", b"report/1"), "amdcheck.report/1"),
        (DOCUMENT.replace(b"capture/1", b"\\u001b[31m"), "this version reads"),
        (DOCUMENT.replace(b"Linux", b"\xff"), "is no capture"),
        (DOCUMENT.replace(b"Linux", b"\\ud800"), "is no capture"),
        (DOCUMENT.replace(b"Linux", b"\\ud800 x"), "is no capture"),
        (DOCUMENT.replace(b"Linux", b"\\udc80 x y z"), "is no capture"),
        (DOCUMENT.replace(b'"Linux\\n"', b"NaN"), "is no capture"),
        (changed(files={"/a": 1}), "is no capture"),
        (changed(files={"/a": {"base32": ""}}), "is no capture"),
        (changed(outcomes={"/a": "gone"}), "is no capture"),
        (changed(dirs={"/a": [1]}), "is no capture"),
        (changed(links={"/a": "x" * 5000}), "a link has a target"),
        (changed(files={"/a": "x" * (4 << 20) + "x"}), "/a is larger than 4 MiB"),
        (changed(files={"/a": "ä" * (2 << 20) + "x"}), "/a is larger than 4 MiB"),
        (changed(files={"/sys/../../etc/passwd": "x"}), "/sys/../../etc/passwd leads out of the machine"),
        (changed(files={"../etc/passwd": "x"}), "../etc/passwd leads out of the machine"),
        (changed(dirs={"/..": ["x"]}), "/.. leads out of the machine"),
        (changed(resolved={"/sys/a": "/sys/../etc"}), "/sys/a leads out of the machine"),
        (expecting(rocm="garbage"), "expect.rocm 'garbage' is no version range"),
        (expecting(gpus=-1), "expect.gpus must not be negative"),
        (expecting(gpus=10**30), "expect.gpus is more than 4096"),
        (expecting(gfx="\n"), r"expect.gfx '\n' is no target"),
        (expecting(pid=0), "0 is not the number of a process"),
        (changed(more=json.loads("[" * 40 + "]" * 40)), "nests deeper than 32 levels"),
        (b'{"schema":' + b"[" * 100_000, "nests deeper"),
        (b'{"schema":' + b'{"a":' * 100_000, "nests deeper"),
    ],
    ids=lambda value: value[:24] if isinstance(value, str) else None,
)
def test_what_is_no_capture_is_refused(data: bytes, words: str) -> None:
    assert words in refused(data)
    assert words in refused(lzma.compress(data, preset=0))


def test_nan_in_numbers_is_refused() -> None:
    system = {"logical_cpus": 1, "physical_cores": 1, "memory_bytes": 1, "available_bytes": 1, "boot_time": None}
    manifest = json.loads(DOCUMENT)["manifest"] | {"system": system | {"load_1m": "@"}}
    for number in (b"NaN", b"Infinity", b"1e999", b"-"):
        assert "is no capture" in refused(changed(manifest=manifest).replace(b'"@"', number))


def test_damaged_compression_is_refused() -> None:
    data = encode(SMALL)
    for cut in (6, 12, len(data) // 2, len(data) - 1):
        assert "cut off" in refused(data[:cut])
    assert "damaged" in refused(data[:40] + b"\0\0\0\0" + data[44:])
    assert "damaged" in refused(data + b"garbage" * 4)
    assert decode(io.BytesIO(data + b"\0" * 8), name="FILE") == SMALL  # padding


class Zeros(io.RawIOBase):
    """A compressed file of 10 GB of zeros, made while it is read."""

    def __init__(self) -> None:
        self._parts = self._compressed()
        self.given = 0

    @staticmethod
    def _compressed() -> Iterator[bytes]:
        compressor = lzma.LZMACompressor(preset=0)
        for _ in range(10_000):
            yield compressor.compress(b"\0" * 1_000_000)
        yield compressor.flush()

    def read(self, size: int = -1) -> bytes:
        part = b""
        while not part:
            part = next(self._parts)
        self.given += len(part)
        return part


def test_ten_gigabytes_of_zeros_are_refused_in_time() -> None:
    file = Zeros()
    began = time.monotonic()
    with pytest.raises(InputError, match="more than 256 MiB"):
        decode(file, name="FILE")  # type: ignore[arg-type]
    assert time.monotonic() - began < 20
    assert file.given < 1 << 20


def test_a_large_compressed_file_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert capture_file.COMPRESSED_LIMIT == 16 << 20
    monkeypatch.setattr(capture_file, "COMPRESSED_LIMIT", 1 << 20)
    noise = random.Random(1).randbytes(2 << 20).translate(bytes.maketrans(b'"\\[]{},', b"       "))
    assert "larger than 1 MiB" in refused(lzma.compress(noise, preset=0))


def test_too_many_entries_are_refused_before_they_are_built() -> None:
    members = b",".join(b'"%d":""' % number for number in range(4 * ENTRIES_LIMIT + 10))
    document = DOCUMENT.replace(b'"files":{', b'"files":{' + members + b",")
    began = time.monotonic()
    assert f"more than {ENTRIES_LIMIT} entries" in refused(document)
    assert time.monotonic() - began < 10


def test_the_limit_on_entries_is_exact() -> None:
    def with_files(count: int) -> bytes:
        return msgspec.json.encode(memory_capture({f"/{number}": "" for number in range(count)}, complete=False))

    assert len(decode(io.BytesIO(with_files(ENTRIES_LIMIT)), name="FILE").files) == ENTRIES_LIMIT
    assert f"more than {ENTRIES_LIMIT} entries" in refused(with_files(ENTRIES_LIMIT + 1))


def test_depth_within_the_limit_is_read() -> None:
    levels = DEPTH_LIMIT - 1
    assert decode(io.BytesIO(changed(more=json.loads("[" * levels + "]" * levels))), name="FILE") == SMALL


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_a_mutated_capture_is_read_or_refused(data: st.DataObject) -> None:
    document = bytearray(DOCUMENT)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(document) - 1))
        document[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    with contextlib.suppress(InputError):
        assert isinstance(decode(io.BytesIO(document), name="FILE"), Capture)


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="."), min_size=1), st.binary()),
    st.dictionaries(st.text('ab/\\"[]{},\0é', min_size=1), st.text('ab/\\"[]{},\0é\U0001f600')),
)
def test_every_text_comes_back(files: dict[str, bytes], links: dict[str, str]) -> None:
    capture = msgspec.structs.replace(
        SMALL,
        files=memory_capture({f"/{path}": content for path, content in files.items()}, complete=False).files,
        links={f"/{path}": target for path, target in links.items()},
    )
    assert decode(io.BytesIO(encode(capture)), name="FILE") == capture
