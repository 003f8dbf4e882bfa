"""Loops and branches under ``torch.func``: what each layer makes of them.

torch applies layers to an ``autograd.Function`` by the methods of its class. Each class here stands for one
operator. A layer changes the functions of the operator and adds operands: under ``vmap`` the functions are mapped,
under ``jvp`` they compute tangents, and a gradient is a call of the operator whose functions pull gradients back.
Below all layers, ``forward`` records the operator.

The functions are nested graphs that the interpreter has traced without layers (``lifting``). They are called as
plain Python functions here, so the layers of ``torch.func`` apply to them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, cast

import torch
from torch import fx

from fxstack_capture.torch_compat import HigherOrderOperator, tree_leaves
from fxstack_capture.torch_side.higher_order.nested.derived_rules import (
    Call,
    Context,
    Operator,
    Rule,
    apply_rule,
    needed,
    saved,
    saved_count,
)
from fxstack_capture.torch_side.higher_order.nested.differentiation import (
    Function,
    Values,
    has_gradient,
    pull_back,
    push_forward,
    saving,
)
from fxstack_capture.torch_side.higher_order.nested.mapping import (
    CountedBody,
    CountedTest,
    Mapped,
    by_example,
    carried_with_batch,
    results_with_batch,
)
from fxstack_capture.torch_side.higher_order.nested.operator_rows import PLAIN_CALLS
from fxstack_capture.torch_side.higher_order.nested.operator_rows import row_of as operator_row
from fxstack_capture.torch_side.higher_order.nested.rows import (
    VmapInfo,
    batched,
    dependent_results,
    row_of,
    where_of_examples,
)
from fxstack_interchange.torch_facts.derivatives import chosen, is_float, spread

_OPERATORS = torch.ops.higher_order


class _Graph(fx.Interpreter):
    """A nested graph as a function. Its own loops and branches get the rules of this module."""

    def __init__(self, module: fx.GraphModule, call: Call) -> None:
        super().__init__(module, garbage_collect_values=False)
        self._call = call

    def __call__(self, *args: torch.Tensor) -> Any:
        return self.run(*args)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function of a node. An operator that only calls its function has no rule: the nodes run here."""
        if target in RULES:
            return apply(self._call.record, target, args, gradients=self._call.gradients)
        if (
            isinstance(target, HigherOrderOperator)
            and (row := operator_row(target))
            and row.kind in PLAIN_CALLS
        ):
            position = next(i for i, value in enumerate(args) if isinstance(value, fx.GraphModule))
            operands = [x for x in tree_leaves(args[position + 1 :]) if not isinstance(x, str)]
            with nullcontext() if row.state is None else row.state(*args[:position]):
                return _Graph(args[position], self._call)(*operands)
        return super().call_function(target, args, kwargs)

    def batched_results(self, batched: Sequence[bool]) -> list[bool]:
        """Return which results may have a batch, from the arguments that have one."""
        return dependent_results(cast("fx.GraphModule", self.module).graph, batched)


def apply(
    record: Callable[[Call, Values], tuple[Any, ...]], operator: Operator, args: Values, *, gradients: bool
) -> tuple[Any, ...]:
    """Call an operator under the active layers. ``args``: those of its node, with values in place of nodes."""
    modules, operands, counts = _parts(operator, args)
    call = Call(record, operator, (), counts, gradients)
    functions = tuple(
        _Graph(module, call) if isinstance(module, fx.GraphModule) else module for module in modules
    )
    call = replace(call, functions=functions)
    if operator is _OPERATORS.while_loop:
        return _apply_loop(call, *operands)
    if operator is _OPERATORS.while_loop_stack_output:
        return _apply_counting(call, *operands)[2 + call.counts[0] :]
    results = apply_rule(RULES[operator], call, *operands)
    return results[: len(results) - saved_count(call)]


