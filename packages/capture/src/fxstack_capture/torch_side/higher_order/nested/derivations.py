"""Loops and branches under ``torch.func``: what each layer makes of them.

torch applies layers to an ``autograd.Function`` by the methods of its class. Each class here stands for one
operator. A layer changes the functions of the operator and adds operands: under ``vmap`` the functions are mapped,
under ``jvp`` they compute tangents, and a gradient is a call of the operator whose functions pull gradients back.
Below all layers, ``forward`` records the operator.

The functions are nested graphs that the interpreter has traced without layers (``lifting``). They are called as
plain Python functions here, so the layers of ``torch.func`` apply to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, cast

import torch
from torch import fx

Function = Callable[..., Any]
Values = Sequence[Any]
Operator = Callable[..., Any]
_OPERATORS = torch.ops.higher_order


@dataclass(frozen=True, eq=False)
class Call:
    """A call of an operator, without its operands.

    ``record(call, operands)`` adds the node, below all layers. ``counts``: how many operands are carried, and how many
    are sliced. ``gradients``: the grad mode of the program.
    """

    record: Callable[[Call, Values], tuple[Any, ...]]
    operator: Operator
    functions: tuple[Function, ...]
    counts: tuple[int, ...]
    gradients: bool


class _Graph(fx.Interpreter):
    """A nested graph as a function. Its own loops and branches get the rules of this module."""

    def __init__(self, module: fx.GraphModule, call: Call) -> None:
        super().__init__(module, garbage_collect_values=False)
        self._call = call

    def __call__(self, *args: torch.Tensor) -> Any:
        return self.run(*args)

    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a function of a node."""
        if target in RULES:
            return apply(self._call.record, target, args, gradients=self._call.gradients)
        return super().call_function(target, args, kwargs)


def apply(
    record: Callable[[Call, Values], tuple[Any, ...]], operator: Operator, args: Values, *, gradients: bool
) -> tuple[Any, ...]:
    """Call an operator under the active layers. ``args``: those of its node, with values in place of nodes."""
    modules, operands, counts = _parts(operator, args)
    call = Call(record, operator, (), counts, gradients)
    functions = tuple(
        _Graph(module, call) if isinstance(module, fx.GraphModule) else module for module in modules
    )
    results = _apply(RULES[operator], replace(call, functions=functions), *operands)
    return results[: len(results) - _saved_count(call)]


def _apply(rule: type[torch.autograd.Function], call: Call, *operands: object) -> tuple[Any, ...]:
    """Apply a rule under the active layers."""
    found: Any = cast("Any", rule).apply(call, *operands)
    return found if isinstance(found, tuple) else (found,)


def _parts(operator: Operator, args: Values) -> tuple[tuple[Function, ...], list[Any], tuple[int, ...]]:
    """Return the functions of a call, the flat operands, and how many of these are carried and sliced."""
    if operator is _OPERATORS.cond:
        pred, yes, no, operands = args
        return (yes, no), [pred, *operands], ()
    if operator is _OPERATORS.while_loop:
        test, body, carried, further = args
        return (test, body), [*carried, *further], (len(carried),)
    if operator is _OPERATORS.scan:
        body, init, xs, further = args
        return (body,), [*init, *xs, *further], (len(init), len(xs))
    body, xs, further = args
    return (body,), [*xs, *further], (0, len(xs))


class VmapInfo(Protocol):
    """What torch tells the ``vmap`` method of a function about its layer."""

    batch_size: int
    randomness: str


class Context(torch.autograd.function.FunctionCtx):
    """The context of a function: what ``setup_context`` saves."""

    call: Call
    total: int
    """Number of operands."""
    floats: list[bool]
    """Which results are floating-point tensors."""
    is_tensor: list[bool]
    """Which saved values are tensors."""
    numbers: list[Any]
    """The other saved values."""
    saved_tensors: tuple[torch.Tensor, ...]
    needs_input_grad: tuple[bool, ...]


def is_float(value: object) -> bool:
    """Return whether a value is a tensor whose dtype has gradients."""
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def _chosen(values: Iterable[Any], flags: Iterable[bool]) -> list[Any]:
    """Return the values whose flag is true."""
    return [value for value, flag in zip(values, flags, strict=True) if flag]


def _spread(values: Iterable[Any], flags: Iterable[bool]) -> list[Any]:
    """Return a value for each true flag, and ``None`` for each other flag."""
    remaining = iter(values)
    return [next(remaining) if flag else None for flag in flags]


