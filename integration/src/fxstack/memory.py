"""Describe the memory use of the default backend, for the simulation of the partition package.

``simulate(part, PartitionOptions(runtime=compiled_memory, scratch=Measured().scratch))`` predicts the peak of
a compiled step.
"""

from __future__ import annotations

from fxstack_inductor import InductorOptions, Lowered, lower, memory_timeline
from fxstack_interchange import Stage, StageGraph
from fxstack_partition import PartitionOptions, StageMemory


def compiled_memory(stage: StageGraph, options: PartitionOptions) -> StageMemory:
    """Return the memory of a stage compiled for CPU, with symbols at their hints.

    Raises:
        NotLowered: if the stage has an operator that the backend runs in eager.
    """
    boxed = stage.signature.stage is Stage.BACKWARD
    lowered = lower(stage.graph_module, (), InductorOptions(keep_memory=False), boxed=boxed)
    if not isinstance(lowered, Lowered):
        msg = "memory is described for CPU only"
        raise TypeError(msg)
    unknown = options.unbacked_hint
    symbols = {s.name: unknown if s.hint is None else s.hint for s in stage.signature.symbols}
    timeline = memory_timeline(lowered.plan, symbols)
    # The caller keeps a forward's inputs alive. A backward gets its inputs in a list, and empties the list.
    released = timeline.released if stage.signature.stage is Stage.BACKWARD else {}
    return StageMemory(timeline.steps, retained=timeline.arena, released=released)