def _parts(operator: Operator, args: Values) -> tuple[tuple[Function, ...], list[Any], tuple[int, ...]]:
    """Return the functions of a call, the flat operands, and how many of these are carried and sliced."""
    if operator is _OPERATORS.cond:
        pred, yes, no, operands = args
        return (yes, no), [pred, *operands], ()
    if operator in (_OPERATORS.while_loop, _OPERATORS.while_loop_stack_output):
        test, body, carried, further = args
        return (test, body), [*carried, *further], (len(carried),)
    if operator is _OPERATORS.scan:
        body, init, xs, further = args
        return (body,), [*init, *xs, *further], (len(init), len(xs))
    body, xs, further = args
    return (body,), [*xs, *further], (0, len(xs))


class _Cond(Rule):
    """``torch.cond``. The first operand is the predicate."""

    @staticmethod
    def backward(ctx: Context, *gradients: torch.Tensor) -> tuple[Any, ...]:
        """Pull the gradients back through the branch that has run."""
        (pred, *operands), _ = saved(ctx)
        active, count = needed(ctx, [pred, *operands])[1:], len(operands)

        def pull(branch: Function) -> Function:
            return lambda *values: pull_back(branch, values[:count], active, values[count:])

        call = replace(ctx.call, functions=tuple(map(pull, ctx.call.functions)))
        found = apply_rule(_Cond, call, pred, *operands, *chosen(gradients, ctx.floats))
        return None, None, *spread(found, active)

    @staticmethod
    def jvp(ctx: Context, *tangents: torch.Tensor | None) -> tuple[Any, ...]:
        """Push the tangents through the branch that has run."""
        (pred, *operands), _ = saved(ctx)
        active = [t is not None for t in tangents[2:]]
        count = len(operands)

        def push(branch: Function) -> Function:
            return lambda *values: push_forward(branch, values[:count], active, values[count:])[
                len(ctx.floats) :
            ]

        call = replace(ctx.call, functions=tuple(map(push, ctx.call.functions)))
        found = apply_rule(_Cond, call, pred, *operands, *chosen(tangents[2:], active))
        return tuple(spread(found, ctx.floats))

    @staticmethod
    def vmap(
        info: VmapInfo,
        in_dims: tuple[int | None, ...],
        call: Call,
        pred: torch.Tensor,
        *operands: torch.Tensor,
    ) -> Any:
        """Map the branches. With a predicate for each example, compute both branches."""
        dims = in_dims[2:]
        if in_dims[1] is not None:
            truth = pred.movedim(in_dims[1], 0).bool()
            yes, no = (Mapped(info, branch, dims)(*operands) for branch in call.functions)
            results = tuple(where_of_examples(truth, *pair) for pair in zip(yes, no, strict=True))
            return results, tuple(0 for _ in results)
        found = [results_with_batch(info, f, [dim is not None for dim in dims]) for f in call.functions]
        flags = None if None in found else list(map(any, zip(*cast("Any", found), strict=True)))
        functions = tuple(Mapped(info, branch, dims, flags) for branch in call.functions)
        results = apply_rule(_Cond, replace(call, functions=functions), pred, *operands)
        return results, tuple(0 if flag else None for flag in flags or [True] * len(results))


