"""The option ``guard_filter_fn``: a function of the program selects the guards of an entry to keep.

The program is responsible for the dropped guards. The function receives one ``GuardFilterEntry`` for each
guard and returns one boolean for each. An entry has the attributes and the names of guard kinds of
``torch.compile``, so that filters written for ``torch.compile``, and the ready-made filters of
``torch.compiler``, work here. The filters below are the ready-made filters for programs that do not import
``torch.compiler``.
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

# Limits: a filter sees more guards than a filter of torch, with torch's kinds. Some kinds of torch do not
# occur.


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a guarded value was found.

    ``module_class`` is the class of the ``nn.Module`` that is or holds the value.
    """

    name: str
    module_class: type | None

    def is_unspecialized_nn_module(self) -> bool:
        return self.module_class is not None

    def is_unspecialized_builtin_nn_module(self) -> bool:
        """Whether the closest module is a module of torch, such as ``torch.nn.Linear``."""
        return self.module_class is not None and self.module_class.__module__.startswith("torch.nn")


@dataclass(frozen=True, slots=True)
class OriginalGuard:
    """The guard ``record`` itself, and the attributes that filters for ``torch.compile`` read."""

    name: str
    source: Origin
    record: Guard


@dataclass(frozen=True, slots=True)
class GuardFilterEntry:
    """One guard, for a filter.

    ``value`` is the value at ``name`` during the trace, if ``has_value`` is true.
    """

    name: str
    has_value: bool
    value: Any = field(repr=False)
    guard_type: str
    derived_guard_types: tuple[str, ...]
    is_global: bool
    orig_guard: OriginalGuard = field(repr=False)


class _Origins:
    """The values of a frame at sources. The module class of a source is looked up once."""

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
    is_of_frame = check.is_of_frame
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
    """Return what a filter gets: an entry for each guard."""
    origins = _Origins(frame)
    return [_entry(guard, origins) for guard in guards]


def apply_filter(guards: tuple[Guard, ...], keep: GuardFilter | None, frame: RealFrame) -> tuple[Guard, ...]:
    """Return the guards that ``keep`` selects, in order. If ``keep`` is None, return all guards.

    Exceptions of ``keep`` are not caught.

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
    """Drop the guards on modules of torch's own classes, and on the values that these modules hold."""
    return [not e.orig_guard.source.is_unspecialized_builtin_nn_module() for e in entries]


def skip_guard_on_all_nn_modules_unsafe(entries: Sequence[GuardFilterEntry]) -> list[bool]:
    """Drop the guards on modules, and on the values that modules hold."""
    return [not e.orig_guard.source.is_unspecialized_nn_module() for e in entries]


def keep_tensor_guards_unsafe(
    entries: Sequence[GuardFilterEntry], keep_parameters: bool = False
) -> list[bool]:
    """Keep the guards on tensors and on shared memory. Guards on parameters need ``keep_parameters``."""
    return [
        e.guard_type == "TENSOR_MATCH" and (keep_parameters or not isinstance(e.value, torch.nn.Parameter))
        for e in entries
    ]


def skip_guard_on_globals_unsafe(entries: Sequence[GuardFilterEntry]) -> list[bool]:
    """Drop the guards on global names, and on the values that are read through global names."""
    return [not e.is_global for e in entries]


def skip_all_guards_unsafe(entries: Sequence[GuardFilterEntry]) -> list[bool]:
    """Drop all guards: the first compiled entry serves every call."""
    return [False for _ in entries]


def keep_portable_guards_unsafe(entries: Sequence[GuardFilterEntry]) -> list[bool]:
    """Keep the guards on sizes, on torch's global state, and on tensors not read through global names."""
    return [
        e.guard_type in ("GLOBAL_STATE", "SHAPE_ENV") or (e.guard_type == "TENSOR_MATCH" and not e.is_global)
        for e in entries
    ]
