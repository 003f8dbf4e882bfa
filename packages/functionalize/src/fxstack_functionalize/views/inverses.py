"""Views through which functionalisation cannot write a change back exactly.

torch's functionalisation writes a changed view back by the inverse of each view operator. The inverse of
``unfold`` is its gradient formula: it gives zeros outside all windows, and sums where windows overlap. The
inverse of ``expand`` adds a difference, which rounds and makes NaN of infinities. The inverse of an
``as_strided`` with overlaps writes old values beside new values. If a graph changes a tensor through such a
view, the trace restarts. The new trace makes each such view, and each view of it, in one step: as
``as_strided`` of the tensor that owns the memory. The inverse of this ``as_strided`` writes exactly the
elements of the view.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing
from torch.fx.experimental.symbolic_shapes import guard_or_false, statically_known_true

from fxstack_functionalize import torch_compat
from fxstack_functionalize.errors import UnsupportedGraphError
from fxstack_functionalize.metadata.replay import Step, view_steps
from fxstack_functionalize.torch_compat import functionalization as views
from fxstack_functionalize.torch_compat import pytree
from fxstack_functionalize.tracer.engine import Engine, current_value, storage_key
from fxstack_functionalize.tracer.inputs import RestartTraceError
from fxstack_functionalize.tracer.symbols import hint_of
from fxstack_functionalize.views.differentiable_bases import root_of
from fxstack_functionalize.views.memory_layout import note_as_strided, on_values, same_strides

EXPAND, UNFOLD, AS_STRIDED = (getattr(views, f"{n}_ViewMeta") for n in ("expand", "unfold", "as_strided"))


def check_inverses(engine: Engine, name: str, target: torch.Tensor) -> None:
    """Check the views that lead to ``target``, which the operator ``name`` is about to change.

    Raises:
        RestartTraceError: if a view has no exact inverse, and the trace may restart.
        UnsupportedGraphError: if the trace has restarted, and this view cannot be made in one step.
    """
    if not _is_lossy(engine, target):
        return
    if not engine.flat_views:
        raise RestartTraceError(lambda captured: replace(captured, flat_views=True))
    raise UnsupportedGraphError(
        f"{name!r} changes a tensor through a view of overlapping elements, or one with gaps",
        why="the view cannot be made in one step of the tensor that owns the memory",
        fix="change the tensor itself, or a clone",
    )


def flatten_lossy_views(engine: Engine, result: object, arguments: object) -> Any:
    """Return ``result``, with each view without an exact inverse replaced by a view made in one step.

    Tensors that are also ``arguments`` are not replaced.
    """
    argument_ids = {id(leaf) for leaf in pytree.tree_leaves(arguments)}

    def flat(tensor: torch.Tensor) -> torch.Tensor:
        """Return ``tensor``, or the same view in one step if its chain of views cannot be inverted exactly."""
        if id(tensor) in argument_ids or not _is_lossy(engine, tensor):
            return tensor
        view = _in_one_step(engine, tensor)
        return tensor if view is None else view

    return pytree.tree_map_only(torch.Tensor, flat, result)


def _in_one_step(engine: Engine, tensor: torch.Tensor) -> torch.Tensor | None:
    """Return ``tensor`` as ``as_strided`` of its root; None if autograd would treat that view differently."""
    root = root_of(tensor)
    value, root_value = current_value(engine, tensor), current_value(engine, root)
    is_same_kind = root.dtype == tensor.dtype and not any(
        t.is_conj() or t.is_neg() for t in (tensor, root, value, root_value)
    )
    # torch ignores a change through an as_strided of a view.
    if not is_same_kind or root is tensor or view_steps(engine.core(root)):
        return None
    dense = torch.ops.aten.is_non_overlapping_and_dense.default
    if not (dense(root) and dense(root_value) and same_strides(root_value, root.stride())):
        return None
    # The view was made from the present value, which may have another storage offset than eager's tensor.
    start = value.storage_offset() - root_value.storage_offset()
    note_as_strided(engine, root)
    view = root.as_strided(tensor.shape, tensor.stride(), root.storage_offset() + start)
    is_same_state = _autograd_state(view) == _autograd_state(tensor)
    return view if is_same_state else None


def _autograd_state(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Return the facts about a view by which autograd treats it."""
    return (
        tensor.requires_grad,
        tensor.grad_fn is None,
        id(tensor._base),
        torch_compat.get_creation_meta(tensor),
    )


def _is_lossy(engine: Engine, tensor: torch.Tensor) -> bool:
    """Whether a view between ``tensor`` and the owner of its memory has no exact inverse."""
    if not engine.is_functional(tensor):
        return False
    core = engine.core(tensor)
    if not torch_compat.is_functional_tensor(core):
        return False
    steps = view_steps(core)
    if all(make not in _LOSSY for make, _ in steps):
        return False
    root = _owner_of(engine, tensor)
    root_steps = view_steps(engine.core(root))
    if steps[: len(root_steps)] != root_steps:
        return True
    return _is_change_lost(current_value(engine, root), steps[len(root_steps) :])


def _owner_of(engine: Engine, tensor: torch.Tensor) -> torch.Tensor:
    """Return the owner of the memory of ``tensor``: the tensor from which it was detached, or its root."""
    detached_from = engine.detached_from.get(storage_key(tensor))
    return root_of(tensor) if detached_from is None else detached_from


def _is_change_lost(value: torch.Tensor, steps: Sequence[Step]) -> bool:
    """Whether a change of the last view of ``steps`` cannot be written back exactly into ``value``."""
    with disable_proxy_modes_tracing(), on_values():
        for make, arguments in steps:
            viewed = views.apply_view_meta_sequence(value, [make(arguments)])
            loses = _LOSSY.get(make)
            if loses is not None and loses(value, viewed):
                return True
            value = viewed
    return False


_LOSSY: dict[Any, Callable[[torch.Tensor, torch.Tensor], bool]] = {
    # Even an expand that changes no size loses values, because its inverse adds a difference.
    EXPAND: lambda _before, _after: True,
    UNFOLD: lambda before, after: (
        not statically_known_true(before.numel() == after.numel()) or overlaps_itself(after)
    ),
    AS_STRIDED: lambda _before, after: overlaps_itself(after),
}
"""Class of a view record -> test whether the inverse is inexact, given the tensors before and after the view."""


def overlaps_itself(tensor: torch.Tensor) -> bool:
    """Whether elements may share memory: a stride lies within the span of dimensions with smaller strides.

    Symbolic strides are compared by guards. Strides that depend on data are assumed not to overlap, but a
    stride of 0 still overlaps.
    """
    dims = tuple(zip(tensor.stride(), tensor.shape, strict=True))
    if all(type(number) is int for dim in dims for number in dim):
        return _overlaps_itself_cached(dims)
    return _overlaps_itself(dims)


def _overlaps_itself(dims: Sequence[tuple[Any, Any]]) -> bool:
    """Whether elements of a tensor of these strides and sizes may share memory."""
    if any(guard_or_false(n == 0) for _, n in dims):
        return False
    dims = [(step, n) for step, n in dims if not guard_or_false(n == 1)]
    if any(isinstance(n, torch.SymInt) and n.node.hint is None for dim in dims for n in dim):
        return any(type(step) is int and step == 0 for step, _ in dims)
    covered: Any = 0
    for step, n in sorted(dims, key=lambda dim: hint_of(dim[0])):
        if not guard_or_false(step > covered):
            return True
        covered += (n - 1) * step
    return False


_overlaps_itself_cached = lru_cache(_overlaps_itself)
"""For plain numbers: the parameters of an optimizer have few shapes."""
