"""The amdgpu driver: loaded or not, in-tree or DKMS, its version in the strings of every era."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from amdcheck.facts.platform import Platform
from amdcheck.facts.registry import fact
from amdcheck.host.protocol import Host
from amdcheck.model.value import Value


@fact
class Driver(Struct, frozen=True, kw_only=True):
    """`kind` absent means: not loaded. An in-tree module has no version string of its own; that is no fault."""

    loaded: Value[bool]
    kind: Value[Literal["dkms", "in-tree", "absent"]]
    module_version: Value[str]  # /sys/module/amdgpu/version: 6.14.14, 6.19.14.31400100
    packaged: Value[str]  # the release that string stands for: 30.10, 31.40.1, ROCm 6.2
    srcversion: Value[str]
    dkms_installed: Value[
        tuple[str, ...]
    ]  # amdgpu versions in the DKMS tree, built for this kernel or not
    kfd_device: Value[bool]  # /dev/kfd exists

    @classmethod
    def read(cls, host: Host, platform: Platform) -> Driver:
        raise NotImplementedError
