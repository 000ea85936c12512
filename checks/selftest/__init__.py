"""Checks of the group selftest."""

from __future__ import annotations

from amdcheck.api import HOST, Finding, shown, skipped, undetermined
from amdcheck.facts.selftests import Group
from amdcheck.knowledge.remedies import remedy


def not_measured(check: str, group: Group) -> Finding | None:
    """Why the child that `check` rests on measured nothing: gave no answer, no library, no idle CPU."""
    if group.unread is not None:
        return undetermined(check, HOST, "the self-test did not run", because=group.unread)
    if group.lacks is not None:
        told = shown(group.source, group.lacks)
        return undetermined(check, HOST, group.lacks, told, outcome="absent", remedy=remedy(f"{check}/absent"))
    if group.busy is not None:
        told = shown(group.source, group.busy, volatile=True)
        reason = "every CPU is in use; --allow-busy measures all the same"
        return skipped(check, HOST, reason, told, outcome="busy")
    return None
