"""Raw lookups along the MRO of a class, and their guards.

A raw lookup returns the entry of a class dictionary and calls no descriptor. When the trace is closed, all
lookups in one class become one guard (``ClassUnchanged``). A write to a class from outside goes to an
*overlay*, a table of new attributes. Later lookups read the overlay. The replacement code replays the write
as a side effect.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from typing import Any

from fxstack_capture.guards.records import NOT_FOUND, Check, ClassUnchanged
from fxstack_capture.native.class_flags import is_immutable
from fxstack_capture.operator_protocol import ARITHMETIC_NAMES, COMPARISON_NAMES
from fxstack_capture.sources import ClassAttr, Source, pinned
from fxstack_capture.trace.constants import IDENTITY_TYPES, IMMUTABLE_TYPES
from fxstack_capture.trace.late_guards.stable_modules import is_stable, label_of
from fxstack_capture.trace.lazy_dict import ABSENT
from fxstack_capture.trace.registry import Registry

dict_of = type.__dict__["__dict__"].__get__
"""Returns the dictionary of a class.

A metaclass may hide ``__dict__``, so this is the descriptor of ``type``.
"""
_mro = type.__dict__["__mro__"].__get__


def raw_lookup(cls: type, name: str) -> Any:
    """Return the entry ``name`` of the first class dictionary along the MRO that has it, or ``NOT_FOUND``.

    The function ignores overlays and adds no guard. It is for code outside of a trace, and for callers that
    guard the lookup themselves.
    """
    for base in _mro(cls):
        if name in base.__dict__:
            return base.__dict__[name]
    return NOT_FOUND


_ARITHMETIC = (*ARITHMETIC_NAMES, "divmod")
SPECIAL_METHODS = tuple(
    f"__{name}__"
    for name in (
        *("repr", "str", "bytes", "format", *COMPARISON_NAMES, "hash", "bool", "call"),
        *("len", "length_hint", "getitem", "setitem", "delitem", "missing"),
        *("iter", "next", "reversed", "contains"),
        *(*_ARITHMETIC, *(f"r{name}" for name in _ARITHMETIC), *(f"i{name}" for name in ARITHMETIC_NAMES)),
        *("neg", "pos", "abs", "invert", "complex", "int", "float", "index"),
        *("round", "trunc", "floor", "ceil"),
        *("get", "set", "delete", "getattribute", "getattr", "setattr", "delattr"),
        *("instancecheck", "subclasscheck"),
    )
)
"""Special methods that C code may look up on the type of an object without calling the tracer."""

_SELF_PROXIED_TYPES: frozenset[type] = (
    IMMUTABLE_TYPES | IDENTITY_TYPES | {types.BuiltinFunctionType, staticmethod, classmethod, property}
)
"""Types of raw attributes that are their own proxies, so that they need no call of ``enter``."""


class ClassReads:
    """The class lookups of one trace.

    The argument ``enter`` of the constructor wraps the value of an attribute as an object of the trace.
    """

    def __init__(
        self,
        registry: Registry,
        guard: Callable[[Source, Check], None],
        enter: Callable[[object, Source], Any],
    ) -> None:
        self._registry = registry
        self._guard = guard
        self._enter = enter
        self.cache: dict[tuple[type, str], Any] = {}
        """The results of ``lookup``, by class and name."""
        self.plans: dict[tuple[type, str], Any] = {}
        """Maps (class, name) to an attribute plan of ``objects.protocols.descriptors``.

        A plan has three parts: the raw attribute or ABSENT, the function that binds it, and whether it
        precedes the instance dictionary.
        """
        self.reads: dict[type, dict[str, object]] = {}
        """Maps a class to the raw attributes that the trace has looked up (``NOT_FOUND`` for an absent one).

        ``close`` guards them.
        """
        self.fixed: dict[type, bool] = {}
        """Maps a class to whether its attributes need no guard, because the class is immutable or new."""
        self.noted: set[type] = set()
        """Classes whose special methods are already guarded."""
        self.ancestors: set[type] = set()
        """Classes whose bases the program has read. Their guards also compare the MRO."""
        self.overlays: dict[type, dict[str, object]] = {}
        """Maps a class from outside to its new attributes, name -> value.

        ABSENT stands for a deletion.
        """

    def lookup(self, cls: type, name: str) -> Any:
        """Return the raw attribute as an object of the trace, or ABSENT.

        The lookup is recorded, and ``close`` guards it. Every attribute load and store of the program begins
        with this method, and so does each search for a special method.
        """
        key = (cls, name)
        attribute = self.cache.get(key, self)
        # ``self`` stands for a missing entry, because any other object may be an attribute.
        if attribute is self:
            attribute = self.cache[key] = self._lookup(cls, name)
        return attribute

    def _lookup(self, cls: type, name: str) -> Any:
        """Look the name up along the MRO, for ``lookup``. Overlays take precedence over class dictionaries.
        ABSENT if no class has it.
        """
        mro = _mro(cls)
        if self.overlays:
            for base in mro:
                overlay = self.overlays.get(base)
                if overlay is not None and name in overlay:
                    if overlay[name] is ABSENT:
                        continue
                    return overlay[name]
                if name in dict_of(base):
                    return self._wrap_attribute(cls, base, name)
        for base in mro:
            if name in dict_of(base):
                return self._wrap_attribute(cls, base, name)
        self._note(cls, name, NOT_FOUND)
        return ABSENT

    def _wrap_attribute(self, cls: type, base: type, name: str) -> Any:
        """Record that ``cls`` has the attribute ``name`` from ``base``. Return the attribute as an object of
        the trace.
        """
        raw = dict_of(base)[name]
        self._note(cls, name, raw)
        kind = type(raw)
        if kind in IMMUTABLE_TYPES or self._registry.is_new(base):
            return raw
        source = ClassAttr(pinned(base, base.__qualname__), name)
        if kind in _SELF_PROXIED_TYPES or isinstance(raw, type):
            definition = kind in IDENTITY_TYPES and is_stable(raw)
            return self._registry.add_itself(raw, pinned(raw, label_of(raw)) if definition else source)
        return self._enter(raw, source)

    def _note(self, cls: type, name: str, raw: object) -> None:
        """Record a lookup, which ``close`` guards. ``raw`` is ``NOT_FOUND`` for an absent name."""
        if not self._is_fixed(cls):
            self.reads.setdefault(cls, {})[name] = raw

    def _is_fixed(self, cls: type) -> bool:
        """Whether lookups in ``cls`` need no guard, because they give the same result in every call.

        This is so if ``cls`` is immutable or new.
        """
        fixed = self.fixed.get(cls)
        if fixed is None:
            fixed = self.fixed[cls] = is_immutable(cls) or self._registry.is_new(cls)
        return fixed

    def note(self, cls: type, names: Iterable[str]) -> None:
        """Guard the lookups of ``names`` in ``cls``. Callers of this method have read the raw results
        themselves.
        """
        if not self._is_fixed(cls):
            reads = self.reads.setdefault(cls, {})
            for name in names:
                if name not in reads:
                    reads[name] = raw_lookup(cls, name)

    def note_bases(self, cls: type) -> None:
        """Record that the program has read the bases of ``cls`` (``__mro__``, ``issubclass``).

        The guard of the class then also compares the MRO.
        """
        if not self._is_fixed(cls):
            self.ancestors.add(cls)
            self.reads.setdefault(cls, {})

    def note_special_methods(self, cls: type) -> None:
        """Guard the special methods of ``cls``. C code looks them up on the type.

        Called before C code reads an instance of ``cls``.
        """
        if cls in self.noted:
            return
        self.noted.add(cls)
        if is_immutable(cls):
            return
        # Guard all of them, because it is unknown which methods the C code calls.
        for name in SPECIAL_METHODS:
            self.lookup(cls, name)

    def forget(self, cls: type) -> None:
        """Drop the recorded lookups in ``cls``.

        Called when the program has finished or undone the creation of ``cls``. Lookups in the finished class
        may give other results.
        """
        # The new attribute may also change lookups in subclasses.
        self.cache.clear()
        self.plans.clear()
        self.fixed.pop(cls, None)
        self.reads.pop(cls, None)

    def store(self, cls: type, name: str, value: object) -> None:
        """Record a write to a class from outside in its overlay. Later lookups read the overlay.

        ``value`` is ABSENT for a deletion.
        """
        self.overlays.setdefault(cls, {})[name] = value
        self.cache.clear()

    def close(self) -> None:
        """Add one guard for each class that was read. Called at the end of the trace."""
        for cls, reads in self.reads.items():
            mro = _mro(cls) if cls in self.ancestors else ()
            check = ClassUnchanged(tuple(reads), tuple(reads.values()), mro)
            self._guard(pinned(cls, cls.__qualname__), check)
