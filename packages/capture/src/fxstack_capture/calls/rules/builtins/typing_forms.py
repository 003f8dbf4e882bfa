"""``Optional[X]``, ``List[X]`` and similar forms in annotations of functions that compiled code creates.

``typing`` caches these forms. When it creates one, it reads the frames of its callers. If all arguments are
classes and forms from outside, the result is a constant. The rule then computes it while tracing.
"""

from __future__ import annotations

import types
import typing
from typing import Any

from fxstack_capture.calls.rules import RULES
from fxstack_capture.sources import pinned
from fxstack_capture.trace.state import Args, Kwargs, Trace

_PLAIN = (str, int, types.NoneType, types.EllipsisType)


# This is the code of ``__getitem__`` of all forms that ``typing`` caches.
@RULES.rule(typing.Optional.__class__.__getitem__.__code__)
def _subscribe(trace: Trace, fn: types.FunctionType, args: Args, kwargs: Kwargs) -> Any:
    """Make the form while tracing, as a constant."""
    objects = trace.objects
    if kwargs or not all(_is_constant(objects, arg) for arg in args):
        return trace.interp.call_function(fn, args, kwargs)
    form = fn(*[_real(objects, arg) for arg in args])
    return objects.enter(form, pinned(form, "form"))


def _real(objects: Any, value: Any) -> Any:
    """Return an argument of a form, with the program's objects in place of proxies."""
    if type(value) in (tuple, list):
        return type(value)(_real(objects, item) for item in value)
    return objects.original_of(value)


def _is_constant(objects: Any, value: Any) -> bool:
    """Whether ``value`` is from outside and is the same object in each call."""
    if type(value) in (tuple, list):
        return all(_is_constant(objects, item) for item in value)
    if isinstance(value, type):
        return not objects.is_new(value)
    if isinstance(value, (types.GenericAlias, types.UnionType)):
        return _is_constant(objects, value.__args__)
    if type(value).__module__ == "typing":
        return bool(objects.is_preexisting(value))
    return isinstance(value, _PLAIN)
