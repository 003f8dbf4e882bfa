"""Module ``operator``: operators as functions, and ``attrgetter``, ``itemgetter`` and ``methodcaller``.

Without rules, the C code of the three classes would read attributes of proxies directly.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from fxstack_capture.callers import plainly
from fxstack_capture.calls.rules import RULES
from fxstack_capture.operator_protocol import ARITHMETIC, COMPARISONS, IN_PLACE, UNARY
from fxstack_capture.trace.state import Args, Kwargs, Trace


@RULES.rule(
    *(*ARITHMETIC, *IN_PLACE, *COMPARISONS),
    *(operator.getitem, operator.contains, operator.concat, operator.iconcat),
)
def _binary(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Apply a binary operator."""
    return plainly(fn, args, kwargs) if kwargs or len(args) != 2 else trace.calls.binary(fn, *args)


@RULES.rule(*UNARY, operator.not_, operator.truth)
def _unary(trace: Trace, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Apply a unary operator."""
    return plainly(fn, args, kwargs) if kwargs or len(args) != 1 else trace.calls.unary(fn, args[0])


@RULES.instances(operator.attrgetter)
def _attrgetter(trace: Trace, getter: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Read the attributes that the getter names."""
    if len(args) != 1 or kwargs:
        return getter(*args, **kwargs)
    names = getter.__reduce__()[1]
    values = tuple(_dotted(trace, args[0], name) for name in names)
    return values[0] if len(names) == 1 else values


def _dotted(trace: Trace, obj: object, name: str) -> Any:
    """Return ``obj.a.b`` for the name "a.b"."""
    for part in name.split("."):
        obj = trace.objects.load_attr(obj, part)
    return obj


@RULES.instances(operator.itemgetter)
def _itemgetter(trace: Trace, getter: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Read the items that the getter names."""
    if len(args) != 1 or kwargs:
        return getter(*args, **kwargs)
    keys = getter.__reduce__()[1]
    values = tuple(trace.calls.binary(operator.getitem, args[0], key) for key in keys)
    return values[0] if len(keys) == 1 else values


@RULES.instances(operator.methodcaller)
def _methodcaller(trace: Trace, caller: Any, args: Args, kwargs: Kwargs) -> Any:
    """Call the method that the caller names."""
    if len(args) != 1 or kwargs:
        return caller(*args, **kwargs)
    cls, parts = caller.__reduce__()
    keywords: dict[str, Any] = {}
    # a methodcaller with keywords reduces to a partial object with the name and the keywords
    if cls is not operator.methodcaller:
        keywords, parts = cls.keywords, (*cls.args, *parts)
    method = trace.objects.load_attr(args[0], parts[0])
    return trace.calls.call(method, parts[1:], keywords)
