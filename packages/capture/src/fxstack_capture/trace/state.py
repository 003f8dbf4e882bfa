"""``Trace``: the state of one attempt to trace one frame; what its object model and its dispatcher offer.

The three refer to each other, so their definitions stand in one module.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from types import CellType, FunctionType
from typing import Any, Protocol

from fxstack_capture.effects.records import Effect
from fxstack_capture.guards.records import Check, GuardSet
from fxstack_capture.objects.kinds.lazy_dict import LazyDict
from fxstack_capture.objects.records import Parts, ProxiedCell
from fxstack_capture.objects.registry import Registry
from fxstack_capture.options import CaptureOptions
from fxstack_capture.shapes.chosen import NOTHING_CHOSEN, Choices
from fxstack_capture.shapes.contract import Bound
from fxstack_capture.sources import Source
from fxstack_capture.trace.parts import (
    Addresses,
    AppendOnly,
    Classes,
    Contexts,
    Distinctions,
    Draws,
    Iterators,
    Recreated,
)
from fxstack_capture.trace.seams import Interpreter, TorchSide

Request = tuple[Any, tuple[Any, ...]]


@dataclass(slots=True)
class Trace:
    """One attempt. Parts are set by the driver; everything reaches its siblings through this record."""

    options: CaptureOptions
    guards: GuardSet
    objects: Objects
    calls: Calls
    torch: TorchSide
    interp: Interpreter
    for_entry: bool = True
    """Whether the replacement runs as an entry, whose guards hand the graph's inputs over."""
    contract: Bound | None = None
    """What was agreed on about the sizes of the arguments."""
    choices: Choices = NOTHING_CHOSEN
    """Sizes and numbers that are symbolic because the program says so."""
    exporting: bool = False
    """Whether the graph is for somebody else than this call (``export``)."""
    may_defer: bool = False
    """Whether the frame may run in plain Python this time."""
    may_fall_back: bool = False
    """Whether the replacement can run its frame in plain Python after all."""
    polyfills: bool = False
    """Whether C code that calls functions of the program is interpreted as Python, so that the graph can break in them."""

    def guard(self, source: Source, check: Check) -> None:
        self.guards.add(source, check, self.interp.user_stack())


class Objects(Protocol):
    """The object model: proxies of the program's objects (folder ``objects``)."""

    opaque: set[int]
    """Ids of pre-existing objects that may be handed on but not looked into (iterators, for one)."""

    context: dict[ContextVar[Any], Any]
    """Values that the program wrote to context variables."""

    tokens: dict[int, tuple[Token[Any], Any]]
    """Results of ``ContextVar.set``, and the value before; by the id of the token."""

    set_orders: dict[int, tuple[Any, ...]]
    """Members of sets of objects in the order of the original; by the id of the proxy."""

    @property
    def append_only(self) -> AppendOnly:
        """Lists that the program only adds to."""

    @property
    def iterators(self) -> Iterators:
        """Iterators that were begun outside."""

    @property
    def registry(self) -> Registry: ...

    @property
    def classes(self) -> Classes: ...

    @property
    def addresses(self) -> Addresses: ...

    @property
    def draws(self) -> Draws: ...

    @property
    def lazy(self) -> dict[int, LazyDict]:
        """Dictionaries (``LazyDict``) that are not complete yet, by the id of the proxy."""

    @property
    def trace(self) -> Trace: ...

    @property
    def contexts(self) -> Contexts: ...

    @property
    def distinctions(self) -> Distinctions: ...

    @property
    def recreated(self) -> Recreated: ...

    @property
    def plans(self) -> dict[tuple[type, str], Any]: ...

    @property
    def dicts(self) -> dict[int, LazyDict]:
        """All lazily read dictionaries, by id of the proxy dict."""

    @property
    def instances(self) -> dict[int, LazyDict]:
        """State of instances' dictionaries, by id of the proxy instance."""

    @property
    def slots(self) -> dict[int, dict[Any, Any]]:
        """What slots of proxy instances held when first read: by id of the instance, then by
        descriptor.
        """

    @property
    def cells(self) -> dict[int, ProxiedCell]:
        """Proxied cells by id of the proxy cell."""

    @property
    def parts(self) -> dict[int, Parts]: ...

    @property
    def guarded_by_repr(self) -> set[int]:
        """Ids of pre-existing values that are guarded by their text and not by identity."""

    @property
    def weak_proxies(self) -> dict[int, Any]:
        """The proxies behind proxies of weak proxies, by the id of the latter."""

    @property
    def contents(self) -> dict[int, tuple[Any, ...]]:
        """What eagerly entered containers held at entry, by id of the proxy."""

    deferred: list[Effect]
    """Calls to make when the frame is left."""

    def namespace(self, namespace: dict[str, object]) -> Any:
        """Return the ``LazyDict`` of a module's namespace."""

    def enter_as_itself(self, obj: object, source: Source) -> Any:
        """Enter an object whose identity follows from what is guarded already."""

    def enter(self, obj: object, source: Source) -> Any:
        """Bring a pre-existing object in: guard what is looked at, return its proxy (idempotent by identity)."""

    def source_of(self, obj: object) -> Source | None:
        """Source of a proxy (or of a pre-existing function, class, module that entered as itself)."""

    def original_of(self, obj: object) -> Any:
        """The pre-existing object behind a proxy; the object itself when it entered as itself or is new."""

    def is_preexisting(self, obj: object) -> bool:
        """True when ``obj`` is a proxy or entered as itself; False for objects made during the trace."""

    def load_attr(self, obj: object, name: str) -> Any:
        """CPython's full attribute protocol on a object of the trace; raises the real AttributeError."""

    def load_special(self, obj: object, name: str) -> Any:
        """A special method as CPython finds it: on the type, past the instance, bound; AttributeError if missing."""

    def store_attr(self, obj: object, name: str, value: object) -> None: ...

    def delete_attr(self, obj: object, name: str) -> None: ...

    def load_global(self, namespace: dict[str, object], builtins: dict[str, object], name: str) -> Any:
        """LOAD_GLOBAL; raises the real NameError. ``namespace`` is a function's real ``__globals__``."""

    def store_global(self, namespace: dict[str, object], name: str, value: object) -> None: ...

    def delete_global(self, namespace: dict[str, object], name: str) -> None: ...

    def function_parts(
        self, fn: FunctionType
    ) -> tuple[tuple[object, ...], dict[str, object], tuple[CellType, ...]]:
        """(defaults, keyword defaults, closure) of a function in terms of the trace: entered and proxied when pre-existing."""

    def load_cell(self, cell: CellType) -> Any:
        """Content of a proxied or new cell; raises ValueError when empty."""

    def store_cell(self, cell: CellType, value: object) -> None: ...

    def note_new(self, obj: object) -> None:
        """Say that ``obj`` (a function, class, cell, ...) was made during the trace."""

    def note_answers(self, kind: type, classes: Any) -> None:
        """Say that the program was told whether ``kind`` is a subclass of ``classes``, the second argument of ``issubclass``."""

    def is_new(self, obj: object) -> bool:
        """Whether ``obj`` was announced by ``note_new``."""

    def made_at(self, obj: object) -> int | None:
        """The step of the root frame during which a new class was made."""

    def has_other_keys(self, mapping: dict[Any, Any]) -> bool:
        """Whether a dictionary of the outside will have other keys, or another order of them, when the frame is left."""

    def close(self) -> None:
        """Record the guards that are collected until the end of a trace."""

    def expand(self, obj: object) -> None:
        """Materialise a lazy proxy (dict, object) so that C code may look inside it."""

    def enter_constant(self, obj: object, source: Source) -> Any:
        """Enter a number that is never dynamic."""

    def enter_from(self, obj: object, source: Source, stable: bool) -> Any:
        """Enter a member of a namespace; definitions of trusted ones are found again by themselves."""

    def expanded(self, state: LazyDict) -> None: ...

    def add_dict(self, state: LazyDict) -> LazyDict: ...

    def add_instance(self, proxy: object, original_dict: dict[str, Any], source: Source) -> None: ...

    def bind(self, raw: object, obj: object) -> Any:
        """The attribute that a raw class attribute becomes on an instance."""

    def set_order(self, proxy: Any) -> tuple[Any, ...] | None:
        """The members of an entered set in the order in which the original iterates; None when any"""

    def dict_get(self, mapping: dict[Any, Any], key: object) -> Any:
        """Value of a string key of a dict of the trace, or ABSENT."""

    def own_dict(self, obj: object) -> Callable[[str], Any]:
        """Reader of an object's instance dictionary: name to value or ABSENT."""


