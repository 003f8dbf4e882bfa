"""The record of a template."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

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


@dataclass(frozen=True, slots=True)
class Template(Generic[T]):
    """A family of kernels. ``T``: the record of a kernel that is divided into tiles.

    A template takes part in lowering by ``rules`` or ``candidates``. Its rules make a ``Reduction`` with the template's
    name, which fusion joins with pointwise neighbours, or a ``TemplateCall``, which becomes a kernel as it is.
    """

    name: str
    """``Kernel.template`` of the template's kernels."""
    tile: Callable[[Kernel, KernelConfig | None], T]
    """Divides a kernel, with the given tile sizes or with good sizes without a search.

    Raises ``NotLowered`` for a kernel that the template cannot write.
    """
    write: Callable[[T, str], str]
    """Returns the text of the Triton function with the given name."""
    cost: Callable[[T, Gpu, Mapping[str, int]], Cost]
    """Predicts one launch; the mapping gives the graph's symbols."""
    rules: Callable[[GraphModule, InductorOptions, KernelTarget], Rules] = lambda *_: {}
    """Returns rules for nodes of a graph that have no library call."""
    candidates: Callable[[GraphModule], Candidates] = lambda _: {}
    """Returns the nodes of a graph that become a kernel where this is predicted or measured to beat the library."""

    def kernel(self, kernel: Kernel, name: str, config: KernelConfig | None = None) -> TritonKernel:
        """Return ``kernel`` as the Triton function ``name``."""
        tiling = self.tile(kernel, config)
        return TritonKernel(name, self.write(tiling, name), tiling)
