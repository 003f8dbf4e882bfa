"""Gradients of ``torch.cond``, ``while_loop``, ``scan`` and ``map``, where torch's own rules do not apply.

The backward of an operator is another call of an operator, whose functions compute the nested graph again and
pull the gradients back (``_pull``). The differences from torch's rules: results may be integers, the branches of
``cond`` may return different sizes, a ``scan`` needs no stacked results, and a ``while_loop`` that runs no
iteration passes the gradients on. torch's rule of ``scan`` saves intermediate values instead of computing them
again, so torch's rules of ``scan`` and ``map`` stay where they apply.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from operator import setitem
from typing import Any

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator
from torch.fx import GraphModule, Interpreter
from torch.fx.experimental.symbolic_shapes import free_symbols, free_unbacked_symbols
from torch.fx.node import Target

from fxstack_functionalize.operators.associative_scans import associative_scan
from fxstack_functionalize.operators.gradient_rules import (
    Body,
    Rule,
    RuleContext,
    Values,
    apply_rule,
    float_flags,
    needs_gradient,
)
from fxstack_functionalize.torch_compat import AutoDispatchBelowAutograd
from fxstack_functionalize.tracer.engine import storage_key
from fxstack_interchange.torch_facts.derivatives import as_gradient, chosen, is_float, spread

_OPERATORS = torch.ops.higher_order


_INSIDE: ContextVar[bool] = ContextVar("inside of a nested graph", default=False)


@contextmanager
def inside_of_a_body() -> Iterator[None]:
    """Run a nested graph inside the context, whose operators have no rules of torch."""
    # torch's rules of ``scan`` and ``map`` refuse some operands of nested calls, and symbolic sizes among them.
    token = _INSIDE.set(True)
    try:
        yield
    finally:
        _INSIDE.reset(token)


class _Nested(Interpreter):
    """Runs a nested graph whose own operators get the rules of this module."""

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module, garbage_collect_values=False)
        self.__name__ = "body"

    def __call__(self, *args: object) -> Any:
        with inside_of_a_body():
            return self.run(*args)

    def call_function(self, target: Target, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call an operator by its rule here. Other calls run as usual."""
        return super().call_function(with_gradients(target), args, kwargs)


def with_rules(body: Body) -> Body:
    """Return ``body`` such that its nested operators get the rules of this module."""
    if not isinstance(body, GraphModule):
        return body
    return _Nested(body) if any(node.target in DIFFERENTIABLE for node in body.graph.nodes) else body


def _pull(
    body: Body, args: Values, needs: Sequence[bool], gradients: Values, *, again: bool = False
) -> list[Tensor]:
    """Return the gradients of the arguments in ``needs``. ``again``: they will be differentiated.

    ``gradients``: those of the floating-point results of ``body``, in order.
    """
    with torch.enable_grad():
        inputs = [
            _leaf(x, need, again=again) if is_float(x) else x for x, need in zip(args, needs, strict=True)
        ]
        leaves = chosen(inputs, needs)
        outputs = [x for x in with_rules(body)(*inputs) if is_float(x)]
        pairs = [(x, as_gradient(g, x)) for x, g in zip(outputs, gradients, strict=True) if x.requires_grad]
        found: Values = [None] * len(leaves)
        if pairs and leaves:
            results, weights = zip(*pairs, strict=True)
            found = torch.autograd.grad(results, leaves, weights, allow_unused=True, create_graph=again)
    # The results of a nested graph must not share memory with its inputs.
    return [
        torch.zeros_like(x, memory_format=torch.contiguous_format)
        if g is None
        else g.clone(memory_format=torch.contiguous_format)
        for x, g in zip(leaves, found, strict=True)
    ]


def _leaf(value: Tensor, need: bool, *, again: bool) -> Tensor:
    """Return an input of a nested graph. Its gradient is computed if ``need``, and has a history if ``again``."""
    if again and value.requires_grad:
        return value.view_as(value) if need else value
    return value.detach().requires_grad_(need)