class _WhileLoop(Rule):
    """``while_loop``. A loop that gets a gradient (``_apply_loop``) also returns all its carried values, stacked.

    It is then a call of ``while_loop_stack_output``, whose first carried value counts the iterations.
    """

    @staticmethod
    def forward(call: Call, *operands: torch.Tensor) -> tuple[Any, ...]:
        """Record the operator."""
        found = Rule.forward(call, *operands)
        with torch.set_grad_enabled(call.gradients):
            return (*(rows[-1] for rows in found), *found) if saved_count(call) else found

    @staticmethod
    def backward(ctx: Context, *gradients: torch.Tensor | None) -> tuple[Any, ...]:
        """Pull the gradients back from the last iteration to the first."""
        operands, (iterations, *stacked) = saved(ctx)
        call: Call = ctx.call
        (count,), (_, body) = call.counts, call.functions
        carried, further = operands[:count], operands[count:]
        is_carried = [is_float(x) for x in carried]
        needs = needed(ctx, operands)[count:]
        starts = chosen(gradients[:count], is_carried)
        starts = [
            torch.zeros_like(x) if g is None else g
            for x, g in zip(chosen(carried, is_carried), starts, strict=True)
        ]
        sums = [torch.zeros_like(x) for x in chosen(further, needs)]
        steps = chosen(gradients[count:], is_carried)
        has_step = [g is not None for g in steps]
        # Without an iteration, the operator returns the first values as the only row.
        none = iterations == 0
        starts = [
            x if w is None else x + torch.where(none.to(x.device), w[0], torch.zeros_like(x))
            for x, w in zip(starts, steps, strict=True)
        ]
        groups = (starts, sums, carried, stacked, chosen(steps, has_step), further)

        def goes_on(number: torch.Tensor, *_values: object) -> torch.Tensor:
            return number > 0

        def step(number: torch.Tensor, *values: torch.Tensor) -> tuple[Any, ...]:
            remaining = iter(values)
            incoming, so_far, first, after, added, others = ([next(remaining) for _ in g] for g in groups)
            weights = spread((row_of(rows, number - 1, call.gradients) for rows in added), has_step)
            incoming = [x if w is None else x + w for x, w in zip(incoming, weights, strict=True)]
            previous = [row_of(rows, number - 2, call.gradients) for rows in after]
            before = [
                torch.where((number > 1).to(x.device), x, start)
                for x, start in zip(previous, first, strict=True)
            ]
            found = pull_back(body, [*before, *others], [*is_carried, *needs], incoming)
            of_further = zip(so_far, found[len(incoming) :], strict=True)
            return number - 1, *found[: len(incoming)], *(x + y for x, y in of_further)

        width = 1 + len(starts) + len(sums)
        new = replace(call, operator=_OPERATORS.while_loop, functions=(goes_on, step), counts=(width,))
        _, *found = _apply_loop(new, iterations, *(x for group in groups for x in group))
        return None, *spread(found[: len(starts)], is_carried), *spread(found[len(starts) :], needs)

    @staticmethod
    def jvp(ctx: Context, *tangents: torch.Tensor | None) -> tuple[Any, ...]:
        """Carry the tangents of the carried values."""
        operands, _ = saved(ctx)
        call: Call = ctx.call
        (count,) = call.counts
        test, body = call.functions
        is_carried = [is_float(x) for x in operands[:count]]
        given = tangents[1:]
        starts = [
            torch.zeros_like(x) if t is None else t
            for x, t in zip(operands[:count], given, strict=False)
            if is_float(x)
        ]
        active = [*is_carried, *(t is not None for t in given[count:])]
        outer = chosen(given[count:], active[count:])
        width = count + len(starts)

        def goes_on(*values: torch.Tensor) -> Any:
            return test(*values[:count], *values[width : width + len(operands) - count])

        def step(*values: torch.Tensor) -> tuple[Any, ...]:
            further = values[width : width + len(operands) - count]
            seeds = (*values[count:width], *values[width + len(further) :])
            return push_forward(body, (*values[:count], *further), active, seeds)

        new = replace(call, functions=(goes_on, step), counts=(width,))
        found = apply_rule(_WhileLoop, new, *operands[:count], *starts, *operands[count:], *outer)
        finals, stacked = found[count:width], found[width + count :]
        tangents_of_stacked = spread(stacked, is_carried) if stacked else []
        return *spread(finals, is_carried), *tangents_of_stacked

    @staticmethod
    def vmap(info: VmapInfo, in_dims: tuple[int | None, ...], call: Call, *operands: torch.Tensor) -> Any:
        """Run until the condition of no example holds. An example whose condition fails keeps its values."""
        (count,) = call.counts
        has_batch = [dim is not None for dim in in_dims[1:]]
        alone = carried_with_batch(info, call.functions, count, has_batch)
        flags = alone or [True] * count
        carried = [
            batched(info, x, dim) if flag else x
            for x, dim, flag in zip(operands[:count], in_dims[1:], flags, strict=False)
        ]
        dims = (*(0 if flag else None for flag in flags), *in_dims[1 + count :])
        test, body = call.functions
        if alone is None:
            new = replace(call, functions=by_example(info, call.functions, dims))
        else:
            mapped = Mapped(info, test, dims, [False]), Mapped(info, body, dims, flags)
            new = replace(call, functions=mapped)
        found = _apply_to_examples(new, alone is None, *carried, *operands[count:])
        stacked = flags if len(found) > count else []
        return found, tuple(at if flag else None for at, f in ((0, flags), (1, stacked)) for flag in f)