def _of_active(function: Function, args: Values, active: Sequence[bool]) -> Function:
    """Return the floating-point results of ``function`` as a function of the arguments in ``active``."""

    def of_active(*values: torch.Tensor) -> tuple[Any, ...]:
        remaining = iter(values)
        given = [next(remaining) if flag else value for value, flag in zip(args, active, strict=True)]
        return tuple(x for x in function(*given) if is_float(x))

    return of_active


def _pull(function: Function, args: Values, active: Sequence[bool], gradients: Values) -> tuple[Any, ...]:
    """Return the gradients of the arguments in ``active``, from those of the floating-point results."""
    _, back = torch.func.vjp(_of_active(function, args, active), *_chosen(args, active))
    found: tuple[Any, ...] = back(tuple(gradients))
    return found


def _push(function: Function, args: Values, active: Sequence[bool], tangents: Values) -> tuple[Any, ...]:
    """Return all results of ``function``, then the tangents of the floating-point results."""
    # A gradient is linear in the gradients of the results, so its own gradient is the derivative. ``torch.func.jvp``
    # would need a second level of forward-mode AD, which torch does not have.
    results, back = torch.func.vjp(_of_active(function, args, active), *_chosen(args, active))
    _, forward = torch.func.vjp(lambda *weights: back(weights), *(torch.zeros_like(x) for x in results))
    return (*function(*args), *forward(tuple(tangents)))


class _Rule(torch.autograd.Function):
    """The common part of the operators. The first input is the ``Call``."""

    @staticmethod
    def forward(call: Call, *operands: torch.Tensor) -> tuple[Any, ...]:
        """Record the operator."""
        with torch.set_grad_enabled(call.gradients):
            return call.record(call, operands)

    @staticmethod
    def setup_context(ctx: Context, inputs: tuple[Any, ...], output: Any) -> None:
        """Save the operands, and the values that the forward has saved."""
        call, *operands = inputs
        ctx.call, ctx.total = call, len(operands)
        ctx.floats = [is_float(x) for x in output]
        carried = _saved_count(call)
        saved = [*operands, *output[len(output) - carried :]]
        ctx.is_tensor = [isinstance(x, torch.Tensor) for x in saved]
        ctx.numbers = [x for x in saved if not isinstance(x, torch.Tensor)]
        tensors = [x for x in saved if isinstance(x, torch.Tensor)]
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)
        ctx.mark_non_differentiable(*(x for x in output if isinstance(x, torch.Tensor) and not is_float(x)))


def _saved_count(call: Call) -> int:
    """Return how many results at the end are values that the forward saves."""
    return call.counts[0] if call.operator in (_OPERATORS.scan, _OPERATORS.map_impl) else 0


def _saved(ctx: Context) -> tuple[list[Any], list[Any]]:
    """Return the operands, and the values that the forward has saved."""
    tensors, numbers = iter(ctx.saved_tensors), iter(ctx.numbers)
    values = [next(tensors) if is_tensor else next(numbers) for is_tensor in ctx.is_tensor]
    return values[: ctx.total], values[ctx.total :]


def _needs(ctx: Context, operands: Values) -> list[bool]:
    """Return which operands get a gradient."""
    return [need and is_float(x) for x, need in zip(operands, ctx.needs_input_grad[1:], strict=True)]


def _mapped(info: VmapInfo, function: Function, dims: Sequence[int | None]) -> Function:
    """Return ``function`` mapped over the dimensions ``dims`` of its arguments. All results get dimension 0."""

    def mapped(*args: torch.Tensor) -> tuple[Any, ...]:
        if all(dim is None for dim in dims):
            return tuple(x.expand(info.batch_size, *x.shape) for x in function(*args))
        found: tuple[Any, ...] = torch.vmap(
            _as_tuple(function), in_dims=tuple(dims), randomness=info.randomness
        )(*args)
        return found

    return mapped


def _as_tuple(function: Function) -> Function:
    """Return ``function`` with a tuple as result."""

    def call(*args: torch.Tensor) -> tuple[Any, ...]:
        found = function(*args)
        return tuple(found) if isinstance(found, (tuple, list)) else (found,)

    return call


def _batched(info: VmapInfo, value: torch.Tensor, dim: int | None, to: int = 0) -> torch.Tensor:
    """Return ``value`` with its batch at dimension ``to``. A value without batch is repeated."""
    if dim is None:
        shape = list(value.shape)
        return value.unsqueeze(to).expand(*shape[:to], info.batch_size, *shape[to:]).contiguous()
    return value.movedim(dim, to).contiguous()


