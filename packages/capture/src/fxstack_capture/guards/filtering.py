"""The option ``guard_filter_fn``: a function of the program selects the guards of an entry to keep.

The program must make sure that the dropped guards always hold. The function receives a list with one
``GuardFilterEntry`` for each guard. It returns a list of booleans: whether to keep each guard. An entry has
the attributes and the names of guard kinds of ``torch.compile``, so that filters written for
``torch.compile``, and the ready-made filters of ``torch.compiler``, work here. The functions at the end of
this module are the same ready-made filters, for programs that do not import ``torch.compiler``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import torch

from fxstack_capture.guards.accesses import MISSING, RealFrame, read
from fxstack_capture.guards.records import Guard
from fxstack_capture.sources import Globals, Pinned, Source

GuardFilter = Callable[[Sequence["GuardFilterEntry"]], Sequence[bool]]
"""A function of the program. It gets the entries of all guards, and returns a list: True for each guard to
keep.
"""

# Limits: the guards are finer than torch's, so a filter sees more entries. Their kinds have torch's names.
# Some kinds of torch do not occur.


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a guarded value was found. It has the methods of torch's sources.

    A filter reads it as ``entry.orig_guard.source``.
    """

    name: str
    """The name of the source, for example ``self.weight``, or "" if the guard is not about a value of the frame."""
    module_class: type | None
    """The class of the closest ``nn.Module`` that is the value or holds the value. None if no module does."""

    def is_unspecialized_nn_module(self) -> bool:
        """Whether the value is a module, or was read from a module. Filters call this method. The name is
        torch's.
        """
        return self.module_class is not None

    def is_unspecialized_builtin_nn_module(self) -> bool:
        """Whether the closest module is of a class of torch, such as ``torch.nn.Linear``. Filters call this
        method.
        """
        return self.module_class is not None and self.module_class.__module__.startswith("torch.nn")


@dataclass(frozen=True, slots=True)
class OriginalGuard:
    """The guard ``record``, and the attributes that filters for ``torch.compile`` read."""

    name: str
    """The same as ``GuardFilterEntry.name``."""
    source: Origin
    """Where the value was found."""
    record: Guard
    """The guard itself."""


@dataclass(frozen=True, slots=True)
class GuardFilterEntry:
    """One guard, as a filter sees it. The attributes have the names and meanings of torch's entries."""

    name: str
    """The name of the guarded value, for example ``self.weight``, or "" for guards on sizes and on torch's state."""
    has_value: bool
    """Whether ``value`` is known. The value is unknown for guards on sizes and on torch's state."""
    value: Any = field(repr=False)
    """The value at ``name`` during the trace, or ``MISSING`` if ``has_value`` is false."""
    guard_type: str
    """Torch's name for the kind of the guard, for example "TENSOR_MATCH"."""
    derived_guard_types: tuple[str, ...]
    """Torch's names for the kinds from which the kind derives."""
    is_global: bool
    """Whether the value is read through a global name or an imported module."""
    orig_guard: OriginalGuard = field(repr=False)
    """The guard, with the attributes of torch's own guards."""


class _Origins:
    """The values and module classes for the entries of one filter call. Each source is looked up once."""

    def __init__(self, frame: RealFrame) -> None:
        self._frame = frame
        self._modules: dict[Source, type | None] = {}

    def value(self, source: Source) -> Any:
        """Return the value at ``source`` in the frame, or ``MISSING``."""
        return read(source, self._frame)

    def module_class(self, source: Source) -> type | None:
        """Return the class of the closest module that is the value at ``source`` or holds the value. None
        without a module.
        """
        if source not in self._modules:
            self._modules[source] = self._closest(source)
        return self._modules[source]

    def _closest(self, source: Source) -> type | None:
        """Return the class of the value if the value is a module. Otherwise look at the source where
        ``source`` begins. None without a module.
        """
        value = self.value(source)
        if isinstance(value, torch.nn.Module):
            return type(value)
        return None if source.base is None else self.module_class(source.base)


