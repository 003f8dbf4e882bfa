"""Gradients of ``associative_scan``, where torch's rule loses the gradients between scanned tensors.

The scan computes ``y[t] = f(y[t - 1], x[t])`` for tuples of tensors, and ``y[0] = x[0]``. The gradients ``g[t]`` of the tuple
``y[t]`` are ``dy[t] + J[t + 1]' g[t + 1]``: ``dy`` are the gradients of the results, and ``J[t]`` holds the derivatives of
``f(y[t - 1], x[t])`` by ``y[t - 1]``. This recurrence is an associative scan from the end: pairs of a matrix and a vector
combine as ``(M, v), (N, w) -> (N M, N v + w)``. ``f`` works on single elements, so each entry of ``J`` is a tensor like ``y``.
Entries that no input can change from zero are left out: tensors whose gradients depend on each other in one direction are
scanned one after the other, without matrices. The gradients of ``x[t]`` are then products at each ``t``.

torch's rule takes each scanned tensor alone: for ``f((a, b), (c, d)) = (a * c, c * b + d)`` it loses the gradient of ``c``
from the second result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial, reduce
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule

from fxstack_functionalize.operators.gradient_rules import (
    Body,
    Rule,
    RuleContext,
    Values,
    apply_rule,
    needs_gradient,
)
from fxstack_functionalize.torch_compat import AutoDispatchBelowAutograd
from fxstack_interchange.torch_facts.derivatives import chosen, is_float, spread

_OPERATOR = torch.ops.higher_order.associative_scan

Entries = Mapping[tuple[int, int], Tensor]
"""(i, j) -> the derivatives of result i of step t by the previous value j, for t = 1, 2, ...; other entries are zero."""


def associative_scan(body: Body, xs: Values, further: Values) -> Any:
    """Call the operator. torch's own rule differentiates complex numbers, and refuses gradients of ``further``."""
    own = not any(x.is_complex() for x in xs) and not needs_gradient(further)
    if own and needs_gradient(xs):
        return apply_rule(_AssociativeScan, body, len(xs), *xs, *further)
    return _OPERATOR(body, list(xs), tuple(further))


class _AssociativeScan(Rule):
    """The gradient of ``associative_scan``: further scans, from the end."""

    @staticmethod
    def forward(ctx: RuleContext, body: Body, count: int, *operands: Any) -> tuple[Tensor, ...]:
        """Call the operator."""
        with AutoDispatchBelowAutograd():
            results = tuple(_OPERATOR(body, list(operands[:count]), operands[count:]))
        ctx.body, ctx.count = body, count
        ctx.set_materialize_grads(False)
        Rule.save(ctx, (*operands, *results))
        ctx.mark_non_differentiable(*(x for x in results if not is_float(x)))
        return results

    @staticmethod
    def backward(ctx: RuleContext, *gradients: Tensor | None) -> tuple[Any, ...]:
        """Return the gradients of the scanned tensors."""
        saved, count = Rule.saved(ctx), ctx.count
        xs, further, ys = saved[:count], saved[count:-count], saved[-count:]
        rest = (None,) * len(further)
        if torch.is_grad_enabled():  # the saved results have no history
            ys = associative_scan(ctx.body, xs, further)
        if xs[0].shape[0] < 2:  # the results are the operands
            return None, None, *gradients, *rest
        step = _Step(ctx, xs, further, ys)
        of_results = _from_the_end(step.derivatives(), gradients, ys)
        return None, None, *step.gradients(of_results, xs), *rest


class _Step:
    """The step from each position to the next one, as a function of all positions at once."""

    def __init__(self, ctx: RuleContext, xs: Values, further: Values, ys: Values) -> None:
        self._ctx, self._count = ctx, ctx.count
        self._floats = [is_float(y) for y in ys]
        self._operands = [*(y[:-1] for y in ys), *(x[1:] for x in xs)]
        self._further = further

    def derivatives(self) -> Entries:
        """Return the derivatives of the results by the previous values."""
        keys: list[tuple[int, int]] = []
        positions = [k for k, flag in enumerate(self._floats) if flag]

        def of_slices(*values: Any) -> list[Tensor]:
            keys.clear()
            found: list[Tensor] = []
            results, inputs = self._run(values, first=0)
            for i in positions:
                if not results[i].requires_grad:
                    continue
                ones = torch.ones_like(results[i])
                entries = torch.autograd.grad(results[i], inputs, ones, allow_unused=True, retain_graph=True)
                exist = [entry is not None for entry in entries]
                keys.extend((i, j) for j in chosen(positions, exist))
                found += chosen(entries, exist)
            return found

        entries = self._at_all_positions(of_slices, ())
        return dict(zip(keys, entries, strict=True))

    def gradients(self, of_results: Sequence[Tensor | None], xs: Values) -> list[Tensor | None]:
        """Return the gradients of the operands, from the gradients of all values of the scan."""
        given = [g is not None for g in of_results]
        exist = [False for flag in self._floats if flag]

        def of_slices(*values: Any) -> list[Tensor]:
            start = len(values) - sum(given)
            results, inputs = self._run(values[:start], first=self._count)
            pairs = zip(chosen(results, given), values[start:], strict=True)
            pulled = [(x, g) for x, g in pairs if x.requires_grad]
            if not pulled:
                return []
            outputs, weights = zip(*pulled, strict=True)
            found = torch.autograd.grad(outputs, inputs, weights, allow_unused=True)
            exist[:] = [g is not None for g in found]
            return chosen(found, exist)

        later = self._at_all_positions(of_slices, [g[1:] for g in of_results if g is not None])
        rows = spread(spread(later, exist), self._floats)
        return [_joined(g, rest, x) for g, rest, x in zip(of_results, rows, xs, strict=True)]

    def _run(self, values: Values, first: int) -> tuple[Values, list[Tensor]]:
        """Return the results of one step, and the operands by which it is differentiated, from position ``first``."""
        wanted = [first + k for k, flag in enumerate(self._floats) if flag]
        with torch.enable_grad():
            inputs = [
                x.detach().requires_grad_(k in wanted) if is_float(x) else x for k, x in enumerate(values)
            ]
            return self._ctx.body(*inputs), [inputs[k] for k in wanted]

    def _at_all_positions(self, of_slices: Body, gradients: Values) -> list[Tensor]:
        """Apply a function of slices of the operands, of ``further``, and of slices of ``gradients``."""
        operands = (*self._operands, *self._further, *gradients)
        dims = [*(0 for _ in self._operands), *(None for _ in self._further), *(0 for _ in gradients)]
        examples = [x if dim is None else x[0] for x, dim in zip(operands, dims, strict=True)]
        results: list[Tensor] = []

        def counted(*values: Any) -> list[Tensor]:
            results[:] = of_slices(*values)
            return list(results)

        graph = self._ctx.keys.traced(counted, examples)
        if torch.is_grad_enabled():
            _remove_detach(graph)
        return list(torch.vmap(graph, tuple(dims))(*operands)) if results else []


