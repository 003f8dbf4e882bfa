"""Side effects on objects of the program, as frozen records.

``records`` defines the records. ``diff`` compares the proxies of a trace with the original objects; the
difference is the side effect. ``emit.effects`` replays the records. The folder imports ``objects``. Begin
with ``records``.
"""

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