class Calls(Protocol):
    """Who runs a call: a rule, the interpreter, torch's recorder or CPython (subpackage ``calls``)."""

    scanned: dict[type, int]
    """What ``calls.scan`` knows of classes."""

    @property
    def objects(self) -> Objects: ...

    @property
    def trace(self) -> Trace: ...

    @property
    def forwards(self) -> Mapping[int, Any]: ...

    @property
    def rules(self) -> dict[int, Any]: ...

    def call(self, fn: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call any callable of the trace. Raises what the program raises, or GraphBreak."""

    def call_back(self, fn: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """As ``call``, for C code, which may take an exception for an answer: only the program's come out."""

    def call_linked(self, fn: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """As ``call``, where the result is that of the step of the current frame: the graph may break inside of it."""

    def request(self, what: str, *operands: Any) -> Request | None:
        """The Python function, with its arguments, that does what C code would do (``calls.polyfills``); None to leave it."""

    def native(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a C function for real on objects of the trace; Python frames that it starts come back to the interpreter."""

    def watched(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Run a C function; Python frames that it starts (``__hash__`` of an item) are interpreted."""

    def without_effects(self, keys: Iterable[object]) -> AbstractContextManager[None]:
        """Ends the graph where hashing or comparing ``keys``, which the block does, has effects (``calls.rehashing``)."""

    def special_method(self, obj: object, name: str) -> Any:
        """The Python function that does what ``obj[...]`` or ``obj.name = ...`` asks of the class of ``obj``, or None."""

    def binary(self, op: Callable[[Any, Any], Any], left: object, right: object) -> Any:
        """A function of module ``operator`` of two operands (add, iadd, lt, is_not excluded, contains, getitem, ...)."""

    def unary(self, op: Callable[[Any], Any], value: object) -> Any: ...

    def truth(self, value: object) -> bool:
        """``bool(value)`` as a jump sees it; GraphBreak for tensors."""

    def iterate(self, value: object) -> Any:
        """``iter(value)``: a real iterator object of the trace."""

    def next(self, iterator: object) -> Any:
        """``next(iterator)``; raises StopIteration."""

    def is_leaf(self, fn: Callable[..., Any]) -> bool:
        """``trace.torch.is_leaf``, asked once per callable."""

    def rule_of(self, fn: Any) -> Callable[[Trace, Any, Any], Any] | None:
        """The rule of a callable; of a function written in Python, as long as it has its code."""

    @property
    def leaves(self) -> dict[int, tuple[object, bool]]: ...
