"""The size of values in bytes, with symbolic sizes replaced by their hints."""

from __future__ import annotations

from collections.abc import Mapping

import sympy
import torch

from fxstack_interchange import StageGraph
from fxstack_partition.options import PartitionOptions

NUMBER_BYTES = 8


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
