"""The interpreter whose packages serve, where nobody named one."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

from amdcheck.host.protocol import Host


def python_to_judge(host: Host, environment: Mapping[str, str]) -> str | None:
    """That of $VIRTUAL_ENV, of $CONDA_PREFIX, or python3 on PATH; never amdcheck's own.

    Asks the host, which gives up a folder of PATH that lies on a dead mount.
    """
    ours = os.path.realpath(sys.prefix)
    active = filter(None, (environment.get("VIRTUAL_ENV"), environment.get("CONDA_PREFIX")))
    folders = (*(f"{prefix}/bin" for prefix in active), *environment.get("PATH", "").split(":"))
    for folder in filter(lambda folder: folder.startswith("/"), folders):
        prefix = host.resolve(os.path.dirname(folder.rstrip("/")) or "/").or_none()
        if prefix is None or prefix == ours:
            continue
        program = host.stat(f"{folder}/python3").or_none()
        if program is not None and program.kind == "file" and program.mode & 0o111:
            return f"{folder}/python3"
    return None
