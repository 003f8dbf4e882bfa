"""Generate the callables for users: Python source with only the statements that the graph needs.

A graph without mutations, aliases and lifted tensors gets a function of three lines. Each feature adds its
own lines. A call tests nothing that is known when the graph is compiled. ``inference_wrapper`` calls a
compiled inference graph. ``training_wrapper`` calls a compiled forward with its backward, and compiles further
ones for saved-tensor hooks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from threading import RLock
from typing import Any

import torch
from torch.autograd import forward_ad

from fxstack_functionalize import torch_compat
from fxstack_functionalize.hooks.identity import NotTraceableError
from fxstack_functionalize.hooks.pack_unpack import HookPair
from fxstack_functionalize.hooks.passes import HOOKS, HookedStep, text
from fxstack_functionalize.options import AotOptions, SavedTensorHooks
from fxstack_functionalize.runtime.backward.backwards import Backwards, Variant
from fxstack_functionalize.runtime.backward.output_edges import OutputEdges, plan_output_edges
from fxstack_functionalize.runtime.backward.replay import as_interpreter
from fxstack_functionalize.runtime.backward.saved import Saving
from fxstack_functionalize.runtime.calling import FORWARD, Compiled, as_boxed, is_boxed, without_autocast
from fxstack_functionalize.runtime.forward.hooked import HookedCalls, top_hooks
from fxstack_functionalize.runtime.forward.mutation import (
    early_rises,
    new_leaves,
    raise_version,
    relayout_inputs,
    write_back,
)
from fxstack_functionalize.runtime.forward.outputs import FirstCall, output_lines
from fxstack_functionalize.runtime.forward.sharing import base_maker, sharing_guard
from fxstack_functionalize.runtime.function import make_function
from fxstack_functionalize.runtime.generated_source import Source, without_grad, without_views
from fxstack_functionalize.runtime.plan import TrainingPlan, plan_training
from fxstack_functionalize.trace import Shell, Traced
from fxstack_interchange import Partition, StageGraph
from fxstack_interchange.passes import run_passes


def generate_wrapper(
    shell: Shell,
    options: AotOptions,
    role: str,
    compute: Callable[[Source], None],
    edges: OutputEdges | None = None,
) -> Callable[..., Any]:
    """Generate the callable. ``compute`` adds the statement that computes ``flat`` from ``args``."""
    source = Source()
    _add_arguments(source, shell, trains=role == FORWARD)
    undone = _add_changes_before(source, shell)
    with _on_error(source, shell, options, undone):
        compute(source)
    first = FirstCall(shell, role, check_strides=options.check_output_strides)
    source.add("if pending:", pending=first.pending)
    source.add("    flat = first(args, flat)", first=first)
    write = write_back(shell)
    if write is not None:
        source.add("write(args, flat)", write=write)
    *aliases, result = output_lines(shell, source.names, edges)
    for line in aliases:
        source.add(line)
    relayout = relayout_inputs(shell)
    if relayout is not None:
        source.add("relayout(args)", relayout=relayout)
    source.add(result)
    return source.build()


@contextmanager
def _on_error(source: Source, shell: Shell, options: AotOptions, undone: Sequence[str]) -> Iterator[None]:
    """Pass exceptions to ``options.on_error``, after the statements ``undone``.

    The handler runs outside of the ``except`` block, so that its own errors have no ``__context__``.
    """
    if options.on_error is None:
        yield
        return
    source.add("failure = None")
    with source.trying():
        yield
    source.add("except Exception as error:")
    source.add("    failure = error")
    source.add("if failure is not None:")
    for line in undone:
        source.add(f"    {line}")
    arguments = f"args[:{shell.captured.placeholder_count}]"
    source.add(f"    return on_error(failure, eager.forward, {arguments})", on_error=options.on_error)


def _add_changes_before(source: Source, shell: Shell) -> list[str]:
    """Add the changes of inputs before the compiled graph runs. Return the statements that undo them."""
    leaves, rises = new_leaves(shell), early_rises(shell)
    for index in leaves:
        source.add(f"args[{index}].requires_grad_()")
    for index, rise in rises.items():
        source.add(f"raise_version(args[{index}], {rise})", raise_version=raise_version)
    undone = [f"args[{index}].requires_grad_(False)" for index in leaves]
    return undone + [f"raise_version(args[{index}], {-rise})" for index, rise in rises.items()]


def _add_arguments(source: Source, shell: Shell, *, trains: bool) -> None:
    """Add statements that complete ``args``. Calls that a compiled graph cannot serve run in eager."""
    captured = shell.captured
    bases, guard = base_maker(shell), sharing_guard(shell)
    source.add(
        # Function transforms and forward-mode AD need eager's operators.
        "if transforms_active() or forward_ad._current_level >= 0:",
        transforms_active=torch_compat.are_functorch_transforms_active,
        forward_ad=forward_ad,
    )
    source.add("    return eager(*args)", eager=captured.graph_module)
    # The errors of anomaly mode show the line of the forward operator, which only an eager run records.
    if trains:
        source.add("if anomaly():", anomaly=torch.is_anomaly_enabled)
        source.add("    return checked(*args)", checked=as_interpreter(captured.graph_module))
    if captured.lifted:
        source.add("args = (*args, *lifted)", lifted=captured.lifted)
    sizes = [spec.size_of for spec in captured.inputs if spec.size_of is not None]
    if sizes:
        items = "".join(f"args[{index}].size({dim}), " for index, dim in sizes)
        source.add(f"args = (*args, {items})")
    if guard is not None:
        source.add("if not same_sharing(args):", same_sharing=guard)
        source.add(f"    return eager(*args[:{shell.captured.placeholder_count}])")
    if bases is not None:
        source.add("args = (*args, *bases(args))", bases=bases)


ROLE = "inference graph"


def inference_wrapper(shell: Shell, compiled: Compiled, options: AotOptions) -> Callable[..., Any]:
    """Return the callable with the captured graph's own signature."""
    info = shell.info
    boxed = is_boxed(compiled, ROLE) or info.autocast
    target = without_autocast(as_boxed(compiled, ROLE)) if info.autocast else compiled
    enables_grad = not info.grad_mode and _enables_grad(shell)
    guarded = (info.grad_mode or enables_grad) and bool(info.grad_inputs)

    def compute(source: Source) -> None:
        """Add the statement that calls the compiled graph, without gradients and views if necessary."""
        statement = "flat = compiled([*args])" if boxed else "flat = compiled(*args)"
        with without_grad(source) if guarded else nullcontext(), without_views(source):
            source.add(statement, compiled=target)

    call = generate_wrapper(shell, options, ROLE, compute)
    return torch.enable_grad()(call) if enables_grad else call


