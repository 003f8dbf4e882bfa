"""``operator.attrgetter``, ``itemgetter`` and ``methodcaller``: read attributes and items lazily.

The C code of these classes would read attributes of proxies directly.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from fxstack_capture.trace.state import Calls


def _attrgetter(
    calls: Calls, getter: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    if len(args) != 1 or kwargs:
        return getter(*args, **kwargs)
    names = getter.__reduce__()[1]
    found = tuple(_dotted(calls, args[0], name) for name in names)
    return found[0] if len(names) == 1 else found


def _dotted(calls: Calls, obj: object, name: str) -> Any:
    for part in name.split("."):
        obj = calls.objects.load_attr(obj, part)
    return obj


def _itemgetter(
    calls: Calls, getter: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    if len(args) != 1 or kwargs:
        return getter(*args, **kwargs)
    keys = getter.__reduce__()[1]
    found = tuple(calls.binary(operator.getitem, args[0], key) for key in keys)
    return found[0] if len(keys) == 1 else found


def _methodcaller(calls: Calls, caller: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if len(args) != 1 or kwargs:
        return caller(*args, **kwargs)
    cls, parts = caller.__reduce__()
    keywords: dict[str, Any] = {}
    if cls is not operator.methodcaller:  # ``cls`` is a partial object with the name and the keywords
        keywords, parts = cls.keywords, (*cls.args, *parts)
    method = calls.objects.load_attr(args[0], parts[0])
    return calls.call(method, parts[1:], keywords)


OPERATOR_OBJECTS: dict[type, Callable[..., Any]] = {
    operator.attrgetter: _attrgetter,
    operator.itemgetter: _itemgetter,
    operator.methodcaller: _methodcaller,
}
