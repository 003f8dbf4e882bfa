"""The interface of a template."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, TypeVar

from torch.fx import GraphModule

from fxstack_inductor.autotune.candidates import Candidates
from fxstack_inductor.cost.devices import Gpu
from fxstack_inductor.cost.roofline import Cost
from fxstack_inductor.ir.kernel import Kernel
from fxstack_inductor.lower.target import KernelTarget
from fxstack_inductor.options import InductorOptions
from fxstack_inductor.tiling.kernels import KernelConfig, KernelTiling, TritonKernel

Rules = Mapping[str, Callable[..., Any]]
"""Lowering rules by the name of the node that the rule lowers."""
T = TypeVar("T", bound=KernelTiling)


class Template(ABC, Generic[T]):
    """A family of kernels. ``T``: the record of a kernel that is divided into tiles.

    A template takes part in lowering by ``rules`` (always) or ``candidates`` (where the kernel is predicted or measured
    to be faster than the library). Its rules make a ``Reduction`` with the template's name, which fusion joins with
    pointwise neighbours, or a ``TemplateCall``, which becomes a kernel as it is.
    """

    name: ClassVar[str]
    """``Kernel.template`` of the template's kernels."""

    def rules(
        self,
        graph_module: GraphModule,  # noqa: ARG002 - for templates with rules
        options: InductorOptions,  # noqa: ARG002
        target: KernelTarget,  # noqa: ARG002
    ) -> Rules:
        """Return rules for nodes of ``graph_module`` that have no library call."""
        return {}

    def candidates(self, graph_module: GraphModule) -> Candidates:  # noqa: ARG002
        """Return the nodes of ``graph_module`` that can be a kernel or a library call."""
        return {}

    @abstractmethod
    def tile(self, kernel: Kernel, config: KernelConfig | None = None) -> T:
        """Return ``kernel`` with the given tile sizes; by default, with good sizes without a search.

        Raises:
            NotLowered: the template cannot write this kernel.
        """

    @abstractmethod
    def write(self, tiling: T, name: str) -> str:
        """Return the text of the Triton function ``name``."""

    @abstractmethod
    def cost(self, tiling: T, gpu: Gpu, sizes: Mapping[str, int]) -> Cost:
        """Return the predicted cost of one launch; ``sizes`` gives the graph's symbols."""

    def kernel(self, kernel: Kernel, name: str, config: KernelConfig | None = None) -> TritonKernel:
        """Return ``kernel`` as the Triton function ``name``."""
        tiling = self.tile(kernel, config)
        return TritonKernel(name, self.write(tiling, name), tiling)