def _enables_grad(shell: Shell) -> bool:
    """Whether the graph turns grad mode on, so that later views of arguments have histories."""
    views = any(output.requires_grad for output in shell.info.outputs)
    return views and any(
        node.target is torch_compat.set_grad_enabled and node.args == (True,)
        for node in shell.captured.graph_module.graph.nodes
    )


Apply = Callable[..., Sequence[Any]]


# Limits: if another result depends on the argument x but loss does not, autograd.grad(loss, x,
# allow_unused=True) runs the backward of the graph and frees its saved tensors. Eager runs nothing. If the
# argument x is no leaf and the graph changes x before it computes loss, autograd.grad(loss, x) finds no path
# from loss to x.


@dataclass(frozen=True, slots=True)
class Stages:
    """The partitioner and compilers of a joint graph. ``early``: whether to compile the backward now."""

    partition: Callable[[StageGraph], Partition]
    forward: Callable[[Partition], Compiled]
    backward: Callable[[StageGraph], Compiled]
    early: Callable[[StageGraph], bool]
    decompositions: Mapping[Any, Callable[..., Any]]

    def compile_now_or_later(self, backward: StageGraph) -> Callable[[], Compiled]:
        """Return a function that returns the compiled ``backward``. Compile now if ``early`` returns true for it."""
        if not self.early(backward):
            return lambda: self.backward(backward)
        compiled = self.backward(backward)
        return lambda: compiled


@dataclass(frozen=True, slots=True)
class Pair:
    """A compiled forward and backward, with the plan that joins them."""

    plan: TrainingPlan
    forward: Compiled
    backwards: Backwards


@dataclass(frozen=True, slots=True)
class Program:
    """The parts of a training wrapper. ``traced`` returns the joint graph, traced again if need be."""

    shell: Shell
    traced: Callable[[], Traced]
    pair: Callable[[], Pair]
    """Returns the compiled graphs without hooks."""
    stages: Stages


