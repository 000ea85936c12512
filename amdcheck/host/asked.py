"""What a self-test's child is asked for, in words; without the host's records, which a child does not need to start."""

from __future__ import annotations

from collections.abc import Iterable

# Among the parameters of a self-test: it may use CPUs that are in use; and NAME=RATE, below which a rate would be a
# finding, so that it is looked at again.
ALLOW_BUSY = "allow-busy"
LEAST = "least:"


def asked_for(params: Iterable[str]) -> tuple[str, ...]:
    """What is measured, without the words that say how: those are no part of the key by which it is recorded."""
    return tuple(word for word in params if word != ALLOW_BUSY and not word.startswith(LEAST))
