"""GPUs in the cost model: peak rates from data sheets, and the fractions that programs reach."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch


@dataclass(frozen=True, slots=True)
class Gpu:
    """``bandwidth`` in bytes per second; ``vector`` and ``matrix`` in operations per second by dtype (dense).

    ``launch`` is the time in seconds between the starts of two empty kernels, if the host keeps up; the times that
    an H100 took for kernels are this time and the work's.
    """

    name: str
    capability: int
    """Compute capability, as in ``sm_90``."""
    processors: int
    """Number of streaming multiprocessors."""
    bandwidth: float
    l2: int
    """Bytes of the L2 cache."""
    caches: float
    """Bytes per second that all processors together get from the caches."""
    vector: MappingProxyType[torch.dtype, float]
    matrix: MappingProxyType[torch.dtype, float]
    launch: float = 2.0e-6

    def peak(self, dtype: torch.dtype, *, matrix: bool) -> float:
        """Return operations per second; an unlisted dtype counts as float32."""
        table = self.matrix if matrix and dtype in self.matrix else self.vector
        return table.get(dtype, self.vector[torch.float32])


REACHED_BANDWIDTH = 0.9
"""The fraction of peak bandwidth that a copy of a large tensor reaches."""
REACHED_MATRIX = 0.75
"""The fraction of the peak rate that a large library matrix product reaches."""


def _rates(single: float, double: float) -> MappingProxyType[torch.dtype, float]:
    """Return operations per second for float32 and float64."""
    return MappingProxyType({torch.float32: single, torch.float64: double})


def _matrix(half: float, double: float, eighth: float = 0.0) -> MappingProxyType[torch.dtype, float]:
    """Return operations per second of matrix units.

    Float32 is missing: without TF32 (torch's default) it uses the vector units.
    """
    rates = {torch.bfloat16: half, torch.float16: half, torch.float64: double}
    if eighth:
        rates |= {torch.float8_e4m3fn: eighth, torch.float8_e5m2: eighth}
    return MappingProxyType(rates)


_HOPPER: dict[str, Any] = {
    "capability": 90,
    "processors": 132,
    "l2": 50 << 20,
    "caches": 5.2e12,  # fitted to times of an H100 (docs/results/cuda.md)
    "vector": _rates(66.9e12, 33.5e12),
    "matrix": _matrix(989.4e12, 66.9e12, 1978.9e12),
}
# As many bytes for a cycle of a processor as an H100.
A100 = Gpu("A100", 80, 108, 2.039e12, 40 << 20, 3.4e12, _rates(19.5e12, 9.7e12), _matrix(312e12, 19.5e12))
H100 = Gpu(name="H100", bandwidth=3.35e12, **_HOPPER)
H200 = Gpu(name="H200", bandwidth=4.8e12, **_HOPPER)

GPUS = MappingProxyType({gpu.name: gpu for gpu in (A100, H100, H200)})
"""GPUs by name. A100: the 80 GB SXM module; H100 and H200: SXM5 modules."""


def gpu_of(target: str) -> Gpu:
    """Return the GPU of a target: ``cuda``, ``cuda:sm_80``, ``cuda:sm_90``, ``cuda:H200``.

    Raises:
        ValueError: the target is unknown.
    """
    name = target.partition(":")[2]
    if name in GPUS:
        return GPUS[name]
    by_capability = {"": H100, "sm_80": A100, "sm_90": H100}
    if name not in by_capability:
        names = ", ".join(f"'cuda:{n}'" for n in (*GPUS, *filter(None, by_capability)))
        raise ValueError(f"target {target!r} is not known to the cost model: known are {names}")
    return by_capability[name]
