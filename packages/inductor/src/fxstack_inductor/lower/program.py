"""The result of lowering a graph: tensor-level IR, with the graph's inputs, outputs and mutations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from fxstack_inductor.ir.expr import Expr
    from fxstack_inductor.ir.nodes import ExternCall, Input, Node


@dataclass(frozen=True, slots=True)
class HostValue:
    """A value that is no tensor and no size expression, computed by the host under ``name``."""

    name: str


@dataclass(frozen=True, slots=True)
class HostCall:
    """Python that the host runs between kernels: ``name = target(*args, **kwargs)``."""

    name: str
    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    reads: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class SymbolBinding:
    """``symbol`` is the size (or stride) ``dim`` of input ``source``, or the input itself when ``dim`` is None, less ``rest``."""

    symbol: str
    source: str
    dim: int | None = None
    stride: bool = False
    rest: int = 0

    @property
    def less(self) -> str:
        """What is written behind the size, in Python and in C."""
        return f" - ({self.rest})" if self.rest else ""


@dataclass(frozen=True, slots=True)
class Mutation:
    """``target`` takes the elements of ``value`` after everything else has read it."""

    target: Input
    value: Node


@dataclass(frozen=True, slots=True)
class Fallback:
    """An operator that has a rule and is called through ATen all the same; ``defect`` if the rule failed instead of declining."""

    node: str
    target: str
    reason: str
    defect: bool = False


@dataclass
class Program:
    parameters: list[str] = field(default_factory=list)
    """Names of the graph's inputs, in order."""
    inputs: dict[str, Input] = field(default_factory=dict)
    constants: dict[str, torch.Tensor] = field(default_factory=dict)
    bindings: list[SymbolBinding] = field(default_factory=list)
    steps: list[Node | ExternCall | HostCall] = field(default_factory=list)
    """Computed nodes, ATen calls and host calls, in the graph's order."""
    outputs: list[Node | Expr | HostValue | Any] = field(default_factory=list)
    mutations: list[Mutation] = field(default_factory=list)
    fallbacks: list[Fallback] = field(default_factory=list)
