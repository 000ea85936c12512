"""Files whose read is taken and never answered: the reader sleeps in the kernel, and SIGKILL does not end it.

A small FUSE server in a process of its own, on raw /dev/fuse without a library. Some files it serves, some reads it
only takes. It is ended when the context is left, when its parent dies, and by a watchdog; the sleeping readers then
wake up with an error.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import select
import signal
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

WATCHDOG_SECONDS = 120
_START_SECONDS = 20
_MNT_DETACH = 2
_PR_SET_PDEATHSIG = 1
_ROOT = 1  # inode

# Requests of the kernel: include/uapi/linux/fuse.h
_LOOKUP, _FORGET, _GETATTR, _OPEN, _READ, _STATFS, _RELEASE = 1, 2, 3, 14, 15, 17, 18
_FLUSH, _INIT, _OPENDIR, _READDIR, _RELEASEDIR, _INTERRUPT, _DESTROY, _BATCH_FORGET = 25, 26, 27, 28, 29, 36, 38, 42
_NO_REPLY = (_FORGET, _INTERRUPT, _BATCH_FORGET)  # an interrupted read is not given back either
_DIRECT_IO = 1  # every read reaches the server; nothing is cached


@contextlib.contextmanager
def hungfs(files: Mapping[str, str | bytes | None], *, at: Path | None = None) -> Iterator[Path]:
    """A folder with these files; reading one whose content is None never ends. Gives the folder.

    `at` is an existing folder to cover, for example one inside a host tree; else it is a temporary one. Skips the test
    where FUSE cannot be used; in CI (CI=true) that fails it, unless only the privilege is missing.
    """
    with contextlib.ExitStack() as stack:
        folder = at or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hungfs-")))
        stack.enter_context(_serving(folder, dict(files)))
        yield folder


@contextlib.contextmanager
def hung_file(path: Path) -> Iterator[Path]:
    """Cover one existing file, so that reading it never ends; everything around it stays as it is."""
    with _serving(path, None):
        yield path


@contextlib.contextmanager
def dead_mount(at: Path | None = None) -> Iterator[Path]:
    """A folder on a mount whose server is gone: whoever asks for anything on it blocks. Gives the folder."""
    with contextlib.ExitStack() as stack:
        folder = at or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hungfs-")))
        stack.enter_context(_serving(folder, {}, dead=True))
        yield folder


@contextlib.contextmanager
def _serving(place: Path, files: Mapping[str, str | bytes | None] | None, *, dead: bool = False) -> Iterator[None]:
    content = {name: _text(data) for name, data in files.items()} if files is not None else None
    argv = [sys.executable, "-I", __file__, str(place), json.dumps(content), "dead" if dead else "alive"]
    server = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        why_not = _first_line(server)
        if why_not != "up":
            _cannot(why_not)
        yield
    finally:
        server.kill()
        server.wait(_START_SECONDS)
        assert server.stdout is not None
        server.stdout.close()
        _unmount(str(place))


def _text(data: str | bytes | None) -> str | None:
    """Bytes as JSON can carry them."""
    return None if data is None else (data.encode() if isinstance(data, str) else data).decode("latin-1")


def _first_line(server: subprocess.Popen[bytes]) -> str:
    assert server.stdout is not None
    if not select.select([server.stdout], [], [], _START_SECONDS)[0]:
        return "the server did not start"
    return server.stdout.readline().decode().strip() or "the server died"


def _cannot(why: str) -> None:
    import pytest

    if os.environ.get("CI") == "true" and why not in ("EPERM", "EACCES"):
        pytest.fail(f"no FUSE: {why}")
    pytest.skip(f"no FUSE: {why}")


def _unmount(place: str) -> None:
    ctypes.CDLL(None).umount2(os.fsencode(place), _MNT_DETACH)


# The server


class _Server:
    """Serves one folder of files, or one file alone. Inode 1 is the root, the files follow in order."""

    def __init__(self, fuse: int, files: Mapping[str, bytes | None] | None, *, dead: bool) -> None:
        self._fuse = fuse
        self._dead = dead
        self._names = list(files or ())
        self._content = list((files or {}).values())
        self._is_file = files is None

    def serve(self) -> None:
        while True:
            try:
                request = os.read(self._fuse, 1 << 20)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.EAGAIN, errno.ENOENT):  # ENOENT: it was taken back meanwhile
                    continue
                return  # unmounted
            _, operation, unique, inode = struct.unpack_from("<IIQQ", request)
            if operation not in _NO_REPLY and (operation == _INIT or not self._dead):
                self._answer(operation, unique, inode, request[40:])

    def _answer(self, operation: int, unique: int, inode: int, body: bytes) -> None:
        if operation == _INIT:
            self._reply(unique, struct.pack("<IIIIHHI", 7, 31, 1 << 16, 0, 0, 0, 1 << 17).ljust(64, b"\0"))
        elif operation == _LOOKUP:
            self._look_up(unique, body.split(b"\0")[0].decode())
        elif operation == _GETATTR:
            self._reply(unique, struct.pack("<QII", 1, 0, 0) + self._attributes(inode))
        elif operation in (_OPEN, _OPENDIR):
            self._reply(unique, struct.pack("<QII", 0, _DIRECT_IO, 0))
        elif operation == _READ:
            self._read(unique, inode, body)
        elif operation == _READDIR:
            self._list(unique, body)
        elif operation == _STATFS:
            self._reply(unique, b"\0" * 80)
        elif operation in (_RELEASE, _RELEASEDIR, _FLUSH, _DESTROY):
            self._reply(unique)
        else:
            self._reply(unique, error=errno.ENOSYS)

    def _reply(self, unique: int, body: bytes = b"", *, error: int = 0) -> None:
        with contextlib.suppress(OSError):  # the asker may be gone
            os.write(self._fuse, struct.pack("<IiQ", 16 + len(body), -error, unique) + body)

    def _look_up(self, unique: int, name: str) -> None:
        if name not in self._names:
            self._reply(unique, error=errno.ENOENT)
            return
        inode = _ROOT + 1 + self._names.index(name)
        self._reply(unique, struct.pack("<QQQQII", inode, 0, 1, 1, 0, 0) + self._attributes(inode))

    def _data(self, inode: int) -> bytes | None:
        return self._content[inode - _ROOT - 1] if inode > _ROOT else None

    def _attributes(self, inode: int) -> bytes:
        is_folder = inode == _ROOT and not self._is_file
        data = self._data(inode)
        size = 4096 if data is None else len(data)  # as sysfs says of every attribute
        mode = stat.S_IFDIR | 0o755 if is_folder else stat.S_IFREG | 0o555  # may be executed, too
        return struct.pack("<6Q3I7I", inode, size, 8, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

    def _read(self, unique: int, inode: int, body: bytes) -> None:
        data = self._data(inode)
        if data is None:
            return  # taken, and never answered
        _, offset, size = struct.unpack_from("<QQI", body)
        self._reply(unique, data[offset : offset + size])

    def _list(self, unique: int, body: bytes) -> None:
        _, offset, size = struct.unpack_from("<QQI", body)
        listing = b""
        for number, name in enumerate(self._names[offset:], start=offset + 1):
            raw = name.encode()
            entry = struct.pack("<QQII", _ROOT + number, number, len(raw), stat.S_IFREG >> 12) + raw
            entry += b"\0" * (-len(entry) % 8)
            if len(listing) + len(entry) > size:
                break
            listing += entry
        self._reply(unique, listing)


def _main(place: str, content: str, life: str) -> None:
    raw: dict[str, str | None] | None = json.loads(content)
    files = None if raw is None else {name: None if t is None else t.encode("latin-1") for name, t in raw.items()}
    libc = ctypes.CDLL(None, use_errno=True)

    def leave(*_: object) -> None:
        libc.umount2(os.fsencode(place), _MNT_DETACH)
        os._exit(0)

    signal.signal(signal.SIGALRM, leave)
    signal.signal(signal.SIGTERM, leave)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    signal.alarm(WATCHDOG_SECONDS)
    try:
        fuse = os.open("/dev/fuse", os.O_RDWR)
    except OSError as error:
        print(errno.errorcode.get(error.errno or 0, error), flush=True)
        return
    rootmode = stat.S_IFREG if files is None else stat.S_IFDIR
    options = f"fd={fuse},rootmode={rootmode:o},user_id=0,group_id=0,allow_other"
    if libc.mount(b"hung", os.fsencode(place), b"fuse", 6, options.encode()) != 0:
        print(errno.errorcode.get(ctypes.get_errno(), "mount failed"), flush=True)
        return
    print("up", flush=True)
    _Server(fuse, files, dead=life == "dead").serve()


if __name__ == "__main__":
    _main(*sys.argv[1:])
