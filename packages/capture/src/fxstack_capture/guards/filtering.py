"""The option ``guard_filter_fn``: a program says which guards of an entry to keep, and answers for the others.

The function gets one ``GuardFilterEntry`` for each guard and returns as many booleans. Entries have the attributes of those
of ``torch.compile``, and speak of kinds of guards in its words, so that filters written for it (and the ready-made ones of
``torch.compiler``) work here; those below are the same ones for programs that do not import it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch

from fxstack_capture.guards import records
from fxstack_capture.guards.accesses import MISSING, RealFrame, read
from fxstack_capture.guards.records import Guard
from fxstack_capture.sources import Globals, Pinned, Source

GuardFilter = Callable[[Sequence["GuardFilterEntry"]], Sequence[bool]]

# Limits: a filter sees more guards than torch's has, with torch's kinds; some kinds of torch do not occur.

_KINDS: dict[type, tuple[str, ...]] = {
    records.TypeIs: ("TYPE_MATCH",),
    records.WordIs: ("TYPE_MATCH",),
    records.IdentityIs: ("ID_MATCH",),
    records.Equals: ("CONSTANT_MATCH", "EQUALS_MATCH"),
    records.LengthIs: ("SEQUENCE_LENGTH",),
    records.KeysAre: ("DICT_KEYS_MATCH",),
    records.HasKey: ("DICT_CONTAINS",),
    records.MembersAre: ("EMPTY_NN_MODULE_HOOKS_DICT", "DICT_CONTAINS"),
    records.SlotUnset: ("HASATTR",),
    records.CellEmpty: ("HASATTR",),
    records.RangeIs: ("EQUALS_MATCH",),
    records.ClassUnchanged: ("CLASS_MATCH",),
    records.SubclassIs: ("CLASS_MATCH",),
    records.TensorIs: ("TENSOR_MATCH",),
    records.MarksWithin: ("TENSOR_MATCH", "DIMENSION_MARKING"),
    records.SameObject: ("DUPLICATE_INPUT",),
    records.AllDistinct: ("TENSOR_MATCH", "NO_TENSOR_ALIASING"),
    records.NoOverlap: ("TENSOR_MATCH", "STORAGE_OVERLAPPING"),
    records.SharesStorage: ("TENSOR_MATCH", "STORAGE_OVERLAPPING"),
    records.ShapeHolds: ("SHAPE_ENV",),
    records.TorchStateIs: ("GLOBAL_STATE",),
}
"""The kind of a guard, and then those that it derives from."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a guarded value was found; ``module_class`` is the class of the ``nn.Module`` that it is or is part of."""

    name: str
    module_class: type | None

    def is_unspecialized_nn_module(self) -> bool:
        return self.module_class is not None

    def is_unspecialized_builtin_nn_module(self) -> bool:
        """Whether the closest module is one of torch's own, ``torch.nn.Linear`` for one."""
        return self.module_class is not None and self.module_class.__module__.startswith("torch.nn")


@dataclass(frozen=True, slots=True)
class OriginalGuard:
    """The guard itself, ``record``, and what filters for ``torch.compile`` ask of theirs."""

    name: str
    source: Origin
    record: Guard


@dataclass(frozen=True, slots=True)
class GuardFilterEntry:
    """One guard, for a filter. ``value`` is what was found at ``name`` while tracing, where ``has_value`` says so."""

    name: str
    has_value: bool
    value: Any = field(repr=False)
    guard_type: str
    derived_guard_types: tuple[str, ...]
    is_global: bool
    orig_guard: OriginalGuard = field(repr=False)


class _Origins:
    """What a frame has at sources; prefixes are looked at once."""

    def __init__(self, frame: RealFrame) -> None:
        self._frame = frame
        self._modules: dict[Source, type | None] = {}

    def value(self, source: Source) -> Any:
        return read(source, self._frame)

    def module_class(self, source: Source) -> type | None:
        if source not in self._modules:
            self._modules[source] = self._closest(source)
        return self._modules[source]

    def _closest(self, source: Source) -> type | None:
        value = self.value(source)
        if isinstance(value, torch.nn.Module):
            return type(value)
        return None if source.base is None else self.module_class(source.base)


def _is_global(source: Source) -> bool:
    while source.base is not None:
        source = source.base
    if isinstance(source, Pinned):
        return isinstance(source.value, (dict, ModuleType))
    return isinstance(source, Globals)


def _entry(guard: Guard, origins: _Origins) -> GuardFilterEntry:
    source, check = guard.source, guard.check
    is_of_frame = not isinstance(check, (records.TorchStateIs, records.ShapeHolds))
    value = origins.value(source) if is_of_frame else MISSING
    name = source.name if is_of_frame else ""
    origin = Origin(name, origins.module_class(source) if is_of_frame else None)
    kind, *derived = _KINDS[type(check)]
    return GuardFilterEntry(
        name,
        value is not MISSING,
        value,
        kind,
        tuple(derived),
        is_of_frame and _is_global(source),
        OriginalGuard(name, origin, guard),
    )


def filtered(guards: tuple[Guard, ...], keep: GuardFilter | None, frame: RealFrame) -> tuple[Guard, ...]:
    """The guards that ``keep`` (None: all) wants kept, in their order. Whatever it raises is raised.

    Raises:
        TypeError: it does not return one bool for each guard.
    """
    if keep is None:
        return guards
    origins = _Origins(frame)
    verdicts = list(keep([_entry(guard, origins) for guard in guards]))
    if len(verdicts) != len(guards) or not all(type(verdict) is bool for verdict in verdicts):
        raise TypeError(
            f"guard_filter_fn must return one bool for each of the {len(guards)} guards; it returned {len(verdicts)} values:"
            f" {', '.join(sorted({type(v).__name__ for v in verdicts}))}"
        )
    return tuple(guard for guard, kept in zip(guards, verdicts, strict=True) if kept)


def skip_guard_on_inbuilt_nn_modules_unsafe(entries: Sequence[GuardFilterEntry]) -> list[bool]:
    """Drops what is asked of modules of torch's own classes, and of what they hold."""
    return [not e.orig_guard.source.is_unspecialized_builtin_nn_module() for e in entries]


def skip_guard_on_all_nn_modules_unsafe(entries: Sequence[GuardFilterEntry]) -> list[bool]:
    """Drops what is asked of modules, and of what they hold."""
    return [not e.orig_guard.source.is_unspecialized_nn_module() for e in entries]


def keep_tensor_guards_unsafe(
    entries: Sequence[GuardFilterEntry], keep_parameters: bool = False
) -> list[bool]:
    """Keeps what is asked of tensors and of how they share memory; of parameters only with ``keep_parameters``."""
    return [
        e.guard_type == "TENSOR_MATCH" and (keep_parameters or not isinstance(e.value, torch.nn.Parameter))
        for e in entries
    ]


def skip_guard_on_globals_unsafe(entries: Sequence[GuardFilterEntry]) -> list[bool]:
    """Drops what is asked of global names, and of what is reached by them."""
    return [not e.is_global for e in entries]


def skip_all_guards_unsafe(entries: Sequence[GuardFilterEntry]) -> list[bool]:
    """Drops all: what was compiled first serves every call."""
    return [False for _ in entries]


def keep_portable_guards_unsafe(entries: Sequence[GuardFilterEntry]) -> list[bool]:
    """Keeps what is asked of sizes, of torch's global state, and of tensors that are not reached by global names."""
    return [
        e.guard_type in ("GLOBAL_STATE", "SHAPE_ENV") or (e.guard_type == "TENSOR_MATCH" and not e.is_global)
        for e in entries
    ]
