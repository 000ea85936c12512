"""psutil's answers, kept as data beside the kernel files. No check decides on them."""

from __future__ import annotations

from msgspec import Struct

from amdcheck.facts.registry import fact
from amdcheck.host.protocol import Host, SystemAnswers
from amdcheck.model.value import Value


@fact
class System(Struct, frozen=True, kw_only=True):
    answers: Value[SystemAnswers]

    @classmethod
    def read(cls, host: Host) -> System:
        return cls(answers=host.system())