def _apply_to_examples(call: Call, differ: bool, *operands: Any) -> tuple[Any, ...]:
    """Apply a mapped loop. ``differ``: the numbers of iterations may differ between examples."""
    # A loop that counts for a gradient above ``vmap`` counts for each example then, and a gradient below ``vmap`` needs
    # the number of all iterations.
    if not (differ and saved_count(call) and any(map(has_gradient, operands))):
        return apply_rule(_WhileLoop, call, *operands)
    found, width = _apply_counting(call, *operands), 1 + call.counts[0]
    return found[1:width] + found[width + 1 :]


def _apply_loop(call: Call, *operands: Any) -> tuple[Any, ...]:
    """Apply ``while_loop`` under the active layers. Save the values of all iterations for a gradient."""
    if not any(map(has_gradient, operands)):
        return apply_rule(_WhileLoop, call, *operands)
    return _apply_counting(call, *operands)[1 : 1 + call.counts[0]]


def _apply_counting(call: Call, *operands: Any) -> tuple[Any, ...]:
    """Apply a loop that counts its iterations. Return its last values, and then those of all iterations."""
    test, body = call.functions
    counting = replace(
        call,
        operator=_OPERATORS.while_loop_stack_output,
        functions=(CountedTest(test), CountedBody(body)),
        counts=(1 + call.counts[0],),
    )
    start = torch.zeros((), dtype=torch.int64, device="cpu")
    return apply_rule(_WhileLoop, counting, start, *operands)


