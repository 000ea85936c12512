"""The KFD topology: compute nodes as the amdkfd driver lists them, with memory banks, caches and links."""

from __future__ import annotations

from msgspec import Struct

from amdcheck.facts.registry import fact
from amdcheck.host.protocol import Host
from amdcheck.model.value import Value


class KfdLink(Struct, frozen=True, kw_only=True):
    """An io_link or p2p_link. `type` is the CRAT number: 2 PCIe, 11 xGMI, 1 and 5 between CPUs."""

    kind: str  # io or p2p
    index: int
    node_from: int
    node_to: int
    type: int
    weight: int
    min_bandwidth: int  # MB/s, nominal
    max_bandwidth: int


class KfdNode(Struct, frozen=True, kw_only=True):
    """One node; a GPU in a partition mode shows as several nodes of one device."""

    id: int
    gpu_id: Value[int]
    name: Value[str]
    properties: Value[dict[str, int]]
    memory_bytes: Value[
        int
    ]  # public frame buffer (heap types 1 and 2) of a GPU, system memory of a CPU node
    links: tuple[KfdLink, ...]
    link_faults: tuple[str, ...]  # link folders that contradict themselves, in words
    hidden: bool  # every file answers EPERM: the device cgroup hides this GPU

    @property
    def is_gpu(self) -> bool: ...

    @property
    def gfx(self) -> str | None:
        """The target as compilers name it (gfx90a, gfx942), None on kernels that do not say."""
        ...

    @property
    def bdf(self) -> str | None:
        """The physical device's address (function 0 for partitions)."""
        ...

    @property
    def compute_units(self) -> int | None: ...


@fact
class Kfd(Struct, frozen=True, kw_only=True):
    """`generation` moved between two readings means that the topology changed while it was read: read again."""

    generation: Value[int]
    listing: Value[tuple[int, ...]]  # node ids
    nodes: tuple[KfdNode, ...]

    @classmethod
    def read(cls, host: Host) -> Kfd:
        raise NotImplementedError
