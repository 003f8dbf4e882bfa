"""Tracing a function without the layers of ``torch.func`` that are active around it.

While a layer is active, the program holds wrapped tensors, and all torch calls really run. A nested graph has no
layers: the layers apply to the whole graph (``derivations``). So the layers are off while the interpreter traces a
function of an operator, and a plain fake with the same sizes replaces each wrapped tensor that the function uses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any, Self

import torch
from torch import fx

from fxstack_capture.torch_compat import temporarily_clear_interpreter_stack, tree_leaves, tree_map_only
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.torch_side.subclasses.wrapper_classes import is_wrapped


def lifted_value() -> None:
    """The target of the nodes that represent wrapped tensors, while a function is traced without layers."""


class Lifting:
    """The wrapped tensors that a function uses, from the call until ``end``. Use it as a context manager.

    ``record(tracer, call, operands)`` records the operator below all layers.
    """

    def __init__(self, tracer: TracerProtocol, record: Callable[..., tuple[torch.Tensor, ...]]) -> None:
        self._tracer = tracer
        self.record = record
        self._stack = ExitStack()
        self._fakes: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self._values: dict[fx.Node, torch.Tensor] = {}
        self._made: dict[int, torch.Tensor] = {}
        self._is_claimed = False

    def claim(self) -> Lifting | None:
        """Return the object itself to the first caller, the call that it was made for; then ``None``."""
        if self._is_claimed:
            return None
        self._is_claimed = True
        return self

    def __enter__(self) -> Self:
        tracer = self._tracer
        self._first = tracer.builder.add("call_function", lifted_value, (), {})
        self._stack.enter_context(temporarily_clear_interpreter_stack())
        self._stack.enter_context(tracer.transforms.without_layers(self))
        return self

    def __exit__(self, *_error: object) -> None:
        self.end()
        for node in (self._first, *self._values):
            if not node.users:  # an error leaves the nodes of a function, and the trace then ends
                self._tracer.builder.graph.erase_node(node)

    def end(self) -> None:
        """Turn the layers on again."""
        self._stack.close()

    def note_made(self, values: Any) -> None:
        """Note that ``values`` come from a layer inside of the function, so that they stay as they are."""
        self._made |= {id(x): x for x in tree_leaves(values) if is_wrapped(x)}

    def fakes_of(self, values: Any) -> Any:
        """Return ``values`` with fakes in place of wrapped tensors, also inside of plain containers."""
        return tree_map_only(torch.Tensor, self.fake_of, values)

    def fake_of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return the fake that replaces a wrapped tensor. Other tensors are themselves."""
        if not is_wrapped(tensor) or id(tensor) in self._made:
            return tensor
        if id(tensor) not in self._fakes:
            self._fakes[id(tensor)] = tensor, self._new_fake(tensor, tensor.stride())
        return self._fakes[id(tensor)][1]

    def dense_fake(self, fake: torch.Tensor) -> torch.Tensor | None:
        """Return a contiguous fake for the wrapped tensor that ``fake`` replaces; None for another tensor.

        The record of a loop makes the values that it carries dense.
        """
        wrapped = next((tensor for tensor, other in self._fakes.values() if other is fake), None)
        if wrapped is None:
            return None
        with self._tracer.unrecorded(), self._tracer.mode:
            strides = torch.empty_like(fake, memory_format=torch.contiguous_format).stride()
        return self._new_fake(wrapped, strides)

    def _new_fake(self, tensor: torch.Tensor, strides: Sequence[int]) -> torch.Tensor:
        """Return a fake in place of a wrapped tensor, with a node that represents the tensor."""
        tracer = self._tracer
        with tracer.unrecorded(), tracer.mode, torch.no_grad():
            fake = torch.empty_strided(tensor.size(), strides, dtype=tensor.dtype, device=tensor.device)
        with tracer.builder.graph.inserting_before(self._first):
            node = tracer.builder.add("call_function", lifted_value, (), {})
        tracer.builder.bind(fake, node)
        self._values[node] = tensor
        return fake

    def value_of(self, node: fx.Node) -> Any:
        """Return the value of an outer node: the wrapped tensor that it represents, or its fake or number."""
        return self._values.get(node, node.meta["val"])
