"""The state of one attempt to trace one frame, with its object model.

``Trace``, ``Objects`` and ``Calls`` refer to each other, so they are defined in one module.
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

    The driver makes this record and sets its parts. Each part reaches the other parts through it.
    """

    options: CaptureOptions
    guards: GuardSet
    """The conditions under which the compiled code is valid."""
    objects: Objects
    calls: Calls
    torch: TorchSide
    interp: Interpreter
    for_entry: bool = True
    """Whether the replacement becomes an entry.

    False for ``capture`` and ``export``, which need only the graph. For an entry, the guard check also stores
    the inputs of the graph.
    """
    contract: Bound | None = None
    """The shape contract of the arguments, or None."""
    choices: Choices = NOTHING_CHOSEN
    """The sizes and numbers that the program has made symbolic."""
    exporting: bool = False
    """Whether the graph is the result of ``export``. Otherwise it is code for this call."""
    may_defer: bool = False
    """Whether this call of the frame may run in plain Python, so that only a later call is compiled.

    Rules ask this where a call only prepares state, for example fills a cache.
    """
    may_fall_back: bool = False
    """Whether the replacement may fall back to eager if the graph raises."""
    plan: TracePlan = field(default_factory=TracePlan)
    """The conclusions of earlier attempts to trace the frame."""
    call_raises: Callable[[], BaseException | None] = lambda: None
    """Called at each call that may raise because of tensor data.

    It returns the error that the call must raise, or None. The driver sets it to find out what the program
    does with such an error.
    """
    trial_error: BaseException | None = None
    """The error that ``call_raises`` has returned. Nothing but the program's handlers may replace it."""

    def guard(self, source: Source, check: Check) -> None:
        """Add a guard that the object at ``source`` satisfies ``check``. The guard records the program's line
        that needs it.
        """
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
        """Functions that are new in each call. They are guarded by their code."""
        self.draws = Draws(self.source_of, lambda: trace.torch.geometry)
        """Random numbers that the frame draws in each call."""

    # --- the registry ------------------------------------------------------------------------

    def source_of(self, obj: object) -> Source | None:
        """Return the source of a proxy, or of an object from outside that is its own proxy. None for a new
        object.
        """
        entry = self.registry.by_proxy.get(id(obj))
        return None if entry is None else entry.source

    def original_of(self, obj: object) -> Any:
        """Return the object from outside that a proxy represents.

        Return ``obj`` itself if it is its own proxy, or if it is new.
        """
        entry = self.registry.by_proxy.get(id(obj))
        return obj if entry is None else entry.original

    def is_preexisting(self, obj: object) -> bool:
        """Whether ``obj`` represents an object from outside: a proxy, or an object that is its own proxy."""
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
        """Return the step of the root frame in which the program made a class. None for any other object.

        If the class cannot be rebuilt, the next attempt ends the graph before this step.
        """
        return self._made_at.get(id(obj))

    def varies(self, obj: object) -> bool:
        """Whether the next call may have another object in place of ``obj``, which is its own proxy.

        ``Distinctions`` asks this: such objects need guards that they stay different.
        """
        return id(obj) in self.opaque or id(obj) in self.guarded_by_repr or id(obj) in self.contexts

    # --- lazy dictionaries -------------------------------------------------------------------

    def add_dict(self, state: LazyDict) -> LazyDict:
        """Register a lazily read dictionary.

        From then on, the trace uses the proxy of the dictionary in place of the real dictionary.
        """
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
        """Register ``original``, the instance dictionary of the object that ``obj`` represents, for lazy
        reads.

        ``proxy`` is the dictionary to fill. For ``stable``, see ``LazyDict``.
        """
        state = LazyDict(self, original, proxy, source, stable=stable, uniform=True)
        self.instances[id(obj)] = state
        return self.add_dict(state)

    def note_expanded(self, state: LazyDict) -> None:
        """Record that ``state`` has read all items. C code may now read its proxy.

        ``LazyDict.expand`` calls this method.
        """
        self.lazy.pop(id(state.proxy), None)

    def namespace(self, namespace: dict[str, object]) -> LazyDict:
        """Return the state of the globals of a module or function.

        ``namespace`` is the real dictionary or its proxy. The first call registers the dictionary.
        """
        state = self.namespaces.get(id(namespace))
        if state is not None:
            return state
        if id(namespace) in self.dicts:
            return self.dicts[id(namespace)]
        # The program may have read the dictionary as an object before (``globals()``).
        entry = self.registry.by_original.get(id(namespace))
        if entry is not None:
            return self.dicts[id(entry.proxy)]
        name = namespace.get("__name__", "?")
        source = pinned(namespace, f"globals of {name}")
        # Functions with one code object may have different globals. The entry is valid only for one of them.
        if namespace is self.root_globals:
            self.trace.guard(Globals(), IdentityIs(namespace, id(namespace)))
        state = LazyDict(self, namespace, {}, source, stable=is_stable_module(name), uniform=True)
        self.namespaces[id(namespace)] = state
        return self.add_dict(state)

    # --- globals -----------------------------------------------------------------------------

    def load_global(self, namespace: dict[str, object], builtins: dict[str, object], name: str) -> Any:
        """Run LOAD_GLOBAL for the interpreter.

        ``namespace`` is the real ``__globals__`` of a function. Raises the real NameError.
        """
        # This is the most frequent load, so it reads the dictionaries without further calls.
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
        """Run STORE_GLOBAL for the interpreter.

        The write is a side effect. The real namespace stays unchanged.
        """
        self.namespace(namespace).put(name, value)

    def delete_global(self, namespace: dict[str, object], name: str) -> None:
        """Run DELETE_GLOBAL for the interpreter. Raises the real NameError."""
        if not self.namespace(namespace).remove(name):
            raise NameError(f"name '{name}' is not defined", name=name)

    # --- wrapping and attributes, which ``ObjectModel`` implements ---------------------------

    @abstractmethod
    def enter(self, obj: object, source: Source) -> Any:
        """Wrap an object from outside, at each read. Guard the facts that the trace depends on, and return
        the proxy.

        One object has one proxy.
        """

    @abstractmethod
    def enter_from(self, obj: object, source: Source, stable: bool) -> Any:
        """Wrap a value in a dictionary, for ``LazyDict``.

        ``stable``: the dictionary belongs to a stable module. A definition in it gets a source of its own, so
        its guards do not depend on the path to it.
        """

    @abstractmethod
    def expand(self, obj: object) -> None:
        """Fill a lazy proxy (of a dictionary, list or object) with all items, and guard each item.

        Called before C code reads the proxy.
        """

    @abstractmethod
    def bind(self, raw: object, obj: object) -> Any:
        """Bind a raw class attribute to ``obj``, as an attribute load does.

        ``ClassReads.lookup`` has returned the raw attribute.
        """

    @abstractmethod
    def load_attr(self, obj: object, name: str) -> Any:
        """Load an attribute of an object of the trace by CPython's full attribute protocol.

        Instructions and rules load attributes by this method. Raises the real AttributeError.
        """

    @abstractmethod
    def load_special(self, obj: object, name: str) -> Any:
        """Load a special method as CPython does: look it up in the type, not the instance, and bind it.

        Used for ``with`` statements. Raises AttributeError if the type has no such method.
        """

    @abstractmethod
    def store_attr(self, obj: object, name: str, value: object) -> None:
        """Store an attribute by CPython's attribute protocol.

        An object from outside is not written itself: the write is a side effect.
        """

    @abstractmethod
    def delete_attr(self, obj: object, name: str) -> None:
        """Delete an attribute by CPython's attribute protocol. Raises the real AttributeError."""

    @abstractmethod
    def function_parts(
        self, fn: FunctionType
    ) -> tuple[tuple[object, ...], dict[str, object], tuple[CellType, ...]]:
        """Return the defaults, keyword defaults and closure of a function. They bind the arguments of a call.

        The parts of a function from outside are wrapped.
        """

    @abstractmethod
    def load_cell(self, cell: CellType) -> Any:
        """Return the content of a cell, proxied or new. Raises ValueError if the cell is empty."""

    @abstractmethod
    def close(self) -> None:
        """Add the guards that depend on the whole trace. Called once, after the last instruction."""


