"""Hooks that the program registers on tensors while tracing, and ``retain_grad``.

A hook on an input leaf is a side effect. It is not called before a gradient arrives, so the replacement code
registers it after the graph has run.

A hook on a tensor that stays inside of the graph becomes a nested graph if it only computes. A node registers
the nested graph on the tensor (``hook_gradient``). Guards in the forward cover the objects that the hook
reads, as for the backward of an ``autograd.Function``. If the tensor leaves the graph, the replacement code
registers the hook after the graph has run, because the hooks of a result get the gradient of all its uses.

Hooks with side effects, and hooks on inputs that have a history, break the graph before the first use of the
tensor. Under ``fullgraph``, the replacement code registers them as well. Hooks on different tensors of one
graph may then run in another order than in eager.
"""

from __future__ import annotations

import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import fx
from torch.utils.hooks import RemovableHandle

from fxstack_capture import torch_compat
from fxstack_capture.breaks import REASONS, GraphBreak, graph_break
from fxstack_capture.sources import pinned
from fxstack_capture.torch_side.autograd.state_reads import find_state
from fxstack_capture.torch_side.higher_order import subgraphs
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.torch_side.subclasses.wrapper_classes import is_wrapper
from fxstack_capture.trace.effects import Call
from fxstack_capture.trace.state import Args, Kwargs
from fxstack_interchange.operators.hooking import hook_gradient


