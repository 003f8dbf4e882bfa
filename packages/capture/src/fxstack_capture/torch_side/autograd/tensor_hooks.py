"""Hooks that a program hangs on tensors while it is traced, and ``retain_grad``.

On a leaf from outside they are side effects: nobody asks for them before a gradient arrives, so they are set when the
graph has run. On what the graph computes and keeps to itself, a hook that does nothing but compute is a graph that a node
hangs on the tensor (``hook_gradient``); what it reads is guarded in the forward, like the backward of an
``autograd.Function``. All others end the graph, and do so before the tensor was used: autograd sees the uses that come
after the end of a graph, not those inside of it.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import fx
from torch.utils.hooks import RemovableHandle

from fxstack_capture import torch_compat
from fxstack_capture.breaks import GraphBreak, graph_break
from fxstack_capture.torch_side.higher_order import subgraphs
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.torch_side.subclasses.wrapper_classes import is_wrapper
from fxstack_interchange.operators.hooking import hook_gradient


def register(
    tracer: TracerProtocol, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The rule for ``register_hook`` and ``register_post_accumulate_grad_hook``."""
    tensor, rest = _owner(fn, args)
    if not tensor.requires_grad or (tracer.source_of(tensor) is not None and tensor.is_leaf):
        method = getattr(torch.Tensor, fn.__name__)
        return tracer.trace.interp.call_function(method, (tensor, *rest), kwargs)
    if fn.__name__ == "register_hook" and len(rest) == 1 and not kwargs:
        return _hang_graph(tracer, tensor, rest[0])
    raise _end_before_use(tracer, tensor, fn.__name__)


class HandleInGraph(RemovableHandle):
    """The handle of a hook that is part of the graph. It stays in the trace: outside there is nothing to remove."""

    def __init__(self, hooks: OrderedDict[int, Any], number: int) -> None:
        self.hooks_dict_ref = weakref.ref(hooks)
        self.id = number
        self.extra_dict_ref = ()


class HooksInGraph:
    """The hooks that nodes of a graph hang on tensors. ``active`` is what their handles take them out of."""

    def __init__(self, tracer: TracerProtocol) -> None:
        self._tracer = tracer
        self._hung: list[tuple[fx.Node, torch.Tensor]] = []
        self.active: OrderedDict[int, Any] = OrderedDict()

    def add(self, node: fx.Node, tensor: torch.Tensor) -> HandleInGraph:
        handle = HandleInGraph(self.active, len(self._hung))
        objects: Any = self._tracer.trace.objects
        for made in (self.active, handle):
            objects.note_new(made)
        self.active[handle.id] = None
        self._hung.append((node, tensor))
        return handle

    def close(self, outputs: Sequence[object]) -> None:
        """Drop the nodes of hooks that were removed; GraphBreak where a tensor with a hook leaves the graph.

        What the program does to such a tensor later (another hook, say) has to come after the first one.
        """
        leaving = set(map(id, outputs))
        for number, (node, tensor) in enumerate(self._hung):
            removed = number not in self.active
            if id(tensor) in leaving or (removed and self._tracer.differentiated):
                reason = _end_before_use(self._tracer, tensor, "register_hook")
                assert reason.earlier is not None
                reason.path = (reason.earlier,)
                raise reason
            if removed:
                self._tracer.builder.graph.erase_node(node)


def _hang_graph(tracer: TracerProtocol, tensor: torch.Tensor, hook: object) -> HandleInGraph:
    if tracer.transforms.inside or tracer.source_of(tensor) is not None or is_wrapper(tensor):
        raise _end_before_use(tracer, tensor, "register_hook")
    builder = tracer.builder
    mark = builder.mark()
    with tracer.unrecorded(), tracer.mode, torch.no_grad():
        gradient = torch.empty_like(tensor)
    try:
        with _without_gradients():
            made = subgraphs.trace(tracer, partial(_hooked, hook), [gradient], None, apart=False)
    except GraphBreak as reason:
        raise _end_before_use(tracer, tensor, f"register_hook ({reason.record.reason.id})") from reason
    module = subgraphs.cut_out(tracer, made, made.free)
    builder.roll_back(mark)
    args = (builder.node_of(tensor), builder.module("hook", module), *made.free)
    node = builder.add("call_function", hook_gradient, args, {})
    node.meta.update(val=None, example_value=None)
    tracer.annotate(node)
    handle: HandleInGraph = tracer.hooks.add(node, tensor)
    return handle


def _hooked(hook: Any, gradient: Any) -> Any:
    """The gradient that a hook leaves; interpreted."""
    changed = hook(gradient)
    return gradient if changed is None else changed


@contextmanager
def _without_gradients() -> Iterator[None]:
    """A backward runs without gradients of its own; the graph follows whatever mode it runs in."""
    enabled = torch.is_grad_enabled()
    torch_compat.set_grad_enabled(False)
    try:
        yield
    finally:
        torch_compat.set_grad_enabled(enabled)


def retain_grad(tracer: TracerProtocol, fn: object, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
    """The rule for ``retain_grad``, which does nothing to a leaf."""
    tensor, _ = _owner(fn, args)
    if not (tensor.is_leaf and tensor.requires_grad):
        raise _end_before_use(tracer, tensor, "retain_grad")


def _owner(fn: object, args: tuple[Any, ...]) -> tuple[torch.Tensor, tuple[Any, ...]]:
    owner = getattr(fn, "__self__", None)
    return (owner, args) if isinstance(owner, torch.Tensor) else (args[0], args[1:])


def _end_before_use(tracer: TracerProtocol, tensor: torch.Tensor, name: str) -> GraphBreak:
    reason = graph_break("unsupported-call", f"Tensor.{name}")
    if tracer.source_of(tensor) is None:
        users = tracer.builder.node_of(tensor).users
        reason.earlier = min((tracer.steps[user] for user in users if user in tracer.steps), default=None)
    return reason
