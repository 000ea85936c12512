"""`list`: the checks that there are."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from amdcheck.cli.catalogue import ListedCheck, every_check, listed
from amdcheck.cli.options import ShowOptions
from amdcheck.cli.output import to_stdout
from amdcheck.cli.sheet import Sheet
from amdcheck.cli.terminal import view_of_stdout
from amdcheck.knowledge.profiles import profiles


def list_checks(options: ShowOptions) -> int:
    """Every check with its level, privilege and weight. Raises Ending when there is none."""
    checks = tuple(listed(check) for check in every_check().values())
    if options.format == "json":
        to_stdout(msgspec.json.format(msgspec.json.encode(checks), indent=2) + b"\n")
    else:
        to_stdout(_table(checks))
    return 0


def list_profiles(options: ShowOptions) -> int:
    """Every profile: whose unknowns count, and whose do not."""
    if options.format == "json":
        to_stdout(msgspec.json.format(msgspec.json.encode(profiles()), indent=2) + b"\n")
        return 0
    sheet = Sheet(view_of_stdout(detail="normal", no_color=True))
    heading = ("PROFILE", "WHAT NEEDS ROOT", "ADVISORY CHECKS")
    rows = (
        (n, "required" if p.require_all else "advisory", " ".join(p.advisory) or "-") for n, p in profiles().items()
    )
    sheet.table([heading, *rows])
    to_stdout(sheet.text())
    return 0


def _table(checks: Sequence[ListedCheck]) -> str:
    sheet = Sheet(view_of_stdout(detail="normal", no_color=True))
    heading = ("CHECK", "LEVEL", "NEEDS", "WEIGHT", "TITLE")
    sheet.table(
        [heading, *((c.id, c.level, c.needs, "required" if c.required else "advisory", c.title) for c in checks)]
    )
    return sheet.text()
