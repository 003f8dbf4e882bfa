"""Frozen records of what a captured graph does to its inputs and what its outputs are."""

from fxstack_functionalize.metadata.records import (
    GraphInfo,
    InputInfo,
    OutputInfo,
    OutputSource,
)
from fxstack_functionalize.metadata.replay import ViewReplay, record_replay

__all__ = [
    "GraphInfo",
    "InputInfo",
    "OutputInfo",
    "OutputSource",
    "ViewReplay",
    "record_replay",
]
