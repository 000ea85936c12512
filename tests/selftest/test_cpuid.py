"""Raw CPUID, on this machine against /proc/cpuinfo, and the instruction-set table against recorded processors."""

from __future__ import annotations

import ctypes
import os
import re
import struct
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from amdcheck.knowledge.isa import isa_table
from amdcheck.selftest import cpuid
from amdcheck.selftest.isolate import isolated
from amdcheck.selftest.library import load
from tests.corpus import CORPUS, needs_corpus
from tests.selftest.conftest import offered_flags

Registers = tuple[int, int, int, int]

# Linux prctl.h: a mapping may not be writable and executable at once, from Linux 6.3 on.
PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN = 65, 1


def _this_machine() -> dict[str, Registers]:
    return {key: tuple(registers) for key, registers in cpuid.read(None)["leaves"].items()}


def test_the_vendor_is_the_one_in_proc_cpuinfo() -> None:
    _, ebx, ecx, edx = _this_machine()["0x0.0"]
    assert f"vendor_id\t: {struct.pack('<3I', ebx, edx, ecx).decode()}\n" in Path("/proc/cpuinfo").read_text()


def test_what_the_kernel_offers_is_in_cpuid_and_enabled() -> None:
    leaves, xcr0 = _this_machine(), cpuid.read(None)["xcr0"]
    flags = offered_flags()
    for key, row in isa_table().isa.items():
        if set(row.flags) <= flags:
            assert row.in_processor(leaves), key
            assert row.enabled(xcr0), key


def test_selinux_that_enforces_and_allows_executable_pages_is_no_denial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As RHEL, Rocky and Alma are installed: sestatus says enforcing, and a program may map executable pages."""
    here = _this_machine()
    sestatus = tmp_path / "sestatus"
    sestatus.write_text("#!/bin/sh\necho 'SELinux status:  enabled'\necho 'Current mode:  enforcing'\n")
    sestatus.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert _this_machine().keys() == here.keys()


@pytest.mark.parametrize("has_library", [True, False])
def test_where_executable_pages_are_refused_the_library_is_asked(*, has_library: bool) -> None:
    """As SELinux without execmem and MemoryDenyWriteExecute= do: here by the kernel's own switch for one process."""
    library = load() if has_library else None

    def refused() -> dict[str, object]:
        if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_MDWE, PR_MDWE_REFUSE_EXEC_GAIN, 0, 0, 0) != 0:
            return {"no_switch": os.strerror(ctypes.get_errno())}
        return cpuid.read(library)

    ended = isolated(refused, deadline_s=10)
    if ended["result"] is not None and "no_switch" in ended["result"]:
        pytest.skip(f"Linux before 6.3 has no such switch: {ended['result']['no_switch']}")
    if has_library:
        assert ended["result"] is not None
        here = cpuid.read(None)
        stays = [key for key in here["leaves"] if key != "0x1.0"]  # whose EBX names the core that was asked
        assert {key: ended["result"]["leaves"][key] for key in stays} == {key: here["leaves"][key] for key in stays}
        assert ended["result"]["leaves"]["0x1.0"][::2] == here["leaves"]["0x1.0"][::2]
        assert ended["result"]["xcr0"] == here["xcr0"]
    else:
        assert (ended["ended"], ended["result"]) == ("denied", None)
        assert "Permission denied" in (ended["detail"] or "")


def test_another_architecture_has_no_cpuid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine="aarch64"))
    with pytest.raises(OSError, match="no CPUID instruction on aarch64"):
        cpuid.read(None)


def _hwloc(name: str) -> dict[str, Registers]:
    """A dump by hwloc-gather-cpuid: input mask, EAX to EDX in, EAX to EDX out, of the first processor."""
    with tarfile.open(CORPUS / "cpuid" / f"hwloc-{name}.tar.bz2") as archive:
        member = next(m for m in archive.getmembers() if m.name.endswith("/pu0"))
        file = archive.extractfile(member)
        assert file is not None
        text = file.read().decode()
    return dict(_hwloc_leaves(text))


