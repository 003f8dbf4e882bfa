"""Tensors that the methods of an ``autograd.Function`` find outside: globals, closures, attributes, buffers.

A later stage runs the methods on tensors without data, which cannot meet the tensors that the methods find. So
these tensors are operands of the node, and torch functions get the operand in place of the tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import ref

import torch
from torch import fx
from torch.overrides import TorchFunctionMode

from fxstack_capture.torch_compat import pytree, tree_leaves
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.trace.state import Args, Kwargs

Pair = tuple[torch.Tensor, torch.Tensor]
Replaced = Mapping[int, Pair]
"""By id: a tensor and the operand that replaces it."""


def found_outside(tracer: TracerProtocol, mark: fx.Node, inputs: Sequence[object]) -> list[Pair]:
    """Return the tensors from outside that the nodes after ``mark`` use and that are no ``inputs``.

    Each comes with its fake.
    """
    own = {tracer.builder.node_of(x) for x in tree_leaves(inputs) if isinstance(x, torch.Tensor)}
    nodes: dict[fx.Node, None] = {}
    node = tracer.builder.mark()
    while node is not mark and node.op not in ("placeholder", "root"):
        nodes.update(dict.fromkeys(node.all_input_nodes))
        node = node.prev
    values = [used.meta["val"] for used in nodes if used.op == "placeholder" and used not in own]
    pairs = [(tracer.original_of(x)[0], x) for x in values if isinstance(x, torch.Tensor)]
    return [(real, fake) for real, fake in pairs if real is not None]


def replaced(outside: Sequence[ref[torch.Tensor]], operands: Sequence[torch.Tensor]) -> Replaced:
    pairs = [(reference(), operand) for reference, operand in zip(outside, operands, strict=True)]
    return {id(x): (x, operand) for x, operand in pairs if x is not None and x is not operand}


def apply_with(function: type[torch.autograd.Function], args: Sequence[object], operands: Replaced) -> Any:
    """Return ``function.apply(*args)``. The methods see ``operands``, also when the backward runs."""
    name = "vjp" if function.backward is torch.autograd.Function.backward else "backward"
    method: Callable[..., Any] = getattr(function, name)

    def differentiate(*given: object) -> Any:
        with _Replacing(operands):
            return method(*given)

    members = {name: staticmethod(differentiate), "__module__": function.__module__}
    kind: Any = type(function.__name__, (function,), members)
    with _Replacing(operands):
        return kind.apply(*args)


class _Replacing(TorchFunctionMode):
    def __init__(self, operands: Replaced) -> None:
        super().__init__()
        self._operands = operands

    def __torch_function__(
        self, func: Callable[..., Any], types: Sequence[type], args: Args = (), kwargs: Kwargs | None = None
    ) -> Any:
        given, named = pytree.tree_map_only(torch.Tensor, self._replace, (args, kwargs or {}))
        return func(*given, **named)

    def _replace(self, tensor: torch.Tensor) -> torch.Tensor:
        found = self._operands.get(id(tensor))
        return tensor if found is None else found[1]