def _is_global(source: Source) -> bool:
    """Whether the path of ``source`` begins at the frame's globals, or at a pinned module or dictionary.

    A pinned object is one that the source holds directly.
    """
    while source.base is not None:
        source = source.base
    if isinstance(source, Pinned):
        return isinstance(source.value, (dict, ModuleType))
    return isinstance(source, Globals)


def _entry(guard: Guard, origins: _Origins) -> GuardFilterEntry:
    """Return the description of one guard that a filter gets."""
    source, check = guard.source, guard.check
    is_of_frame = check.is_of_frame
    # As in torch, a guard on global state or on a relation of sizes has no name and no value.
    value = origins.value(source) if is_of_frame else MISSING
    name = source.name if is_of_frame else ""
    origin = Origin(name, origins.module_class(source) if is_of_frame else None)
    kind, *derived = check.kinds
    return GuardFilterEntry(
        name,
        value is not MISSING,
        value,
        kind,
        tuple(derived),
        is_of_frame and _is_global(source),
        OriginalGuard(name, origin, guard),
    )


def filter_entries(guards: tuple[Guard, ...], frame: RealFrame) -> list[GuardFilterEntry]:
    """Return the entries of the guards, in order. A filter and the option ``guard_export_fn`` get this list."""
    origins = _Origins(frame)
    return [_entry(guard, origins) for guard in guards]


def apply_filter(guards: tuple[Guard, ...], keep: GuardFilter | None, frame: RealFrame) -> tuple[Guard, ...]:
    """Return the guards that ``keep`` selects, in order. If ``keep`` is None, return all guards.

    Called before the guard tree is built. Exceptions of ``keep`` are not caught.

    Raises:
        TypeError: ``keep`` does not return one bool for each guard.
    """
    if keep is None:
        return guards
    verdicts = list(keep(filter_entries(guards, frame)))
    if len(verdicts) != len(guards) or not all(type(verdict) is bool for verdict in verdicts):
        raise TypeError(
            f"guard_filter_fn must return one bool for each of the {len(guards)} guards, but it returned"
            f" {len(verdicts)} values of type {', '.join(sorted({type(v).__name__ for v in verdicts}))}"
        )
    return tuple(guard for guard, kept in zip(guards, verdicts, strict=True) if kept)


def skip_guard_on_inbuilt_nn_modules_unsafe(entries: Sequence[GuardFilterEntry]) -> list[bool]:
    """Drop the guards on modules of torch's classes, and on values read from these modules."""
    return [not e.orig_guard.source.is_unspecialized_builtin_nn_module() for e in entries]


def skip_guard_on_all_nn_modules_unsafe(entries: Sequence[GuardFilterEntry]) -> list[bool]:
    """Drop the guards on modules, and on values read from modules."""
    return [not e.orig_guard.source.is_unspecialized_nn_module() for e in entries]


def keep_tensor_guards_unsafe(
    entries: Sequence[GuardFilterEntry], keep_parameters: bool = False
) -> list[bool]:
    """Keep the guards on tensors and on shared memory. Guards on parameters are kept only with
    ``keep_parameters``.
    """
    return [
        e.guard_type == "TENSOR_MATCH" and (keep_parameters or not isinstance(e.value, torch.nn.Parameter))
        for e in entries
    ]


def skip_guard_on_globals_unsafe(entries: Sequence[GuardFilterEntry]) -> list[bool]:
    """Drop the guards on global names, and on values read through global names."""
    return [not e.is_global for e in entries]


def skip_all_guards_unsafe(entries: Sequence[GuardFilterEntry]) -> list[bool]:
    """Drop all guards: the first compiled entry serves every call."""
    return [False for _ in entries]


def keep_portable_guards_unsafe(entries: Sequence[GuardFilterEntry]) -> list[bool]:
    """Keep three kinds of guards: on sizes, on torch's global state, and on tensors not read through global
    names.
    """
    return [
        e.guard_type in ("GLOBAL_STATE", "SHAPE_ENV") or (e.guard_type == "TENSOR_MATCH" and not e.is_global)
        for e in entries
    ]
