"""The wrapper around a compiled forward and backward, and further functions for saved-tensor hooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import RLock
from typing import Any

import torch

from fxstack_functionalize.hooks.identity import NotTraceableError
from fxstack_functionalize.hooks.pack_unpack import HookPair
from fxstack_functionalize.hooks.passes import HOOKS, HookedStep, text
from fxstack_functionalize.options import AotOptions, SavedTensorHooks
from fxstack_functionalize.runtime.backward.backwards import Backwards, Variant
from fxstack_functionalize.runtime.backward.output_edges import plan_output_edges
from fxstack_functionalize.runtime.backward.saved import Saving
from fxstack_functionalize.runtime.calling import FORWARD, Compiled
from fxstack_functionalize.runtime.forward.hooked import HookedCalls, top_hooks
from fxstack_functionalize.runtime.function import make_function
from fxstack_functionalize.runtime.generated_source import Source
from fxstack_functionalize.runtime.plan import TrainingPlan, plan_training
from fxstack_functionalize.runtime.wrapper import generate_wrapper
from fxstack_functionalize.trace import Shell, Traced
from fxstack_interchange import Partition, StageGraph
from fxstack_interchange.passes import run_passes

Apply = Callable[..., Sequence[Any]]


# Limits: autograd.grad(loss, x, allow_unused=True), where loss does not depend on the argument x but another
# result does, runs the backward of the graph and frees what it has saved. Eager runs nothing.
# autograd.grad(loss, x) of an argument x that is no leaf, and that the graph changed before it computed loss,
# finds no path from loss to x.


@dataclass(frozen=True, slots=True)
class Stages:
    """The partitioner and compilers of a joint graph. ``early``: whether to compile the backward now."""

    partition: Callable[[StageGraph], Partition]
    forward: Callable[[Partition], Compiled]
    backward: Callable[[StageGraph], Compiled]
    early: Callable[[StageGraph], bool]
    decompositions: Mapping[Any, Callable[..., Any]]

    def compile_now_or_later(self, backward: StageGraph) -> Callable[[], Compiled]:
        """Return a function that returns the compiled ``backward``. Compile now if ``early`` says so."""
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
        source.add("hooks = top_hooks(False)", top_hooks=top_hooks)
        source.add(
            "flat = plain(*args) if hooks is None else hooked(hooks, args)", plain=plain, hooked=hooked
        )

    call = generate_wrapper(program.shell, options, FORWARD, compute, training.edges)
    return call if program.shell.info.grad_mode else torch.enable_grad()(call)
