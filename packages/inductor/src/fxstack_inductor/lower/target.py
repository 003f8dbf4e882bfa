"""The facts about a target that decide how operators are lowered."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KernelTarget:
    """The facts about the processor and language of the kernels. The defaults describe C on a CPU."""

    device: str = "cpu"
    """The device type of the tensors that become loops; operators on other devices call their ATen kernels."""
    many_threads: bool = False
    """Whether a launch runs thousands of threads: scatters are atomic, and long rows are split or left to ATen."""
    wide_moments: bool = True
    """Whether variances of float32 accumulate in float64, as in eager's kernels of this device type."""
    float8: bool = False
    """Whether kernels load, convert and store 8-bit floats."""
    draws: bool = False
    """Whether kernels compute the random numbers of eager's dropout."""


CPU_KERNELS = KernelTarget()