def _remove_detach(graph: GraphModule) -> None:
    """Let the results of a traced derivative have a history: a trace detaches operands and saved values."""
    for node in graph.graph.find_nodes(op="call_function", target=torch.ops.aten.detach.default):
        node.replace_all_uses_with(node.args[0])
        graph.graph.erase_node(node)
    graph.recompile()


def _joined(first: Tensor | None, rest: Tensor | None, x: Tensor) -> Tensor | None:
    """Return the gradient of an operand: row 0 of ``first``, then ``rest``. An absent part is zero."""
    if first is None and rest is None:
        return None
    first_row = torch.zeros_like(x[:1]) if first is None else first[:1]
    return torch.cat([first_row, torch.zeros_like(x[1:]) if rest is None else rest])


def _from_the_end(
    entries: Entries, gradients: Sequence[Tensor | None], ys: Sequence[Tensor]
) -> list[Tensor | None]:
    """Return the gradients of all values of the scan from those of the results; None for zero."""
    found = list(gradients)
    for group in _groups(entries, len(ys)):
        sums = {j: _incoming(j, group, entries, found) for j in group}
        if all(value is None for value in sums.values()):
            continue
        filled = {j: torch.zeros_like(ys[j]) if value is None else value for j, value in sums.items()}
        if any((i, j) in entries for i in group for j in group):
            filled = _scan_group(group, entries, filled)
        for j, value in filled.items():
            found[j] = value.to(ys[j].dtype)
    return found


def _groups(entries: Entries, count: int) -> list[list[int]]:
    """Return the positions, in groups that need each other's gradients; a group comes after the groups that it needs."""
    needed = [{k} for k in range(count)]
    for _ in range(count):
        for i, j in entries:
            needed[j] |= needed[i]
    groups: dict[frozenset[int], list[int]] = {}
    for k in sorted(range(count), key=lambda k: len(needed[k])):
        groups.setdefault(frozenset(needed[k]), []).append(k)
    return list(groups.values())


def _incoming(
    j: int, group: Sequence[int], entries: Entries, found: Sequence[Tensor | None]
) -> Tensor | None:
    """Return the gradient of result ``j`` with the parts that come from the next position of other groups."""
    total = found[j]
    for (i, to), entry in entries.items():
        later = found[i]
        if to == j and i not in group and later is not None:
            part = entry * later[1:]
            part = torch.cat([part, torch.zeros_like(part[:1])])
            total = part if total is None else total + part
    return total


def _scan_group(group: Sequence[int], entries: Entries, incoming: Mapping[int, Tensor]) -> dict[int, Tensor]:
    """Return the gradients of a group of values that need each other's gradients."""
    size = len(group)
    dtype = reduce(torch.promote_types, (x.dtype for x in incoming.values()))
    vector = [incoming[j].to(dtype) for j in group]
    matrix = [_padded(entries.get((i, j)), v) for j, v in zip(group, vector, strict=True) for i in group]
    reverse = [x.flip([0]) for x in (*matrix, *vector)]
    results = associative_scan(partial(_combined, size), reverse, ())
    return dict(zip(group, (x.flip([0]) for x in results[size * size :]), strict=True))


def _padded(entry: Tensor | None, like: Tensor) -> Tensor:
    """Return an entry of all positions with a last row, which nothing multiplies."""
    if entry is None:
        return torch.zeros_like(like)
    return torch.cat([entry.to(like.dtype), torch.ones_like(like[:1])])


def _combined(size: int, *values: Tensor) -> list[Tensor]:
    """Combine two pairs of a matrix (its rows) and a vector: ``(M, v), (N, w) -> (N M, N v + w)``."""
    half, cells = len(values) // 2, size * size
    (m, v), (n, w) = ((part[:cells], part[cells:]) for part in (values[:half], values[half:]))

    def row_times(row: int, column: Sequence[Tensor], start: Tensor | None) -> Tensor:
        """Return the product of a row of ``N`` and a column, added to ``start``."""
        total = start
        for factor, other in zip(n[row * size : (row + 1) * size], column, strict=True):
            total = factor * other if total is None else torch.addcmul(total, factor, other)
        assert total is not None
        return total

    products = [row_times(row, m[column::size], None) for row in range(size) for column in range(size)]
    return [*products, *(row_times(row, v, w[row]) for row in range(size))]
