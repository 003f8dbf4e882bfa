"""Record a function of single tensors for one of several calls with equal metadata, and repeat its nodes for the others.

A step of an optimizer applies a dozen operators to each of its parameters. Fake kernels and dispatch take most of the
time of a trace, and for parameters of equal metadata they find the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node, Proxy
from torch.fx.node import map_arg

from fxstack_functionalize import torch_compat
from fxstack_functionalize.torch_compat import FakeTensor, OpOverload
from fxstack_functionalize.tracer.aten_tracer import AtenTracer
from fxstack_interchange.operators.list_operators import SingleCall

PLAIN = (int, float, bool, str, type(None), torch.dtype)


@dataclass(frozen=True, slots=True)
class Recorded:
    """The nodes of one call, the nodes of its operands, and its result."""

    operands: tuple[Node, ...]
    nodes: tuple[Node, ...]
    result: FakeTensor


def record_each(
    tracer: AtenTracer,
    recording: AbstractContextManager[Any],
    function: Callable[..., Any],
    calls: Iterable[SingleCall],
) -> list[Any]:
    """Return the results of ``calls`` of ``function``, which runs under ``recording`` once for equal metadata."""
    known: dict[Hashable, Recorded] = {}
    results = []
    for args, kwargs in calls:
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
        kind = _kind_of_call(tracer, args, kwargs)
        if kind in known:
            results.append(_repeat(tracer, known[kind], tensors))
            continue
        last = next(reversed(tracer.graph.nodes), None)
        with recording:
            results.append(function(*args, **kwargs))
        nodes = tuple(_nodes_after(tracer, last))
        if kind is not None and _is_repeatable(tracer, nodes, results[-1]):
            operands = tuple(tracer.tensor_tracker[tensor].proxy.node for tensor in tensors)
            known[kind] = Recorded(operands, nodes, results[-1])
    return results


def _kind_of_call(tracer: AtenTracer, args: Sequence[Any], kwargs: dict[str, Any]) -> Hashable | None:
    """Return the numbers and the metadata of the tensors among the arguments; None if calls may differ in more."""
    seen: dict[int, int] = {}
    kinds: list[Hashable] = []
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor):
            kind = _kind_of_tensor(tracer, value)
            if kind is None:
                return None
            kinds.append((seen.setdefault(id(value), len(seen)), kind))
        elif isinstance(value, torch.SymFloat):
            kinds.append(value.node.expr)
        elif isinstance(value, PLAIN):
            kinds.append((type(value), repr(value)))
        else:
            return None
    return (len(args), *kwargs, *kinds)


def _kind_of_tensor(tracer: AtenTracer, value: torch.Tensor) -> Hashable | None:
    """Return the metadata of a fake tensor of static sizes; None for other tensors."""
    entry = tracer.tensor_tracker.get(value)
    if type(value) is not FakeTensor or entry is None or entry.constant is not None:
        return None
    if value.layout is not torch.strided or value._has_symbolic_sizes_strides or value.constant is not None:
        return None
    layout = (value.shape, value.stride(), value.storage_offset())
    return (*layout, value.dtype, value.device, value.requires_grad, value.is_conj(), value.is_neg())


def _nodes_after(tracer: AtenTracer, last: Node | None) -> Iterator[Node]:
    """Yield the nodes that were recorded after ``last``, in order."""
    node = next(iter(tracer.graph.nodes), None) if last is None else last.next
    while node is not None and node.op != "root":
        yield node
        node = node.next


def _is_repeatable(tracer: AtenTracer, nodes: Sequence[Node], result: object) -> bool:
    """Whether the nodes compute a new tensor of static sizes from their operands alone."""
    if not isinstance(result, torch.Tensor) or type(result) is not FakeTensor:
        return False
    if result._has_symbolic_sizes_strides or result.requires_grad:
        return False
    entry = tracer.tensor_tracker.get(result)
    if entry is None or not nodes or entry.proxy.node is not nodes[-1]:
        return False
    return all(
        isinstance(node.target, OpOverload)
        and isinstance(node.meta.get("val"), FakeTensor)
        and not node.target._schema.is_mutable
        and not any(part.alias_info for part in node.target._schema.returns)
        and torch.Tag.nondeterministic_seeded not in node.target.tags
        for node in nodes
    )


def _repeat(tracer: AtenTracer, recorded: Recorded, tensors: Sequence[torch.Tensor]) -> FakeTensor:
    """Add the nodes again for the operands ``tensors``, and return a new fake result."""
    nodes = (tracer.tensor_tracker[tensor].proxy.node for tensor in tensors)
    copies: dict[Node, Node] = dict(zip(recorded.operands, nodes, strict=True))
    for node in recorded.nodes:
        args, kwargs = map_arg((node.args, node.kwargs), lambda used: copies.get(used, used))
        copies[node] = tracer.add_call(node.target, args, kwargs)
        copies[node].meta["val"] = node.meta["val"]
    result, last = _fresh(recorded.result), copies[recorded.nodes[-1]]
    last.meta["val"] = result
    tracer.tensor_tracker[result] = torch_compat.ProxyTensor(Proxy(last, tracer), None)
    return result


def _fresh(like: FakeTensor) -> FakeTensor:
    """Return a new fake tensor with the metadata of ``like``."""
    with torch_compat.disable_current_modes():
        meta = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device="meta")
        return FakeTensor(like.fake_mode, meta, like.device)
