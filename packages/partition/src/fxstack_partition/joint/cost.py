"""The cost of a node: floating-point operations, bytes moved, seconds on a device.

The formulas for matrix products, convolutions and attention are those of ``torch.utils.flop_counter``. Other
operators count one operation per element of the largest result or argument. Seconds follow the roofline model
(Williams, Waterman and Patterson, 2009): the maximum of computing and moving, plus a launch if the operator
does not fuse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy
import torch
from torch.fx import Node
from torch.fx.node import map_arg

from fxstack_interchange import StageGraph
from fxstack_partition.joint.ops import OpKind, base_name, kind_of
from fxstack_partition.optional import flop_registry
from fxstack_partition.options import DEVICES, Device, PartitionOptions
from fxstack_partition.torch_compat import OpOverload

NUMBER_BYTES = 8

_FREE = (OpKind.INPUT, OpKind.CONSTANT, OpKind.SYMBOLIC, OpKind.GETITEM, OpKind.VIEW)
_UNWRITTEN = ("empty", "new_empty")
"""Operators that allocate memory but do not write it."""
_TO_DRAW = 100
"""Operations for each random number, roughly: ten rounds of a counter-based generator."""
_FUSED = (OpKind.POINTWISE, OpKind.CREATION, OpKind.GATHER)


class SizeModel:
    """Converts values of node metadata to bytes. Symbols have the hints of the signature."""

    def __init__(self, graph: StageGraph, options: PartitionOptions) -> None:
        self._hints = {s.name: s.hint for s in graph.signature.symbols if s.hint is not None}
        if options.worst_case:
            self._hints |= {s.name: s.upper for s in graph.signature.symbols if s.upper is not None}
        self._default = options.unbacked_hint
        self._known: dict[sympy.Expr, int] = {}

    def integer(self, value: object) -> int:
        """Return a size as an integer."""
        if isinstance(value, torch.SymInt):
            return self._expression(value.node.expr)
        return int(value) if isinstance(value, int) else 1

    def tensor_bytes(self, value: torch.Tensor) -> int:
        """Return the bytes of a dense tensor of this shape and dtype, whatever its strides."""
        total: int = value.dtype.itemsize
        if not value._has_symbolic_sizes_strides:
            return total * int(value.numel())
        for size in value.shape:
            total *= self.integer(size)
        return total

    def value_bytes(self, value: object) -> int:
        """Return the bytes of a node's value: a tensor, a number, or a nest of them."""
        if isinstance(value, torch.Tensor):
            return self.tensor_bytes(value)
        if isinstance(value, tuple | list):
            return sum(self.value_bytes(item) for item in value)
        if isinstance(value, Mapping):
            return sum(self.value_bytes(item) for item in value.values())
        return NUMBER_BYTES if value is not None else 0

    def _expression(self, expr: sympy.Expr) -> int:
        if expr not in self._known:
            hints = {s: self._hints.get(str(s), self._default) for s in expr.free_symbols}
            self._known[expr] = int(expr.xreplace({s: sympy.Integer(v) for s, v in hints.items()}))
        return self._known[expr]


@dataclass(frozen=True, slots=True)
class Work:
    """The operations of one node, the bytes that it reads and writes, and its seconds."""

    flops: int
    traffic: int
    seconds: float


class WorkModel:
    """Costs of a graph's nodes. ``options.seconds`` replaces the estimate of time for nodes that it knows."""

    def __init__(self, graph: StageGraph, options: PartitionOptions) -> None:
        self._sizes = SizeModel(graph, options)
        self._device = DEVICES[options.device] if isinstance(options.device, str) else options.device
        self._measured = options.seconds
        self._known: dict[Node, Work] = {}

    def of(self, node: Node) -> Work:
        """Return the cost of one run of ``node``."""
        if node not in self._known:
            self._known[node] = self._cost(node)
        return self._known[node]

    def seconds(self, nodes: Iterable[Node]) -> float:
        """Return the sum of the seconds of these nodes."""
        return sum(self.of(node).seconds for node in nodes)

    def flops(self, nodes: Iterable[Node]) -> int:
        """Return the sum of the floating-point operations of these nodes."""
        return sum(self.of(node).flops for node in nodes)

    def _cost(self, node: Node) -> Work:
        if node.op != "call_function" or (kind := kind_of(node)) in _FREE:
            return Work(0, 0, 0.0)
        size = self._sizes.value_bytes
        written = size(node.meta.get("val"))
        read = sum(size(arg.meta.get("val")) for arg in node.all_input_nodes)
        flops = self._flops(node, kind)
        if kind is OpKind.CREATION and base_name(node.target).startswith(_UNWRITTEN):
            written = 0
        traffic = written if kind in _FUSED else written + read
        seconds = estimate(self._device, flops, traffic, fused=kind in _FUSED)
        if self._measured is not None:
            known = self._measured(node)
            if known is not None and not 0 <= known < float("inf"):
                msg = f"options.seconds says that {node.name!r} takes {known!r} seconds"
                raise ValueError(msg)
            seconds = seconds if known is None else known
        return Work(flops, traffic, seconds)

    def _flops(self, node: Node, kind: OpKind) -> int:
        formula = _formula(node.target)
        if formula is not None:
            args, kwargs = map_arg((node.args, node.kwargs), lambda n: self._shape(n.meta["val"]))
            return int(formula(*args, **kwargs, out_val=self._shape(node.meta["val"])))
        if kind is OpKind.CREATION:
            return 0
        values = [node.meta.get("val"), *(arg.meta.get("val") for arg in node.all_input_nodes)]
        each = _TO_DRAW if kind is OpKind.RANDOM else 1
        return each * max(self._elements(value) for value in values)

    def _shape(self, value: object) -> Any:
        if isinstance(value, torch.Tensor):
            return tuple(self._sizes.integer(size) for size in value.shape)
        if isinstance(value, tuple | list):
            return type(value)(self._shape(item) for item in value)
        return self._sizes.integer(value) if isinstance(value, torch.SymInt) else value

    def _elements(self, value: object) -> int:
        if isinstance(value, torch.Tensor):
            total = 1
            for size in value.shape:
                total *= self._sizes.integer(size)
            return total
        return sum(map(self._elements, value)) if isinstance(value, tuple | list) else 0


def estimate(device: Device, flops: int, traffic: int, *, fused: bool) -> float:
    """Return roofline seconds. A fused operator launches no kernel of its own."""
    busy = max(flops / device.flops_per_second, traffic / device.bytes_per_second)
    return busy + (0.0 if fused else device.launch_seconds)


def _formula(target: object) -> Callable[..., Any] | None:
    if not isinstance(target, OpOverload):
        return None
    known: Callable[..., Any] | None = flop_registry().get(target.overloadpacket)
    return known