class _Cond(Rule):
    """The gradient of ``torch.cond`` is a ``cond`` of the gradients of its branches."""

    @staticmethod
    def forward(ctx: RuleContext, pred: object, yes: Body, no: Body, *operands: Tensor) -> tuple[Any, ...]:
        """Call the operator."""
        ctx.branches = yes, no
        ctx.pred = pred
        Rule.save(ctx, operands)
        with AutoDispatchBelowAutograd():
            results = _call_cond(pred, yes, no, operands)
        ctx.floats = [is_float(x) for x in results]
        ctx.mark_non_differentiable(*(x for x in results if isinstance(x, Tensor) and not is_float(x)))
        return results

    @staticmethod
    def backward(ctx: RuleContext, *gradients: Tensor) -> tuple[Any, ...]:
        """Return the gradients of the operands."""
        operands = Rule.saved(ctx)
        needs = float_flags(operands, ctx.needs_input_grad[3:])
        args = tuple(_apart((*operands, *chosen(gradients, ctx.floats))))
        count, again = len(operands), torch.is_grad_enabled()

        def pull(branch: Body) -> Body:
            def back(*values: Tensor) -> list[Tensor]:
                return _pull(branch, values[:count], needs, values[count:], again=again)

            return ctx.keys.graph(back, args)

        yes, no = map(pull, ctx.branches)
        found = (cond if again else _OPERATORS.cond)(ctx.pred, yes, no, args)
        return None, None, None, *spread(found, needs)


def _apart(values: Values) -> list[Any]:
    """Return the operands ``values``. An operand that shares memory with an earlier operand becomes a copy."""
    # torch refuses such operands. Nested graphs do not write to operands.
    seen: set[int] = set()
    operands = []
    for value in values:
        key = storage_key(value) if isinstance(value, Tensor) else None
        operands.append(value.clone() if key in seen else value)
        if key is not None:
            seen.add(key)
    return operands


def cond(pred: object, yes: Body, no: Body, operands: Values) -> Any:
    """Call ``torch.cond``'s operator."""
    operands = _apart(operands)
    if not needs_gradient(operands):
        return _call_cond(pred, yes, no, operands)
    return apply_rule(_Cond, pred, yes, no, *operands)


def _call_cond(pred: object, yes: Body, no: Body, operands: Values) -> tuple[Any, ...]:
    """Call the operator. A size that differs between the branches is at least the lesser one."""
    results = tuple(_OPERATORS.cond(pred, with_rules(yes), with_rules(no), tuple(operands)))
    for result, first, second in zip(results, _results_of(yes), _results_of(no), strict=False):
        if all(isinstance(x, Tensor) for x in (result, first, second)):
            for sizes in zip(result.size(), first.size(), second.size(), strict=True):
                _check_least(*sizes)
    return results


def _check_least(size: Any, *others: Any) -> None:
    """Tell torch that the integer ``size`` from data is at least the least of the sizes ``others``."""
    # The operator does so for sizes that are numbers or symbols, and not for other expressions.
    if isinstance(size, torch.SymInt) and free_unbacked_symbols(size) == {size.node.expr}:
        bound = size.node.shape_env.bound_sympy
        least = min(int(bound(x.node.expr).lower) if isinstance(x, torch.SymInt) else x for x in others)
        torch._check(size >= max(least, 0))


