"""Accumulate gradients into leaves as autograd does.

This includes two facts about a backward pass. A graph of torch's compiled autograd passes gradients to the
program's hooks. A hook may keep such a tensor, so it must not itself become the gradient of a leaf. And some
functions may be called only inside of a hook.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.torch_compat import FakeTensor, tree_leaves
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.torch_side.subclasses.suspended_modes import Level
from fxstack_capture.trace.state import Args, Kwargs


def show(*_values: object) -> None:
    """Do nothing. The trace of compiled autograd calls this with gradients that code of the program gets or
    returns.

    ``show_to_hook`` is the rule of the call.
    """


def show_to_hook(tracer: TracerProtocol, _fn: object, args: Args, _kwargs: Kwargs) -> None:
    """Apply the rule for ``show``: record gradients that a hook or backward of the program may keep.

    Such a tensor must not itself become the gradient of a leaf.
    """
    tracer.hooks.shown.append([leaf for leaf in tree_leaves(args) if isinstance(leaf, FakeTensor)])


def demand_hook(*_values: object) -> None:
    """Do nothing. The trace calls this for ``queue_callback``, which is allowed only while a backward runs.

    ``demand_in_hook`` is the rule of the call.
    """


def demand_in_hook(tracer: TracerProtocol, _fn: object, _args: Args, _kwargs: Kwargs) -> None:
    """Break the graph if no hook of a recorded backward pass has been called."""
    if not tracer.hooks.shown:
        raise graph_break("unsupported-call", "queue_callback outside of a backward pass")


def accumulate(variable: torch.Tensor, gradient: torch.Tensor | None) -> None:
    """Do nothing. The trace of compiled autograd calls this where a gradient reaches the leaf ``variable``.

    ``accumulate_alone`` is the rule of the call.
    """


def accumulate_alone(tracer: TracerProtocol, _fn: Callable[..., Any], args: Args, _kwargs: Kwargs) -> None:
    """Apply the rule for ``accumulate``: add a gradient to ``leaf.grad`` in a graph that is itself a backward pass."""
    leaf, gradient = args
    if gradient is None:
        return
    shown = [tensor for tensors in tracer.hooks.shown for tensor in tensors]
    busy = [*(fake for fake, _, _ in tracer.inputs()), *shown]
    accumulate_into(tracer, leaf, gradient, busy, with_history=torch.is_grad_enabled())
    tracer.hooks.shown.append([gradient])


def accumulate_into(
    tracer: TracerProtocol,
    leaf: torch.Tensor,
    gradient: torch.Tensor,
    busy: Sequence[torch.Tensor],
    *,
    with_history: bool = False,
) -> None:
    """Record the work of ``AccumulateGrad`` (torch/csrc/autograd/functions/accumulate_grad.h).

    ``busy`` are tensors that other code holds. A gradient that shares memory with one of them is copied.
    ``with_history``: the backward pass itself can be differentiated (``create_graph=True``).
    """
    with tracer.overrides.at(Level.ALL_OFF):  # autograd calls no ``__torch_function__``
        old = tracer.load_attr(leaf, "grad")
    if old is not None:
        if with_history:
            tracer.store_attr(leaf, "grad", tracer.record(torch.add, (old, gradient), {}))
        else:
            tracer.record(torch.Tensor.add_, (old, gradient), {})
        return
    with tracer.unrecorded():
        shared = any(gradient.untyped_storage()._cdata == other.untyped_storage()._cdata for other in busy)
        keep = not shared and not with_history and _fits(gradient, leaf)
        layout = torch.preserve_format if is_dense(leaf) else torch.contiguous_format
    if not keep:
        plain = tracer.record(torch.Tensor.detach, (leaf,), {})
        buffer = tracer.record(torch.empty_like, (plain,), {"memory_format": layout})
        gradient = tracer.record(torch.Tensor.copy_, (buffer, gradient), {})
    else:
        tracer.leave_as(gradient, as_base)
    tracer.store_attr(leaf, "grad", gradient)


def as_base(gradient: torch.Tensor) -> torch.Tensor:
    """Return ``gradient`` as a tensor that is not a view, because autograd never stores a view as ``grad``."""
    return gradient.data


def is_dense(tensor: torch.Tensor) -> bool:
    """Return whether the elements of a tensor do not overlap and have no unused memory between them."""
    expected: Any = 1
    # Sizes are compared only where strides leave it open, because the size may come from data.
    for stride, size in sorted(zip(tensor.stride(), tensor.size(), strict=True), key=itemgetter(0)):
        if stride == expected:
            expected *= size
        elif size != 1:
            return False
    return True


def _fits(gradient: torch.Tensor, leaf: torch.Tensor) -> bool:
    """Return whether a gradient has the memory layout that ``AccumulateGrad`` requires for the leaf."""
    if not is_dense(leaf):
        return bool(gradient.is_contiguous())
    strides = zip(leaf.size(), gradient.stride(), leaf.stride(), strict=True)
    return all(size == 1 or stride == leaf_stride for size, stride, leaf_stride in strides)
