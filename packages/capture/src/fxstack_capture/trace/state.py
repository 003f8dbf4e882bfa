"""The state of one attempt to trace one frame, and the protocols of its object model and its call dispatcher.

``Trace``, ``Objects`` and ``Calls`` refer to each other, so one module defines all three.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from types import CellType, FunctionType
from typing import Any, Protocol

from fxstack_capture.guards.records import Check, GuardSet
from fxstack_capture.options import CaptureOptions
from fxstack_capture.shapes.chosen import NOTHING_CHOSEN, Choices
from fxstack_capture.shapes.contract import Bound
from fxstack_capture.sources import Source
from fxstack_capture.trace.class_recipes import Recipes
from fxstack_capture.trace.effects import Effect
from fxstack_capture.trace.lazy_dict import LazyDict
from fxstack_capture.trace.object_records import Parts, ProxiedCell
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
from fxstack_capture.trace.registry import Registry
from fxstack_capture.trace.seams import Interpreter, TorchSide

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Request = tuple[Any, tuple[Any, ...]]


@dataclass(slots=True)
class Trace:
    """One attempt. The driver sets the parts. Each part reaches the other parts through this record."""

    options: CaptureOptions
    guards: GuardSet
    objects: Objects
    calls: Calls
    torch: TorchSide
    interp: Interpreter
    for_entry: bool = True
    """Whether the replacement becomes an entry. The guards of an entry read the graph's inputs for it."""
    contract: Bound | None = None
    """The shape contract of the arguments, or None."""
    choices: Choices = NOTHING_CHOSEN
    """The sizes and numbers that the program has made symbolic."""
    exporting: bool = False
    """Whether the graph is the result of ``export`` instead of code for this call."""
    may_defer: bool = False
    """Whether this call of the frame may run in plain Python."""
    may_fall_back: bool = False
    """Whether the replacement may fall back to eager."""
    polyfills: bool = False
    """Whether polyfills replace C code that calls the program's functions, so that the graph can break."""

    def guard(self, source: Source, check: Check) -> None:
        self.guards.add(source, check, self.interp.user_stack())


class Objects(Protocol):
    """The object model: proxies of the program's objects (folder ``objects``)."""

    recipes: Recipes
    """The classes that the program made, and that the replacement code can make anew."""

    opaque: set[int]
    """Ids of pre-existing objects that the program may pass on but not read, for example iterators."""

    context: dict[ContextVar[Any], Any]
    """The values that the program wrote to context variables."""

    tokens: dict[int, tuple[Token[Any], Any]]
    """The result of ``ContextVar.set`` and the value before, by the id of the result."""

    set_orders: dict[int, tuple[Any, ...]]
    """The members of sets of objects in the order of the original, by the id of the proxy."""

    @property
    def append_only(self) -> AppendOnly:
        """Append-only lists."""

    @property
    def iterators(self) -> Iterators:
        """Partially consumed iterators."""

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
        """The original contents of the slots of proxies: by id of the proxy, then by descriptor.

        The contents are those of the first read.
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
        """The items that eagerly copied containers held when they were wrapped, by id of the proxy."""

    deferred: list[Effect]
    """Calls that the replacement code makes when the frame ends."""

    def namespace(self, namespace: dict[str, object]) -> Any:
        """Return the ``LazyDict`` of a module's namespace."""

    def enter_as_itself(self, obj: object, source: Source) -> Any:
        """Register ``obj`` as its own proxy. Existing guards already imply the identity of ``obj``."""

    def enter(self, obj: object, source: Source) -> Any:
        """Wrap a pre-existing object: guard what the trace reads, return the proxy.

        One object has one proxy.
        """

    def source_of(self, obj: object) -> Source | None:
        """Return the source of a proxy, or of a function, class or module that is its own proxy."""

    def original_of(self, obj: object) -> Any:
        """Return the pre-existing object of a proxy. Return ``obj`` if it is its own proxy or new."""

    def is_preexisting(self, obj: object) -> bool:
        """Return whether ``obj`` is a proxy or its own proxy.

        Return False for objects made during the trace.
        """

    def load_attr(self, obj: object, name: str) -> Any:
        """Follow CPython's full attribute protocol on an object of the trace.

        Raises the real AttributeError.
        """

    def load_special(self, obj: object, name: str) -> Any:
        """Load a special method as CPython does: from the type, not the instance, and bound.

        Raises AttributeError if the type has no such method.
        """

    def store_attr(self, obj: object, name: str, value: object) -> None: ...

    def delete_attr(self, obj: object, name: str) -> None: ...

    def load_global(self, namespace: dict[str, object], builtins: dict[str, object], name: str) -> Any:
        """Run LOAD_GLOBAL.

        ``namespace`` is the real ``__globals__`` of a function. Raises the real NameError.
        """

    def store_global(self, namespace: dict[str, object], name: str, value: object) -> None: ...

    def delete_global(self, namespace: dict[str, object], name: str) -> None: ...

    def function_parts(
        self, fn: FunctionType
    ) -> tuple[tuple[object, ...], dict[str, object], tuple[CellType, ...]]:
        """Return defaults, keyword defaults and closure of a function.

        The parts of a pre-existing function are wrapped.
        """

    def load_cell(self, cell: CellType) -> Any:
        """Return the content of a proxied or new cell. Raises ValueError if the cell is empty."""

    def store_cell(self, cell: CellType, value: object) -> None: ...

    def note_new(self, obj: object) -> None:
        """Record that the program made ``obj`` (a function, class, cell, ...) during the trace."""

    def note_answers(self, kind: type, classes: Any) -> None:
        """Record that the program called ``issubclass(kind, classes)`` and received the answer."""

    def is_new(self, obj: object) -> bool:
        """Whether the program made ``obj`` during the trace."""

    def made_at(self, obj: object) -> int | None:
        """Return the step of the root frame in which the program made a class."""

    def has_other_keys(self, mapping: dict[Any, Any]) -> bool:
        """Whether a dictionary from outside will have other keys, or another key order, after the frame."""

    def close(self) -> None:
        """Record the guards that depend on the whole trace."""

    def expand(self, obj: object) -> None:
        """Fill a lazy proxy (of a dictionary or object) completely, so that C code may read it."""

    def enter_constant(self, obj: object, source: Source) -> Any:
        """Wrap a number as a constant. Such a number never becomes dynamic."""

    def enter_from(self, obj: object, source: Source, stable: bool) -> Any:
        """Wrap a member of a namespace. A definition of a stable module gets a source of its own."""

    def expanded(self, state: LazyDict) -> None: ...

    def add_dict(self, state: LazyDict) -> LazyDict: ...

    def add_instance(self, proxy: object, original_dict: dict[str, Any], source: Source) -> None: ...

    def bind(self, raw: object, obj: object) -> Any:
        """Bind a raw class attribute to ``obj``, as an attribute load does."""

    def set_order(self, proxy: Any) -> tuple[Any, ...] | None:
        """Return the members of a wrapped set in the iteration order of the original set.

        Return None if any order is correct.
        """

    def dict_get(self, mapping: dict[Any, Any], key: object) -> Any:
        """Return the value of a string key of a dictionary of the trace, or ABSENT."""

    def own_dict(self, obj: object) -> Callable[[str], Any]:
        """Return a reader of an object's instance dictionary. The reader maps a name to a value or ABSENT."""


