"""What a recording keeps of a process's environment: values that matter to inference, of all others the name."""

from __future__ import annotations

import re

# Variables of the runtimes that are judged.
_KEPT_PREFIXES = (
    "HIP_", "HSA_", "ROCR_", "ROCM_", "ROCBLAS_", "GPU_", "CUDA_VISIBLE_", "MIOPEN_", "NCCL_", "RCCL_", "OMP_", "GOMP_",
    "KMP_", "OPENBLAS_", "MKL_", "BLIS_", "ORT_", "TORCH_", "PYTORCH_", "VLLM_",
)  # fmt: skip
# HOME says where MIOpen writes, `container` which runtime started the first process.
_KEPT = frozenset({"HOME", "container"})
# Among the kept prefixes too there are variables that let somebody in: VLLM_API_KEY.
_SECRET_WORDS = frozenset({"KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "PASS", "CREDENTIAL", "CREDENTIALS", "AUTH"})
_FILE = re.compile(r"/proc/.*/environ")
_NAME = re.compile(rb"[A-Za-z_][A-Za-z0-9_]{0,127}")


def is_environment(path: str) -> bool:
    """Is this the file of a process's environment: /proc/PID/environ, or that of one of its threads."""
    return _FILE.fullmatch(path) is not None


def without_secrets(environ: bytes) -> bytes:
    """The same environment with NAME=value where the value may be recorded, and NAME alone for all others.

    What has no name before an equals sign is dropped: a program may have written anything over its environment.
    """
    kept = bytearray()
    for entry in environ.split(b"\0"):
        name, equals, _ = entry.partition(b"=")
        if equals and _NAME.fullmatch(name):
            kept += (entry if _may_be_recorded(name.decode("ascii")) else name) + b"\0"
    return bytes(kept)


def _may_be_recorded(name: str) -> bool:
    wanted = name in _KEPT or name.startswith(_KEPT_PREFIXES)
    return wanted and _SECRET_WORDS.isdisjoint(name.upper().split("_"))
