"""The wrapper around a compiled forward and backward: one ``autograd.Function`` made for the graph."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any

import torch
from fxstack_interchange import OutputKind

from fxstack_functionalize.errors import DOUBLE_BACKWARD
from fxstack_functionalize.metadata import AliasSource
from fxstack_functionalize.runtime.arguments import entry_point
from fxstack_functionalize.runtime.backward import BackwardPlan, sizes_keeper
from fxstack_functionalize.runtime.calling import listed
from fxstack_functionalize.runtime.modes import without_autocast, without_views
from fxstack_functionalize.runtime.mutation import write_back
from fxstack_functionalize.runtime.outputs import output_epilogue
from fxstack_functionalize.runtime.strides import restrider
from fxstack_functionalize.runtime.saved import holder
from fxstack_functionalize.symbols import evaluator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fxstack_interchange import Partition

    from fxstack_functionalize.options import AotOptions
    from fxstack_functionalize.runtime.calling import Compiled
    from fxstack_functionalize.trace import Traced

    Call = Callable[[list[Any]], Sequence[Any]]


class LazyBackward:
    """Compiles the backward at its first use, once even if several threads ask."""

    def __init__(self, compile_backward: Callable[[], Call]) -> None:
        self._compile = compile_backward
        self._lock = Lock()
        self._call: Call | None = None

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        if self._call is None:
            with self._lock:
                if self._call is None:
                    self._call = self._compile()
        return self._call(args)


def training_wrapper(
    traced: Traced,
    partition: Partition,
    forward: Compiled,
    compile_backward: Callable[[], Compiled],
    options: AotOptions,
) -> Callable[..., Any]:
    """Return the callable with the captured graph's own signature."""
    info = traced.info
    outputs = partition.forward.signature.outputs
    backward_count = len(partition.backward.signature.outputs)
    call = without_views(without_autocast(listed(forward, len(outputs), "forward graph")))
    backward = LazyBackward(
        lambda: without_autocast(listed(compile_backward(), backward_count, "backward graph"))
    )
    function = _make_function(traced, partition, call, backward)
    epilogue = output_epilogue(traced)
    write = write_back(traced)
    restride = restrider(traced) if options.check_output_strides else None

    def run(arguments: list[Any]) -> Any:
        flat = function(*arguments)
        if restride is not None:
            flat = restride(arguments, flat)
        if write is not None:
            write(arguments, flat)
        return epilogue(arguments, flat)

    return entry_point(traced, run if info.grad_mode else torch.enable_grad()(run))


def _make_function(
    traced: Traced, partition: Partition, call: Call, backward: LazyBackward
) -> Callable[..., Any]:
    """Build the ``autograd.Function``; everything that is constant is bound here."""
    info = traced.info
    count = info.output_count
    tensors, symbols = _saved_layout(partition, count)
    constant = [
        position for position in range(count) if position not in set(info.differentiable)
    ]
    plan = BackwardPlan(traced, partition)
    keep_sizes = sizes_keeper(traced)
    names = [spec.name for spec in traced.stage_graph.signature.inputs]
    hold = holder(partition, info, tensors, names)
    share = _custom_views(traced)

    class Compiled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            flat = call(list(args))
            results = share(args, tuple(flat[:count]))
            ctx.save_for_backward(*hold(args, results, flat[tensors]))
            ctx.symbols = flat[symbols]
            ctx.sizes = keep_sizes(results)
            ctx.set_materialize_grads(False)
            ctx.mark_non_differentiable(
                *[results[p] for p in constant if isinstance(results[p], torch.Tensor)]
            )
            return results

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            twice = torch.is_grad_enabled()
            with torch.no_grad():
                arguments = plan.arguments(ctx.saved_tensors, ctx.symbols, ctx.sizes, grads)
                gradients = plan.gradients(backward(arguments), grads)
            return _differentiable_once(gradients) if twice else tuple(gradients)

    apply: Callable[..., Any] = Compiled.apply
    return apply


def _custom_views(traced: Traced) -> Callable[[Sequence[Any], tuple[Any, ...]], tuple[Any, ...]]:
    """Return a function that replaces outputs by real views where a custom function returned a view."""
    views = traced.info.custom_views
    if not views:
        return lambda _args, results: results
    bind = evaluator(traced.captured)

    def share(args: Sequence[Any], results: tuple[Any, ...]) -> tuple[Any, ...]:
        made = list(results)
        for position, alias in views:
            base = (args if alias.source is AliasSource.INPUT else made)[alias.index]
            made[position] = alias.bind(bind(args))(base)
        return tuple(made)

    return share


def _saved_layout(partition: Partition, count: int) -> tuple[slice, slice]:
    """Saved tensors come first, then saved symbols, as the stage's convention has it."""
    kinds = partition.forward.signature.outputs
    total = len(kinds)
    nodes = partition.forward.graph_module.graph.output_node().args[0]
    split = total
    for position in range(count, total):
        assert kinds[position].kind is OutputKind.SAVED
        if not isinstance(nodes[position].meta.get("val"), torch.Tensor):
            split = position
            break
    return slice(count, split), slice(split, total)


def _differentiable_once(gradients: list[Any]) -> tuple[Any, ...]:
    """Let a second differentiation fail with an explanation instead of ignoring what it cannot see."""
    tensors = [grad for grad in gradients if isinstance(grad, torch.Tensor)]
    delayed = torch._C._functions.DelayedError(DOUBLE_BACKWARD.encode(), len(tensors))
    guarded = delayed(*[grad.detach().requires_grad_() for grad in tensors])
    remaining = iter(guarded if isinstance(guarded, tuple) else (guarded,))
    return tuple(
        next(remaining) if isinstance(grad, torch.Tensor) else None for grad in gradients
    )