def register(tracer: TracerProtocol, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for ``register_hook`` and ``register_post_accumulate_grad_hook``. Inputs get the hook
    after the graph.
    """
    tensor, rest = _owner(fn, args)
    if kwargs.keys() == {"hook"} and not rest:
        rest, kwargs = (kwargs["hook"],), {}
    if not tensor.requires_grad or (tracer.source_of(tensor) is not None and tensor.is_leaf):
        # The interpreter runs torch's Python code. The code writes to the input's hooks, which is a side
        # effect.
        method = getattr(torch.Tensor, fn.__name__)
        return tracer.trace.interp.call_function(method, (tensor, *rest), kwargs)
    if fn.__name__ == "register_hook" and len(rest) == 1 and not kwargs:
        return _register_in_graph(tracer, tensor, rest[0])
    raise _end_before_use(tracer, tensor, fn.__name__)


class LaterHooks(GraphBreak):
    """Raised if the replacement code must register some hooks. The frame is traced again.

    ``numbers`` are the positions of the hooks in the trace. If no further trace is made, the exception is a
    graph break.
    """

    def __init__(self, numbers: frozenset[int]) -> None:
        reason = REASONS["unsupported-call"]
        super().__init__(reason, "Tensor.register_hook of a tensor that leaves the graph")
        self.numbers = numbers


class HandleInGraph(RemovableHandle):
    """The handle of a hook in the graph.

    It stays in the trace, because outside of it there is no hook to remove.
    """

    def __init__(self, hooks: OrderedDict[int, Any], number: int) -> None:
        self.hooks_dict_ref = weakref.ref(hooks)
        """``RemovableHandle`` removes the hook from this dictionary."""
        self.id = number
        self.extra_dict_ref = ()


@dataclass(frozen=True, slots=True)
class _Hook:
    """A hook of the trace. ``node`` registers the hook in the graph. If the replacement code registers it,
    ``node`` is None.

    ``version`` is the tensor's version at the registration. The hook gets the gradient of this version.
    """

    node: fx.Node | None
    tensor: torch.Tensor
    version: int


class HooksInGraph:
    """The hooks on computed tensors. ``active`` has the hooks that no handle has removed."""

    def __init__(self, tracer: TracerProtocol) -> None:
        self._tracer = tracer
        self._hooks: list[_Hook] = []
        self.active: OrderedDict[int, Any] = OrderedDict()
        self.shown: list[list[torch.Tensor]] = []
        """For each hook: the tensors that it has seen, in a graph that is a backward pass."""

    @property
    def count(self) -> int:
        """Number of hooks that the trace has registered so far. Removed hooks count."""
        return len(self._hooks)

    def add(self, node: fx.Node | None, tensor: torch.Tensor) -> HandleInGraph:
        """Record a hook of ``tensor``, and return its handle.

        ``node`` registers the hook. If it is None, the replacement code does.
        """
        handle = HandleInGraph(self.active, len(self._hooks))
        objects: Any = self._tracer.trace.objects
        for new_object in (self.active, handle):
            objects.note_new(new_object)
        self.active[handle.id] = None
        self._hooks.append(_Hook(node, tensor, tensor._version))
        return handle

    def close(self, outputs: Sequence[object]) -> None:
        """Remove the nodes of removed hooks.

        Raises:
            LaterHooks: a tensor with a hook in the graph leaves the graph. The program may register
                another hook on the tensor, which must run after the first one.
            GraphBreak: a hook cannot be registered after the graph has run.
        """
        leaving = set(map(id, outputs))
        moved = []
        for number, hook in enumerate(self._hooks):
            removed = number not in self.active
            if hook.node is None:
                # The replacement code would register the hook on the tensor's last version in the graph.
                changed = hook.tensor._version != hook.version or self._changes_inputs()
                if removed or self._tracer.differentiated or changed:
                    raise self._before_use(hook.tensor)
            elif removed and (self._tracer.differentiated or id(hook.tensor) in leaving):
                raise self._before_use(hook.tensor)
            elif removed:
                self._tracer.builder.graph.erase_node(hook.node)
            elif id(hook.tensor) in leaving and self._changes_inputs():
                # If a backward finds gradients between results, it runs the graph again, including the hooks.
                raise self._before_use(hook.tensor)
            elif id(hook.tensor) in leaving:
                moved.append(number)
        if moved:
            raise LaterHooks(frozenset(moved))

    def _changes_inputs(self) -> bool:
        """Return whether the graph has written to an input."""
        inputs = {fake.untyped_storage()._cdata for fake, _, _ in self._tracer.inputs()}
        return not inputs.isdisjoint(self._tracer.mutated_storages)

    def _before_use(self, tensor: torch.Tensor) -> GraphBreak:
        """Return the graph break that ends the graph before the first use of ``tensor``."""
        reason = _end_before_use(self._tracer, tensor, "register_hook")
        if reason.earlier is not None:
            reason.path = (reason.earlier,)
        return reason


def _register_later(tracer: TracerProtocol, tensor: torch.Tensor, hook: object) -> HandleInGraph:
    """Let the replacement code register the hook on the real tensor. It does so after the graph has run."""
    register_hook = torch.Tensor.register_hook
    objects: Any = tracer.trace.objects
    objects.deferred.append(Call(pinned(register_hook, "register_hook"), (tensor, hook), {}))
    handle: HandleInGraph = tracer.hooks.add(None, tensor)
    return handle


def _register_in_graph(tracer: TracerProtocol, tensor: torch.Tensor, hook: object) -> HandleInGraph:
    """Register a hook on a computed tensor: as a nested graph, or by the replacement code (``LaterHooks``).

    If neither is possible, break the graph before the first use of the tensor.
    """
    if tracer.transforms.inside or is_wrapper(tensor):
        raise _end_before_use(tracer, tensor, "register_hook")
    whole = tracer.trace.options.fullgraph
    if tracer.hooks.count in tracer.trace.plan.later or (whole and tracer.source_of(tensor) is not None):
        return _register_later(tracer, tensor, hook)
    if tracer.source_of(tensor) is not None:
        raise _end_before_use(tracer, tensor, "register_hook")
    builder = tracer.builder
    mark = builder.mark()
    with tracer.unrecorded(), tracer.mode, torch.no_grad():
        gradient = torch.empty_like(tensor)
    try:
        with _without_gradients():
            subgraph = subgraphs.trace(tracer, partial(_apply_hook, hook), [gradient], None, apart=False)
        state = find_state(tracer, subgraph.reads, hook)
        if state is None or state:
            raise graph_break("unsupported-call", "a hook that reads state of the program")
    except GraphBreak as reason:
        if whole:
            raise LaterHooks(frozenset([tracer.hooks.count])) from reason
        raise _end_before_use(tracer, tensor, f"register_hook ({reason.record.reason.id})") from reason
    module = subgraphs.cut_out(tracer, subgraph, subgraph.free)
    builder.roll_back(mark)
    args = (builder.node_of(tensor), builder.module("hook", module), *subgraph.free)
    node = builder.add("call_function", hook_gradient, args, {})
    node.meta.update(val=None, example_value=None)
    tracer.annotate(node)
    handle: HandleInGraph = tracer.hooks.add(node, tensor)
    return handle


def _apply_hook(hook: Any, gradient: Any) -> Any:
    """Return the gradient after the hook has run. The interpreter runs this function."""
    changed = hook(gradient)
    return gradient if changed is None else changed


@contextmanager
def _without_gradients() -> Iterator[None]:
    """Turn grad mode off inside the context. A hook is traced inside of it."""
    # A backward runs without grad mode. The nested graph runs in the grad mode of the backward.
    enabled = torch.is_grad_enabled()
    torch_compat.set_grad_enabled(False)
    try:
        yield
    finally:
        torch_compat.set_grad_enabled(enabled)


def retain_grad(tracer: TracerProtocol, fn: object, args: Args, _kwargs: Kwargs) -> None:
    """Apply the rule for ``retain_grad``. It has no effect on a leaf."""
    tensor, _ = _owner(fn, args)
    if not (tensor.is_leaf and tensor.requires_grad):
        raise _end_before_use(tracer, tensor, "retain_grad")


def _owner(fn: object, args: Args) -> tuple[torch.Tensor, tuple[Any, ...]]:
    """Return the tensor of a call of a tensor method, and the other arguments. The method may be bound or
    not.
    """
    owner = getattr(fn, "__self__", None)
    return (owner, args) if isinstance(owner, torch.Tensor) else (args[0], args[1:])


def _end_before_use(tracer: TracerProtocol, tensor: torch.Tensor, name: str) -> GraphBreak:
    """Return the graph break for ``Tensor.name``. It ends the graph before the first use of a computed
    tensor.

    The hook must be registered before the tensor is used.
    """
    reason = graph_break("unsupported-call", f"Tensor.{name}")
    if tracer.source_of(tensor) is None:
        users = tracer.builder.node_of(tensor).users
        reason.earlier = min((tracer.steps[user] for user in users if user in tracer.steps), default=None)
    return reason