class _WhileLoop(Rule):
    """The gradient of ``while_loop`` is a loop from the last iteration to the first.

    The forward saves the carried values of all iterations, and their number. ``stacks``: the results are these
    values, as of ``while_loop_stack_output``, and not the last ones.
    """

    @staticmethod
    def forward(
        ctx: RuleContext, stacks: bool, test: Body, body: Body, count: int, *operands: Tensor
    ) -> tuple[Any, ...]:
        """Call the operator whose results are the values of all iterations, with a count of the iterations."""

        def goes_on(_number: Tensor, *values: Tensor) -> Any:
            return with_rules(test)(*values)

        def step(number: Tensor, *values: Tensor) -> tuple[Any, ...]:
            return number + 1, *with_rules(body)(*values)

        carried, further = operands[:count], operands[count:]
        start = torch.zeros((), dtype=torch.int64, device="cpu")
        with AutoDispatchBelowAutograd():
            numbers, *stacked = _OPERATORS.while_loop_stack_output(goes_on, step, (start, *carried), further)
        _forget_size(numbers.size(0))
        ctx.test, ctx.body, ctx.count = test, body, count
        Rule.save(ctx, (*operands, numbers, *stacked))
        # Without an iteration, the operator returns the first values.
        results = tuple(stacked) if stacks else tuple(x[-1] for x in stacked)
        ctx.stacks = stacks
        ctx.floats = [is_float(x) for x in results]
        ctx.mark_non_differentiable(*(x for x in results if not is_float(x)))
        return results

    @staticmethod
    def backward(ctx: RuleContext, *gradients: Tensor) -> tuple[Any, ...]:
        """Return the gradients of the operands."""
        saved, body, count = Rule.saved(ctx), ctx.body, ctx.count
        total = len(ctx.needs_input_grad) - 4
        operands, (numbers, *stacked) = saved[:total], saved[total:]
        carried, further, again = operands[:count], operands[count:], torch.is_grad_enabled()
        if again:  # the saved values have no history
            stacked = while_loop(
                ctx.test, body, carried, further, operator=_OPERATORS.while_loop_stack_output
            )
        is_carried = [is_float(x) for x in carried]
        needs = float_flags(further, ctx.needs_input_grad[4 + count :])
        befores = [torch.cat([x.unsqueeze(0), s[:-1]]) for x, s in zip(carried, stacked, strict=True)]
        given = chosen(gradients, is_carried)
        starts = [_first_row(g, numbers[-1]) if ctx.stacks else g for g in given]
        starts = [g.clone(memory_format=torch.contiguous_format) for g in starts]
        sums = [torch.zeros_like(x, memory_format=torch.contiguous_format) for x in chosen(further, needs)]
        steps = given if ctx.stacks else []

        def goes_on(number: Tensor, *_values: object) -> Tensor:
            return number > 0

        def step(number: Tensor, *values: Tensor) -> tuple[Any, ...]:
            position = (number - 1).reshape(1)
            remaining = iter(values)
            groups = (starts, sums, befores, steps, further)
            incoming, so_far, rows, of_rows, others = ([next(remaining) for _ in g] for g in groups)
            before, added = (
                [x.index_select(0, position.to(x.device)).squeeze(0) for x in group]
                for group in (rows, of_rows)
            )
            if added:
                incoming = [x + y for x, y in zip(incoming, added, strict=True)]
            found = _pull(body, [*before, *others], [*is_carried, *needs], incoming, again=again)
            added = [x + y for x, y in zip(so_far, found[len(incoming) :], strict=True)]
            return number - 1, *found[: len(incoming)], *added

        loop = (numbers[-1].clone(), *starts, *sums)
        values = tuple(_apart((*loop, *befores, *steps, *further)))
        test, back = (ctx.keys.graph(f, values) for f in (goes_on, step))
        operator = while_loop if again else _OPERATORS.while_loop
        _, *found = operator(test, back, values[: len(loop)], values[len(loop) :])
        first, second = found[: len(starts)], found[len(starts) :]
        return None, None, None, None, *spread(first, is_carried), *spread(second, needs)


def _first_row(gradient: Tensor, iterations: Tensor) -> Tensor:
    """Return the gradient of the first values, which are the only row of a loop without iterations."""
    first = gradient[0]
    return torch.where((iterations == 0).to(first.device), first, torch.zeros_like(first))


def _forget_size(size: Any) -> None:
    """Tell torch that the number of iterations is no result of the operator, and at least one."""
    if not isinstance(size, torch.SymInt):
        return
    pending = size.node.shape_env.pending_fresh_unbacked_symbols
    if size.node.expr in pending:
        pending.remove(size.node.expr)
    torch._check(size >= 1)


