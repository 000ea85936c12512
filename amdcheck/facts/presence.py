"""Signs that this host is meant to have AMD GPUs, whether or not one answers."""

from __future__ import annotations

from msgspec import Struct

from amdcheck.facts.driver import Driver
from amdcheck.facts.kernel_log import KernelLog
from amdcheck.facts.registry import fact
from amdcheck.facts.rocm import RocmInstalls
from amdcheck.host.protocol import Host
from amdcheck.model.expectations import Expectations
from amdcheck.model.finding import Evidence


@fact
class GpuSigns(Struct, frozen=True, kw_only=True):
    """Each sign as evidence: amdgpu loaded or DKMS-installed, a ROCm root, /dev/kfd, --expect-gpus or the policy,
    this boot's kernel log naming a GPU that is gone. Empty: nothing says that GPUs are expected."""

    signs: tuple[Evidence, ...]

    @classmethod
    def read(
        cls,
        host: Host,
        driver: Driver,
        rocm: RocmInstalls,
        log: KernelLog,
        expect: Expectations,
    ) -> GpuSigns:
        raise NotImplementedError
