"""The size of values in bytes, and the cost of a node: operations, bytes moved, seconds on a device.

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

_COSTLESS_KINDS = (OpKind.INPUT, OpKind.CONSTANT, OpKind.SYMBOLIC, OpKind.GETITEM, OpKind.VIEW)
_UNINITIALISED = ("empty", "new_empty")
"""Prefixes of operators that allocate memory but do not write to it."""
FLOPS_PER_RANDOM_NUMBER = 100
"""Rough number of operations for each random number: ten rounds of a counter-based generator."""
_FUSED_KINDS = (OpKind.POINTWISE, OpKind.CREATION, OpKind.GATHER)


class SizeModel:
    """Computes the bytes of values in node metadata. Symbols have the hints of the signature.

    With ``options.worst_case``, a symbol has the upper bound of its range. Any other symbol without a hint
    has the value ``options.unbacked_hint``.
    """

    def __init__(self, graph: StageGraph, options: PartitionOptions) -> None:
        self._hints = {s.name: s.hint for s in graph.signature.symbols if s.hint is not None}
        if options.worst_case:
            self._hints |= {s.name: s.upper for s in graph.signature.symbols if s.upper is not None}
        self._default = options.unbacked_hint
        self._cache: dict[sympy.Expr, int] = {}

    def integer(self, value: object) -> int:
        """Return a size as an integer, with symbols replaced by their values."""
        if isinstance(value, torch.SymInt):
            return self._expression(value.node.expr)
        return int(value) if isinstance(value, int) else 1

    def tensor_bytes(self, value: torch.Tensor) -> int:
        """Return the bytes of a dense tensor with this shape and dtype. Strides do not count."""
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
        """Return the value of an expression, with the hint of each symbol or the default size."""
        if expr not in self._cache:
            hints = {s: self._hints.get(str(s), self._default) for s in expr.free_symbols}
            self._cache[expr] = int(expr.xreplace({s: sympy.Integer(v) for s, v in hints.items()}))
        return self._cache[expr]


@dataclass(frozen=True, slots=True)
class Work:
    """The floating-point operations of one node, the bytes that the node reads and writes, and its seconds."""

    flops: int
    traffic: int
    seconds: float


class WorkModel:
    """Estimates the costs of a graph's nodes.

    ``options.seconds`` replaces the estimated seconds of each node for which it returns a number.
    """

    def __init__(self, graph: StageGraph, options: PartitionOptions) -> None:
        self._sizes = SizeModel(graph, options)
        self._device = DEVICES[options.device] if isinstance(options.device, str) else options.device
        self._measured = options.seconds
        self._cache: dict[Node, Work] = {}

    def cost(self, node: Node) -> Work:
        """Return the cost of one run of ``node``."""
        if node not in self._cache:
            self._cache[node] = self._cost(node)
        return self._cache[node]

    def seconds(self, nodes: Iterable[Node]) -> float:
        """Return the sum of the seconds of these nodes."""
        return sum(self.cost(node).seconds for node in nodes)

    def flops(self, nodes: Iterable[Node]) -> int:
        """Return the sum of the floating-point operations of these nodes."""
        return sum(self.cost(node).flops for node in nodes)

    def _cost(self, node: Node) -> Work:
        """Return the work of one node. ``options.seconds`` replaces the estimated seconds if it returns a number."""
        if node.op != "call_function" or (kind := kind_of(node)) in _COSTLESS_KINDS:
            return Work(0, 0, 0.0)
        size = self._sizes.value_bytes
        written = size(node.meta.get("val"))
        read = sum(size(arg.meta.get("val")) for arg in node.all_input_nodes)
        flops = self._flops(node, kind)
        if kind is OpKind.CREATION and base_name(node.target).startswith(_UNINITIALISED):
            written = 0
        traffic = written if kind in _FUSED_KINDS else written + read
        seconds = roofline_seconds(self._device, flops, traffic, fused=kind in _FUSED_KINDS)
        if self._measured is not None:
            measured = self._measured(node)
            if measured is not None and not 0 <= measured < float("inf"):
                msg = f"options.seconds returned {measured!r} for {node.name!r}; it must be finite and not negative"
                raise ValueError(msg)
            seconds = seconds if measured is None else measured
        return Work(flops, traffic, seconds)

    def _flops(self, node: Node, kind: OpKind) -> int:
        """Return the operations of a node, by torch's formula if it has one, else by the largest tensor."""
        formula = _formula(node.target)
        if formula is not None:
            args, kwargs = map_arg((node.args, node.kwargs), lambda n: self._shape(n.meta["val"]))
            return int(formula(*args, **kwargs, out_val=self._shape(node.meta["val"])))
        if kind is OpKind.CREATION:
            return 0
        values = [node.meta.get("val"), *(arg.meta.get("val") for arg in node.all_input_nodes)]
        each = FLOPS_PER_RANDOM_NUMBER if kind is OpKind.RANDOM else 1
        return each * max(self._elements(value) for value in values)

    def _shape(self, value: object) -> Any:
        """Return a tensor's shape with integers for symbols, as torch's formulas take it."""
        if isinstance(value, torch.Tensor):
            return tuple(self._sizes.integer(size) for size in value.shape)
        if isinstance(value, tuple | list):
            return type(value)(self._shape(item) for item in value)
        return self._sizes.integer(value) if isinstance(value, torch.SymInt) else value

    def _elements(self, value: object) -> int:
        """Return the number of elements of a value, summed over the results of an operator; 0 for a number."""
        if isinstance(value, torch.Tensor):
            total = 1
            for size in value.shape:
                total *= self._sizes.integer(size)
            return total
        return sum(map(self._elements, value)) if isinstance(value, tuple | list) else 0


def roofline_seconds(device: Device, flops: int, traffic: int, *, fused: bool) -> float:
    """Return seconds in the roofline model. A fused operator launches no kernel of its own."""
    busy = max(flops / device.flops_per_second, traffic / device.bytes_per_second)
    return busy + (0.0 if fused else device.launch_seconds)


def _formula(target: object) -> Callable[..., Any] | None:
    """Return torch's formula for the operations of an operator; None if torch has none."""
    if not isinstance(target, OpOverload):
        return None
    formula: Callable[..., Any] | None = flop_registry().get(target.overloadpacket)
    return formula
