"""What checks import, ours and those of others: the decorators, predicates and words to say a finding with."""

from amdcheck.engine.registry import check
from amdcheck.facts.cpu import has_amd_cpu
from amdcheck.facts.gpus import has_amd_gpu
from amdcheck.facts.registry import fact
from amdcheck.host.protocol import Host, Stat
from amdcheck.model.expectations import Expectations
from amdcheck.model.finding import (
    HOST,
    Evidence,
    Finding,
    Metric,
    Remedy,
    Step,
    Subject,
    evidence,
    failed,
    manual,
    passed,
    shown,
    skipped,
    undetermined,
    warned,
)
from amdcheck.model.value import Known, Unknown, Value

__all__ = [
    "HOST",
    "Evidence",
    "Expectations",
    "Finding",
    "Host",
    "Known",
    "Metric",
    "Remedy",
    "Stat",
    "Step",
    "Subject",
    "Unknown",
    "Value",
    "check",
    "evidence",
    "fact",
    "failed",
    "has_amd_cpu",
    "has_amd_gpu",
    "manual",
    "passed",
    "shown",
    "skipped",
    "undetermined",
    "warned",
]
