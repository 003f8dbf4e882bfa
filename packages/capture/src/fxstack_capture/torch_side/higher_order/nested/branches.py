"""The results of the two branches of ``torch.cond``, joined: sizes and numbers that differ depend on data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from fxstack_capture.breaks import GraphBreak
from fxstack_capture.torch_side.higher_order.nested.bodies import Body, Written, same_numbers, storage_of
from fxstack_capture.torch_side.higher_order.nested.results import (
    difference_of_kinds,
    difference_of_tensors,
    limit,
    merged_size,
    number_of,
)
from fxstack_capture.torch_side.higher_order.subgraphs import Subgraph
from fxstack_capture.torch_side.recording.protocol import TracerProtocol


class _Call(Protocol):
    """The members of ``control_flow.GraphsOfCall`` that this module uses."""

    tracer: TracerProtocol
    mark: Any

    def refuse(self, why: str) -> GraphBreak:
        """Return a graph break with the reason ``why``."""


@dataclass(frozen=True, slots=True)
class Joined:
    """One result of both branches. ``output``: its position among the tensors, if the operator returns it.

    A result without a tensor is the value ``first`` in both branches.
    """

    first: Any
    second: Any
    output: int | None
    is_own: bool = False
    """Whether a branch computes a size of the result from data."""


def join(call: _Call, yes: Subgraph, no: Subgraph) -> list[Joined]:
    """Return the results of both branches in pairs. Break the graph for a pair that cannot be one result."""
    joined = []
    outputs = iter(range(len(yes.outputs)))
    for index, (first, second) in enumerate(zip(yes.leaves, no.leaves, strict=True)):
        difference = difference_of_kinds(first, second)
        if difference is None and isinstance(first, torch.Tensor):
            difference = difference_of_tensors(first, second, sizes=False)
        if difference is not None:
            text = difference.text(f"in the true branch{yes.place}", f"in the false branch{no.place}")
            raise call.refuse(f"whose branches return different kinds of results: result {index} has {text}")
        output = None if first is None else next(outputs)
        if _is_constant(call, first, second):
            output = None
        joined.append(Joined(first, second, output, _has_own_size(call, first, second)))
    return joined


def _is_constant(call: _Call, first: object, second: object) -> bool:
    """Return whether both branches return the same number, which the outer graph knows."""
    if isinstance(first, torch.Tensor) or first is None:
        return False
    if isinstance(first, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        expr = first.node.expr
        is_outer = not any(call.tracer.symbols.is_after(symbol, call.mark) for symbol in expr.free_symbols)
        return is_outer and getattr(second, "node", None) is not None and second.node.expr == expr  # type: ignore[attr-defined]
    return type(first) is type(second) and repr(first) == repr(second)  # ``repr`` tells -0.0 and nan apart


def _has_own_size(call: _Call, *values: object) -> bool:
    """Return whether a size of a tensor among ``values`` is computed in the branch that returns the tensor."""
    sizes = [size for x in values if isinstance(x, torch.Tensor) for size in x.size()]
    symbols = {s for size in sizes if isinstance(size, torch.SymInt) for s in size.node.expr.free_symbols}
    return any(call.tracer.symbols.is_after(symbol, call.mark) for symbol in symbols)


def complete(
    tracer: TracerProtocol,
    bodies: Sequence[Body],
    joined: Sequence[Joined],
    written: Sequence[Written],
    subgraphs: Sequence[Subgraph],
) -> list[torch.Tensor]:
    """Let the nested graphs of the branches return the joined results, then the tensors written to.

    Return tensors with the metadata of the joined results. ``subgraphs``: the traced branches.
    """
    kept = [each for each in joined if each.output is not None]
    for body, subgraph in zip(bodies, subgraphs, strict=True):
        body.results = [body.results[each.output] for each in kept if each.output is not None]
        for each in written:
            if storage_of(each.base) in subgraph.writes:
                body.isolate([each], body.outer_tensors())
            else:
                body.add_copies([each])
        body.separate(body.outer_tensors().values(), of=len(kept))
    return [_lay_out(tracer, bodies, index, each) for index, each in enumerate(kept)]


def _lay_out(tracer: TracerProtocol, bodies: Sequence[Body], index: int, joined: Joined) -> torch.Tensor:
    """Give the result ``index`` the same layout in both branches. Return a tensor with its metadata."""
    first, second = (body.results[index][1] for body in bodies)
    sizes = [
        merged_size(tracer, mine, theirs, is_own=joined.is_own and _is_symbolic(mine, theirs))
        for mine, theirs in zip(first.size(), second.size(), strict=True)
    ]
    if same_numbers(sizes, first.size()) and same_numbers(first.stride(), second.stride()):
        return first
    with tracer.unrecorded(), tracer.mode, torch.no_grad():
        merged = torch.empty(sizes, dtype=first.dtype, device=first.device)
    for body in bodies:
        body.make_contiguous(index)
    return merged


def _is_symbolic(*sizes: Any) -> bool:
    """Return whether one of the sizes is symbolic."""
    return any(isinstance(size, torch.SymInt) for size in sizes)


def values_of(tracer: TracerProtocol, joined: Sequence[Joined], results: Sequence[torch.Tensor]) -> list[Any]:
    """Return the results that the program gets: tensors, numbers in tensors, and constants."""
    return list(_values(tracer, joined, iter(results)))


def _values(
    tracer: TracerProtocol, joined: Sequence[Joined], results: Iterator[torch.Tensor]
) -> Iterator[Any]:
    """Yield the results that the program gets."""
    for each in joined:
        if each.output is None:
            yield each.first
            continue
        result = next(results)
        if isinstance(each.first, torch.Tensor):
            yield result
            continue
        number = number_of(tracer, result)
        limit(tracer, number, (each.first, each.second))
        yield number
