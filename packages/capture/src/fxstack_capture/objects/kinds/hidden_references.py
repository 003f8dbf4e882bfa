"""C objects that hold other objects, but have no attribute that returns them.

``gc.get_referents`` finds the held objects. The C function that made the original makes the proxy from the
proxies of the held objects.
"""

from __future__ import annotations

import collections
import functools
import gc
from collections.abc import Callable
from typing import Any, Final

from fxstack_capture.guards.records import LengthIs, TypeIs
from fxstack_capture.objects.kinds import user_objects
from fxstack_capture.objects.kinds.user_objects import Handler
from fxstack_capture.sources import Converted, Item, Source
from fxstack_capture.trace.state import Objects

_REFERENTS: Final[Any] = gc.get_referents
COMPARING_KEY: Final[Any] = type(functools.cmp_to_key(max))
"""The type of ``functools.cmp_to_key`` objects, which has no public name."""
_VIEWS: Final[dict[type, Callable[[Any], Any]]] = {
    type(method(kind())): method
    for kind, names in ((dict, vars(dict)), (collections.OrderedDict, vars(collections.OrderedDict)))
    for method in (names["keys"], names["values"], names["items"])
}
"""Maps each type of dictionary view to the method of the dictionary that makes the view."""


def comparing_key(objects: Objects, obj: object, source: Source) -> Any:
    """Wrap an object of ``functools.cmp_to_key``.

    The object is the key function, or a key that the key function has returned for an item.
    """
    parts = gc.get_referents(obj)
    objects.trace.guard(source, TypeIs(COMPARING_KEY))
    referents = Converted(source, _REFERENTS)
    objects.trace.guard(referents, LengthIs(len(parts)))
    entered = [
        objects.enter(part, Item(referents, index))
        for index, part in enumerate(parts)
        if part is not COMPARING_KEY
    ]
    proxy = objects.trace.calls.native(functools.cmp_to_key, (entered[0],), {})
    for part in entered[1:]:
        proxy = proxy(part)
    return user_objects.register(objects, obj, proxy, source)


def dict_view(objects: Objects, obj: object, source: Source) -> Any:
    """Wrap a view of the keys, values or items of a dictionary. The dictionary is wrapped as well."""
    objects.trace.guard(source, TypeIs(type(obj)))
    proxy = objects.enter(gc.get_referents(obj)[0], Item(Converted(source, _REFERENTS), 0))
    objects.expand(proxy)
    return objects.registry.add(obj, _VIEWS[type(obj)](proxy), source).proxy


HANDLERS: Final[dict[type, Handler]] = {COMPARING_KEY: comparing_key, **dict.fromkeys(_VIEWS, dict_view)}