def while_loop(
    test: Body, body: Body, carried: Values, further: Values, *, operator: Any = _OPERATORS.while_loop
) -> Any:
    """Call the operator ``while_loop``, or ``while_loop_stack_output``."""
    count = len(carried)
    operands = _apart((*carried, *further))
    if not needs_gradient(operands):
        functions = with_rules(test), with_rules(body)
        return operator(*functions, tuple(operands[:count]), tuple(operands[count:]))
    return apply_rule(_WhileLoop, operator is not _OPERATORS.while_loop, test, body, count, *operands)


class _Scan(Rule):
    """The gradient of ``scan`` is a scan in reverse. The forward saves the carried values of all iterations."""

    @staticmethod
    def forward(ctx: RuleContext, body: Body, counts: tuple[int, int], *operands: Tensor) -> tuple[Any, ...]:
        """Call the operator, with the carried values before each iteration as further results."""
        carries, slices = counts
        step = _Scan.with_carries(body, carries)
        init, xs, further = (
            operands[:carries],
            operands[carries : carries + slices],
            operands[carries + slices :],
        )
        with AutoDispatchBelowAutograd():
            everything = _OPERATORS.scan(step, list(init), list(xs), tuple(further))
        results = tuple(everything[: len(everything) - carries])
        ctx.body, ctx.counts = body, counts
        Rule.save(ctx, (*operands, *everything[len(everything) - carries :]))
        ctx.floats = [is_float(x) for x in results]
        ctx.mark_non_differentiable(*(x for x in results if isinstance(x, Tensor) and not is_float(x)))
        return results

    @staticmethod
    def with_carries(body: Body, carries: int) -> Body:
        """Return ``body`` with the values that it gets as further results."""
        return lambda *values: (*with_rules(body)(*values), *(x.clone() for x in values[:carries]))

    @staticmethod
    def backward(ctx: RuleContext, *gradients: Tensor) -> tuple[Any, ...]:
        """Return the gradients of the operands."""
        body, (carries, slices), again = ctx.body, ctx.counts, torch.is_grad_enabled()
        saved = Rule.saved(ctx)
        total = len(ctx.needs_input_grad) - 2
        operands, before = saved[:total], saved[total:]
        init, xs = operands[:carries], operands[carries : carries + slices]
        further = operands[carries + slices :]
        if again:  # the saved values have no history
            everything = scan(_Scan.with_carries(body, carries), init, xs, further)
            before = everything[len(everything) - carries :]
        needs = ctx.needs_input_grad[2:]
        is_carried = [is_float(x) for x in init]
        need_xs = float_flags(xs, needs[carries : carries + slices])
        need_further = float_flags(further, needs[carries + slices :])
        starts = [
            g.clone(memory_format=torch.contiguous_format) for g in chosen(gradients[:carries], is_carried)
        ]
        sums = [
            torch.zeros_like(x, memory_format=torch.contiguous_format) for x in chosen(further, need_further)
        ]
        steps = chosen(gradients[carries:], ctx.floats[carries:])
        rows = [torch.flip(x, (0,)) for x in (*before, *xs, *steps)]

        def step(*values: Tensor) -> tuple[Any, ...]:
            remaining = iter(values)
            groups = (starts, sums, before, xs, steps, further)
            incoming, so_far, carry, parts, outer, others = ([next(remaining) for _ in g] for g in groups)
            flags = [*is_carried, *need_xs, *need_further]
            found = _pull(body, [*carry, *parts, *others], flags, [*incoming, *outer], again=again)
            first, last = len(incoming), len(found) - len(so_far)
            added = [x + y for x, y in zip(so_far, found[last:], strict=True)]
            return (*found[:first], *added, *found[first:last])

        values = _apart((*starts, *sums, *rows, *further))
        given = len(starts) + len(sums)
        initial, rows, others = values[:given], values[given : given + len(rows)], values[given + len(rows) :]
        examples = (*initial, *(row[0] for row in rows), *others)
        operator = scan if again else _OPERATORS.scan
        found = operator(ctx.keys.graph(step, examples), initial, rows, tuple(others))
        first, last = len(starts), given
        of_xs = [torch.flip(x, (0,)) for x in found[last:]]
        return (
            None,
            None,
            *spread(found[:first], is_carried),
            *spread(of_xs, need_xs),
            *spread(found[first:last], need_further),
        )


