"""Make the callable of a program on disk: its wrapper from records, its compiled graphs from files.

The callable needs the traced graphs only in rare cases: hooks to be inlined, an index out of range (the call
then runs in eager), a report, a missing file. ``RecreatedGraphs`` then traces them again, in the state of
torch of the first trace.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

from fxstack_functionalize.disk.cache_entry import CacheEntry
from fxstack_functionalize.disk.program import Stored
from fxstack_functionalize.errors import CompilerContractError
from fxstack_functionalize.options import AotOptions
from fxstack_functionalize.runtime.backward.backwards import Backwards, Variant
from fxstack_functionalize.runtime.calling import Compiled
from fxstack_functionalize.runtime.plan import TrainingPlan, plan_training
from fxstack_functionalize.runtime.wrapper import Pair, Program, Stages, inference_wrapper, training_wrapper
from fxstack_functionalize.torch_state import capture_torch_state
from fxstack_functionalize.trace import Traced
from fxstack_interchange import Partition, StageGraph

Run = Callable[[Callable[[], Any]], Any]


class RecreatedGraphs:
    """The graphs of a stored program, traced and partitioned again on demand."""

    def __init__(self, trace: Callable[[], Traced], stages: Stages, run: Run) -> None:
        self._trace = trace
        self._run = run
        self.stages = stages

    @cached_property
    def traced(self) -> Traced:
        """The graph, traced at the first access."""
        traced: Traced = self._run(self._trace)
        return traced

    @cached_property
    def partition(self) -> Partition:
        """The partition of the traced joint graph, computed at the first access."""
        joint = self.traced.stage_graph
        partition: Partition = self._run(lambda: self.stages.partition(joint))
        return partition

    def checked_partition(self, plan: TrainingPlan) -> Partition:
        """Return the partition, which must be that of ``plan``.

        Raises:
            CompilerContractError: if the partitioner returned another partition this time.
        """
        if plan_training(self.traced, self.partition) != plan:
            raise CompilerContractError(
                "a stored program does not fit the graph that it was compiled from.\n"
                "  why: the partitioner cut the same joint graph in another place than before.\n"
                "  fix: make it deterministic, or do not pass a store"
            )
        return self.partition


def from_disk(
    stored: Stored, entry: CacheEntry, recreated: RecreatedGraphs, options: AotOptions
) -> Callable[..., Any] | None:
    """Return the callable; None if a compiled graph cannot be loaded."""
    shell, plan, variant = stored.shell, stored.plan, stored.variant
    if plan is None:
        compiled = entry.load(stored.forward, lambda: recreated.traced.stage_graph.graph_module)
        return None if compiled is None else inference_wrapper(shell, compiled, options)
    forward = entry.load(stored.forward, lambda: recreated.partition.forward.graph_module)
    if forward is None:
        return None

    def made(made_variant: Variant, backward: Compiled) -> None:
        if variant is None:
            entry.keep_training(shell, pair, made_variant, backward)

    def graph() -> StageGraph:
        return recreated.checked_partition(plan).backward

    backwards = Backwards(shell, plan, graph, recreated.stages.backward, made)
    pair = Pair(plan, forward, backwards)
    if variant is not None and not _add_backward(backwards, variant, stored, entry, recreated):
        return None
    program = Program(shell, lambda: recreated.traced, lambda: pair, recreated.stages)
    entry.used(lambda: recreated.partition)
    return training_wrapper(program, options)


def _add_backward(
    backwards: Backwards, variant: Variant, stored: Stored, entry: CacheEntry, recreated: RecreatedGraphs
) -> bool:
    """Add the stored backward. Load it now if it has symbolic sizes, else when it is first used."""
    stage = backwards.stage(variant)

    def load() -> Compiled | None:
        return entry.load(stored.backward, lambda: stage().graph_module)

    if not stored.symbolic:
        backwards.add(variant, lambda: load() or recreated.stages.backward(stage()))
        return True
    # If loading fails later, compiling could assume facts about sizes that nobody guards any more.
    backward = load()
    if backward is None:
        return False
    backwards.add(variant, lambda: backward)
    return True


def make_runner() -> Run:
    """Return ``run(function)``, which calls ``function`` under the grad mode and autocast of this moment.

    ``run`` uses a thread of its own, because tracing must not see that a compiled graph or a backward is
    running.
    """
    in_state = capture_torch_state()

    def run(function: Callable[[], Any]) -> Any:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(in_state, function).result()

    return run