class Calls(Protocol):
    """Dispatch of calls to a rule, the interpreter, torch's recorder or CPython. The folder ``calls``
    implements it.
    """

    scanned: dict[type, int]
    """Maps a class to bits that say how ``calls.scan`` treats its instances as arguments of a C function."""

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
        """Call ``fn`` as ``call`` does, on behalf of C code.

        C code may handle an exception as an answer. Therefore an exception of the tracer becomes a graph
        break here, and never passes through C code.
        """

    def call_linked(self, fn: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call ``fn`` as ``call`` does. In addition, the graph can break inside of the callee and resume
        there.

        The result of the call must be the result of the frame's current instruction.
        """

    def is_interpreted(self, fn: FunctionType) -> bool:
        """Whether a call of ``fn`` interprets its code. If a rule or a marker of a library applies, it does
        not.
        """

    def request(self, name: str, *operands: Any) -> Request | None:
        """Return the polyfill of an operation with its arguments (``calls.polyfills``). None if C code can
        run.

        ``name`` is the operation, for example ``"truth"``, ``"attribute"`` or ``"advance"``.
        """

    def native(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run a C function on objects of the trace.

        Lazy arguments are expanded first. If the C function calls Python functions, the interpreter runs
        them.
        """

    def watched(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Run a C function of the tracer itself, such as ``dict.__setitem__`` of a wrapped key.

        If the C function calls Python functions (``__hash__`` of the key), the interpreter runs them.
        """

    def without_effects(self, keys: Iterable[object]) -> AbstractContextManager[None]:
        """Break the graph if hashing or comparing ``keys`` has side effects inside the block
        (``calls.rehashing``).

        The tracer enters the block to fill the proxy of a dictionary or set. Plain Python hashes no key
        there.
        """

    def special_method(self, obj: object, name: str) -> Any:
        """Return the Python function that implements ``obj[...]`` or ``obj.name = ...`` for ``obj``. None if
        C code does.

        ``name`` is ``"__getitem__"``, ``"__setitem__"`` or ``"__setattr__"``.
        """

    def binary(self, op: Callable[[Any, Any], Any], left: object, right: object) -> Any:
        """Call a binary function of module ``operator`` (add, iadd, lt, contains, getitem, ...). ``is_not``
        is excluded.
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
        """Return ``trace.torch.is_leaf(fn)``. The answer is cached per callable."""

    def rule_of(self, fn: Any) -> Callable[..., Any] | None:
        """Return the rule that is registered for exactly this callable, or None.

        A Python function has a rule only as long as it has its original code. The code is guarded.
        """

    @property
    def leaves(self) -> dict[int, tuple[object, bool]]:
        """The cached answers of ``is_leaf``. The key is the id of the callable; the value has the callable
        and the answer.
        """
