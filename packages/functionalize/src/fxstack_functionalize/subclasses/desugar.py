"""Convert a captured graph over wrappers to a graph over the wrapped tensors.

The converted graph rebuilds wrappers and runs the captured graph on them, so every operator passes the
class's ``__torch_dispatch__``. For training the gradients are computed inside as well: autograd
differentiates the wrapper's operators, as in eager, not the operators on plain tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Graph, GraphModule

from fxstack_functionalize import torch_compat
from fxstack_functionalize.errors import UnsupportedGraphError
from fxstack_functionalize.metadata.wrapper_classes import is_wrapper
from fxstack_functionalize.subclasses.layout import (
    Layout,
    assemble_all,
    flatten_all,
    layout_of,
    leaves_all,
    numbers_all,
    rebuild_all,
    tensors_all,
)
from fxstack_functionalize.torch_compat import pytree
from fxstack_interchange.modules import make_graph_module


@dataclass(slots=True)
class Desugared:
    """A graph over wrappers and the facts about it. Tracing fills in the facts about outputs.

    ``sources``: for each output, the number of the input that the output is; None for any other output.
    ``differentiable``: positions of the outputs that require a gradient.
    """

    module: GraphModule
    inputs: tuple[Layout, ...]
    trained: tuple[int, ...]
    grad_mode: bool = True
    """The grad mode in which the graph starts; the graph may change it."""
    outputs: tuple[Layout, ...] = ()
    sources: tuple[int | None, ...] = ()
    spec: Any = None
    """The nesting of the outputs."""
    differentiable: tuple[int, ...] = ()
    writes: dict[int, int] = field(default_factory=dict)
    """Number of a wrapper input that operators write to -> the number of writes that its version counter counts."""
    gradients: list[Layout | None] = field(default_factory=list)

    def forward(self, *flat: object) -> tuple[Any, ...]:
        """Run the graph on plain tensors."""
        arguments = rebuild_all(self.inputs, flat)
        values = self.run(arguments)
        return tuple(flatten_all(self.outputs, values))

    def run(self, arguments: Sequence[Any]) -> list[Any]:
        """Run the graph on wrappers and record the outputs. Capture has handled ``__torch_function__``."""
        values: list[Any]
        versions = _versions(arguments)
        without_functions = torch_compat.DisableTorchFunctionSubclass()
        with without_functions, torch.set_grad_enabled(self.grad_mode):  # restores the grad mode
            values, self.spec = pytree.tree_flatten(self.module(*arguments))
        self.writes = {
            position: version - versions[position]
            for position, version in _versions(arguments).items()
            if version != versions[position]
        }
        position_of = {id(argument): position for position, argument in enumerate(arguments)}
        self.outputs = tuple(layout_of(value) for value in values)
        self.sources = tuple(
            position_of.get(id(value)) if isinstance(value, torch.Tensor) else None for value in values
        )
        return values

    def joint(self, *flat: object) -> tuple[Any, ...]:
        """Map inputs and tangents to outputs and gradients, all as plain tensors."""
        count = len(leaves_all(self.inputs)) + len(numbers_all(self.inputs))
        arguments = self.rebuild_leaves(flat[:count])
        values = self.run(arguments)
        differentiated = [values[position] for position in self.differentiable]
        tangents = assemble_all(self.tangents, flat[count:], numbers_all(self.tangents))
        leaves = [arguments[position] for position in self.trained]
        with torch_compat.DisableAutocast():  # eager's backward runs outside the autocast region
            gradients = torch.autograd.grad(differentiated, leaves, tangents, allow_unused=True)
        results = [v.detach() if isinstance(v, torch.Tensor) else v for v in values]
        self.gradients = [None if g is None else layout_of(g) for g in gradients]
        present = [(layout_of(g), g) for g in gradients if g is not None]
        apart = _DisjointMemory(flat)
        forward = [apart.check_disjoint(tensor) for tensor in tensors_all(self.outputs, results)]
        backward = [apart.copy(tensor) for layout, g in present for tensor in layout.tensors(g)]
        return (*forward, *backward)

    def rebuild_leaves(self, flat: Sequence[Any]) -> list[Any]:
        """Return the arguments made of plain tensors. Arguments that require a gradient are leaves."""
        arguments = rebuild_all(self.inputs, flat)
        for position in self.trained:
            arguments[position] = arguments[position].detach().requires_grad_()
        return arguments

    @property
    def tangents(self) -> tuple[Layout, ...]:
        """Return the layouts of the tangents. The trace assumes that they equal the layouts of the outputs."""
        return tuple(self.outputs[position] for position in self.differentiable)


class _DisjointMemory:
    """Keeps results of a joint graph disjoint in memory from its inputs and from each other."""

    def __init__(self, inputs: Sequence[Any]) -> None:
        self._seen = {_memory(value) for value in inputs if isinstance(value, torch.Tensor)}

    def check_disjoint(self, value: Any) -> Any:
        """Return ``value``, a result of the forward. Raise UnsupportedGraphError if it shares memory."""
        if isinstance(value, torch.Tensor):
            if _memory(value) in self._seen:
                raise UnsupportedGraphError(
                    "an output of a training graph over wrapper subclasses shares memory with an input or output",
                    why="views of wrapper subclasses are not rebuilt with their history",
                    fix="clone it, or return it from outside of the compiled function",
                )
            self._seen.add(_memory(value))
        return value

    def copy(self, value: object) -> Any:
        """Return ``value``, a gradient; a clone if it shares memory with an earlier result or an input."""
        if not isinstance(value, torch.Tensor):
            return value
        if _memory(value) in self._seen:
            value = value.clone()
        self._seen.add(_memory(value))
        return value


def _versions(arguments: Sequence[Any]) -> dict[int, int]:
    """Return the version counters of the wrappers among the arguments, by position.

    Arguments have changed if their versions after a run differ from those before it.
    """
    return {
        position: argument._version
        for position, argument in enumerate(arguments)
        if is_wrapper(argument) and not argument.is_inference()
    }


def _memory(tensor: torch.Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def flat_module(fn: Callable[..., Any], inputs: int) -> GraphModule:
    """Return a graph of one node that calls ``fn``, a function of plain tensors."""

    def desugared(*flat: object) -> Any:
        return fn(*flat)

    desugared.__module__ = desugared.__qualname__ = "desugared"
    vars(desugared)["needs_modes"] = True
    graph = Graph()
    placeholders = [graph.placeholder(f"inner_{number}") for number in range(inputs)]
    graph.output(graph.call_function(desugared, tuple(placeholders)))
    return make_graph_module(torch.nn.Module(), graph)
