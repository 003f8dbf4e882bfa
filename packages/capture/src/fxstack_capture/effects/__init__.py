"""Side effects on pre-existing objects: what a trace changed, as frozen records to be replayed."""

from fxstack_capture.effects.diff import diff
from fxstack_capture.effects.records import (
    Advance,
    Call,
    CellClear,
    CellSet,
    ClassDelete,
    ClassSet,
    DequeReplace,
    DictDelete,
    DictSet,
    Effect,
    Effects,
    ListExtend,
    ListReplace,
    SetChange,
    SlotDelete,
    SlotSet,
)

__all__ = [
    "Advance",
    "Call",
    "CellClear",
    "CellSet",
    "ClassDelete",
    "ClassSet",
    "DequeReplace",
    "DictDelete",
    "DictSet",
    "Effect",
    "Effects",
    "ListExtend",
    "ListReplace",
    "SetChange",
    "SlotDelete",
    "SlotSet",
    "diff",
]