def _results_of(body: Any) -> list[Any]:
    """Return the metadata of the results of a nested graph; an empty list if it has none."""
    graph = getattr(body, "graph", None)
    output = None if graph is None else next(iter(graph.find_nodes(op="output")))
    if output is None:
        return []
    return [getattr(node, "meta", {}).get("val") for node in output.args[0]]


def _has_torchs_rule(body: Any, operands: Values) -> bool:
    """Return whether torch's own rule can differentiate a ``scan`` or ``map`` over ``body``.

    The rule handles calls at the top of a graph, with tensors of fixed sizes and floating-point results. It fails if
    the nested graph writes, or calls such operators itself (``_has_operators_or_symbols``).
    """
    if _INSIDE.get() or not all(isinstance(operand, Tensor) for operand in operands):
        return False
    return all(map(is_float, _results_of(body))) and not _writes(body) and not _has_operators_or_symbols(body)


def _writes(body: Any) -> bool:
    """Return whether a nested graph assigns items or calls methods in place."""
    graph = getattr(body, "graph", None)
    nodes = graph.nodes if graph is not None else ()
    return any(
        node.target is setitem or (node.op == "call_method" and str(node.target).endswith("_"))
        for node in nodes
    )


def _has_operators_or_symbols(body: Any) -> bool:
    """Return whether a nested graph calls operators with functions inside, or has symbolic sizes or numbers."""
    # The metadata of such a call marks all its results as differentiable. torch's rule counts those that are. It also
    # saves the sizes that the backward needs, and a ``scan`` cannot return them.
    root = body.module if isinstance(body, Interpreter) else body
    nodes = root.graph.nodes if isinstance(root, GraphModule) else ()
    return any(
        isinstance(node.target, HigherOrderOperator) or bool(free_symbols(node.meta.get("val")))
        for node in nodes
        if node.op != "output"
    )


def scan(body: Body, init: Values, xs: Values, further: Values) -> Any:
    """Call the operator ``scan``, by torch's rule of its gradient if the rule applies."""
    operands = _apart((*init, *xs, *further))
    carries, slices = len(init), len(xs)
    has_torchs_rule = len(_results_of(body)) > carries and _has_torchs_rule(body, operands)
    if not has_torchs_rule and needs_gradient(operands):
        return apply_rule(_Scan, body, (carries, slices), *operands)
    rest = tuple(operands[carries + slices :])
    return _OPERATORS.scan(with_rules(body), operands[:carries], operands[carries : carries + slices], rest)


def map_(body: Body, xs: Values, further: Values) -> Any:
    """Call the operator of ``map``, by torch's rule of its gradient if the rule applies."""
    operands = _apart((*xs, *further))
    if not _has_torchs_rule(body, operands) and needs_gradient(operands):
        return apply_rule(_Scan, body, (0, len(xs)), *operands)
    return _OPERATORS.map_impl(with_rules(body), operands[: len(xs)], tuple(operands[len(xs) :]))


DIFFERENTIABLE: dict[Any, Callable[..., Any]] = {
    _OPERATORS.associative_scan: associative_scan,
    _OPERATORS.cond: cond,
    _OPERATORS.while_loop: while_loop,
    _OPERATORS.while_loop_stack_output: partial(while_loop, operator=_OPERATORS.while_loop_stack_output),
    _OPERATORS.scan: scan,
    _OPERATORS.map_impl: map_,
}
"""By operator: the function that calls it, with a rule for its gradient."""


def with_gradients(operator: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that calls ``operator`` with a rule for its gradient; the operator itself if there is none."""
    return DIFFERENTIABLE.get(operator, operator)
