"""Record a function of single tensors for one of several calls with equal metadata, and repeat its nodes for the others.

A step of an optimizer applies a dozen operators to each of its parameters. Fake kernels and dispatch take most of the
time of a trace, and for parameters of equal metadata they find the same.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch.fx import Node, Proxy
from torch.fx.node import map_arg

from fxstack_functionalize import torch_compat
from fxstack_functionalize.torch_compat import FakeTensor, OpOverload
from fxstack_functionalize.tracer.aten_tracer import AtenTracer
from fxstack_interchange.operators.list_operators import SingleCall

PLAIN = (int, float, bool, str, type(None), torch.dtype)


@dataclass(frozen=True, slots=True)
class Result:
    """A result of a call: its node, its metadata, and the attributes of a new fake tensor like it."""

    node: Node
    size: torch.Size
    stride: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    attributes: dict[str, Any]
    kind: Hashable


@dataclass(frozen=True, slots=True)
class Recorded:
    """The nodes of one call, the nodes of its operands, and its results."""

    operands: tuple[Node, ...]
    nodes: tuple[Node, ...]
    results: tuple[Result, ...]


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
            results += repeat(tracer, known[kind], tensors)
            continue
        last = last_node(tracer)
        with recording:
            results.append(function(*args, **kwargs))
        recorded = None if kind is None else recorded_after(tracer, last, tensors, results[-1:])
        if recorded is not None:
            known[kind] = recorded
    return results


def last_node(tracer: AtenTracer) -> Node | None:
    """Return the node that was recorded last."""
    return next(reversed(tracer.graph.nodes), None)


def recorded_after(
    tracer: AtenTracer, last: Node | None, tensors: Sequence[torch.Tensor], results: Sequence[object]
) -> Recorded | None:
    """Return the nodes recorded after ``last``, which compute ``results`` from ``tensors``; None if they have other effects."""
    nodes = tuple(_nodes_after(tracer, last))
    fakes = tuple([result for result in results if type(result) is FakeTensor])
    if len(fakes) < len(results) or not _is_repeatable(tracer, nodes, fakes):
        return None
    operands = tuple([tracer.tensor_tracker[tensor].proxy.node for tensor in tensors])
    return Recorded(operands, nodes, tuple([_result(tracer, fake) for fake in fakes]))


def _result(tracer: AtenTracer, fake: FakeTensor) -> Result:
    """Return the description of a result. A second fake tensor gives the attributes: the first may have values noted."""
    with torch_compat.disable_current_modes():
        meta = torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device="meta")
        attributes = dict(FakeTensor(fake.fake_mode, meta, fake.device).__dict__)
    node = tracer.tensor_tracker[fake].proxy.node
    metadata = (fake.shape, fake.stride(), fake.dtype, fake.device)
    return Result(node, *metadata, attributes, kind_of_tensor(tracer, fake))


def _kind_of_call(tracer: AtenTracer, args: Sequence[Any], kwargs: dict[str, Any]) -> Hashable | None:
    """Return the numbers and the metadata of the tensors among the arguments; None if calls may differ in more."""
    seen: dict[int, int] = {}
    kinds: list[Hashable] = []
    for value in (*args, *kwargs.values()):
        if isinstance(value, torch.Tensor):
            kind = kind_of_tensor(tracer, value)
            kinds.append((seen.setdefault(id(value), len(seen)), kind))
        else:
            kind = kind_of_value(value)
            kinds.append(kind)
        if kind is None:
            return None
    return (len(args), *kwargs, *kinds)


def kind_of_value(value: object) -> Hashable | None:
    """Return a description that equal arguments have in common; None for a tensor, or another value that calls may change."""
    if isinstance(value, torch.SymFloat):
        return cast("Hashable", value.node.expr)
    return (type(value), repr(value)) if isinstance(value, PLAIN) else None


def kind_of_tensor(tracer: AtenTracer, value: torch.Tensor) -> Hashable | None:
    """Return the metadata of a fake tensor of static sizes; None for other tensors."""
    known = tracer.kinds.get(id(value))
    if known is not None:  # a result of ``repeat``: reading the metadata takes longer
        return known
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


def _is_repeatable(tracer: AtenTracer, nodes: Sequence[Node], results: Sequence[FakeTensor]) -> bool:
    """Whether the nodes compute new tensors of static sizes from their operands alone."""
    own = set(nodes)
    for result in results:
        entry = tracer.tensor_tracker.get(result)
        if result._has_symbolic_sizes_strides or result.requires_grad:
            return False
        if entry is None or entry.proxy.node not in own:
            return False
    return bool(nodes) and all(
        isinstance(node.target, OpOverload)
        and isinstance(node.meta.get("val"), FakeTensor)
        and not node.target._schema.is_mutable
        and not any(part.alias_info for part in node.target._schema.returns)
        and torch.Tag.nondeterministic_seeded not in node.target.tags
        for node in nodes
    )


def repeat(tracer: AtenTracer, recorded: Recorded, tensors: Sequence[torch.Tensor]) -> list[FakeTensor]:
    """Add the nodes again for the operands ``tensors``, and return new fake results."""
    nodes = (tracer.tensor_tracker[tensor].proxy.node for tensor in tensors)
    copies: dict[Node, Node] = dict(zip(recorded.operands, nodes, strict=True))
    for node in recorded.nodes:
        args, kwargs = map_arg((node.args, node.kwargs), lambda used: copies.get(used, used))
        copies[node] = tracer.add_call(node.target, args, kwargs)
        copies[node].meta["val"] = node.meta["val"]
    results = []
    for like in recorded.results:
        node, result = copies[like.node], _fresh(like)
        node.meta["val"] = result
        tracer.tensor_tracker[result] = torch_compat.ProxyTensor(Proxy(node, tracer), None)
        if like.kind is not None:
            tracer.kinds[id(result)] = like.kind
        results.append(result)
    return results


def _fresh(like: Result) -> FakeTensor:
    """Return a new fake tensor. Its attributes are those that the constructor would set, which takes much longer."""
    without_modes = torch_compat.DisableTorchDispatch()
    try:
        meta = torch.empty_strided(like.size, like.stride, dtype=like.dtype, device="meta")
        fake = torch_compat.make_subclass(
            FakeTensor, meta, False, dispatch_device=True, device_for_backend_keys=like.device
        )
    finally:
        del without_modes  # the guard object is active until it is deleted
    torch_compat.set_throw_on_mutable_data_ptr(fake)
    fake.__dict__.update(like.attributes)
    return cast("FakeTensor", fake)