def _where(truth: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Return ``torch.where``, with one truth for each element of dimension 0."""
    return torch.where(truth.reshape(-1, *[1] * (first.dim() - 1)), first, second)


class _Cond(_Rule):
    """``torch.cond``. The first operand is the predicate."""

    @staticmethod
    def backward(ctx: Context, *gradients: torch.Tensor) -> tuple[Any, ...]:
        """Pull the gradients back through the branch that has run."""
        (pred, *operands), _ = _saved(ctx)
        active, count = _needs(ctx, [pred, *operands])[1:], len(operands)

        def pull(branch: Function) -> Function:
            return lambda *values: _pull(branch, values[:count], active, values[count:])

        call = replace(ctx.call, functions=tuple(map(pull, ctx.call.functions)))
        found = _apply(_Cond, call, pred, *operands, *_chosen(gradients, ctx.floats))
        return None, None, *_spread(found, active)

    @staticmethod
    def jvp(ctx: Context, *tangents: torch.Tensor | None) -> tuple[Any, ...]:
        """Push the tangents through the branch that has run."""
        (pred, *operands), _ = _saved(ctx)
        active = [t is not None for t in tangents[2:]]
        count = len(operands)

        def push(branch: Function) -> Function:
            return lambda *values: _push(branch, values[:count], active, values[count:])[len(ctx.floats) :]

        call = replace(ctx.call, functions=tuple(map(push, ctx.call.functions)))
        found = _apply(_Cond, call, pred, *operands, *_chosen(tangents[2:], active))
        return tuple(_spread(found, ctx.floats))

    @staticmethod
    def vmap(
        info: VmapInfo,
        in_dims: tuple[int | None, ...],
        call: Call,
        pred: torch.Tensor,
        *operands: torch.Tensor,
    ) -> Any:
        """Map the branches. With a predicate for each example, compute both branches."""
        yes, no = (_mapped(info, branch, in_dims[2:]) for branch in call.functions)
        if in_dims[1] is None:
            results = _apply(_Cond, replace(call, functions=(yes, no)), pred, *operands)
        else:
            truth = pred.movedim(in_dims[1], 0).bool()
            pairs = zip(yes(*operands), no(*operands), strict=True)
            results = tuple(_where(truth, first, second) for first, second in pairs)
        return results, tuple(0 for _ in results)


class _WhileLoop(_Rule):
    """``while_loop``. Its gradient needs the values of all iterations, which this class does not save."""

    @staticmethod
    def backward(ctx: Context, *_gradients: object) -> Any:
        """Raise an error: the interpreter does not trace the gradient of a loop by a function transform."""
        raise NotImplementedError("the gradient of while_loop by a transform of torch.func")

    @staticmethod
    def jvp(ctx: Context, *tangents: torch.Tensor | None) -> tuple[Any, ...]:
        """Carry the tangents of the carried values."""
        operands, _ = _saved(ctx)
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
        outer = _chosen(given[count:], active[count:])
        width = count + len(starts)

        def goes_on(*values: torch.Tensor) -> Any:
            return test(*values[:count], *values[width : width + len(operands) - count])

        def step(*values: torch.Tensor) -> tuple[Any, ...]:
            further = values[width : width + len(operands) - count]
            seeds = (*values[count:width], *values[width + len(further) :])
            return _push(body, (*values[:count], *further), active, seeds)

        new = replace(call, functions=(goes_on, step), counts=(width,))
        found = _apply(_WhileLoop, new, *operands[:count], *starts, *operands[count:], *outer)
        return tuple(_spread(found[count:], is_carried))

    @staticmethod
    def vmap(info: VmapInfo, in_dims: tuple[int | None, ...], call: Call, *operands: torch.Tensor) -> Any:
        """Run until the condition of no example holds. An example whose condition fails keeps its values."""
        (count,) = call.counts
        carried = [_batched(info, x, dim) for x, dim in zip(operands[:count], in_dims[1:], strict=False)]
        dims = (*[0] * count, *in_dims[1 + count :])
        test, body = (_mapped(info, _as_tuple(function), dims) for function in call.functions)

        def goes_on(*values: torch.Tensor) -> torch.Tensor:
            return test(*values)[0].any()

        def step(*values: torch.Tensor) -> tuple[Any, ...]:
            (truth,) = test(*values)
            return tuple(_where(truth, new, old) for new, old in zip(body(*values), values, strict=False))

        new = replace(call, functions=(goes_on, step))
        found = _apply(_WhileLoop, new, *carried, *operands[count:])
        return found, (0,) * len(found)


class _Scan(_Rule):
    """``scan``, and ``map`` without carried values. The carried values before each iteration are the last results."""

    @staticmethod
    def forward(call: Call, *operands: torch.Tensor) -> tuple[Any, ...]:
        """Record the operator, with the carried values before each iteration as further results."""
        saving = _saving(call.functions[0], call.counts[0])
        return _Rule.forward(replace(call, functions=(saving,)), *operands)

    @staticmethod
    def backward(ctx: Context, *gradients: torch.Tensor) -> tuple[Any, ...]:
        """Pull the gradients back from the last iteration to the first."""
        operands, before = _saved(ctx)
        call: Call = ctx.call
        (body,), (carries, slices) = call.functions, call.counts
        init, xs, further = (
            operands[:carries],
            operands[carries : carries + slices],
            operands[carries + slices :],
        )
        active = _needs(ctx, operands)
        is_carried = [is_float(x) for x in init]
        need_xs, need_further = active[carries : carries + slices], active[carries + slices :]
        starts = _chosen(gradients[:carries], is_carried)
        sums = [torch.zeros_like(x) for x in _chosen(further, need_further)]
        steps = _chosen(gradients[carries:], ctx.floats[carries:])
        rows = [torch.flip(x, (0,)) for x in (*before, *xs, *steps)]
        flags = [*is_carried, *need_xs, *need_further]

        def step(*values: torch.Tensor) -> tuple[Any, ...]:
            remaining = iter(values)
            groups = (starts, sums, before, xs, steps, further)
            incoming, so_far, carry, parts, outer, others = ([next(remaining) for _ in g] for g in groups)
            results = _pull(_saving(body, carries), (*carry, *parts, *others), flags, (*incoming, *outer))
            first, last = len(incoming), len(results) - len(so_far)
            added = [x + y for x, y in zip(so_far, results[last:], strict=True)]
            return (*results[:first], *added, *results[first:last])

        width = len(starts) + len(sums)
        operator = _OPERATORS.scan if width else _OPERATORS.map_impl
        new = replace(call, operator=operator, functions=(step,), counts=(width, len(rows)))
        found = _apply(_Scan, new, *starts, *sums, *rows, *further)
        found = found[: len(found) - width]
        of_xs = [torch.flip(x, (0,)) for x in found[width:]]
        return (
            None,
            *_spread(found[: len(starts)], is_carried),
            *_spread(of_xs, need_xs),
            *_spread(found[len(starts) : width], need_further),
        )

    @staticmethod
    def jvp(ctx: Context, *tangents: torch.Tensor | None) -> tuple[Any, ...]:
        """Carry the tangents of the carried values, and slice those of the slices."""
        operands, _ = _saved(ctx)
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
            _chosen(given[carries : carries + slices], flags[:slices]),
            _chosen(given[carries + slices :], flags[slices:]),
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
            function = _saving(body, carries)
            results = _push(function, (*carry, *parts, *others), active, (*seeds, *part_seeds, *other_seeds))
            plain, pushed = results[: len(ctx.floats)], results[len(ctx.floats) :]
            return (*plain[:carries], *pushed[: len(starts)], *pushed[len(starts) :])

        width = carries + len(starts)
        new = replace(call, functions=(step,), counts=(width, slices + len(rows)))
        found = _apply(_Scan, new, *(x for group in groups for x in group))
        found = found[carries : len(found) - width]
        return tuple(_spread(found, ctx.floats))

    @staticmethod
    def vmap(info: VmapInfo, in_dims: tuple[int | None, ...], call: Call, *operands: torch.Tensor) -> Any:
        """Map the function. The batch of sliced operands lies behind the sliced dimension."""
        carries, slices = call.counts
        dims = in_dims[1:]
        carried = [_batched(info, x, dim) for x, dim in zip(operands[:carries], dims, strict=False)]
        rows = [
            x if dim is None else _batched(info, x, dim, 1)
            for x, dim in zip(operands[carries : carries + slices], dims[carries:], strict=False)
        ]
        row_dims = [None if dim is None else 0 for dim in dims[carries : carries + slices]]
        body = _mapped(info, call.functions[0], (*[0] * carries, *row_dims, *dims[carries + slices :]))
        new = replace(call, functions=(body,))
        found = _apply(_Scan, new, *carried, *rows, *operands[carries + slices :])
        return found, tuple(0 if index < carries else 1 for index in range(len(found)))


def _saving(body: Function, carries: int) -> Function:
    """Return the function that ``_Scan`` records: the values that it carries are further results."""
    return lambda *values: (*body(*values), *(x.clone() for x in values[:carries]))


RULES: dict[Any, type[torch.autograd.Function]] = {
    _OPERATORS.cond: _Cond,
    _OPERATORS.while_loop: _WhileLoop,
    _OPERATORS.scan: _Scan,
    _OPERATORS.map_impl: _Scan,
}
"""By operator: the class that stands for it."""
