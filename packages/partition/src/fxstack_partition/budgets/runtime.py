"""What the simulation may be told of the runtime that executes a partition.

Without a description, operators run one by one, and each allocates its results. A backend that fuses writes less, keeps blocks of
memory between steps and holds a backward's arguments: it describes itself by a function from a stage to
``StageMemory``, which a caller passes as ``PartitionOptions.runtime``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class StageMemory:
    """The memory of one stage, beyond its inputs.

    ``moments`` are the steps in order: the name of an FX node that the step computes, and the bytes that the stage has
    allocated so far and that are alive while the step runs. ``retained`` bytes are kept between steps; a step's stages share
    them, so the largest counts. ``released`` says of inputs, by name, after how many of the steps the stage lets go of
    them, where nobody else holds them; other arguments live until it returns.
    """

    moments: tuple[tuple[str, int], ...]
    retained: int = 0
    released: Mapping[str, int] = field(default_factory=dict)
