"""``flex_attention`` as a node with two nested graphs: the change of one score, and the mask of one score.

Both functions are traced on tensors of one number: a score of the query's dtype, and 32-bit positions (batch,
head, query, key). The graphs run on other tensors: eager computes scores in float32 (float64 for float64),
with 64-bit positions, under ``vmap``. Therefore ``tensor[position]`` is always an index lookup in these
functions. Elsewhere it would be an ``item()``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import fx

from fxstack_capture import torch_compat
from fxstack_capture.torch_compat import pytree
from fxstack_capture.torch_side.higher_order.nested.calls import GraphsOfCall, any_gradient, bind_arguments
from fxstack_capture.torch_side.higher_order.subgraphs import cut_out
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.trace.state import Args, Kwargs
from fxstack_interchange.operators.flex import POSITIONS, attention_strides

# Limits: the graph breaks if a score function writes to a tensor. On CUDA, float32 is computed without TF32,
# the kernel does not check indices at masked positions, and a second derivative runs the graph in eager.

_OPERATOR = torch.ops.higher_order.flex_attention
_NAMES = "query key value score_mod block_mask scale kernel_options"


def flex_attention(tracer: TracerProtocol, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for the operator ``flex_attention``.

    The names of the arguments are in ``_NAMES``, and ``block_mask`` is a tuple.
    """
    query, key, value, score_mod, block_mask, scale, options, *more = bind_arguments(
        args, kwargs, f"{_NAMES} score_mod_other_buffers mask_mod_other_buffers"
    )
    query, key, value = (_autocast(tracer, x) for x in (query, key, value))
    call = GraphsOfCall(tracer, _OPERATOR)
    if tracer.overrides.concern(None, (query, key, value), {}):
        raise call.refuse("of tensors whose class, or under a mode that, torch asks about it")
    if any(more):
        raise call.refuse("with tensors beside those that its functions close over")
    with _index_lookups(tracer):
        position = _number(tracer, query, torch.int32)
        score = _number(tracer, query, query.dtype)
        call.trace(score_mod, [score, *[position] * POSITIONS], apart=False)
        call.trace(block_mask[-1], [position] * POSITIONS, apart=False)
    (score_graph, score_free), (mask_graph, mask_free) = _single_graphs(call)
    results = _results(call, query, key, value, (*score_free, *mask_free))
    node_args = (
        *call.operands([query, key, value]),
        score_graph,
        (*call.operands(block_mask[:-1]), mask_graph),
        *call.operands([scale, options]),
        score_free,
        mask_free,
    )
    return call.write(node_args, results, pytree.tree_structure((None,) * len(results)))


def _autocast(tracer: TracerProtocol, tensor: torch.Tensor) -> torch.Tensor:
    """Return ``tensor`` in the dtype that the operator uses under autocast."""
    kind = tensor.device.type
    if not torch.is_autocast_enabled(kind) or not _casts(kind, tensor):
        return tensor
    target = torch.get_autocast_dtype(kind)
    cast: torch.Tensor = tracer.record(torch.Tensor.to, (tensor, target), {})
    return cast


def _casts(kind: str, tensor: torch.Tensor) -> bool:
    """Return whether autocast casts a tensor of this device and dtype for the operator."""
    key = getattr(torch_compat.DispatchKey, f"Autocast{kind.upper()}", None)
    has_kernel = key in _OPERATOR.py_kernels  # some versions of torch have no such kernel
    return has_kernel and tensor.is_floating_point() and tensor.dtype is not torch.float64


def _number(tracer: TracerProtocol, query: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Return a tensor of one number of ``dtype``, as an argument of a traced function.

    A score (a float) requires grad if the query requires grad.
    """
    with tracer.unrecorded(), tracer.mode, torch.no_grad():
        number = torch.empty((), dtype=dtype, device=query.device)
    return number.requires_grad_(query.requires_grad and dtype.is_floating_point)


def _single_graphs(call: GraphsOfCall) -> list[tuple[fx.Node, tuple[fx.Node, ...]]]:
    """Return a module for each function, with the outer nodes that only this function uses."""
    for subgraph in call.traced:
        is_leaf = call.tracer.trace.calls.call(pytree.TreeSpec.is_leaf, (subgraph.spec,), {})
        if len(subgraph.outputs) != 1 or not is_leaf:
            raise call.refuse("whose functions do not return one tensor each")
    cut = [cut_out(call.tracer, replace(subgraph, is_single=True), subgraph.free) for subgraph in call.traced]
    builder = call.tracer.builder
    builder.roll_back(call.mark)
    names = ("score_mod", "mask_mod")
    return [
        (builder.module(f"flex_attention_{name}", module), subgraph.free)
        for name, module, subgraph in zip(names, cut, call.traced, strict=True)
    ]


def _results(
    call: GraphsOfCall, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, free: tuple[fx.Node, ...]
) -> list[torch.Tensor]:
    """Return fakes of the attention (laid out like the query), the log-sums, and the largest scores."""
    batch, heads, length, _ = query.size()
    shape = (batch, heads, length, value.size(-1))
    precise = torch.float64 if query.dtype is torch.float64 else torch.float32
    with call.tracer.unrecorded(), call.tracer.mode, torch.no_grad():
        strides = attention_strides(shape, query.stride())
        out = torch.empty_strided(shape, strides, dtype=query.dtype, device=query.device)
        sums, largest = (out.new_empty(shape[:-1], dtype=precise) for _ in range(2))
    gradient = any_gradient((query, key, value), free)
    return [*call.make_results([out, sums], gradient=gradient), *call.make_results([largest], gradient=False)]


@contextmanager
def _index_lookups(tracer: TracerProtocol) -> Iterator[None]:
    """Record ``tensor[...]`` with tensors and integers as ``aten.index``, as the operator itself does."""

    def getitem(fn: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function that replaces ``fn``, which indexes a tensor, while the context is active."""

        def look_up(tensor: object, index: object) -> Any:
            """Record tensor and integer indices as ``aten.index``. Record any other index by ``fn`` itself."""
            parts = pytree.tree_leaves(index)
            if not all(isinstance(part, (torch.Tensor, int)) for part in parts):
                return tracer.record(fn, (tensor, index), {})
            indices = [_as_tensor(tracer, tensor, part) for part in parts]
            return tracer.record(torch.ops.aten.index, (tensor, indices), {})

        return look_up

    before = tracer.overriding
    readers = (operator.getitem, torch.Tensor.__getitem__)
    tracer.overriding = {**before, **{fn: getitem(fn) for fn in readers}}
    try:
        yield
    finally:
        tracer.overriding = before


def _as_tensor(tracer: TracerProtocol, tensor: torch.Tensor, index: object) -> Any:
    """Return ``index`` if it is a tensor, else record an int64 tensor of the integer on the device of ``tensor``."""
    if isinstance(index, torch.Tensor):
        return index
    options = {"dtype": torch.int64, "device": tensor.device}
    return tracer.record(torch.full, ((), index), options)


RULES = {_OPERATOR: flex_attention}
