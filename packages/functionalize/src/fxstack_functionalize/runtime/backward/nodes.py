"""Further autograd nodes for the results of a compiled graph, and nodes whose backward can be traced.

Autograd runs and frees everything behind a node, even behind outputs without gradient. So a result gets its
own node if its eager history differs from the histories of other results. ``partial_inputs`` makes nodes for
results that do not reach the same inputs, ``edge_gradients`` for results that are computed from other
results.

A backward pass that is compiled as a whole (torch's compiled autograd) contains the backwards of compiled
graphs. Their kernels cannot be traced, but their graphs can. A traceable backward is a Python function that
reads the saved tensors from the autograd node, and frees none of them: they live as long as the node.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from fxstack_functionalize import torch_compat
from fxstack_functionalize.errors import SAVED_ARE_FREED, saved_changed
from fxstack_functionalize.runtime.backward.backwards import Backwards
from fxstack_functionalize.runtime.backward.saved import KeptTensor, positions_of
from fxstack_functionalize.torch_state import autocast_dtypes
from fxstack_interchange.operators.hooking import TRACEABLE_BACKWARD


class _ResultHooks(OrderedDict[int, Callable[[torch.Tensor | None], Any]]):
    """The hooks of a result of a node with several results. Eager calls no hook of a result without gradient."""

    def __setitem__(self, key: int, hook: Callable[[torch.Tensor | None], Any]) -> None:
        super().__setitem__(key, lambda grad: None if grad is None else hook(grad))


def register_hooks(node: Any, result: torch.Tensor) -> None:
    """Let ``node`` call the hooks of ``result``. The node also runs if only other results have a gradient."""
    result._backward_hooks = _ResultHooks()
    torch_compat.FunctionBase._register_hook_dict(node, result)


class HistoryNode(torch.autograd.Function):
    """An in-place identity on results. It adds autograd edges from the results to the tensors on which they depend."""

    @staticmethod
    def forward(ctx: Any, attributes: Mapping[str, Any], count: int, *tensors: torch.Tensor) -> Any:
        """``tensors``: ``count`` results, then tensors that only provide edges.

        ``attributes`` are set on the node. Its attribute ``gradients`` is a function of the node and the gradients of
        the results. The function returns the gradients of ``tensors``.
        """
        for name, value in attributes.items():
            setattr(ctx, name, value)
        ctx.set_materialize_grads(False)
        ctx.mark_dirty(*tensors[:count])
        return tensors[:count]

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple[Any, ...]:
        return (None, None, *ctx.gradients(ctx, grads))


def give_history(
    kind: type[HistoryNode], results: Sequence[Any], sources: Sequence[Any], attributes: Mapping[str, Any]
) -> None:
    """Give ``results`` a common new node of class ``kind``.

    It has edges to the present nodes of the results, and to ``sources``.
    """
    versions = [result._version for result in results]
    # Function.apply first handles functorch transforms in Python; the wrapper has handled them.
    super(torch.autograd.Function, kind).apply(attributes, len(results), *results, *sources)
    torch_compat.unsafe_set_version_counter(results, versions)


def without_history(args: Sequence[Any], positions: Sequence[int], *, is_end: bool) -> list[Any]:
    """Return ``args`` with the tensors at ``positions`` detached.

    ``is_end``: no other argument requires grad. Autograd gives results a history only if an argument requires grad,
    so the first detached argument becomes a leaf, in place of the leaves that the graph makes.
    """
    detached = [*args]
    for position in positions:
        detached[position] = detached[position].detach()
    if is_end and positions:
        detached[positions[0]].requires_grad_()
    return detached


Traceable = Callable[..., Sequence[Any]]
"""A function of a node, its saved tensors and the gradients of its outputs."""
Make = Callable[[Any, Sequence[bool]], Traceable | None]
Key = tuple[int, ...]

# Limits: in a compiled backward pass a second backward without retain_graph raises only if autograd itself has
# saved a tensor of the graph.


def set_traceable(
    function: type[torch.autograd.Function],
    make: Make,
    key: Callable[[Any], Key],
    state: Callable[[Any], Any] | None = None,
) -> None:
    """Let ``function`` return its traceable backward.

    ``make``: see ``TRACEABLE_BACKWARD``. ``key``: called with the node before each compiled backward pass, in place
    of the node's backward. Nodes with equal keys have the same traceable backward. ``state``: returns the object
    that has the node's saved tensors, which are checked first; None if the backward reads none.
    """

    def checked_key(node: Any) -> Key:
        """Return the key of the node for compiled autograd, after a check of its saved tensors."""
        if state is not None:
            check_saved(state(node))
        return key(node)

    setattr(function, TRACEABLE_BACKWARD, staticmethod(make))
    node_class: Any = function
    node_class._compiled_autograd_key = staticmethod(checked_key)


def make_traceable(
    function: type[torch.autograd.Function],
    backwards: Backwards,
    positions: Sequence[int],
    saved: Sequence[KeptTensor] | None,
    watched: Callable[[Any], bool],
) -> None:
    """Let ``function`` return its traceable backward, and check its saved tensors as a backward does.

    ``positions``: the differentiable outputs. ``saved``: how saved tensors are kept; None if ``ctx.held`` has them.
    ``watched``: whether the backward must find gradients between results, which needs a run of the graph.
    """

    def make(node: Any, missing: Sequence[bool]) -> Traceable | None:
        """Return the traceable backward; None if the node is watched.

        ``missing``: for each result, whether it has no gradient.
        """
        if watched(node):
            return None
        chosen = tuple(missing[position] for position in positions)
        if all(chosen):
            return lambda _ctx, _saved, *_grads: backwards.none
        return _traceable_backward(backwards, chosen, saved)

    set_traceable(function, make, lambda ctx: (ctx._autograd_function_id, int(watched(ctx))), lambda ctx: ctx)


def make_traceable_part(
    function: Any, positions: Sequence[int], inputs: Sequence[int], marks: int, count: int
) -> Callable[[Sequence[bool]], Traceable | None]:
    """Return a function that makes the traceable backward of a node in front of the node of ``function``.

    The further node belongs to the flat outputs ``positions`` (of ``count``). Its backward passes on the gradients of
    these outputs, returns None for ``marks`` further edges, and returns the gradients of ``inputs``.
    """
    make: Make = getattr(function, TRACEABLE_BACKWARD)

    def make_part(missing: Sequence[bool]) -> Traceable | None:
        """Return the traceable backward of the further node for the missing gradients of its own results."""
        is_missing = dict(zip(positions, missing, strict=True))
        graph_backward = make(None, [is_missing.get(at, True) for at in range(count)])
        if graph_backward is None:
            return None

        def run(ctx: Any, saved: Sequence[torch.Tensor], *grads: Any) -> Sequence[Any]:
            """Run the graph's traceable backward with the gradients of this node's results only."""
            gradient_of = dict(zip(positions, grads, strict=True))
            gradients = graph_backward(ctx.call.state, saved, *[gradient_of.get(at) for at in range(count)])
            return (None, None, *grads, *([None] * marks), *(gradients[index] for index in inputs))

        return run

    return make_part


def _traceable_backward(
    backwards: Backwards, missing: tuple[bool, ...], saved: Sequence[KeptTensor] | None
) -> Traceable:
    """Return the traceable backward for calls whose results ``missing`` have no gradient."""
    read: Callable[..., list[Any]] = _read_held if saved is None else _make_reader(saved)
    gradients = backwards.traceable(missing)

    def run(ctx: Any, saved_tensors: Sequence[torch.Tensor], *grads: Any) -> Sequence[Any]:
        arguments = [*read(ctx, saved_tensors), *getattr(ctx, "symbols", ())]
        return gradients(arguments, grads, getattr(ctx, "sizes", None))

    for device in autocast_dtypes():  # the graph contains the casts
        run = torch.autocast(device, enabled=False)(run)
    return run


def _read_held(ctx: Any, _saved: Sequence[torch.Tensor]) -> list[Any]:
    """Return the saved tensors of a node that keeps them in ``ctx.held``."""
    return [*ctx.held.tensors]


def _make_reader(plan: Sequence[KeptTensor]) -> Callable[[Any, Sequence[torch.Tensor]], list[Any]]:
    """Return a function that returns all saved tensors in order: those that autograd keeps, and those of the node."""
    positions = positions_of(plan)

    def read(ctx: Any, saved: Sequence[torch.Tensor]) -> list[Any]:
        return [saved[position] if by_autograd else ctx.kept[position] for by_autograd, position in positions]

    return read


def check_saved(ctx: Any) -> None:
    """Raise RuntimeError if a tensor that autograd does not keep was freed by a backward, or changed in place.

    Called when compiled autograd asks for the node's key, because it does not call the node's backward.
    """
    held = getattr(ctx, "held", None)
    if getattr(ctx, "kept", ()) is None or (held is not None and held.done):
        raise RuntimeError(SAVED_ARE_FREED)
    if held is not None:
        for position, tensor in held.watched.items():
            if tensor._version != held.versions[position]:
                raise RuntimeError(saved_changed(tensor, held.versions[position]))
