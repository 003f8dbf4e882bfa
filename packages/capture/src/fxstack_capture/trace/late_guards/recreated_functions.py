"""Recreated functions: lambdas that the program passes in each call, and closures that cross a graph break.

A recreated function is its own proxy. The guards compare its code. They compare its defaults and closure as
far as the trace reads them. Therefore an entry outlives the function for which it was compiled. If the trace
depends on the identity of the function, the identity is guarded instead. This is so if the function is also a
key of a dictionary, an attribute of a class or an operand of ``is``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import CodeType, FunctionType
from typing import Any

from fxstack_capture.guards.records import AllDistinct, Check, Equals, Guard, IdentityIs, LengthIs, TypeIs
from fxstack_capture.shapes.history import FrameHistory
from fxstack_capture.sources import BuiltinAttr, Item, Local, Source

_NESTED = 0x10  # inspect.CO_NESTED, the flag of functions that are defined inside of other functions


class RecreatedFunctions:
    """The recreated functions of one trace, by id.

    ``is_interpreted`` returns whether a call of a function runs its code. It returns False if a rule or a
    marker of a library gives the call another meaning.
    """

    def __init__(
        self, guard: Callable[[Source, Check], None], is_interpreted: Callable[[FunctionType], bool]
    ) -> None:
        self._guard = guard
        self._is_interpreted = is_interpreted
        self._entered: dict[int, tuple[FunctionType, Source]] = {}
        """The recreated functions that are not guarded by identity, each with its source."""

    def __contains__(self, obj: object) -> bool:
        return id(obj) in self._entered

    def enter(self, fn: FunctionType, source: Source, history: FrameHistory) -> bool:
        """Guard ``fn`` by its code if it is a recreated function. Return whether it is.

        Called when a function from outside is wrapped. The caller guards any other function by identity.
        """
        seen_another = history.is_another(source, fn)
        if not (seen_another or _is_made_by_caller(fn, source)) or not self._is_plain(fn):
            return False
        guard = self._guard
        guard(source, TypeIs(FunctionType))
        for name in ("__code__", "__globals__"):
            value = getattr(fn, name)
            guard(BuiltinAttr(source, name), IdentityIs(value, id(value)))
        guard(BuiltinAttr(source, "__dict__"), LengthIs(0))
        for name in ("__name__", "__qualname__", "__module__"):
            guard(BuiltinAttr(source, name), Equals(getattr(fn, name)))
        self._entered[id(fn)] = fn, source
        return True

    def _is_plain(self, fn: FunctionType) -> bool:
        """Whether the code of ``fn`` and the names that it reads define its whole meaning."""
        return not fn.__dict__ and type(fn.__module__) is str and self._is_interpreted(fn)

    def pin(self, values: tuple[Any, ...]) -> None:
        """Guard the identity of each recreated function in ``values``.

        Other values are ignored. Code calls this if its result depends on which function it got, for example
        the rule of ``lru_cache``.
        """
        for fn, source in [self._entered.pop(id(v)) for v in values if id(v) in self._entered]:
            self._guard(source, IdentityIs(fn, id(fn)))

    def close(self, guards: Iterable[Guard]) -> None:
        """Add the guards that depend on the whole trace.

        Called once at the end of the trace, with all guards so far. If another guard compares a function by
        identity, the function is guarded by identity as well. All other functions with the same code must
        stay different objects.
        """
        if not self._entered:
            return
        codes = {fn.__code__ for fn in _known_by_identity(guards)}
        self.pin(tuple(fn for fn, _ in self._entered.values() if fn.__code__ in codes))
        sources_by_code: dict[CodeType, list[Source]] = {}
        for fn, source in self._entered.values():
            sources_by_code.setdefault(fn.__code__, []).append(source)
        for first, *others in sources_by_code.values():
            if others:
                self._guard(first, AllDistinct(tuple(others)))


def _is_made_by_caller(fn: FunctionType, source: Source) -> bool:
    """Whether ``fn`` is a nested function, and an argument or an item of an argument."""
    while isinstance(source, Item):
        source = source.of
    return bool(fn.__code__.co_flags & _NESTED) and isinstance(source, Local)


def _known_by_identity(guards: Iterable[Guard]) -> Iterator[FunctionType]:
    """Yield the functions in fields of guards. A check that contains a function compares its identity."""
    for guard in guards:
        names: tuple[str, ...] = guard.check.__match_args__
        yield from _functions(tuple(getattr(guard.check, name) for name in names))


def _functions(values: tuple[Any, ...]) -> Iterator[FunctionType]:
    """Yield the functions among ``values``, including those in tuples, frozensets, static methods and class
    methods.
    """
    for value in values:
        if type(value) in (tuple, frozenset):
            yield from _functions(tuple(value))
            continue
        inner = value.__func__ if type(value) in (staticmethod, classmethod) else value
        if type(inner) is FunctionType:
            yield inner
