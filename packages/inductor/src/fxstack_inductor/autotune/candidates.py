"""Calls that can become kernels of a template, in place of a call of the library."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fxstack_inductor.cost.devices import Gpu
from fxstack_inductor.ir.kernel import Kernel
from fxstack_inductor.schedule.steps import KernelStep, Plan
from fxstack_inductor.tiling.kernels import KernelConfig, TritonKernel

Fill = Callable[[int, torch.dtype], torch.Tensor]
"""(number of elements, dtype) -> a tensor with values that operands may have."""


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted seconds of a kernel of a template, and of the library's call in its place."""

    kernel: float
    call: float
    rest: float
    """The most that a kernel for the remaining operations takes; another kernel may take them for less."""
    fuses: bool
    """Whether the kernel does anything that the library's call and the readers of its result do not do."""


class Candidate(ABC):
    """A call that can become a kernel. Methods raise ``NotLowered`` if the fused kernel cannot be written.

    ``templates`` implements one class per template; ``tune`` and the lowering for Triton call the methods.
    """

    rule: Callable[..., Any]
    """The lowering rule that makes the call a kernel."""
    config_type: type[KernelConfig]
    """The record of tile sizes: a saved choice keeps its fields, from which ``choices`` makes the record again."""

    @abstractmethod
    def predict(self, kernel: Kernel, gpu: Gpu) -> Prediction:
        """Return the predicted times of ``kernel`` and of the library's call in its place."""

    @abstractmethod
    def key(self, kernel: Kernel) -> str:
        """Return the key of saved choices: a text of everything that decides which alternative is the fastest."""

    @abstractmethod
    def alternatives(self, kernel: Kernel) -> Sequence[TritonKernel]:
        """Return the kernels to measure, named ``kernel_0``, ``kernel_1``, ..., in the order of preference."""

    @abstractmethod
    def library_calls(self, kernel: Kernel, fill: Fill) -> Iterable[Callable[[], object]]:
        """Return the calls that take as long as the library and the remaining operations together."""


Candidates = Mapping[str, Candidate]
"""Candidates by the name of the node."""


def candidate_kernels(plan: Plan, chosen: Candidates) -> Iterator[tuple[str, Kernel]]:
    """Yield the template kernels that compute a node in ``chosen``, as (name of the node, kernel)."""
    for step in plan.steps:
        if isinstance(step, KernelStep) and step.kernel.template:
            for name in step.kernel.origins:
                if name in chosen:
                    yield name, step.kernel
                    break
