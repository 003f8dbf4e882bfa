"""One interpreted frame: local slots, value stack, position, and the exceptions that are being handled.

A handler reads and changes one frame.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from itertools import islice
from types import BuiltinMethodType, CellType, CodeType, MethodType
from typing import Any, Protocol

from fxstack_capture.breaks import Position
from fxstack_capture.bytecode.null import NULL
from fxstack_capture.interpreter.modules import ModuleStack, with_module
from fxstack_capture.interpreter.program import Program
from fxstack_capture.objects.printed_texts import concrete
from fxstack_capture.trace.protocols import Interpreter
from fxstack_capture.trace.records import DeferredLocal, Link
from fxstack_capture.trace.state import Calls, Objects, Trace


class HandledException:
    """The exception that a thread or generator handles now. CPython: ``_PyErr_StackItem``."""

    __slots__ = ("previous", "value")

    def __init__(self, previous: HandledException | None = None) -> None:
        self.value: BaseException | None = None
        self.previous = previous
        """The record of the frame that resumed the generator. Its exception is the context of new exceptions."""

    def topmost(self) -> BaseException | None:
        """Return the innermost handled exception. ``sys.exc_info()`` returns it. None without one."""
        item: HandledException | None = self
        while item is not None:
            if item.value is not None:
                return item.value
            item = item.previous
        return None


class FrameRunner(Interpreter, Protocol):
    """The part of the interpreter that frames and instruction handlers use."""

    handled: HandledException
    """The exception that the program handles now, in the thread or in the running generator."""

    @property
    def trace(self) -> Trace:
        """The trace that the frame belongs to."""

    def run(self, frame: Frame, error: BaseException | None) -> Any:
        """Run ``frame`` until it returns or yields.

        If ``error`` is given, the frame begins by raising it at its current step.
        """

    def raising(self, error: BaseException) -> BaseException:
        """Return ``error``, an exception that the program raises here.

        The interpreter adds the context and the traceback entry.
        """

    def reraising(self, error: BaseException, *, counted: bool = True) -> BaseException:
        """Return ``error``, an exception that propagates. It is not raised anew, so the interpreter keeps its
        context.

        ``counted``: the traceback already has an entry for the current frame.
        """

    def close_dropped(self, generator: Any) -> None:
        """Close a generator whose last reference has been dropped."""


class Frame:
    """The state of a running or suspended frame.

    ``fast`` are CPython's "locals plus": locals, cells and free variables, ``NULL`` when unbound. ``names``
    is the namespace of a class body, and None in functions. ``pc`` is the index of the current step of
    ``program``. ``back`` is the calling frame. ``depth`` is the number of callers. ``suspended``: the frame
    belongs to a generator that waits at a ``yield``. ``handling`` is the number of exceptions that blocks of
    the frame handle now. ``defers``: arguments of the frame are deferred locals. ``link`` is set if a resume
    function can continue the frame (``stopping``). With ``link``, ``handled_outside`` is the exception that
    the frame's callers handle. ``modules``, ``outer_stack`` and ``stack_at`` are caches of ``module_stack``
    and ``user_stack``.
    """

    __slots__ = (
        "back",
        "builtins",
        "calls",
        "closure",
        "code",
        "defers",
        "depth",
        "fast",
        "globals",
        "handled_outside",
        "handling",
        "interp",
        "link",
        "modules",
        "names",
        "objects",
        "outer_stack",
        "pc",
        "program",
        "stack",
        "stack_at",
        "suspended",
    )

    def __init__(
        self, interp: FrameRunner, fn: Any, program: Program, fast: list[Any], closure: tuple[CellType, ...]
    ) -> None:
        self.interp = interp
        self.objects: Objects = interp.trace.objects
        self.calls: Calls = interp.trace.calls
        self.code: CodeType = fn.__code__
        self.program = program
        self.fast = fast
        self.globals: dict[str, object] = fn.__globals__
        self.builtins: dict[str, object] = fn.__builtins__
        self.closure = closure
        self.names: Any = None
        self.stack: list[Any] = []
        self.pc = 0
        self.handling = 0
        self.handled_outside: BaseException | None = None
        self.link: Link | None = None
        self.suspended = False
        self.defers = False
        self.back: Frame | None = None
        self.depth = 0
        self.modules: ModuleStack | None = None
        self.outer_stack: tuple[tuple[str, int, str], ...] | None = None
        self.stack_at: tuple[int, tuple[tuple[str, int, str], ...]] = -1, ()

    @property
    def line(self) -> int:
        """The line number of the current step. If the step has no line, the line of the definition."""
        return self.program.lines[self.pc]

    def user_stack(self) -> tuple[tuple[str, int, str], ...]:
        """Return (file, line, qualified function name) of this frame and its callers, innermost last."""
        # The callers wait while this frame runs, so their part is computed once.
        if self.outer_stack is None:
            self.outer_stack = () if self.back is None else self.back.user_stack()
        at, stack = self.stack_at
        if at != self.pc:
            code = self.code
            entry = (code.co_filename, self.line, code.co_qualname)
            stack = self.outer_stack if self.program.hidden else (*self.outer_stack, entry)
            self.stack_at = self.pc, stack
        return stack

    def user_positions(self) -> tuple[Position, ...]:
        """Return (line, end line, column, end column) of the current expression in each frame of
        ``user_stack``.

        Graph break records show these expressions.
        """
        outer = () if self.back is None else self.back.user_positions()
        if self.program.hidden:
            return outer
        # ``co_positions`` has one entry for each code unit of two bytes.
        at = self.program.offsets[self.pc] // 2
        return (*outer, next(islice(self.code.co_positions(), at, None)))

    def receivers(self) -> list[tuple[int, int]]:
        """Return the blocks of the program that can act on an exception of the current step.

        Each block is the ``id`` of the code object and the index of the block's first step.
        """
        blocks = self.program.receivers.get(self.pc, ())
        return [
            (id(self.code), at.target) for at in blocks if not (at.is_with and self._only_restores(at.depth))
        ]

    def _only_restores(self, depth: int) -> bool:
        """Return whether a ``with`` block cannot act on exceptions, because its context only sets and
        restores a flag.

        The ``__exit__`` of the context is on top of ``depth`` stack values.
        """
        # The ``__exit__`` of such a context never suppresses an exception.
        leave = self.stack[depth - 1]
        if leave is NULL:
            leave = self.stack[depth - 2]
        owner = type(leave.__self__) if isinstance(leave, MethodType | BuiltinMethodType) else None
        return owner is not None and (owner is nullcontext or owner.__module__.partition(".")[0] == "torch")

    def module_stack(self) -> ModuleStack:
        """Return the modules whose ``forward`` runs in this frame and its callers (``modules.ModuleStack``).

        The result is computed once for each frame.
        """
        if self.modules is None:
            outer = {} if self.back is None else self.back.module_stack()
            self.modules = with_module(outer, self.code, self.fast, self.objects)
        return self.modules

    def value_of(self, index: int) -> Any:
        """Return the value of the variable or cell in slot ``index``, or NULL.

        ``locals()``, ``super()`` and the rebuilding of generators read variables by this method.
        """
        value = self.fast[index]
        # These readers must not see a deferred local. The slot keeps the wrapped value, so that later reads
        # give the same object.
        if type(value) is DeferredLocal:
            value = self.fast[index] = self.objects.enter(value.value, value.source)
        value = concrete(self.interp.trace, value)
        if index in self.program.cell_indices and type(value) is CellType:
            try:
                return self.objects.load_cell(value)
            except ValueError:
                return NULL
        return value

    def peek(self) -> dict[str, Any]:
        """Return the bound variables by name. A variable that the program has not read stays
        ``DeferredLocal``.
        """
        return self._bound(self._peek_at)

    def _bound(self, value_of: Callable[[int], Any]) -> dict[str, Any]:
        """Return the bound variables by name. For a class body, return its namespace.

        ``value_of`` takes a slot and returns its value or NULL.
        """
        if self.names is not None:
            names: dict[str, Any] = self.names
            return names
        pairs = ((name, value_of(index)) for index, name in enumerate(self.program.names))
        return {name: value for name, value in pairs if value is not NULL}

    def _peek_at(self, index: int) -> Any:
        """Return the variable in slot ``index`` without wrapping it, or NULL if it is unbound.

        For a cell, return its content.
        """
        value = self.fast[index]
        if index in self.program.cell_indices and type(value) is CellType:
            try:
                return value.cell_contents
            except ValueError:
                return NULL
        return value

    def local_values(self) -> dict[str, Any]:
        """Return the bound variables by name, as wrapped objects of the trace. ``locals()`` returns this."""
        return self._bound(self.value_of)
