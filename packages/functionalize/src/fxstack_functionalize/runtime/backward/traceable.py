"""The backward of a compiled graph as a Python function that a capture can trace.

A backward pass that is compiled as a whole (torch's compiled autograd) contains the backwards of compiled graphs.
Their kernels cannot be traced, but their graphs can. The function reads the saved tensors from the autograd node,
and frees none of them: they live as long as the node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fxstack_functionalize.errors import SAVED_ARE_FREED, saved_changed
from fxstack_functionalize.runtime.backward.backwards import Backwards
from fxstack_functionalize.runtime.backward.saved import KeptTensor, positions_of
from fxstack_functionalize.torch_state import autocast_dtypes
from fxstack_interchange.operators.hooking import TRACEABLE_BACKWARD

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
    """Return what makes the traceable backward of a node in front of the node of the graph of ``function``.

    The node is that of the flat outputs ``positions`` of ``count``. Its backward passes on their gradients, and
    returns nothing for ``marks`` further edges, and the gradients of ``inputs``.
    """
    make: Make = getattr(function, TRACEABLE_BACKWARD)

    def make_part(missing: Sequence[bool]) -> Traceable | None:
        is_missing = dict(zip(positions, missing, strict=True))
        graph_backward = make(None, [is_missing.get(at, True) for at in range(count)])
        if graph_backward is None:
            return None

        def run(ctx: Any, saved: Sequence[torch.Tensor], *grads: Any) -> Sequence[Any]:
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
    return [*ctx.held.tensors]


def _make_reader(plan: Sequence[KeptTensor]) -> Callable[[Any, Sequence[torch.Tensor]], list[Any]]:
    """Return a function that returns all saved tensors in order, of autograd and of the node itself."""
    positions = positions_of(plan)

    def read(ctx: Any, saved: Sequence[torch.Tensor]) -> list[Any]:
        return [saved[position] if by_autograd else ctx.kept[position] for by_autograd, position in positions]

    return read


def check_saved(ctx: Any) -> None:
    """Check the tensors that autograd does not keep.

    Raises:
        RuntimeError: if an earlier backward freed one of them, or one was changed in place.
    """
    held = getattr(ctx, "held", None)
    if getattr(ctx, "kept", ()) is None or (held is not None and held.done):
        raise RuntimeError(SAVED_ARE_FREED)
    if held is not None:
        for position, tensor in held.watched.items():
            if tensor._version != held.versions[position]:
                raise RuntimeError(saved_changed(tensor, held.versions[position]))
