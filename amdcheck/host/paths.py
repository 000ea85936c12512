"""What all hosts agree on: limits, which paths are none, and what answers that have no path call their source."""

from __future__ import annotations

from collections.abc import Sequence

from amdcheck.model.value import Unknown

FILE_LIMIT = 4 << 20  # bytes; no host answers more of one file (the contract's limit for a file of a capture)
PATH_LIMIT = 4096  # characters, as PATH_MAX
NAMES_LIMIT = 100_000  # in one folder
LINK_HOPS = 40  # links followed for one path, as the kernel does

TREE_FOLDERS = ("proc", "sys")  # a tree that holds neither is no host's

UDEV_SOURCE = "udev database"
SYSTEM_SOURCE = "psutil"
IDENTITY_SOURCE = "process credentials"


def bad_path(path: str) -> Unknown | None:
    """Why no host can look for this path: relative, above the root, too long, or with what no path holds."""
    if not path.startswith("/"):
        return Unknown("failed", path, "not an absolute path")
    if len(path) > PATH_LIMIT:
        return Unknown("failed", path, "ENAMETOOLONG")
    if not _can_be_passed(path):
        return Unknown("failed", path, "not a file name")
    return Unknown("failed", path, "it leads above the root") if climbs(path) else None


def climbs(path: str) -> bool:
    """Does a path lead above the root, by its words alone? Nobody means that, and no document holds it."""
    if "/.." not in path:
        return False
    depth = 0
    for part in path.split("/"):
        if part not in ("", "."):
            depth += -1 if part == ".." else 1
        if depth < 0:
            return True
    return False


def bad_argv(argv: Sequence[str], source: str) -> Unknown | None:
    """Why no command can have these words."""
    if argv and argv[0] and all(map(_can_be_passed, argv)):
        return None
    return Unknown("failed", source, "not a command line")


def _can_be_passed(word: str) -> bool:
    """Neither NUL, which ends a string, nor a lone surrogate, which is no character."""
    if "\0" in word:
        return False
    if not word.isascii():
        try:
            word.encode("utf-8")
        except UnicodeEncodeError:
            return False
    return True


def utf8_text(content: bytes) -> str:
    """Bytes as text; those that are no UTF-8 come as backslash escapes, so that the text can always be encoded."""
    return content.decode("utf-8", "backslashreplace")


def encodable(text: str) -> str:
    """Text that Python decoded with surrogate escapes, in the form of `utf8_text`."""
    return text if text.isascii() else utf8_text(text.encode("utf-8", "surrogateescape"))
