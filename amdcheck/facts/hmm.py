"""What decides whether the kernel can move pages between host and GPU: its configuration and amdgpu's retry setting."""

from __future__ import annotations

import re
import zlib

from msgspec import Struct

from amdcheck.facts.platform import Platform
from amdcheck.facts.registry import fact
from amdcheck.host.protocol import Host
from amdcheck.model.value import Known, Unknown, Value

NORETRY = "/sys/module/amdgpu/parameters/noretry"
# Heterogeneous memory management needs all three: the mirror of page tables, pages that live on a device, and
# amdkfd's shared virtual memory on top.
OPTIONS = ("CONFIG_HSA_AMD_SVM", "CONFIG_DEVICE_PRIVATE", "CONFIG_HMM_MIRROR")
_OPTION = re.compile(rf"^({'|'.join(OPTIONS)})=(\w{{1,20}})$", re.MULTILINE)
_SETTING = re.compile(r"^CONFIG_\w+=", re.MULTILINE)
_RELEASE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+~-]{0,99}")
_LIMIT = 4 << 20  # bytes of a configuration, unpacked
_NORETRY = re.compile(r"-?[0-9]{1,3}")


@fact
class Hmm(Struct, frozen=True, kw_only=True):
    """`options` are the kernel's answers to OPTIONS: y, m or n. `noretry`: -1 the driver decides, 0 retry, 1 none."""

    options: Value[dict[str, str]]
    noretry: Value[int]

    @classmethod
    def read(cls, host: Host, platform: Platform) -> Hmm:
        return cls(options=_configuration(host, platform.kernel), noretry=host.read(NORETRY).parse(_noretry))

    @property
    def offered(self) -> bool | None:
        """Is all of HMM built in; None where the configuration could not be read."""
        if isinstance(self.options, Unknown):
            return None
        return all(self.options.value[name] == "y" for name in OPTIONS)


def _configuration(host: Host, kernel: Value[str]) -> Value[dict[str, str]]:
    """The configuration of the kernel that runs: installed beside it by its release, or inside it."""
    release = kernel.or_none() or ""
    if _RELEASE.fullmatch(release):
        for path in (f"/boot/config-{release}", f"/lib/modules/{release}/config"):
            found = host.read(path, limit=_LIMIT).parse(_options)
            if isinstance(found, Known):
                return found
    return host.read_bytes("/proc/config.gz").parse(_unpacked).parse(_options)


def _unpacked(content: bytes) -> str:
    """The text of a gzip file, bounded. Raises ValueError for anything else."""
    unpacker = zlib.decompressobj(wbits=31)
    try:
        return unpacker.decompress(content, _LIMIT).decode("utf-8", "replace")
    except zlib.error as error:
        raise ValueError(f"not a gzip file: {error}") from error


def _options(text: str) -> dict[str, str]:
    """A setting that the file does not assign is off. Raises ValueError for text that assigns none at all."""
    if _SETTING.search(text) is None:
        raise ValueError("not a kernel configuration")
    return dict.fromkeys(OPTIONS, "n") | dict(_OPTION.findall(text))


def _noretry(text: str) -> int:
    if _NORETRY.fullmatch(text.strip()) is None:
        raise ValueError(f"not a setting: {text[:60]!r}")
    return int(text)
