"""The option ``guard_export_fn``: it gets the guards of an entry as torch's own records, for tools made for
torch.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from functools import cache
from traceback import FrameSummary, StackSummary
from typing import NoReturn

from fxstack_capture.guards.accesses import RealFrame
from fxstack_capture.guards.explain import guard_condition
from fxstack_capture.guards.filtering import GuardFilterEntry, filter_entries
from fxstack_capture.guards.records import Guard
from fxstack_capture.torch_compat import GuardSource, GuardsSet, TorchGuard
from fxstack_capture.torch_compat import Source as TorchSource


class ExportedSource(TorchSource):
    """The source of a guard, as a source of torch. Tools for torch read it."""

    def __init__(self, name: str, guard_source: GuardSource) -> None:
        self.__dict__.update(name=name, guard_source=guard_source)

    name: str
    """The name of the guarded value, for example ``self.weight``."""
    guard_source: GuardSource
    """Torch's kind of the source, for example ``GuardSource.LOCAL``."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExportedSource) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash(self.name)


@cache
def _creator(kind: str) -> Callable[..., NoReturn]:
    """Return the function in torch's record that stands for the kind of a guard. Tools read its name, which
    is ``kind``.
    """

    def create(_builder: object, _guard: object) -> NoReturn:
        raise NotImplementedError(f"fxstack checks guards of kind {kind} itself")

    create.__name__ = kind
    return create


def exported(guards: Iterable[Guard], frame: RealFrame) -> GuardsSet:
    """Return torch's records of ``guards``. For each entry, ``guard_export_fn`` is called with them.

    A record contains the kind, the condition as Python, a weak reference to the value, and the user's lines.
    """
    exported_guards = GuardsSet()
    for entry in filter_entries(tuple(guards), frame):
        record = entry.orig_guard.record
        guard = TorchGuard(ExportedSource(entry.name, _place(entry)), _creator(entry.guard_type))
        try:
            reference = weakref.ref(entry.value) if entry.has_value else None
        except TypeError:
            reference = None
        guard.set_export_info(entry.guard_type, None, [guard_condition(record, {})], reference)
        guard.user_stack = StackSummary.from_list([FrameSummary(*line) for line in record.stack])
        exported_guards.add(guard, collect_debug_stack=False)
    return exported_guards


def _place(entry: GuardFilterEntry) -> GuardSource:
    """Return torch's kind of a guard's source, for example ``GuardSource.LOCAL_UNSPECIALIZED_NN_MODULE``."""
    origin = entry.orig_guard.source
    of_module = "_UNSPECIALIZED_NN_MODULE" if origin.is_unspecialized_nn_module() else ""
    if origin.is_unspecialized_builtin_nn_module():
        of_module = "_UNSPECIALIZED_BUILTIN_NN_MODULE"
    return GuardSource[
        "SHAPE_ENV"
        if entry.guard_type == "SHAPE_ENV"
        else ("GLOBAL" if entry.is_global else "LOCAL") + of_module
    ]
