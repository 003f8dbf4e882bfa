"""Describe the runtime that executes a partition, for the simulation.

Without a description, operators run one by one, and each allocates its results. A backend that fuses
operators writes less, keeps memory blocks between steps and holds a backward's arguments. It describes itself
by a function from a stage to ``StageMemory``, which a caller passes as ``PartitionOptions.runtime``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class StageMemory:
    """The memory of one stage, beyond its inputs.

    ``moments``: the steps in order, each as the name of an FX node that the step computes, and the bytes that
    the stage has allocated and that are alive during the step. ``retained``: bytes kept between steps; a
    step's stages share them, so the largest value counts. ``released``: by name of an input, the number of
    steps after which the stage releases it, if nobody else holds it; other arguments live until the stage
    returns.
    """

    moments: tuple[tuple[str, int], ...]
    retained: int = 0
    released: Mapping[str, int] = field(default_factory=dict)
