"""Library functions that create classes from generated code. They run for real on the program's arguments."""

from __future__ import annotations

import collections
import dataclasses
import types
from typing import Any

from fxstack_capture.breaks import graph_break
from fxstack_capture.callers import plainly
from fxstack_capture.calls.native_run import specialized
from fxstack_capture.calls.rules import RULES
from fxstack_capture.trace.constants import is_constant_key
from fxstack_capture.trace.state import Args, Kwargs, Trace


@RULES.rule(collections.namedtuple)  # noqa: PYI024 - the rule of the function itself
def _namedtuple(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> type:
    """Call ``collections.namedtuple``. It generates code from the names only. Break the graph for arguments
    that are neither constants nor lists of names.
    """
    args = tuple(specialized(trace, value) for value in args)
    for value in (*args, *kwargs.values()):
        if not _is_names(value):
            raise graph_break("unsupported-call", "collections.namedtuple with defaults made by the program")
    if "module" not in kwargs:
        caller = trace.interp.current_frame().globals
        kwargs = {**kwargs, "module": caller.get("__name__", "__main__")}
    make: Any = collections.namedtuple  # noqa: PYI024 - the program's own call
    created = plainly(make, args, kwargs)
    note_class(trace, created)
    recipe_args = tuple(tuple(value) if type(value) is list else value for value in args)
    recipe_kwargs = {name: tuple(value) if type(value) is list else value for name, value in kwargs.items()}
    trace.objects.recipes.note(created, make, recipe_args, recipe_kwargs)
    result: type = created
    return result


def _is_names(value: object) -> bool:
    """Whether an argument is a constant or a list of names."""
    return is_constant_key(value) or (type(value) is list and all(type(v) is str for v in value))


_PROCESS_CLASS: Any = vars(dataclasses)["_process_class"]


@RULES.rule(_PROCESS_CLASS)
def _process_class(trace: Trace, _fn: object, args: Args, kwargs: Kwargs) -> Any:
    """Apply ``@dataclass`` to a class made by the program. The decorator reads and extends only this class.
    Break the graph for a class from outside.
    """
    cls = args[0]
    if not trace.objects.is_new(cls):
        raise graph_break("unsupported-call", f"dataclass of {cls.__qualname__}, which exists outside")
    created = plainly(_PROCESS_CLASS, args, kwargs)
    note_class(trace, created)
    return created


def note_class(trace: Trace, cls: type) -> None:
    """Register a class and its functions as made in the trace. Forget earlier reads of the class."""
    objects = trace.objects
    objects.note_new(cls)
    for value in list(vars(cls).values()):
        inner = getattr(value, "__func__", getattr(value, "fget", value))
        if type(inner) is types.FunctionType and not objects.is_preexisting(inner):
            objects.note_new(inner)
    objects.classes.forget(cls)