def _hwloc_leaves(text: str) -> Iterator[tuple[str, Registers]]:
    for line in text.splitlines():
        if line.startswith("#") or "=>" not in line:
            continue
        given, _, found = line.partition(" => ")
        _, leaf, _, subleaf, _ = (int(word, 16) for word in given.split())
        eax, ebx, ecx, edx = (int(word, 16) for word in found.split())
        yield f"{leaf:#x}.{subleaf:x}", (eax, ebx, ecx, edx)


def _libcpuid(name: str) -> dict[str, Registers]:
    """A dump by cpuid_tool, of the first processor."""
    text = (CORPUS / "cpuid" / f"libcpuid-amd-{name}.test").read_text()
    leaves: dict[str, Registers] = {}
    for match in re.finditer(r"^CPUID ([0-9A-F]{8}): ((?:[0-9A-F]{8}-?){4})(?: \[SL ([0-9A-F]{2})\])?", text, re.M):
        eax, ebx, ecx, edx = (int(word, 16) for word in match[2].split("-"))
        leaves.setdefault(f"{int(match[1], 16):#x}.{int(match[3] or '0', 16):x}", (eax, ebx, ecx, edx))
    return leaves


# The dumps of the two older hwloc recordings do not hold Fn8000_001A, and Intel's processors have none.
@needs_corpus
@pytest.mark.parametrize(
    ("leaves", "has", "bits"),
    [
        pytest.param(lambda: _hwloc("AMD-15h-Bulldozer-4xOpteron-6272"), "sse2", None, id="Opteron 6272, no AVX2"),
        pytest.param(lambda: _hwloc("AMD-17h-Zen-2xEpyc-7451"), "sse2 avx2 fma", None, id="EPYC 7451, Zen 1"),
        pytest.param(lambda: _libcpuid("ryzen-threadripper-2950x-16-core-processor"), "sse2 avx2 fma", 128, id="Zen 1"),
        pytest.param(lambda: _libcpuid("ryzen-threadripper-pro-3955wx-16-cores"), "sse2 avx2 fma", 256, id="Zen 2"),
        pytest.param(lambda: _hwloc("AMD-19h-Zen3-2xEpyc-7763"), "sse2 avx2 fma", 256, id="EPYC 7763, Zen 3"),
        pytest.param(
            lambda: _libcpuid("ryzen-9-9950x-16-core-processor"),
            "sse2 avx2 fma avx_vnni avx512f avx512_vnni avx512_bf16",
            512,
            id="9950X, Zen 5",
        ),
        pytest.param(
            lambda: _hwloc("Intel-SapphireRapids-2xXeonMax9460"),
            "sse2 avx2 fma avx_vnni avx512f avx512_vnni avx512_bf16",
            None,
            id="Xeon Max 9460",
        ),
    ],
)
def test_the_table_finds_the_instruction_sets_of_recorded_processors(
    leaves: Callable[[], dict[str, Registers]], has: str, bits: int | None
) -> None:
    recorded = leaves()
    table = isa_table()
    assert [key for key, row in table.isa.items() if row.in_processor(recorded)] == has.split()
    assert table.datapath_bits(recorded) == bits


def test_state_that_is_not_enabled_is_told_by_xcr0() -> None:
    rows = isa_table().isa
    assert [key for key, row in rows.items() if row.enabled(0x7)] == ["sse2", "avx2", "fma", "avx_vnni"]
    assert [key for key, row in rows.items() if row.enabled(None)] == ["sse2"]
    assert all(row.enabled(0x602E7) for row in rows.values())


def test_words_that_mask_are_found_on_the_command_line_and_others_are_not() -> None:
    line = "BOOT_IMAGE=/vmlinuz quiet clearcpuid=avx512f,avx2 gather_data_sampling=off noxsave amd_iommu=on"
    assert isa_table().masking_words(line) == ("clearcpuid=avx512f,avx2", "noxsave")
    assert isa_table().masking_words("gather_data_sampling=force noxsaves") == ("gather_data_sampling=force",)
