"""`capture`: record a machine, or unpack a recording."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

from amdcheck.cli.options import EvidenceOptions
from amdcheck.cli.output import check_writable, tell, to_file, to_stdout
from amdcheck.cli.request import evidence_request, run
from amdcheck.cli.terminal import progress_on_stderr
from amdcheck.model.errors import InputError
from amdcheck.model.text import printable

STDOUT = Path("-")
_UNPACK_SECONDS = 60.0  # a recording of the largest machine takes ten


def record(options: EvidenceOptions, file: Path) -> int:
    """Run and write what was read. A recording that exists is never overwritten: the machine may be gone since.

    Raises InputError and Ending.
    """
    if file != STDOUT:
        check_writable(file, fresh=True)
    request = evidence_request(options, capture=True)
    with progress_on_stderr(wanted=request.level != "quick") as on_progress:
        result = run(request, on_progress=on_progress)
    assert result.capture is not None
    if file == STDOUT:
        to_stdout(result.capture)
    else:
        to_file(file, result.capture, private=True)  # it names serials, hosts and users
        kib = len(result.capture) / 1024
        tell(f"recorded {kib:.0f} KiB; judge it with: amdcheck all --host {shlex.quote(str(file))}")
    tell("the recording is raw (redacted: false): it holds serial numbers, host and user names; share it with care")
    return 0


def unpack_capture(folder: Path, file: Path) -> int:
    """Write the recording as a host tree into a new folder. Raises InputError."""
    from amdcheck.host.apart import apart
    from amdcheck.host.capture_file import decode
    from amdcheck.host.files import open_regular
    from amdcheck.host.unpack import unpack

    shown = printable(str(file))

    def write() -> None:
        with open_regular(file) as stream:
            capture = decode(stream, name=shown)
        unpack(capture, folder)

    def look() -> None:
        open_regular(file).close()
        os.path.lexists(folder)

    try:
        apart(look)
        apart(write, seconds=_UNPACK_SECONDS)
    except OSError as error:
        raise InputError(f"{shown}: cannot be read ({error.strerror})") from error
    tell(f"unpacked into {folder}")
    return 0
