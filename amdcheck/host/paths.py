"""What all hosts agree on: limits, which paths are none, and what answers that have no path call their source."""

from __future__ import annotations

from amdcheck.model.value import Unknown

FILE_LIMIT = 4 << 20  # bytes; no host answers more of one file (the contract's limit for a file of a capture)
PATH_LIMIT = 4096  # characters, as PATH_MAX
LINK_HOPS = 40  # links followed for one path, as the kernel does

UDEV_SOURCE = "udev database"
SYSTEM_SOURCE = "psutil"
IDENTITY_SOURCE = "process credentials"


def bad_path(path: str) -> Unknown | None:
    """Why no host can look for this path: relative, too long, or with a character that no path holds."""
    if not path.startswith("/"):
        return Unknown("failed", path, "not an absolute path")
    if len(path) > PATH_LIMIT:
        return Unknown("failed", path, "ENAMETOOLONG")
    if "\0" in path:
        return Unknown("failed", path, "a path holds no NUL")
    if not path.isascii():
        try:
            path.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            return Unknown("failed", path, "a path holds no such character")
    return None


def utf8_text(content: bytes) -> str:
    """Bytes as text; those that are no UTF-8 as surrogate escapes."""
    return content.decode("utf-8", "surrogateescape")
