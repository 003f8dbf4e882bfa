"""The wrapper around a compiled forward and backward: one ``autograd.Function`` made for the graph."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any

import torch

from fxstack_functionalize.errors import DOUBLE_BACKWARD
from fxstack_functionalize.metadata import AliasSource
from fxstack_functionalize.runtime.backward import BackwardPlan, sizes_keeper
from fxstack_functionalize.runtime.calling import check_results, listed
from fxstack_functionalize.runtime.modes import VIEW_KEYS, without_autocast
from fxstack_functionalize.runtime.saved import holder
from fxstack_functionalize.runtime.wrapper import Source, wrapper
from fxstack_functionalize.symbols import evaluator
from fxstack_interchange import OutputKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fxstack_functionalize.options import AotOptions
    from fxstack_functionalize.runtime.calling import Compiled
    from fxstack_functionalize.trace import Traced
    from fxstack_interchange import Partition

    Share = Callable[[Sequence[Any], tuple[Any, ...]], tuple[Any, ...]]
    Call = Callable[[list[Any]], Sequence[Any]]


FORWARD = "forward graph"
BACKWARD = "backward graph"


class LazyBackward:
    """Compiles the backward at its first use, once even if several threads ask."""

    def __init__(self, compile_backward: Callable[[], Call], expected: int) -> None:
        self._compile = compile_backward
        self._expected = expected
        self._lock = Lock()
        self._call: Call | None = None

    def __call__(self, args: list[Any]) -> Sequence[Any]:
        if self._call is None:
            with self._lock:
                if self._call is None:
                    call = self._compile()
                    results = check_results(call(args), self._expected, BACKWARD)
                    self._call = call
                    return results
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
    count = len(partition.forward.signature.outputs)
    backward_count = len(partition.backward.signature.outputs)
    call = listed(forward, FORWARD)
    if info.autocast:
        call = without_autocast(call)
    backward = LazyBackward(
        lambda: without_autocast(listed(compile_backward(), BACKWARD)), backward_count
    )
    function = _make_function(traced, partition, (call, count), backward)

    def compute(source: Source) -> None:
        source.add("flat = apply(*args)", apply=function)

    made = wrapper(traced, options, FORWARD, compute)
    return made if info.grad_mode else torch.enable_grad()(made)


def _make_function(
    traced: Traced, partition: Partition, forward: tuple[Call, int], backward: LazyBackward
) -> Callable[..., Any]:
    """Build the ``autograd.Function``; everything that is constant is bound here."""
    info = traced.info
    call, expected = forward
    count = info.output_count
    tensors, symbols = _saved_layout(partition, count)
    constant = _constant_tensors(traced)
    plan = BackwardPlan(traced, partition)
    keep_sizes = sizes_keeper(traced)
    names = [spec.name for spec in traced.stage_graph.signature.inputs]
    hold = holder(partition, info, tensors, names)
    share = _custom_views(traced)
    has_symbols = symbols.start < symbols.stop

    class Compiled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            with torch._C._ExcludeDispatchKeyGuard(VIEW_KEYS):
                flat = call([*args])
            if len(flat) != expected:
                check_results(flat, expected, FORWARD)
            results = tuple(flat[:count])
            saved = flat[tensors]
            if share is not None:
                results = share(args, results)
            if hold is not None:
                saved = hold(args, results, saved)
            ctx.save_for_backward(*saved)
            ctx.symbols = flat[symbols] if has_symbols else ()
            if keep_sizes is not None:
                ctx.sizes = keep_sizes(results)
            ctx.set_materialize_grads(False)
            if constant:
                ctx.mark_non_differentiable(*[results[position] for position in constant])
            return results

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            twice = torch.is_grad_enabled()
            sizes = ctx.sizes if keep_sizes is not None else plan.sizes
            with torch.no_grad():
                arguments = plan.arguments(ctx.saved_tensors, ctx.symbols, sizes, grads)
                gradients = plan.gradients(backward(arguments), grads)
            return _differentiable_once(gradients) if twice else tuple(gradients)

    apply: Callable[..., Any] = Compiled.apply
    return apply


def _constant_tensors(traced: Traced) -> list[int]:
    """Positions of the flat outputs that are tensors without gradient."""
    results = traced.stage_graph.graph_module.graph.output_node().args[0]
    differentiable = set(traced.info.differentiable)
    return [
        position
        for position, node in enumerate(results[: traced.info.output_count])
        if position not in differentiable
        and isinstance(node, torch.fx.Node)
        and isinstance(node.meta.get("val"), torch.Tensor)
    ]


def _custom_views(traced: Traced) -> Share | None:
    """Return a function that replaces outputs by real views where a custom function returned a view."""
    views = traced.info.custom_views
    if not views:
        return None
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
    return tuple(next(remaining) if isinstance(grad, torch.Tensor) else None for grad in gradients)
