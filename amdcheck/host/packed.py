"""Compressed input, decompressed piece by piece within a limit: xz, gzip, bzip2, or plain."""

from __future__ import annotations

from collections.abc import Iterator
from typing import BinaryIO, Literal, Protocol

from amdcheck.model.errors import InputError

_CHUNK = 1 << 16  # bytes
_MEMBERS_LIMIT = 10_000  # compressed files one after another in one; each costs a copy of what follows
_XZ_MEMORY = 128 << 20  # bytes; the largest dictionary of xz's presets needs 65 MiB

Packing = Literal["xz", "gzip", "bzip2", "plain"]
_MAGIC: tuple[tuple[bytes, Packing], ...] = ((b"\xfd7zXZ\0", "xz"), (b"\x1f\x8b", "gzip"), (b"BZh", "bzip2"))


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


def packing(head: bytes) -> Packing:
    """How a file with this beginning is compressed."""
    return next((name for magic, name in _MAGIC if head.startswith(magic)), "plain")


def unpacked(file: BinaryIO, name: str, *, limit: int, packed_limit: int | None = None) -> Iterator[bytes]:
    """The content in pieces of at most 64 KiB.

    Raises InputError when it is damaged, cut off, or longer than a limit (bytes); `name` is what messages call it.
    """
    size = 0
    for chunk in _pieces(file, name, packed_limit):
        size += len(chunk)
        if size > limit:
            raise InputError(f"{name}: holds more than {limit >> 20} MiB, which is too much to be a recorded machine")
        yield chunk


def _pieces(file: BinaryIO, name: str, packed_limit: int | None) -> Iterator[bytes]:
    taken = 0

    def more() -> bytes:
        nonlocal taken
        read = file.read(_CHUNK)
        taken += len(read)
        if packed_limit is not None and taken > packed_limit:
            raise InputError(f"{name}: is larger than {packed_limit >> 20} MiB, which no recorded machine is")
        return read

    data = more()
    kind = packing(data)
    if kind == "plain":
        packed_limit = None  # it is bounded by what it holds
        while data:
            yield data
            data = more()
        return
    members = 1
    stream = _decompressor(kind)
    while True:
        try:
            chunk = stream.decompress(data, _CHUNK)
        except Exception as error:  # each library has errors of its own
            raise InputError(f"{name}: is damaged ({error}); copy or record it again") from None
        if chunk:
            yield chunk
        data = b""
        if stream.eof:
            data = stream.unused_data or more()
            if not data.strip(b"\0"):  # the end, or padding
                return
            members += 1
            if members > _MEMBERS_LIMIT:
                raise InputError(f"{name}: is made of more than {_MEMBERS_LIMIT} compressed pieces; compress it again")
            stream = _decompressor(kind)
        elif stream.needs_input:
            data = more()
            if not data:
                raise InputError(f"{name}: is cut off; copy or record it again")


def _decompressor(kind: Packing) -> _Decompressor:
    if kind == "xz":
        import lzma

        return lzma.LZMADecompressor(format=lzma.FORMAT_XZ, memlimit=_XZ_MEMORY)
    if kind == "bzip2":
        import bz2

        return bz2.BZ2Decompressor()
    return _Gzip()


class _Gzip:
    """zlib's decompressor in the shape of the other two."""

    def __init__(self) -> None:
        import zlib

        self._stream = zlib.decompressobj(wbits=31)

    @property
    def eof(self) -> bool:
        return self._stream.eof

    @property
    def needs_input(self) -> bool:
        return not self._stream.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._stream.unused_data

    def decompress(self, data: bytes, max_length: int = -1) -> bytes:
        return self._stream.decompress(self._stream.unconsumed_tail + data, max(max_length, 0))
