"""``ObjectsProtocol``: what the parts of ``objects`` use of the object model that they are parts of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from fxstack_capture.trace.seams import Objects

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextvars import ContextVar
    from types import FunctionType

    from fxstack_capture.effects.records import Effect
    from fxstack_capture.objects.kinds.lazy_dict import LazyDict
    from fxstack_capture.objects.records import Parts, ProxiedCell
    from fxstack_capture.objects.registry import Entry, Registry
    from fxstack_capture.sources import Source
    from fxstack_capture.trace.state import Trace


class ClassesProtocol(Protocol):
    @property
    def cache(self) -> dict[tuple[type, str], Any]: ...

    def lookup(self, cls: type, name: str) -> Any:
        """The raw attribute (a trace-world object) or ABSENT."""

    def note_bases(self, cls: type) -> None:
        """The program has asked what ``cls`` derives from."""

    @property
    def overlays(self) -> dict[type, dict[str, object]]: ...

    def store(self, cls: type, name: str, value: object) -> None:
        """Overlay a class of the outside (``value`` may be ABSENT)."""


class ContextsProtocol(Protocol):
    def __contains__(self, obj: object) -> bool: ...

    def add(self, obj: object, source: Source) -> None: ...

    def changes(self, obj: object, source: Source) -> Iterator[Effect]: ...

    def load(self, raw: Any, obj: Any) -> Any:
        """A C attribute. Raises GraphBreak for one whose reading has effects."""

    def store(self, raw: Any, obj: Any, value: Any) -> None:
        """Write a C attribute, or delete it (``value`` is ABSENT). Raises GraphBreak."""


class DistinctionsProtocol(Protocol):
    def note_identified(self, obj: Any) -> None:
        """The program used the identity of an object: its ``id``, or its place in a hash table."""

    def note_written(self, entry: Entry) -> None: ...


class RecreatedProtocol(Protocol):
    def __contains__(self, obj: object) -> bool: ...

    def enter(self, fn: FunctionType, source: Source) -> bool:
        """Guard ``fn`` by its code, if it is one that programs make anew; whether it is."""


class ObjectsProtocol(Objects, Protocol):
    @property
    def trace(self) -> Trace: ...

    @property
    def registry(self) -> Registry: ...

    @property
    def classes(self) -> ClassesProtocol: ...

    @property
    def contexts(self) -> ContextsProtocol: ...

    @property
    def distinctions(self) -> DistinctionsProtocol: ...

    @property
    def recreated(self) -> RecreatedProtocol: ...

    @property
    def plans(self) -> dict[tuple[type, str], Any]: ...

    @property
    def dicts(self) -> dict[int, LazyDict]:
        """All lazily read dictionaries, by id of the mirror dict."""

    @property
    def instances(self) -> dict[int, LazyDict]:
        """State of instances' dictionaries, by id of the stand-in instance."""

    @property
    def slots(self) -> dict[int, dict[Any, Any]]:
        """What slots of stand-in instances held when first read: by id of the instance, then by
        descriptor.
        """

    @property
    def cells(self) -> dict[int, ProxiedCell]:
        """Mirrored cells by id of the stand-in cell."""

    @property
    def parts(self) -> dict[int, Parts]: ...

    @property
    def guarded_by_repr(self) -> set[int]:
        """Ids of pre-existing values that are guarded by their text and not by identity."""

    @property
    def weak_proxies(self) -> dict[int, Any]:
        """The stand-ins behind stand-ins of weak proxies, by the id of the latter."""

    @property
    def context(self) -> dict[ContextVar[Any], Any]:
        """What the program wrote to context variables."""

    @property
    def deferred(self) -> list[Effect]:
        """Calls to be made for real when the frame is left."""

    @property
    def contents(self) -> dict[int, tuple[Any, ...]]:
        """What eagerly entered containers held at entry, by id of the stand-in."""

    @property
    def set_orders(self) -> dict[int, tuple[Any, ...]]:
        """Members of sets of objects in the order of the original, which hashes of stand-ins do not
        give; by id of the stand-in.
        """

    def enter_as_itself(self, obj: object, source: Source) -> Any:
        """Enter an identity-like object whose identity follows from what is guarded already."""

    def enter_constant(self, obj: object, source: Source) -> Any:
        """Enter a number that is never dynamic."""

    def enter_from(self, obj: object, source: Source, stable: bool) -> Any:
        """Enter a member of a namespace; definitions of trusted ones are found again by themselves."""

    def expanded(self, state: LazyDict) -> None: ...

    def namespace(self, namespace: dict[str, object]) -> LazyDict:
        """State of a module's (or function's) globals, given the real dict or its mirror."""

    def add_dict(self, state: LazyDict) -> LazyDict: ...

    def add_instance(self, proxy: object, original_dict: dict[str, Any], source: Source) -> None: ...
