"""The state of one attempt to trace one frame, with its object model.

``Trace``, ``Objects`` and ``Calls`` refer to each other, so one module defines all three.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import CellType, FunctionType
from typing import Any, Protocol

from fxstack_capture.guards.records import Check, GuardSet, IdentityIs
from fxstack_capture.options import CaptureOptions
from fxstack_capture.shapes.chosen import NOTHING_CHOSEN, Choices
from fxstack_capture.shapes.contract import Bound
from fxstack_capture.sources import Globals, Source, pinned
from fxstack_capture.trace.late_guards.addresses import Addresses
from fxstack_capture.trace.late_guards.class_reads import ClassReads
from fxstack_capture.trace.late_guards.distinctness import Distinctions
from fxstack_capture.trace.late_guards.recreated_functions import RecreatedFunctions
from fxstack_capture.trace.late_guards.stable_modules import is_stable_module
from fxstack_capture.trace.lazy_dict import ABSENT, LazyDict
from fxstack_capture.trace.object_tables import ObjectTables
from fxstack_capture.trace.protocols import Interpreter, TorchSide
from fxstack_capture.trace.random_draws import Draws
from fxstack_capture.trace.records import TracePlan

Args = tuple[Any, ...]
Kwargs = dict[str, Any]
Request = tuple[Any, tuple[Any, ...]]
"""A polyfill and its arguments."""


@dataclass(slots=True)
class Trace:
    """One attempt to trace a frame.

    The driver sets the parts. Each part reaches the other parts through this record.
    """

    options: CaptureOptions
    guards: GuardSet
    """The conditions under which the compiled code is valid."""
    objects: Objects
    calls: Calls
    torch: TorchSide
    interp: Interpreter
    for_entry: bool = True
    """Whether the replacement becomes an entry. The guards of an entry also read the inputs of the graph."""
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
    plan: TracePlan = field(default_factory=TracePlan)
    """The conclusions of earlier attempts to trace the frame."""
    call_raises: Callable[[], BaseException | None] = lambda: None
    """Called at each call that may raise for tensor data. Returns an error that the call is to raise."""

    def guard(self, source: Source, check: Check) -> None:
        """Add a guard, with the line of the program that needs it."""
        self.guards.add(source, check, self.interp.user_stack())


class Objects(ObjectTables, ABC):
    """The object model: proxies of the program's objects.

    The base class holds the tables. The folder ``objects`` implements the abstract methods (``ObjectModel``).
    """

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self.trace = trace
        self.classes = ClassReads(self.registry, trace.guard, self.enter)
        """The class attributes that the trace has read, with the guards on them."""
        self.distinctions = Distinctions(self.registry, trace.guard, self.varies)
        """Objects that must stay different in later calls."""
        self.addresses = Addresses(
            self.registry,
            trace.guard,
            self.distinctions.note_identified,
            lambda: trace.interp.current_frame().globals.get("__name__") == "copy",
        )
        """The results of ``id`` and ``hash`` that the program has received."""
        is_interpreted = lambda fn: trace.calls.is_interpreted(fn)  # noqa: E731, PLW0108 - set later
        self.recreated = RecreatedFunctions(trace.guard, is_interpreted)
        """Functions that are new in each call, and are guarded by their code."""
        self.draws = Draws(self.source_of, lambda: trace.torch.geometry)
        """Random numbers that the frame draws in each call."""

    # --- the registry ------------------------------------------------------------------------

    def source_of(self, obj: object) -> Source | None:
        """Return the source of a proxy, or of a function, class or module that is its own proxy."""
        entry = self.registry.by_proxy.get(id(obj))
        return None if entry is None else entry.source

    def original_of(self, obj: object) -> Any:
        """Return the object from outside of a proxy. Return ``obj`` if it is its own proxy or new."""
        entry = self.registry.by_proxy.get(id(obj))
        return obj if entry is None else entry.original

    def is_preexisting(self, obj: object) -> bool:
        """Whether ``obj`` is a proxy or its own proxy, and not made during the trace."""
        return id(obj) in self.registry.by_proxy

    def is_new(self, obj: object) -> bool:
        """Whether the program made ``obj`` during the trace."""
        return self.registry.is_new(obj)

    def note_new(self, obj: object) -> None:
        """Record that the program made ``obj`` (a function, class, cell, ...) during the trace.

        New objects need no guards, and the program may change them.
        """
        self.registry.new[id(obj)] = obj
        if isinstance(obj, type):
            self._made_at[id(obj)] = self.trace.interp.root_step

    def made_at(self, obj: object) -> int | None:
        """Return the step of the root frame in which the program made a class, or None for other objects."""
        return self._made_at.get(id(obj))

    def varies(self, obj: object) -> bool:
        """Whether the next call may have another object in place of ``obj``, which is its own proxy."""
        return id(obj) in self.opaque or id(obj) in self.guarded_by_repr or id(obj) in self.contexts

    # --- lazy dictionaries -------------------------------------------------------------------

    def add_dict(self, state: LazyDict) -> LazyDict:
        """Register a lazily read dictionary. Its proxy then stands for the real dictionary."""
        self.registry.add(state.original, state.proxy, state.source)
        self.dicts[id(state.proxy)] = self.lazy[id(state.proxy)] = state
        return state

    def add_instance_dict(
        self,
        obj: object,
        original: dict[str, Any],
        proxy: dict[str, Any],
        source: Source,
        *,
        stable: bool = False,
    ) -> LazyDict:
        """Register ``original``, the instance dictionary of ``obj``, for lazy reads. ``obj`` is a proxy."""
        state = LazyDict(self, original, proxy, source, stable=stable, uniform=True)
        self.instances[id(obj)] = state
        return self.add_dict(state)

    def note_expanded(self, state: LazyDict) -> None:
        """Record that ``state`` has read all items. ``LazyDict.expand`` calls this method."""
        self.lazy.pop(id(state.proxy), None)

    def namespace(self, namespace: dict[str, object]) -> LazyDict:
        """Return the state of a module's or function's globals, for the real dictionary or its proxy."""
        state = self.namespaces.get(id(namespace))
        if state is not None:
            return state
        if id(namespace) in self.dicts:
            return self.dicts[id(namespace)]
        # The program may have read the dictionary as an object (``globals()``) before.
        entry = self.registry.by_original.get(id(namespace))
        if entry is not None:
            return self.dicts[id(entry.proxy)]
        name = namespace.get("__name__", "?")
        source = pinned(namespace, f"globals of {name}")
        # Functions with one code object may have several globals. The entry is valid for one of them.
        if namespace is self.root_globals:
            self.trace.guard(Globals(), IdentityIs(namespace, id(namespace)))
        state = LazyDict(self, namespace, {}, source, stable=is_stable_module(name), uniform=True)
        self.namespaces[id(namespace)] = state
        return self.add_dict(state)

    # --- globals -----------------------------------------------------------------------------

    def load_global(self, namespace: dict[str, object], builtins: dict[str, object], name: str) -> Any:
        """Run LOAD_GLOBAL.

        ``namespace`` is the real ``__globals__`` of a function. Raises the real NameError.
        """
        # This is the most frequent load of an object, so it reads the dictionaries without further calls.
        state = self.namespaces.get(id(namespace)) or self.namespace(namespace)
        if self.reads is not None:
            self.reads.append((state.original, name))
        value = state.proxy.get(name, ABSENT)
        if value is not ABSENT:
            return value
        value = state.get(name)
        if value is not ABSENT:
            return value
        state = self.namespaces.get(id(builtins)) or self.namespace(builtins)
        value = state.get(name)
        if value is ABSENT:
            raise NameError(f"name '{name}' is not defined", name=name)
        return value

    def store_global(self, namespace: dict[str, object], name: str, value: object) -> None:
        """Run STORE_GLOBAL. The write is a side effect, and the real namespace stays unchanged."""
        self.namespace(namespace).put(name, value)

    def delete_global(self, namespace: dict[str, object], name: str) -> None:
        """Run DELETE_GLOBAL. Raises the real NameError."""
        if not self.namespace(namespace).remove(name):
            raise NameError(f"name '{name}' is not defined", name=name)

    # --- wrapping and attributes, which ``ObjectModel`` implements ---------------------------

    @abstractmethod
    def enter(self, obj: object, source: Source) -> Any:
        """Wrap an object from outside: guard what the trace reads, return the proxy.

        One object has one proxy.
        """

    @abstractmethod
    def enter_from(self, obj: object, source: Source, stable: bool) -> Any:
        """Wrap a member of a namespace.

        A definition of a stable module gets a source of its own, so that its guards do not depend on
        the path to it.
        """

    @abstractmethod
    def expand(self, obj: object) -> None:
        """Fill a lazy proxy (of a dictionary or object) completely, so that C code may read it.

        Every item is then guarded.
        """

    @abstractmethod
    def bind(self, raw: object, obj: object) -> Any:
        """Bind a raw class attribute to ``obj``, as an attribute load does."""

    @abstractmethod
    def load_attr(self, obj: object, name: str) -> Any:
        """Follow CPython's full attribute protocol on an object of the trace.

        Raises the real AttributeError.
        """

    @abstractmethod
    def load_special(self, obj: object, name: str) -> Any:
        """Load a special method as CPython does: from the type, not the instance, and bound.

        Raises AttributeError if the type has no such method.
        """

    @abstractmethod
    def store_attr(self, obj: object, name: str, value: object) -> None:
        """Follow CPython's attribute protocol for a store. An object from outside is not written."""

    @abstractmethod
    def delete_attr(self, obj: object, name: str) -> None:
        """Follow CPython's attribute protocol for a deletion. Raises the real AttributeError."""

    @abstractmethod
    def function_parts(
        self, fn: FunctionType
    ) -> tuple[tuple[object, ...], dict[str, object], tuple[CellType, ...]]:
        """Return defaults, keyword defaults and closure of a function.

        The parts of a function from outside are wrapped.
        """

    @abstractmethod
    def load_cell(self, cell: CellType) -> Any:
        """Return the content of a proxied or new cell. Raises ValueError if the cell is empty."""

    @abstractmethod
    def close(self) -> None:
        """Record the guards that depend on the whole trace. Called once, after the last instruction."""


class Calls(Protocol):
    """Dispatch of calls to a rule, the interpreter, torch's recorder or CPython (subpackage ``calls``)."""

    scanned: dict[type, int]
    """Maps each class to the flags and the walk that ``calls.scan`` uses."""

    @property
    def objects(self) -> Objects:
        """The object model of the trace."""

    @property
    def trace(self) -> Trace:
        """The trace to which the dispatch belongs."""

    @property
    def rules(self) -> dict[int, Any]:
        """Rules by the id of the callable that they replace."""

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

    def request(self, name: str, *operands: Any) -> Request | None:
        """Return the polyfill of an operation, with its arguments (``calls.polyfills``).

        ``name`` is the operation: a truth test, an attribute load, ``next``. Return None if C code
        can run on the operands.
        """

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

    def unary(self, op: Callable[[Any], Any], value: object) -> Any:
        """Call a unary function of module ``operator``."""

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
    def leaves(self) -> dict[int, tuple[object, bool]]:
        """The cached answers of ``is_leaf``, with the callable, by the id of the callable."""
