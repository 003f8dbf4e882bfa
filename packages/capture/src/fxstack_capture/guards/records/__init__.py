"""Guard records: the conditions under which a compiled entry may be used for another call.

The trace writes the records. ``guards.tree`` compiles the records of a trace into one native tree. Each class
of records is one kind of guard. The class describes everything about the kind; only the check itself is a C
function (see ``check.Check``). Records are data: no method runs the check.
"""

from fxstack_capture.guards.records.check import Check, Guard, GuardSet, Relation
from fxstack_capture.guards.records.classes import NOT_FOUND, ClassUnchanged, SubclassIs
from fxstack_capture.guards.records.containers import HasKey, KeysAre, LengthIs, MembersAre
from fxstack_capture.guards.records.relations import (
    AllDistinct,
    NoOverlap,
    SameObject,
    ShapeHolds,
    SharesStorage,
)
from fxstack_capture.guards.records.tensors import MarksWithin, TensorIs, TorchStateIs, tensor_facts
from fxstack_capture.guards.records.values import (
    CellEmpty,
    Equals,
    IdentityIs,
    RangeIs,
    SlotUnset,
    TypeIs,
    WordIs,
)

__all__ = [
    "NOT_FOUND",
    "AllDistinct",
    "CellEmpty",
    "Check",
    "ClassUnchanged",
    "Equals",
    "Guard",
    "GuardSet",
    "HasKey",
    "IdentityIs",
    "KeysAre",
    "LengthIs",
    "MarksWithin",
    "MembersAre",
    "NoOverlap",
    "RangeIs",
    "Relation",
    "SameObject",
    "ShapeHolds",
    "SharesStorage",
    "SlotUnset",
    "SubclassIs",
    "TensorIs",
    "TorchStateIs",
    "TypeIs",
    "WordIs",
    "tensor_facts",
]
