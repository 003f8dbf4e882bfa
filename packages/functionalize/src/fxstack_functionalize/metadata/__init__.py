"""Frozen records of what a captured graph does to its inputs and what its outputs are.

``records`` describes inputs and outputs; ``replay`` makes a tensor that aliases another tensor again. All
other folders of the package read these records. This folder imports none of them.
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
