"""Frozen records of the inputs and outputs of a captured graph: mutations, aliases, sources of outputs.

The folder imports ``torch_compat`` alone, so every other folder may import it. Begin with
``records.GraphInfo``; ``replay`` records how the caller makes a view of its own tensor.
"""

from fxstack_functionalize.metadata.records import GraphInfo, InputInfo, OutputInfo, OutputSource, Relayout
from fxstack_functionalize.metadata.replay import (
    AliasInfo,
    AliasSource,
    Detachment,
    Step,
    can_replay,
    is_detach,
    symbols_in,
    view_steps,
)

__all__ = [
    "AliasInfo",
    "AliasSource",
    "Detachment",
    "GraphInfo",
    "InputInfo",
    "OutputInfo",
    "OutputSource",
    "Relayout",
    "Step",
    "can_replay",
    "is_detach",
    "symbols_in",
    "view_steps",
]