class Calls(Protocol):
    """Dispatch of calls to a rule, the interpreter, torch's recorder or CPython (subpackage ``calls``)."""

    scanned: dict[type, int]
    """Maps each class to the flags and the walk that ``calls.scan`` uses."""

    @property
    def objects(self) -> Objects: ...

    @property
    def trace(self) -> Trace: ...

    @property
    def rules(self) -> dict[int, Any]: ...

    def call(self, fn: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call any callable of the trace. Raises the program's exceptions and GraphBreak."""

    def call_back(self, fn: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call ``fn`` as ``call`` does, on behalf of C code. Only exceptions of the program come out.

        C code may treat an exception as an answer, so exceptions of the tracer must not pass through C code.
        """

    def call_linked(self, fn: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call ``fn`` as ``call`` does, as a resumable call: the graph may break inside of the callee.

        The result of the call is the result of the frame's current instruction.
        """

    def is_interpreted(self, fn: FunctionType) -> bool:
        """Whether a call of ``fn`` interprets its code, and no rule or marker of a library applies."""

    def request(self, what: str, *operands: Any) -> Request | None:
        """Return the polyfill of a C function, with its arguments (``calls.polyfills``), or None."""

    def native(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a C function on objects of the trace.

        The interpreter runs Python frames that the C function starts.
        """

    def watched(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Run a C function.

        The interpreter runs Python frames that the C function starts (``__hash__`` of an item).
        """

    def without_effects(self, keys: Iterable[object]) -> AbstractContextManager[None]:
        """Break the graph if hashing or comparing ``keys`` in the block has effects (``calls.rehashing``)."""

    def special_method(self, obj: object, name: str) -> Any:
        """Return the Python function that implements ``obj[...]`` or ``obj.name = ...``, or None."""

    def binary(self, op: Callable[[Any, Any], Any], left: object, right: object) -> Any:
        """Call a binary function of module ``operator``: add, iadd, lt, contains, getitem, but not
        ``is_not``.
        """

    def unary(self, op: Callable[[Any], Any], value: object) -> Any: ...

    def truth(self, value: object) -> bool:
        """Return ``bool(value)`` for a conditional jump. Raises GraphBreak for tensors."""

    def iterate(self, value: object) -> Any:
        """Return ``iter(value)``: a real iterator over objects of the trace."""

    def next(self, iterator: object) -> Any:
        """Return ``next(iterator)``. Raises StopIteration."""

    def is_leaf(self, fn: Callable[..., Any]) -> bool:
        """Return ``trace.torch.is_leaf(fn)``, cached per callable."""

    def rule_of(self, fn: Any) -> Callable[..., Any] | None:
        """Return the rule of a callable by identity. A Python function has a rule only while it has its original code."""

    @property
    def leaves(self) -> dict[int, tuple[object, bool]]: ...
