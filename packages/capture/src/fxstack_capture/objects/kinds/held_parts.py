"""C objects that hold others and have no attribute that says which: the garbage collector tells.

A stand-in is made anew from the stand-ins of the parts, by the function that made the original.
"""

from __future__ import annotations

import collections
import functools
import gc
from typing import TYPE_CHECKING, Any, Final

from fxstack_capture.guards.records import LengthIs, TypeIs
from fxstack_capture.objects.kinds import user_objects as objects
from fxstack_capture.sources import Converted, Item

if TYPE_CHECKING:
    from collections.abc import Callable

    from fxstack_capture.objects.object_model import MirrorWorld
    from fxstack_capture.sources import Source

    Handler = Callable[[MirrorWorld, Any, Source], Any]

_REFERENTS: Final[Any] = gc.get_referents
COMPARING_KEY: Final[Any] = type(functools.cmp_to_key(max))
_VIEWS: Final[dict[type, Callable[[Any], Any]]] = {
    type(method(kind())): method
    for kind, names in (
        (dict, vars(dict)),
        (collections.OrderedDict, vars(collections.OrderedDict)),
    )
    for method in (names["keys"], names["values"], names["items"])
}


def comparing_key(world: MirrorWorld, obj: Any, source: Source) -> Any:
    """What ``functools.cmp_to_key`` gives, and a key that was made of an object by calling that."""
    parts = gc.get_referents(obj)
    world.trace.guard(source, TypeIs(COMPARING_KEY))
    where = Converted(source, _REFERENTS)
    world.trace.guard(where, LengthIs(len(parts)))
    held = [
        world.enter(part, Item(where, index))
        for index, part in enumerate(parts)
        if part is not COMPARING_KEY
    ]
    standin = world.trace.calls.native(functools.cmp_to_key, (held[0],), {})
    for part in held[1:]:
        standin = standin(part)
    return objects.register(world, obj, standin, source)


def dict_view(world: MirrorWorld, obj: Any, source: Source) -> Any:
    """Keys, values or items of a dictionary, which enters."""
    world.trace.guard(source, TypeIs(type(obj)))
    standin = world.enter(gc.get_referents(obj)[0], Item(Converted(source, _REFERENTS), 0))
    world.expand(standin)
    return world.registry.add(obj, _VIEWS[type(obj)](standin), source).standin


HANDLERS: Final[dict[type, Handler]] = {
    COMPARING_KEY: comparing_key,
    **dict.fromkeys(_VIEWS, dict_view),
}
