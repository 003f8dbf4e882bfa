"""The result of lowering a graph: tensor-level IR, with the graph's inputs, outputs and mutations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from fxstack_inductor.ir.expr import Expr
from fxstack_inductor.ir.nodes import ExternCall, Input, Node


@dataclass(frozen=True, slots=True)
class HostValue:
    """A value that the host computes under ``name``; the value is neither a tensor nor a size expression."""

    name: str


@dataclass(frozen=True, slots=True)
class HostCall:
    """A Python call that the host makes between kernels: ``name = target(*args, **kwargs)``."""

    name: str
    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    reads: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class SymbolBinding:
    """``symbol`` is size (or stride) ``dim`` of input ``source``, or the input itself, minus ``rest``."""

    symbol: str
    source: str
    dim: int | None = None
    stride: bool = False
    rest: int = 0

    @property
    def less(self) -> str:
        """Return the text behind the size, in Python and in C: the subtraction of ``rest``."""
        return f" - ({self.rest})" if self.rest else ""

    def python(self, source: str) -> str:
        """Return the Python expression of the symbol; ``source`` is the text of the input."""
        if self.dim is None:
            return source
        return f"{source}.{'stride' if self.stride else 'size'}({self.dim}){self.less}"


@dataclass(frozen=True, slots=True)
class Mutation:
    """``target`` receives the elements of ``value`` after all other nodes have read ``target``."""

    target: Input
    value: Node


@dataclass(frozen=True, slots=True)
class Fallback:
    """An operator whose rule was not used, so ATen runs it. ``defect``: the rule failed, not declined."""

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
