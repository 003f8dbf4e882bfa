"""The ``autograd.Function`` around a compiled forward and backward, with generated methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fxstack_functionalize import torch_compat
from fxstack_functionalize.metadata.records import GraphInfo
from fxstack_functionalize.metadata.replay import AliasSource
from fxstack_functionalize.runtime.backward import anomaly
from fxstack_functionalize.runtime.backward.backwards import Backwards
from fxstack_functionalize.runtime.backward.batched import are_batched, one_by_one
from fxstack_functionalize.runtime.backward.components import in_components
from fxstack_functionalize.runtime.backward.double_backward import NOTHING_KEPT, SecondOrder, are_special
from fxstack_functionalize.runtime.backward.edge_gradients import EdgeGradients, watch_hooks
from fxstack_functionalize.runtime.backward.saved import (
    SavedTensor,
    Saving,
    add_saving,
    add_unsaving,
    saved_inputs,
    saved_places,
)
from fxstack_functionalize.runtime.backward.sequential_backward import SequentialBackward, add_holding
from fxstack_functionalize.runtime.backward.tangents import sizes_keeper
from fxstack_functionalize.runtime.backward.unreadable import demand_readable
from fxstack_functionalize.runtime.calling import FORWARD, Compiled, check_results, is_boxed
from fxstack_functionalize.runtime.forward.modes import without_views
from fxstack_functionalize.runtime.forward.outputs import alias_maker
from fxstack_functionalize.runtime.forward.unpacked import unpacked_checker
from fxstack_functionalize.runtime.plan import TrainingPlan
from fxstack_functionalize.runtime.source import Source
from fxstack_functionalize.sequential_backward import Components
from fxstack_functionalize.shell import Shell

Share = Callable[[Sequence[Any], tuple[Any, ...]], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class _Case:
    """The input of the two generators of methods."""

    shell: Shell
    plan: TrainingPlan
    saving: Saving
    saved: tuple[SavedTensor, ...]
    second: SecondOrder
    linked: EdgeGradients | None
    sequential: SequentialBackward | None
    later: Components
    """The components of results that get their own autograd nodes."""


def make_function(
    shell: Shell,
    plan: TrainingPlan,
    compiled: tuple[Compiled, Backwards],
    saving: Saving,
    linked: EdgeGradients | None,
) -> Callable[..., Any]:
    """Return a function from the call's arguments to the flat outputs of the compiled forward.

    Its gradient is the compiled backward. ``linked``: the edges between results that are computed from
    others.
    """
    forward, backwards = compiled
    saved = plan.saved(saving)
    info = shell.info
    # Linked results have their own nodes. Hooks that run in eager need autograd to keep the saved tensors.
    parted = bool(info.components) and linked is None and saving is not Saving.HOOKED
    in_turn = parted or (bool(info.sequential) and saving is not Saving.HOOKED)
    sequential = SequentialBackward(info, plan) if in_turn else None
    by_autograd = () if sequential is not None else saved
    held = saved_inputs(by_autograd, len(shell.info.inputs)) if saving is Saving.PLAIN else None
    second = SecondOrder(shell, plan.refusal, held)
    case = _Case(
        shell, plan, saving, saved, second, linked, sequential, info.components[1:] if parted else ()
    )

    class Compiled(torch.autograd.Function):
        pass

    Compiled.forward = staticmethod(_forward(case, forward))
    differentiate = _backward(case, backwards)
    Compiled.backward = staticmethod(differentiate)
    if linked is not None:
        watch_hooks(Compiled)
    # ``Function.apply`` first handles functorch transforms in Python; the wrapper has handled them.
    apply: Callable[..., Any] = super(torch.autograd.Function, Compiled).apply
    if parted:
        apply = in_components(apply, info, differentiate, second)
    return _cutting(apply, info.cut) if info.cut else apply


def _cutting(apply: Callable[..., Any], places: Sequence[int]) -> Callable[..., Any]:
    """Return ``apply`` for arguments that get no gradient at ``places``.

    Without the detach, autograd would make their history part of the outputs' history and run it.
    """

    def call(*args: Any) -> Any:
        given = [*args]
        for place in places:
            given[place] = given[place].detach()
        return apply(*given)

    return call


def _forward(case: _Case, compiled: Compiled) -> Callable[..., Any]:
    info, symbols = case.shell.info, case.plan.symbols
    expected = case.plan.forward_results
    source = Source()
    if case.linked is not None:
        source.add("ctx.linked = remember(args)", remember=case.linked.remember)
    boxed = is_boxed(compiled, FORWARD)
    statement = "flat = compiled([*args])" if boxed else "flat = compiled(*args)"
    with without_views(source):
        if info.autocast:
            source.add("with no_autocast():", no_autocast=torch_compat.DisableAutocast)
            statement = f"    {statement}"
        source.add(statement, compiled=compiled)
    source.add(f"if len(flat) != {expected}:")
    source.add(f"    check(flat, {expected}, {FORWARD!r})", check=check_results)
    source.add(f"results = tuple(flat[:{info.output_count}])")
    share = _custom_views(case.shell)
    if share is not None:
        source.add("results = share(args, results)", share=share)
    if case.sequential is None:
        add_saving(source, case.saved)
    else:
        add_holding(source, case.saved)
    if symbols:
        source.add(f"ctx.symbols = flat[{symbols.start}:]")
    keep_sizes = sizes_keeper(info, symbolic=case.plan.symbolic)
    if keep_sizes is not None:
        source.add("ctx.sizes = keep_sizes(results)", keep_sizes=keep_sizes)
    if case.second.keeps:
        source.add("ctx.inputs = keep(args)", keep=case.second.keep)
    source.add("ctx.set_materialize_grads(False)")
    constant = [*case.plan.constant, *(at for part, _ in case.later for at in part)]
    if constant:
        listed = ", ".join(f"results[{position}]" for position in constant)
        source.add(f"ctx.mark_non_differentiable({listed})")
    source.add("return results")
    return source.build("ctx, *args")


def _backward(case: _Case, backwards: Backwards) -> Callable[..., Any]:
    info, saved = case.shell.info, case.saved
    source = Source()
    _add_nothing(source, info, linked=case.linked)
    source.add("twice = grad_enabled()", grad_enabled=torch.is_grad_enabled)
    few = bool(saved) and case.sequential is None and len(info.differentiable) > 1
    arguments = add_unsaving(source, () if case.sequential is not None else saved, may_need_few=few)
    if case.linked is not None:
        source.add("if linked.is_in_pieces(ctx.linked):")
        source.add("    return linked.gradients(ctx.linked, grads)")
        source.add("ctx.linked.release()")
    source.add(f"missing = {_missing(info)}")
    if few:
        source.add("if unreadable is not None:")
        source.add("    whole = twice or are_special(grads) or anomaly()", are_special=are_special)
        source.add("    needed = None if whole else backwards.arguments(missing)")
        source.add(
            "    demand_readable(unreadable, places, needed)",
            anomaly=anomaly.is_on,
            demand_readable=demand_readable,
            places=saved_places(saved),
        )
    _add_twice(source, case.second)
    if case.sequential is not None:
        source.add("takes = backwards.arguments(missing)")
        source.add("arguments = sequential.take(ctx.held, missing, takes)", sequential=case.sequential)
    else:
        source.add(f"arguments = [{', '.join(arguments)}]")
    if arguments:
        source.add("saved = kept = None")
    if case.saving is Saving.HOOKED and saved:
        source.add("arguments = unpacked(arguments)", unpacked=unpacked_checker(case.plan.examples))
    if case.plan.symbols:
        source.add("arguments += ctx.symbols")
    sizes = "ctx.sizes" if sizes_keeper(info, symbolic=case.plan.symbolic) is not None else "None"
    source.add("with no_grad():", no_grad=torch.no_grad)
    call = f"backwards(missing, arguments, grads, {sizes})"
    if case.second.refusal is not None:
        # A backward empties its list of arguments, so each run needs its own list.
        each = f"lambda given: backwards(missing, [*arguments], given, {sizes})"
        call = f"one_by_one({each}, grads) if several else {call}"
    source.add(f"    gradients = {call}", backwards=backwards, one_by_one=one_by_one)
    source.add("return once(gradients, grads) if twice else tuple(gradients)")
    return source.build("ctx, *grads")


def _add_nothing(source: Source, info: GraphInfo, *, linked: EdgeGradients | None) -> None:
    """Return at once if no output has a gradient: autograd also runs nodes behind outputs without one."""
    nothing = " and ".join(f"grads[{position}] is None" for position in info.differentiable)
    if linked is not None:  # linked results can also get gradients through their own nodes
        nothing += " and not linked.is_in_pieces(ctx.linked)"
    source.add(f"if {nothing}:", linked=linked)
    source.add("    return no_gradients", no_gradients=(None,) * len(info.inputs))


def _missing(info: GraphInfo) -> str:
    """Return the expression that says for each differentiable output whether its gradient is missing."""
    if len(info.differentiable) == 1:  # without a gradient, the backward has returned already
        return "(False,)"
    return f"({', '.join(f'grads[{position}] is None' for position in info.differentiable)})"


def _add_twice(source: Source, second: SecondOrder) -> None:
    """Add the start of a backward that autograd records, to be differentiated again."""
    kept = "ctx.inputs" if second.keeps else "nothing_kept"
    source.add("once = None", nothing_kept=NOTHING_KEPT)
    unless = ""
    if second.refusal is not None:
        # The compiled backward can run once for each of several gradients, but is not differentiable.
        source.add("several = are_batched(grads)", are_batched=are_batched)
        unless = " and (twice or not several)"
    source.add(f"if are_special(grads){unless}:", are_special=are_special)
    source.add(f"    return special({kept}, saved, grads)", special=second.special)
    source.add("if twice:")
    if second.refusal is None:
        source.add(f"    return again({kept}, saved, grads)", again=second.gradients)
        source.add("if anomaly():", anomaly=anomaly.is_on)
        source.add(f"    checked = by_operators({kept}, saved, grads)", by_operators=second.checked)
        source.add("    if checked is not None:")
        source.add("        return checked")
    else:
        source.add(f"    once = refuse({kept}, saved)", refuse=second.refuse)


def _custom_views(shell: Shell) -> Share | None:
    """Return a function that replaces outputs by real views if a custom function returned a view."""
    views = shell.info.custom_views
    if not views:
        return None
    makers = [
        (position, alias, alias_maker(shell.captured, alias), bool(alias.sizes)) for position, alias in views
    ]

    def share(args: Sequence[Any], results: tuple[Any, ...]) -> tuple[Any, ...]:
        made = list(results)
        for position, alias, make, symbolic in makers:
            base = (args if alias.source is AliasSource.INPUT else made)[alias.index]
            made[position] = make(base, args) if symbolic else make(base)
        return tuple(made)

    return share
