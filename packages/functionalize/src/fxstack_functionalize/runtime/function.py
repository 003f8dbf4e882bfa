"""The ``autograd.Function`` around a compiled forward and backward, with generated methods."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from fxstack_functionalize import torch_compat
from fxstack_functionalize.errors import batched_backward
from fxstack_functionalize.metadata.records import GraphInfo
from fxstack_functionalize.metadata.replay import AliasSource
from fxstack_functionalize.runtime.backward.backwards import Backwards
from fxstack_functionalize.runtime.backward.edge_gradients import (
    EdgeCall,
    EdgeGradients,
    is_watched,
    watch_hooks,
)
from fxstack_functionalize.runtime.backward.nodes import make_traceable, without_history
from fxstack_functionalize.runtime.backward.output_edges import OutputEdges
from fxstack_functionalize.runtime.backward.partial_inputs import find_groups, split_off, with_partial_inputs
from fxstack_functionalize.runtime.backward.replay import (
    NOTHING_KEPT,
    Replay,
    are_batched,
    are_unsupported,
    has_changed,
    run_one_by_one,
)
from fxstack_functionalize.runtime.backward.saved import (
    KEEPS_GRAPH,
    Holding,
    KeptTensor,
    Saving,
    add_holding,
    add_reading,
    add_saving,
    positions_of_saved_inputs,
)
from fxstack_functionalize.runtime.calling import FORWARD, Compiled, check_results, is_boxed
from fxstack_functionalize.runtime.forward.hooked import unpacked_checker
from fxstack_functionalize.runtime.forward.outputs import alias_maker
from fxstack_functionalize.runtime.generated_source import Source, without_views
from fxstack_functionalize.runtime.plan import TrainingPlan
from fxstack_functionalize.trace import Shell

Share = Callable[[Sequence[Any], tuple[Any, ...]], tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class _Case:
    """The input of the two generators of methods."""

    shell: Shell
    plan: TrainingPlan
    saving: Saving
    saved: list[KeptTensor]
    replay: Replay
    edge_gradients: EdgeGradients | None
    holding: Holding | None
    """Keeps the saved tensors; None if autograd does."""
    has_partial_inputs: bool
    """Whether there are further nodes, which keep the inputs for another run (``partial_inputs``)."""

    @property
    def kept(self) -> str:
        """The expression of the inputs that the call keeps for another run of the graph."""
        if self.edge_gradients is not None:
            return "ctx.edge_call.kept"
        if not self.replay.keeps:
            return "nothing_kept"
        return "ctx.inputs" if self.holding is None else "ctx.held.inputs"


def make_function(
    shell: Shell,
    plan: TrainingPlan,
    compiled: tuple[Compiled, Backwards],
    saving: Saving,
    edges: OutputEdges | None,
) -> Callable[..., Any]:
    """Return a function from the call's arguments to the flat outputs of the compiled forward.

    Its gradient is the compiled backward. ``edges``: autograd edges from one output to another output from which it was computed.
    """
    forward, backwards = compiled
    saved = [tensor.kept(saving) for tensor in plan.saved]
    info = shell.info
    # Hooks that run in eager need autograd to keep the saved tensors.
    holds = len(info.differentiable) > 1 and saving is not Saving.HOOKED
    holding = Holding(info, plan.needs) if holds else None
    parts = find_groups(info) if holds and not info.custom_views else ([], [])
    by_autograd = saved if saving is Saving.PLAIN and not holds and edges is None else []
    refusal = plan.refusals.whole if saving is Saving.PLAIN else "saved-tensor hooks are on"
    positions_of_inputs = positions_of_saved_inputs(by_autograd, len(info.inputs))
    replay = Replay(shell, refusal, positions_of_inputs, pieces=edges is not None)
    edge_gradients = None if edges is None else EdgeGradients(shell, plan.refusals, edges, replay)
    case = _Case(shell, plan, saving, saved, replay, edge_gradients, holding, bool(parts[0]))

    class CompiledFunction(torch.autograd.Function):
        pass

    CompiledFunction.forward = staticmethod(_forward(case, forward))
    differentiate = _backward(case, backwards)
    CompiledFunction.backward = staticmethod(
        split_off(differentiate, parts[0]) if parts[0] else differentiate
    )
    make_traceable(CompiledFunction, backwards, info.differentiable, None if holds else saved, is_watched)
    if edge_gradients is not None or len(info.differentiable) > 1:
        watch_hooks(CompiledFunction)
    # ``Function.apply`` first handles functorch transforms in Python; the wrapper has handled them.
    apply: Callable[..., Any] = super(torch.autograd.Function, CompiledFunction).apply
    if parts[0]:
        apply = with_partial_inputs(CompiledFunction, info, parts, differentiate, replay)
    if not info.cut:
        return apply
    # Arguments without gradient are detached: autograd would make their history part of the outputs' history.
    return lambda *args: apply(*without_history(args, info.cut, is_end=not info.wanted))


def _forward(case: _Case, compiled: Compiled) -> Callable[..., Any]:
    """Generate ``forward``: call the compiled graph and keep what its backward needs."""
    info, symbols = case.shell.info, case.plan.symbols
    expected = case.plan.forward_results
    source = Source()
    if case.edge_gradients is not None:
        source.add("ctx.edge_call = remember(args)", remember=partial(EdgeCall, case.edge_gradients))
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
    (add_saving if case.holding is None else add_holding)(source, case.saved)
    if case.edge_gradients is not None and case.holding is not None:
        source.add("ctx.edge_call.held = ctx.held")
    if symbols:
        source.add(f"ctx.symbols = flat[{symbols.start}:]")
    if case.plan.symbolic:
        sizes = ", ".join(f"{position}: results[{position}].shape" for position in info.differentiable)
        source.add(f"ctx.sizes = {{{sizes}}}")
    if case.replay.keeps and case.edge_gradients is None and not case.has_partial_inputs:
        source.add(f"{case.kept} = keep(args)", keep=case.replay.keep)
    source.add("ctx.set_materialize_grads(False)")
    if case.plan.constant:
        listed = ", ".join(f"results[{position}]" for position in case.plan.constant)
        source.add(f"ctx.mark_non_differentiable({listed})")
    source.add("return results")
    return source.build("ctx, *args")


def _backward(case: _Case, backwards: Backwards) -> Callable[..., Any]:
    """Generate ``backward``, which returns the gradients of all inputs, by the compiled backward where this
    is possible.
    """
    info, saved = case.shell.info, case.saved
    source = Source()
    _add_nothing(source, info, edge_gradients=case.edge_gradients)
    arguments = add_reading(source, () if case.holding is not None else saved)
    source.add(f"inputs = {case.kept}", nothing_kept=NOTHING_KEPT)
    if arguments and case.kept == "ctx.inputs":
        source.add("if not keeps_graph():", keeps_graph=KEEPS_GRAPH)
        source.add("    ctx.inputs = None")
    source.add(f"missing = {_missing(info)}")
    if case.edge_gradients is not None:
        source.add("if ctx.edge_call.is_in_pieces:")
        if case.holding is not None:
            source.add("    holding.take(ctx.held, missing, ())")
        source.add("    return edge_gradients.gradients(ctx.edge_call, grads)")
    if case.holding is not None:
        source.add("takes = backwards.arguments(missing)")
        source.add("arguments = holding.take(ctx.held, missing, takes)", holding=case.holding)
    else:
        source.add(f"arguments = [{', '.join(arguments)}]")
    if case.edge_gradients is not None:
        source.add("ctx.edge_call.release()")
    _add_fallback(source, case)
    if arguments:
        source.add("saved = kept = inputs = None")
    if case.saving is Saving.HOOKED and saved:
        source.add("arguments = unpacked(arguments)", unpacked=unpacked_checker(case.plan.examples))
    if case.plan.symbols:
        source.add("arguments += ctx.symbols")
    sizes = "ctx.sizes" if case.plan.symbolic else "None"
    source.add("with no_grad():", no_grad=torch.no_grad)
    call = f"backwards(missing, arguments, grads, {sizes})"
    if case.replay.refusal is not None:
        # A backward empties its list of arguments, so each run needs its own list.
        run_one = f"lambda given: backwards(missing, [*arguments], given, {sizes})"
        call = f"one_by_one({run_one}, grads) if several else {call}"
    source.add(f"    gradients = {call}", backwards=backwards, one_by_one=run_one_by_one)
    if case.replay.refusal is not None:
        source.add("if twice:")
        source.add("    return refused(gradients, grads)", partial=partial)
    source.add("return tuple(gradients)")
    return source.build("ctx, *grads")


def _add_nothing(source: Source, info: GraphInfo, *, edge_gradients: EdgeGradients | None) -> None:
    """Add a return without gradients if no output has one. Autograd runs nodes even behind such outputs."""
    nothing = " and ".join(f"grads[{position}] is None" for position in info.differentiable)
    if edge_gradients is not None:  # results with edges also get gradients through their own nodes
        nothing += " and not ctx.edge_call.is_in_pieces"
    source.add(f"if {nothing}:", edge_gradients=edge_gradients)
    source.add("    return no_gradients", no_gradients=(None,) * len(info.inputs))


def _missing(info: GraphInfo) -> str:
    """Return the expression that says for each differentiable output whether its gradient is missing."""
    if len(info.differentiable) == 1:  # without a gradient, the backward has returned already
        return "(False,)"
    return f"({', '.join(f'grads[{position}] is None' for position in info.differentiable)})"


def _add_fallback(source: Source, case: _Case) -> None:
    """Add the statements for gradients that the compiled backward cannot compute: the captured graph runs again."""
    replay = case.replay
    source.add("twice = grad_enabled()", grad_enabled=torch.is_grad_enabled)
    source.add("special = are_special(grads)", are_special=are_unsupported)
    states = case.replay.states
    if states:  # true if the program has changed state that its own backward reads
        source.add("special = special or any([state.has_changed() for state in states])", states=states)
    if replay.refusal is None:
        condition = "twice or special or (anomaly() and not has_changed(inputs))"
        source.add(f"if {condition}:", anomaly=torch.is_anomaly_enabled, has_changed=has_changed)
        source.add("    return again(inputs, saved, grads)", again=replay.gradients)
        return
    # The compiled backward can run once for each of several gradients, but is not differentiable.
    if states:
        source.add("if special and not are_special(grads):")
        source.add("    raise_changed()", raise_changed=replay.raise_changed)
    source.add("several = special and are_batched(grads)", are_batched=are_batched)
    source.add("if special and (twice or not several):")
    source.add("    raise RuntimeError(refusal)", refusal=batched_backward(replay.refusal))
    source.add("refused = partial(refuse, inputs, saved) if twice else None", refuse=replay.refuse)


def _custom_views(shell: Shell) -> Share | None:
    """Return a function that replaces outputs by real views if a custom function returned a view."""
    views = shell.info.custom_views
    if not views:
        return None
    makers = [
        (position, alias, alias_maker(shell.captured, alias), bool(alias.sizes)) for position, alias in views
    ]

    def share(args: Sequence[Any], results: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return ``results`` with real views of arguments or of other results at the recorded positions."""
        replaced = list(results)
        for position, alias, make, symbolic in makers:
            base = (args if alias.source is AliasSource.INPUT else replaced)[alias.index]
            replaced[position] = make(base, args) if symbolic else make(base)
        return tuple(replaced)

    return share