class _Scan(Rule):
    """``scan``, and ``map`` without carried values. The carried values before each iteration are the last results."""

    @staticmethod
    def forward(call: Call, *operands: torch.Tensor) -> tuple[Any, ...]:
        """Record the operator, with the carried values before each iteration as further results."""
        new = replace(call, functions=(saving(call.functions[0], call.counts[0]),))
        return Rule.forward(new, *operands)

    @staticmethod
    def backward(ctx: Context, *gradients: torch.Tensor) -> tuple[Any, ...]:
        """Pull the gradients back from the last iteration to the first."""
        operands, before = saved(ctx)
        call: Call = ctx.call
        (body,), (carries, slices) = call.functions, call.counts
        init, xs, further = (
            operands[:carries],
            operands[carries : carries + slices],
            operands[carries + slices :],
        )
        active = needed(ctx, operands)
        is_carried = [is_float(x) for x in init]
        need_xs, need_further = active[carries : carries + slices], active[carries + slices :]
        starts = chosen(gradients[:carries], is_carried)
        sums = [torch.zeros_like(x) for x in chosen(further, need_further)]
        steps = chosen(gradients[carries:], ctx.floats[carries:])
        rows = [torch.flip(x, (0,)) for x in (*before, *xs, *steps)]
        flags = [*is_carried, *need_xs, *need_further]

        def step(*values: torch.Tensor) -> tuple[Any, ...]:
            remaining = iter(values)
            groups = (starts, sums, before, xs, steps, further)
            incoming, so_far, carry, parts, outer, others = ([next(remaining) for _ in g] for g in groups)
            results = pull_back(saving(body, carries), (*carry, *parts, *others), flags, (*incoming, *outer))
            first, last = len(incoming), len(results) - len(so_far)
            added = [x + y for x, y in zip(so_far, results[last:], strict=True)]
            return (*results[:first], *added, *results[first:last])

        width = len(starts) + len(sums)
        operator = _OPERATORS.scan if width else _OPERATORS.map_impl
        new = replace(call, operator=operator, functions=(step,), counts=(width, len(rows)))
        found = apply_rule(_Scan, new, *starts, *sums, *rows, *further)
        found = found[: len(found) - width]
        of_xs = [torch.flip(x, (0,)) for x in found[width:]]
        return (
            None,
            *spread(found[: len(starts)], is_carried),
            *spread(of_xs, need_xs),
            *spread(found[len(starts) : width], need_further),
        )

    @staticmethod
    def jvp(ctx: Context, *tangents: torch.Tensor | None) -> tuple[Any, ...]:
        """Carry the tangents of the carried values, and slice those of the slices."""
        operands, _ = saved(ctx)
        call: Call = ctx.call
        (body,), (carries, slices) = call.functions, call.counts
        given = tangents[1:]
        is_carried = [is_float(x) for x in operands[:carries]]
        starts = [
            torch.zeros_like(x) if t is None else t
            for x, t in zip(operands[:carries], given, strict=False)
            if is_float(x)
        ]
        flags = [t is not None for t in given[carries:]]
        rows, outer = (
            chosen(given[carries : carries + slices], flags[:slices]),
            chosen(given[carries + slices :], flags[slices:]),
        )
        groups = (
            operands[:carries],
            starts,
            operands[carries : carries + slices],
            rows,
            operands[carries + slices :],
            outer,
        )

        def step(*values: torch.Tensor) -> tuple[Any, ...]:
            remaining = iter(values)
            carry, seeds, parts, part_seeds, others, other_seeds = (
                [next(remaining) for _ in g] for g in groups
            )
            active = [*is_carried, *flags]
            function = saving(body, carries)
            results = push_forward(
                function, (*carry, *parts, *others), active, (*seeds, *part_seeds, *other_seeds)
            )
            plain, pushed = results[: len(ctx.floats)], results[len(ctx.floats) :]
            return (*plain[:carries], *pushed[: len(starts)], *pushed[len(starts) :])

        width = carries + len(starts)
        new = replace(call, functions=(step,), counts=(width, slices + len(rows)))
        found = apply_rule(_Scan, new, *(x for group in groups for x in group))
        found = found[carries : len(found) - width]
        return tuple(spread(found, ctx.floats))

    @staticmethod
    def vmap(info: VmapInfo, in_dims: tuple[int | None, ...], call: Call, *operands: torch.Tensor) -> Any:
        """Map the function. The batch of sliced operands lies behind the sliced dimension."""
        carries, slices = call.counts
        dims = in_dims[1:]
        has_batch = [dim is not None for dim in dims]
        known = carried_with_batch(info, call.functions, carries, has_batch)
        flags = known or [True] * carries
        carried = [
            batched(info, x, dim) if flag else x
            for x, dim, flag in zip(operands[:carries], dims, flags, strict=False)
        ]
        rows = [
            x if dim is None else batched(info, x, dim, 1)
            for x, dim in zip(operands[carries : carries + slices], dims[carries:], strict=False)
        ]
        row_dims = [None if dim is None else 0 for dim in dims[carries : carries + slices]]
        body, inner = (
            call.functions[0],
            (*(0 if flag else None for flag in flags), *row_dims, *dims[carries + slices :]),
        )
        all_flags = None
        if known is not None:
            all_flags = results_with_batch(info, body, [dim is not None for dim in inner])
        new = replace(call, functions=(Mapped(info, body, inner, all_flags),))
        found = apply_rule(_Scan, new, *carried, *rows, *operands[carries + slices :])
        # The last results are the saved carried values.
        ends = [*(all_flags or [True] * (len(found) - carries)), *flags]
        return found, tuple((index >= carries) + 0 if flag else None for index, flag in enumerate(ends))


RULES: dict[Any, type[torch.autograd.Function]] = {
    _OPERATORS.cond: _Cond,
    _OPERATORS.while_loop: _WhileLoop,
    _OPERATORS.while_loop_stack_output: _WhileLoop,
    _OPERATORS.scan: _Scan,
    _OPERATORS.map_impl: _Scan,
}
"""By operator: the class that stands for it."""