def compile_pair(
    traced: Traced,
    partition: Partition,
    stages: Stages,
    keep: Callable[[Pair, Variant | None, Compiled | None], None] = lambda *_: None,
) -> Pair:
    """Compile both graphs. Call ``keep`` for the forward, and for each backward once it is compiled."""
    plan = plan_training(traced, partition)
    forward = stages.forward(partition)

    def tell(variant: Variant, backward: Compiled) -> None:
        keep(pair, variant, backward)

    backward = partition.backward
    backwards = Backwards(traced.shell, plan, lambda: backward, stages.backward, tell)
    pair = Pair(plan, forward, backwards)
    if not stages.early(backward):
        keep(pair, None, None)
        return pair
    variant, compiled = Variant((), None), stages.backward(backward)
    backwards.add(variant, lambda: compiled)
    keep(pair, variant, compiled)
    return pair


class _Training:
    """The functions for one joint graph: without hooks, with eager hooks, and with each inlined pair."""

    def __init__(self, program: Program, options: AotOptions) -> None:
        self.program = program
        self.stages = program.stages
        self.options = options
        self._lock = RLock()
        self._pair: Pair | None = None
        self._apply: dict[Saving, Apply] = {}
        self.edges = plan_output_edges(program.shell)
        self._mode = program.shell.captured.fake_mode
        self.guards_are_made = False
        """Whether the caller has taken the guards on symbolic sizes: then no guard may be added."""

    def lazily(self, saving: Saving) -> Apply:
        """Return ``function(saving)``, made at the first call."""

        def run(*args: object) -> Sequence[Any]:
            return self.function(saving)(*args)

        return run

    def function(self, saving: Saving) -> Apply:
        """Return the function without inlined hooks. Its graphs are compiled once."""
        if saving not in self._apply:
            with self._lock:
                if self._pair is None:
                    self._pair = self.program.pair()
                self._apply[saving] = self._function(self._pair, saving)
        return self._apply[saving]

    def _function(self, pair: Pair, saving: Saving) -> Apply:
        compiled = (pair.forward, pair.backwards)
        return make_function(self.program.shell, pair.plan, compiled, saving, self.edges)

    def inlined(self, hooks: tuple[Any, Any]) -> Apply:
        """Compile the graphs with a pair of ``hooks`` inlined.

        Raises:
            NotTraceableError: if a hook cannot be traced, or needs a guard on a symbolic size after the
                guards were taken.
        """
        guard_count = self._guard_count()
        pair = HookPair(*hooks, self._mode, self.stages.decompositions)
        traced = self.program.traced()
        early = self.options.saved_tensor_hooks is SavedTensorHooks.INLINE_BEFORE_PARTITION
        state = HookedStep(traced.stage_graph, traced.backward_nodes, pair, early, self.stages.partition)
        partition = run_passes("hooks", HOOKS, state, text).partition
        apply = self._function(compile_pair(traced, partition, self.stages), Saving.PACKED)
        if self.guards_are_made and self._guard_count() != guard_count:
            raise NotTraceableError("it decides by a size that the compiled graph keeps symbolic")
        return apply

    def _guard_count(self) -> int:
        """Return the number of guards on symbolic sizes so far. A rise shows that compiling needed a guard."""
        shapes = self._mode.shape_env
        return 0 if shapes is None else len(shapes.guards)


def training_wrapper(program: Program, options: AotOptions) -> Callable[..., Any]:
    """Return the callable with the captured graph's own signature.

    The graphs for the present saved-tensor hooks (usually none) are compiled now, others at their first use.
    """
    training = _Training(program, options)
    hooked = HookedCalls(options.saved_tensor_hooks, training.inlined, training.lazily(Saving.HOOKED))
    hooks = top_hooks(False)
    plain = training.lazily(Saving.PLAIN)
    if hooks is None or hooked.find(hooks) is None:
        plain = training.function(Saving.PLAIN)
    training.guards_are_made = True

    def compute(source: Source) -> None:
        """Add the statements that call the graph: with saved-tensor hooks if the program has installed some."""
        source.add("hooks = top_hooks(False)", top_hooks=top_hooks)
        source.add(
            "flat = plain(*args) if hooks is None else hooked(hooks, args)", plain=plain, hooked=hooked
        )

    call = generate_wrapper(program.shell, options, FORWARD, compute, training.edges)
    return call if program.shell.info.grad_mode else torch.enable_grad()(call)
