"""The ``autograd.Function`` around a compiled forward and backward, its two methods generated for the graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from fxstack_functionalize.metadata import AliasSource
from fxstack_functionalize.runtime.backward import BackwardPlan, sizes_keeper
from fxstack_functionalize.runtime.calling import check_results, is_boxed
from fxstack_functionalize.runtime.modes import VIEW_KEYS
from fxstack_functionalize.runtime.saved import (
    Saving,
    add_saving,
    add_unsaving,
    saved_inputs,
    saved_tensors,
)
from fxstack_functionalize.runtime.second import NOTHING_KEPT, SecondOrder
from fxstack_functionalize.runtime.source import Source
from fxstack_functionalize.runtime.unpacked import unpacked_checker
from fxstack_functionalize.symbols import evaluator
from fxstack_interchange import OutputKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fxstack_functionalize.runtime.calling import Compiled
    from fxstack_functionalize.runtime.saved import SavedTensor
    from fxstack_functionalize.trace import Traced
    from fxstack_interchange import Partition

    Share = Callable[[Sequence[Any], tuple[Any, ...]], tuple[Any, ...]]
    Call = Callable[[list[Any]], Sequence[Any]]

FORWARD = "forward graph"


@dataclass(frozen=True, slots=True)
class _Case:
    """What the two methods are generated for; ``tensors`` and ``symbols`` are the positions of what is saved."""

    traced: Traced
    partition: Partition
    saving: Saving
    tensors: range
    symbols: range
    saved: tuple[SavedTensor, ...]
    second: SecondOrder


def make_function(
    traced: Traced, partition: Partition, forward: Compiled, backward: Call, saving: Saving
) -> Callable[..., Any]:
    """Return a function of the call's arguments that gives the flat outputs, with ``backward`` as their gradient."""
    tensors, symbols = _saved_layout(partition, traced.info.output_count)
    names = [spec.name for spec in traced.stage_graph.signature.inputs]
    saved = tuple(saved_tensors(partition, traced.info, tensors, names, saving))
    held = saved_inputs(saved, len(names)) if saving is Saving.PLAIN else None
    second = SecondOrder(traced, held)
    case = _Case(traced, partition, saving, tensors, symbols, saved, second)

    class Compiled(torch.autograd.Function):
        pass

    Compiled.forward = staticmethod(_forward(case, forward))  # type: ignore[method-assign]
    Compiled.backward = staticmethod(_backward(case, backward))  # type: ignore[method-assign]
    # What Function.apply does first, in Python, is for functorch transforms; the wrapper has dealt with them.
    apply: Callable[..., Any] = super(torch.autograd.Function, Compiled).apply
    return apply


def _forward(case: _Case, compiled: Compiled) -> Callable[..., Any]:
    traced, symbols = case.traced, case.symbols
    info = traced.info
    expected = len(case.partition.forward.signature.outputs)
    source = Source()
    source.add(
        "with exclude(view_keys):", exclude=torch._C._ExcludeDispatchKeyGuard, view_keys=VIEW_KEYS
    )
    boxed = is_boxed(compiled, FORWARD)
    if info.autocast:
        source.add("    with no_autocast():", no_autocast=torch._C._DisableAutocast)
        source.depth += 1
    statement = "flat = compiled([*args])" if boxed else "flat = compiled(*args)"
    source.add(f"    {statement}", compiled=compiled)
    source.depth = 1
    source.add(f"if len(flat) != {expected}:")
    source.add(f"    check(flat, {expected}, {FORWARD!r})", check=check_results)
    source.add(f"results = tuple(flat[:{info.output_count}])")
    share = _custom_views(traced)
    if share is not None:
        source.add("results = share(args, results)", share=share)
    add_saving(source, case.saved)
    if symbols:
        source.add(f"ctx.symbols = flat[{symbols.start}:]")
    keep_sizes = sizes_keeper(traced)
    if keep_sizes is not None:
        source.add("ctx.sizes = keep_sizes(results)", keep_sizes=keep_sizes)
    if case.second.keeps:
        source.add("ctx.inputs = keep(args)", keep=case.second.keep)
    source.add("ctx.set_materialize_grads(False)")
    constant = _constant_tensors(traced)
    if constant:
        listed = ", ".join(f"results[{position}]" for position in constant)
        source.add(f"ctx.mark_non_differentiable({listed})")
    source.add("return results")
    return source.build("ctx, *args")


def _backward(case: _Case, backward: Call) -> Callable[..., Any]:
    traced, partition, saved = case.traced, case.partition, case.saved
    plan = BackwardPlan(traced, partition)
    source = Source()
    source.add("twice = grad_enabled()", grad_enabled=torch.is_grad_enabled)
    arguments = add_unsaving(source, saved)
    _add_twice(source, case.second)
    source.add(f"arguments = [{', '.join(arguments)}]")
    if saved:
        source.add("saved = kept = None")
    if case.saving is Saving.HOOKED and saved:
        results: Any = partition.forward.graph_module.graph.output_node().args[0]
        examples = [results[position].meta["val"] for position in case.tensors]
        source.add("arguments = unpacked(arguments)", unpacked=unpacked_checker(examples))
    if case.symbols:
        source.add("arguments += ctx.symbols")
    sizes = "ctx.sizes" if sizes_keeper(traced) is not None else "plan.sizes"
    source.add("with no_grad():", no_grad=torch.no_grad)
    source.add(f"    arguments += plan.tangents(grads, {sizes})", plan=plan)
    source.add("    gradients = plan.gradients(compiled(arguments), grads)", compiled=backward)
    source.add("return once(gradients, grads) if twice else tuple(gradients)")
    return source.build("ctx, *grads")


def _add_twice(source: Source, second: SecondOrder) -> None:
    """Add what a backward does first if autograd records it, to be differentiated again."""
    kept = "ctx.inputs" if second.keeps else "nothing_kept"
    source.add("once = None", nothing_kept=NOTHING_KEPT)
    source.add("if twice:")
    if second.refusal is None:
        source.add(f"    return again({kept}, saved, grads)", again=second.gradients)
    else:
        source.add(f"    once = refuse({kept}, saved)", refuse=second.refuse)


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


def _saved_layout(partition: Partition, count: int) -> tuple[range, range]:
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
    return range(count, split), range(split, total)
