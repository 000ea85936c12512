"""What a worker sends to its supervisor: length-prefixed msgpack frames on a pipe."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from typing import Literal, Union

import msgspec
from msgspec import Struct, field

from amdcheck.engine.registry import Needs
from amdcheck.host.capture import Unfinished
from amdcheck.model.expectations import Expectations, Level
from amdcheck.model.finding import Finding

FRAME_LIMIT = 64 << 20
_LENGTH = struct.Struct("<I")


class Opened(Struct, frozen=True, tag=True):
    """The host is open; `expectations` are those that its facts are read with."""

    source: Literal["live", "capture", "tree"]
    expectations: Expectations
    privileged: bool
    recorded: Level | None = None  # the level that a recording was made at
    unfinished: Unfinished = field(default_factory=Unfinished)  # what the run did not do that recorded it


class Refused(Struct, frozen=True, tag=True):
    """The host cannot be opened: the sentence for the user."""

    sentence: str


class FactRead(Struct, frozen=True, tag=True):
    """A fact, msgpack-encoded, with everything that was recorded while reading it."""

    name: str
    data: bytes
    recorded: bytes | None


class FactFailed(Struct, frozen=True, tag=True):
    """The code of a fact raised."""

    name: str
    why: str


class CheckStarted(Struct, frozen=True, tag=True):
    id: str


class CheckDone(Struct, frozen=True, tag=True):
    id: str
    findings: tuple[Finding, ...]


class DescribedCheck(Struct, frozen=True):
    """A check of a plugin, without its code."""

    id: str
    title: str
    level: Level
    needs: Needs
    required: bool
    page: str
    origin: str


class Described(Struct, frozen=True, tag=True):
    """What a plugin registered when it was imported: its checks, and the modules of its facts by name."""

    checks: tuple[DescribedCheck, ...]
    facts: dict[str, str]


class Finished(Struct, frozen=True, tag=True):
    """Everything was done; what was recorded outside facts."""

    recorded: bytes | None


class Broke(Struct, frozen=True, tag=True):
    """The worker's own code raised where it must not: a bug, with its traceback."""

    traceback: str


Frame = Union[Opened, Refused, FactRead, FactFailed, CheckStarted, CheckDone, Described, Finished, Broke]

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Frame)


def send(fd: int, frame: Frame) -> None:
    """Write a whole frame; blocks while the pipe is full."""
    body = _encoder.encode(frame)
    rest = memoryview(_LENGTH.pack(len(body)) + body)
    while rest:
        rest = rest[os.write(fd, rest) :]


class FrameError(Exception):
    """The worker sent something that is no frame."""


class FrameBuffer:
    """Puts frames together from what the pipe gives."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that are complete now, then FrameError if garbage or an oversized frame follows them."""
        self._bytes += data
        while len(self._bytes) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._bytes)
            if length > FRAME_LIMIT:
                raise FrameError(f"a frame of {length} bytes")
            end = _LENGTH.size + length
            if len(self._bytes) < end:
                break
            try:
                frame = _decoder.decode(bytes(self._bytes[_LENGTH.size : end]))
            except (msgspec.DecodeError, UnicodeDecodeError) as error:
                raise FrameError(str(error)) from error
            del self._bytes[:end]
            yield frame
