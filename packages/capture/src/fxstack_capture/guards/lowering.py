"""The native description of each check: tables with one line for each class of check.

The names of the kinds are those of native/steps.c, native/checks.c and native/relations.c.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import CodeType
from typing import Any

from fxstack_capture import sources
from fxstack_capture.guards import records
from fxstack_capture.guards.accesses import ROOTS, STEPS, Access
from fxstack_capture.guards.shape import shape_program
from fxstack_capture.guards.torch_state import GETTERS, TorchState, function_mode_at
from fxstack_capture.sources import Source


def lower_root(source: Source | None, code: CodeType) -> Access:
    if source is None:
        return "Nothing", None
    return ROOTS[type(source)].native(source, code)


def is_instance_key(base: Source | None, key: object) -> bool:
    return isinstance(base, sources.InstanceDict) and type(key) is str


def lower_step(source: Source) -> tuple[Source, Access]:
    """Return the source from which a step reads, and the access.

    A string key of an instance dictionary is lowered to an instance attribute. Reading the attribute need not
    materialise the dictionary.
    """
    base = source.base
    assert base is not None
    if isinstance(source, sources.Key) and is_instance_key(base, source.key):
        instance = base.base
        assert instance is not None
        return instance, ("InstanceAttr", source.key)
    if type(source) not in STEPS:
        raise ValueError(f"no native access for {type(source).__name__}")
    return base, STEPS[type(source)].native(source)


# --- checks of one value ---------------------------------------------------------------------------

LoweredCheck = tuple["Source | None", str, tuple[object, ...]]


def _has_key(source: Source, check: records.HasKey) -> LoweredCheck:
    if is_instance_key(source, check.key):
        return source.base, "HasAttr", (check.key, check.present)
    return source, "HasKey", (check.key, check.present)


def _members(source: Source, check: records.MembersAre) -> LoweredCheck:
    return source.base, "MembersAre", (check.absent, check.empty)


def _class_unchanged(source: Source, check: records.ClassUnchanged) -> LoweredCheck:
    values = tuple(None if value is records.NOT_FOUND else (value,) for value in check.values)
    return source, "ClassUnchanged", (check.names, (*values, *((base,) for base in check.mro)))


def _tensor(source: Source, check: records.TensorIs) -> LoweredCheck:
    arguments = (
        *(check.cls, check.keyset, check.dtype, check.device, check.layout, check.requires_grad),
        *(check.sizes, check.strides, check.storage_offset, check.is_leaf),
    )
    return source, "TensorIs", arguments


def _torch_state(_source: Source, check: records.TorchStateIs) -> LoweredCheck:
    state = check.state
    assert isinstance(state, TorchState)
    getters = tuple(
        (getter.function, getter.args, value) for getter, value in zip(GETTERS, state.values, strict=True)
    )
    return None, "TorchStateIs", (getters, state.function_modes, function_mode_at)


CHECKS: dict[type, tuple[int, Callable[[Any, Any], LoweredCheck]]] = {
    records.TypeIs: (1, lambda s, c: (s, "TypeIs", (c.cls,))),
    records.WordIs: (1, lambda s, _c: (s, "WordIs", ())),
    records.IdentityIs: (1, lambda s, c: (s, "IdentityIs", (c.obj,))),
    records.Equals: (2, lambda s, c: (s, "Equals", (c.value,))),
    records.LengthIs: (2, lambda s, c: (s, "LengthIs", (c.length,))),
    records.HasKey: (5, _has_key),
    records.MembersAre: (10, _members),
    records.SlotUnset: (2, lambda s, c: (s, "SlotUnset", (c.owner.__dict__[c.attr],))),
    records.CellEmpty: (1, lambda s, _c: (s, "CellEmpty", ())),
    records.TorchStateIs: (5, _torch_state),
    records.ClassUnchanged: (6, _class_unchanged),
    records.SubclassIs: (3, lambda s, c: (s, "SubclassIs", (c.cls, c.answer))),
    records.TensorIs: (10, _tensor),
    records.MarksWithin: (11, lambda s, c: (s, "MarksWithin", (c.names, c.dims))),
    records.KeysAre: (20, lambda s, c: (s, "KeysAre", (c.keys, c.ordered))),
    records.RangeIs: (60, lambda s, c: (s, "RangeIs", ((c.start, c.stop, c.step),))),
}
"""Maps a class of checks to its relative cost and its lowering.

The lowering maps (source, check) to (source of the native check, native kind, arguments).
"""


# --- checks of several values ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class RelationContext:
    """Context for lowering a relation: the guarded source, and the registers of other sources."""

    source: Source
    register: Callable[[Source], int]

    def registers(self, others: tuple[Source, ...]) -> tuple[tuple[int, ...]]:
        return (tuple(self.register(source) for source in (self.source, *others)),)


def _shape(check: records.ShapeHolds, context: RelationContext) -> tuple[object, ...]:
    registers = {symbol: context.register(source) for symbol, source in check.symbols}
    return (shape_program(check.expr, registers),)


RELATIONS: dict[type, tuple[int, str, Callable[[Any, RelationContext], tuple[object, ...]]]] = {
    records.SameObject: (1, "SameObject", lambda c, x: x.registers((c.other,))),
    records.ShapeHolds: (5, "ShapeHolds", _shape),
    records.AllDistinct: (10, "AllDistinct", lambda c, x: x.registers(c.others)),
    records.NoOverlap: (20, "NoOverlap", lambda c, x: x.registers(c.others)),
    records.SharesStorage: (5, "SharesStorage", lambda c, x: x.registers(c.others)),
}
