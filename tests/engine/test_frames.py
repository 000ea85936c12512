"""Frames that were whole before the pipe was garbled are taken: they say what the worker was doing."""

from __future__ import annotations

import os

import pytest

from amdcheck.engine.frames import CheckStarted, FrameBuffer, FrameError, send


def sent(*ids: str) -> bytes:
    reader, writer = os.pipe()
    try:
        for id in ids:
            send(writer, CheckStarted(id))
        return os.read(reader, 1 << 16)
    finally:
        os.close(reader)
        os.close(writer)


def test_what_was_whole_before_the_garbage_is_given_first() -> None:
    frames = FrameBuffer().feed(sent("cpu.vendor", "cpu.isa") + b"{" * 100)
    assert [next(frames), next(frames)] == [CheckStarted("cpu.vendor"), CheckStarted("cpu.isa")]
    with pytest.raises(FrameError, match="a frame of"):
        next(frames)


def test_a_frame_in_pieces_is_given_when_it_is_whole() -> None:
    buffer, data = FrameBuffer(), sent("cpu.vendor")
    assert [frame for byte in data for frame in buffer.feed(bytes([byte]))] == [CheckStarted("cpu.vendor")]
