"""What the package manager says is installed of MIOpen. Asked at level standard and above."""

from __future__ import annotations

import re

from msgspec import Struct

from amdcheck.facts.registry import fact
from amdcheck.facts.rocm import RocmInstalls
from amdcheck.host.protocol import Command, CommandResult, Host
from amdcheck.knowledge.miopen import table
from amdcheck.model.expectations import Expectations
from amdcheck.model.value import Known, Unknown, Value

_NAME = re.compile(r"[a-z0-9][a-z0-9.+-]{0,80}")
_TIMEOUT_S = 5.0


@fact
class Packages(Struct, frozen=True, kw_only=True):
    """Versions by package name, of those that are asked for and installed; epochs and distribution suffixes kept."""

    installed: Value[dict[str, str]]

    @classmethod
    def read(cls, host: Host, rocm: RocmInstalls, expect: Expectations) -> Packages:
        if expect.level == "quick":
            return cls(installed=Unknown("not-recorded", "dpkg-query", "not asked at level quick"))
        if not rocm.roots:
            return cls(installed=Unknown("absent", "dpkg-query", "not asked: no ROCm installation was found"))
        package = table().package.name
        dpkg, rpm = host.run(
            (
                Command(
                    argv=("dpkg-query", "-W", "-f=${Package}\\t${Version}\\t${db:Status-Status}\\n", package),
                    timeout_s=_TIMEOUT_S,
                ),
                Command(
                    argv=("rpm", "-q", "--qf", "%{NAME}\\t%{VERSION}-%{RELEASE}\\tinstalled\\n", package),
                    timeout_s=_TIMEOUT_S,
                ),
            )
        )
        answers = [_answer(answer) for answer in (dpkg, rpm)]
        known = [answer for answer in answers if isinstance(answer, Known)]
        if not known:
            return cls(
                installed=next((a for a in answers if isinstance(a, Unknown) and a.reason != "absent"), answers[0])
            )
        best = max(known, key=lambda answer: len(answer.value))  # both managers may exist; one of them is in use
        return cls(installed=best)


def _answer(answer: Value[CommandResult]) -> Value[dict[str, str]]:
    """Both managers end with an error code when one name is not installed, and print the others."""
    if isinstance(answer, Unknown):
        return answer
    if answer.value.timed_out:
        return Unknown("timeout", answer.source)
    return Known(parse(answer.value.stdout), answer.source)


def parse(text: str) -> dict[str, str]:
    """Lines of name, version and status, separated by tabs; lines of another form are messages."""
    found = {}
    for line in text.splitlines():
        fields = line.split("\t")
        if len(fields) == 3 and fields[2] == "installed" and _NAME.fullmatch(fields[0]) and fields[1]:
            found[fields[0]] = fields[1]
    return found
