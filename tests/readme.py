"""The example of the README: a composed machine with a fault, its capture in fixtures/, and what amdcheck says of it.

python -m tests.readme    writes both anew, after a change of the composer, the checks or the report
"""

from __future__ import annotations

import re
from pathlib import Path

from amdcheck.engine.run import RunRequest, run
from amdcheck.host.capture_file import encode
from amdcheck.report.formats import render
from amdcheck.report.view import View
from tests.compose import compose

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
CAPTURE = ROOT / "fixtures" / "captures" / "mi210-narrow-link.amdcheck.json.xz"
_BLOCK = re.compile(r"(<!-- example -->\n```text\n).*?(```\n)", re.DOTALL)


def composed_capture() -> bytes:
    return encode(compose("mi210-8gpu-2hive-epyc7763x2", "link-width-x8").capture())


def example(capture: Path) -> str:
    """What `amdcheck all --host FILE` prints at 80 columns, without how long it took."""
    report = run(RunRequest(host=capture)).report
    return re.sub(r" in \d+\.\d s$", "", render("console", report, View(width=80)), flags=re.MULTILINE)


def shown_in_readme() -> str:
    """The example as it stands in the README."""
    found = _BLOCK.search(README.read_text(encoding="utf-8"))
    assert found is not None
    return found[0].removeprefix(found[1]).removesuffix(found[2])


def main() -> None:
    CAPTURE.parent.mkdir(exist_ok=True)
    CAPTURE.write_bytes(composed_capture())
    text = README.read_text(encoding="utf-8")
    README.write_text(_BLOCK.sub(lambda block: block[1] + example(CAPTURE) + block[2], text), encoding="utf-8")


if __name__ == "__main__":
    main()
