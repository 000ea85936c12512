"""A capture as a file: one JSON document, compressed with xz, read within limits that hold while it streams."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from itertools import chain
from typing import BinaryIO

import msgspec

from amdcheck.host.capture import SCHEMA, Base64, Capture, text_bytes
from amdcheck.host.packed import unpacked
from amdcheck.host.paths import FILE_LIMIT, PATH_LIMIT, climbs
from amdcheck.model.errors import InputError
from amdcheck.model.expectations import wrong_expectation
from amdcheck.model.text import printable

COMPRESSED_LIMIT = 16 << 20
DOCUMENT_LIMIT = 256 << 20
ENTRIES_LIMIT = 300_000
DEPTH_LIMIT = 32
# A member or item costs memory whatever it holds. Every entry of a capture is one; listings add their names.
_MEMBERS_LIMIT = 4 * ENTRIES_LIMIT

_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Capture)


def encode(capture: Capture) -> bytes:
    """The capture as it is written to NAME.amdcheck.json.xz."""
    import lzma

    # Measured on 50,000 files of a 384-CPU host: 104 KiB in 0.2 s; the default preset gives 119 KiB in 4 s.
    return lzma.compress(_ENCODER.encode(capture), format=lzma.FORMAT_XZ, preset=3)


def decode(file: BinaryIO, *, name: str) -> Capture:
    """Read a capture, compressed or plain; `name` is what messages call it.

    Raises InputError with one sentence for a file that is no capture, is damaged, or is larger than a capture may be.
    """
    document = bytearray()
    scan = _Scan(name)
    for chunk in unpacked(file, name, limit=DOCUMENT_LIMIT, packed_limit=COMPRESSED_LIMIT):
        document += chunk
        scan.feed(chunk)
    return _checked(_parsed(document, name), name)


class _Scan:
    """Counts members and depth of a JSON text as it streams, before anything of it is built in memory."""

    _NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))

    def __init__(self, name: str) -> None:
        self._name = name
        self._in_string = False
        self._held = b""  # a backslash whose character comes with the next piece
        self._members = 0
        self._depth = 0

    def feed(self, chunk: bytes) -> None:
        """Look at the next piece. Raises InputError beyond a limit."""
        chunk = self._held + chunk
        backslashes = len(chunk) - len(chunk.rstrip(b"\\"))
        self._held = b"\\" * (backslashes % 2)
        chunk = chunk[: len(chunk) - len(self._held)]
        # Without escaped backslashes and quotes, every second piece between quotes is outside of strings.
        pieces = chunk.replace(rb"\\", b"").replace(rb"\"", b"").split(b'"')
        structure = b"".join(pieces[1::2] if self._in_string else pieces[::2])
        self._in_string ^= len(pieces) % 2 == 0
        self._members += structure.count(b",")
        for bracket in structure.translate(None, self._NOT_BRACKETS):
            if bracket in b"[{":
                self._depth += 1
                self._members += 1
                if self._depth > DEPTH_LIMIT:
                    raise InputError(f"{self._name}: nests deeper than {DEPTH_LIMIT} levels, which no capture does")
            else:
                self._depth -= 1
                if self._depth < 0:
                    raise InputError(f"{self._name}: is no capture (it closes what was never opened)")
        if self._members > _MEMBERS_LIMIT:
            raise _too_many(self._name)


def _too_many(name: str) -> InputError:
    return InputError(f"{name}: holds more than {ENTRIES_LIMIT} entries, which no capture does")


class _Head(msgspec.Struct):
    schema: str = "without a schema"


def _parsed(document: bytearray, name: str) -> Capture:
    try:
        return _DECODER.decode(document)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        problem = printable(str(error), limit=200)
    try:
        schema = msgspec.json.decode(document, type=_Head).schema
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise InputError(f"{name}: is no capture ({problem})") from None
    if schema != SCHEMA:
        raise InputError(f"{name}: is {printable(schema, limit=80)}; this version reads {SCHEMA}")
    raise InputError(f"{name}: is no capture ({problem})")


def _checked(capture: Capture, name: str) -> Capture:
    members: tuple[Sized, ...] = (
        capture.files,
        capture.links,
        capture.dirs,
        capture.outcomes,
        capture.resolved,
        capture.commands,
        capture.devices,
        capture.selftests,
        capture.unfinished.broken,
        capture.unfinished.not_run,
    )
    if sum(map(len, members)) > ENTRIES_LIMIT:
        raise _too_many(name)
    for path, content in capture.files.items():
        length = len(content.base64) * 3 // 4 if isinstance(content, Base64) else len(content)
        if length * 4 > FILE_LIMIT and len(text_bytes(content)) > FILE_LIMIT:
            where = printable(path, limit=200)
            raise InputError(f"{name}: {where} is larger than {FILE_LIMIT >> 20} MiB, which no file of a capture is")
    for target in capture.links.values():
        if len(target) > PATH_LIMIT:
            raise InputError(f"{name}: a link has a target of {len(target)} characters, which no link has")
    for path in _outside(capture):
        raise InputError(f"{name}: refused, for {printable(path, limit=200)} leads out of the machine it records")
    expect = capture.manifest.expectations
    if expect is not None:
        wrong = wrong_expectation(gpus=expect.gpus, gfx=expect.gfx, rocm=expect.rocm, pid=expect.pid)
        if wrong is not None:
            raise InputError(f"{name}: {printable(wrong, limit=200)}")
    return capture


def _outside(capture: Capture) -> Iterator[str]:
    """The paths that are none of a host: relative ones, and those that climb above its root.

    A link's target may: kernels take the root for what is above it, and so does a replay.
    """
    devices = (device.path for device in capture.devices)
    for path in chain(capture.files, capture.links, capture.dirs, capture.outcomes, capture.resolved, devices):
        if path[:1] != "/" or climbs(path):
            yield path
    for path, real in capture.resolved.items():
        if real[:1] != "/" or ("/.." in real and ".." in real.split("/")):
            yield path
