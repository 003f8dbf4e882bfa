"""Comptime code: code that runs while the surrounding code is traced. It inspects locals, stack, graph and
guards.

In compiled code, ``comptime(fn)`` calls ``fn`` with a ``ComptimeContext`` at this point of the trace. Each
short form (``comptime.print_graph()``) calls the context method of the same name. In plain Python, nothing
happens. Comptime code adds nothing to the graph. It runs once for each attempt to trace the frame, not once
for each call.
"""

from __future__ import annotations

import builtins
import dis
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any, TextIO, TypeVar

import torch
from torch.fx import Graph

from fxstack_capture import torch_compat
from fxstack_capture.breaks import graph_break
from fxstack_capture.calls.marks.program_rules import register
from fxstack_capture.driver.errors import ComptimeError
from fxstack_capture.guards.explain import guard_text
from fxstack_capture.guards.records import Guard
from fxstack_capture.interpreter.frame import Frame
from fxstack_capture.trace.records import DeferredLocal
from fxstack_capture.trace.state import Trace

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ComptimeVar:
    """A value of the traced program: a fake tensor, a symbolic number, or a Python object.

    If it is a deferred local, reading ``value`` wraps it and adds its guards. Reading only its type or its
    text uses the real object and adds no guards.
    """

    held: Any
    """The value as an object of the trace. It may be a deferred local."""
    source: str | None = None
    """The source of the value as an expression, for example "x.weight". None if the traced code made the
    value.
    """
    enter: Callable[[DeferredLocal], Any] | None = None
    """The function that wraps a deferred local."""

    @property
    def value(self) -> Any:
        """The value with which the program computes."""
        if self.enter is not None and type(self.held) is DeferredLocal:
            return self.enter(self.held)
        return self.held

    @property
    def seen(self) -> Any:
        """The value without wrapping it. For a deferred local, this is the real object."""
        return self.held.value if type(self.held) is DeferredLocal else self.held

    @property
    def is_symbolic(self) -> bool:
        """Whether the value is unknown while tracing."""
        return isinstance(self.value, torch.Tensor) or _is_open(self.value)

    def python_type(self) -> type:
        """Return the class of the value that the program sees."""
        return _SHOWN.get(type(self.seen), type(self.seen))

    def as_python_constant(self) -> Any:
        """Return the value. Raises ValueError if it is symbolic."""
        if self.is_symbolic:
            raise ValueError(f"the value of {self} is symbolic, so it is not known while tracing")
        kind = _SHOWN.get(type(self.value))
        return self.value if kind is None else kind(self.value.node.expr)

    def is_python_constant(self) -> bool:
        """Whether ``as_python_constant`` returns a value."""
        return not self.is_symbolic

    def as_fake(self) -> Any:
        """Return ``value``: the fake of a tensor, or a symbolic number. A Python object is returned unchanged."""
        return self.value

    def size(self, dim: int | None = None) -> Any:
        """Return the sizes of a tensor, or its size in dimension ``dim``."""
        return self.value.size() if dim is None else self.value.size(dim)

    def is_dynamic(self) -> bool:
        """Whether the value is a symbolic number, or a tensor with a symbolic size."""
        if isinstance(self.value, torch.Tensor):
            return any(map(_is_open, self.value.shape))
        return self.is_symbolic

    def __str__(self) -> str:
        value = self.seen
        if isinstance(value, torch.Tensor):
            sizes = ", ".join(map(str, value.shape))
            shown = f"tensor({value.dtype}, [{sizes}])"
        else:
            symbolic = type(value) in _SHOWN
            shown = str(value) if symbolic else repr(value)
        return shown if self.source is None else f"{shown} from {self.source}"


def _is_open(value: Any) -> bool:
    """Whether ``value`` is a symbolic number that may differ in another call."""
    return type(value) in _SHOWN and len(value.node.expr.free_symbols) > 0


_SHOWN: dict[type, type] = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
"""Maps a class of symbolic numbers to the class that the program sees."""


class ComptimeContext:
    """The argument of comptime code. The default of each argument ``file`` is standard output."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    # --- data ------------------------------------------------------------------------------------

    def get_local(self, name: str, *, stacklevel: int = 0) -> ComptimeVar:
        """Return a variable of the frame ``stacklevel`` levels up. Raises KeyError if it is not bound."""
        return self._variable(self._frame(stacklevel).peek()[name])

    def locals(self, *, stacklevel: int = 0) -> dict[str, ComptimeVar]:
        """Return the bound variables of a frame. Listing them adds no guards."""
        values = self._frame(stacklevel).peek()
        return {name: self._variable(value) for name, value in values.items()}

    def stack(self, *, stacklevel: int = 0) -> tuple[ComptimeVar, ...]:
        """Return the value stack of a frame. The top is last."""
        return tuple(self._variable(value) for value in self._frame(stacklevel).stack)

    def graph(self) -> Graph:
        """Return the graph so far. The caller must not change it."""
        builder: Any = self._trace.torch
        return builder.builder.graph

    def guards(self) -> tuple[Guard, ...]:
        """Return the guards so far."""
        return tuple(self._trace.guards)

    def user_stack(self) -> tuple[tuple[str, int, str], ...]:
        """Return (file, line, function) of the traced frames, innermost last."""
        return self._trace.interp.user_stack()

    # --- showing ---------------------------------------------------------------------------------

    def print(self, value: object, *, file: TextIO | None = None) -> None:
        """Print a value of the traced program, or a ComptimeVar."""
        shown = value if isinstance(value, ComptimeVar) else self._variable(value)
        builtins.print(shown, file=file or sys.stdout)

    def print_locals(self, *, file: TextIO | None = None, stacklevel: int = 0) -> None:
        """Print the variables of a frame, one on each line."""
        for name, value in self.locals(stacklevel=stacklevel).items():
            builtins.print(f"{name} = {value}", file=file or sys.stdout)

    def print_value_stack(self, *, file: TextIO | None = None, stacklevel: int = 0) -> None:
        """Print the value stack of a frame. The top is last."""
        for value in self.stack(stacklevel=stacklevel):
            builtins.print(f"- {value}", file=file or sys.stdout)

    def print_graph(self, *, verbose: bool = True, file: TextIO | None = None) -> None:
        """Print the graph as Python. If not ``verbose``, omit types and lines of the program."""
        builtins.print(self.graph().python_code("self", verbose=verbose).src, file=file or sys.stdout)

    def print_guards(self, *, file: TextIO | None = None) -> None:
        """Print the guards so far as Python conditions, one on each line."""
        for guard in self.guards():
            builtins.print(guard_text(guard), file=file or sys.stdout)

    def print_bt(self, *, file: TextIO | None = None) -> None:
        """Print the traced frames in the form of a traceback."""
        for name, line, function in self.user_stack():
            builtins.print(f'  File "{name}", line {line}, in {function}', file=file or sys.stdout)

    def print_disas(self, *, file: TextIO | None = None, stacklevel: int = 0) -> None:
        """Print the bytecode of a frame, with an arrow at the current instruction."""
        frame = self._frame(stacklevel)
        here = frame.program.offsets[frame.pc]
        builtins.print(dis.Bytecode(frame.code, current_offset=here).dis(), file=file or sys.stdout)

    # --- acting ----------------------------------------------------------------------------------

    def graph_break(self, message: str = "by comptime code") -> None:
        """End the graph here."""
        raise graph_break("user-break", message)

    def sleep(self, seconds: float) -> None:
        """Sleep, so that a profiler shows the current place of the trace."""
        time.sleep(seconds)

    def breakpoint(self) -> None:
        """Stop in the debugger. The context is ``self`` in this frame."""
        builtins.breakpoint()  # noqa: T100 - the purpose of the method

    def assume(self, condition: object) -> None:
        """Add a fact about symbols: a guard, or a run-time assertion if a symbol depends on tensor data."""
        torch_compat.check(condition.value if isinstance(condition, ComptimeVar) else condition)

    def force_static(self, value: object) -> Any:
        """Return the plain number of a symbolic number, and guard it. For other values, the code compiles
        again.
        """
        given = value.value if isinstance(value, ComptimeVar) else value
        return self._trace.torch.specialize(given) if self._trace.torch.is_symbolic(given) else given

    def assert_static(self, value: object) -> None:
        """Raise ValueError if ``value`` is symbolic."""
        shown = value if isinstance(value, ComptimeVar) else self._variable(value)
        if shown.is_dynamic():
            raise ValueError(f"expected a static value, got {shown}")

    # --- helpers ---------------------------------------------------------------------------------

    def _frame(self, stacklevel: int) -> Frame:
        """Return the traced frame ``stacklevel`` calls further out than the current frame.

        Raises ValueError if there is none.
        """
        interp: Any = self._trace.interp
        frame: Frame | None = interp.current_frame()
        frames: list[Frame] = []
        while frame is not None:
            # Polyfills are no code of the program, so their frames do not count.
            frames += () if frame.program.hidden else (frame,)
            frame = frame.back
        if stacklevel >= len(frames):
            raise ValueError(f"stacklevel {stacklevel} is too large: there are {len(frames)} traced frames")
        return frames[stacklevel]

    def _variable(self, value: object) -> ComptimeVar:
        """Return a value of the trace with its source."""
        if type(value) is DeferredLocal:
            return ComptimeVar(value, value.source.name, self._enter)
        source = self._trace.objects.source_of(value)
        if source is None and isinstance(value, torch.Tensor):
            source = self._trace.torch.source_of(value)
        return ComptimeVar(value, None if source is None else source.name)

    def _enter(self, variable: DeferredLocal) -> Any:
        """Wrap a deferred local, which adds its guards."""
        return self._trace.objects.enter(variable.value, variable.source)


class _Comptime:
    """The class of ``comptime``: ``comptime(fn)`` and the short forms."""

    def __call__(
        self,
        fn: Callable[[ComptimeContext], Any],  # noqa: ARG002 - the rule for tracing takes it
        fallback_fn: Callable[[], Any] = lambda: None,
    ) -> Any:
        """Call ``fn`` with the context if this call is traced. In plain Python, call ``fallback_fn``."""
        return fallback_fn()

    def print(self, value: object) -> None:
        """Print the value in plain Python, as torch does. In compiled code, ``ComptimeContext.print`` runs.

        The methods below do nothing in plain Python. In compiled code, the context method of the same name
        runs.
        """
        builtins.print(value)  # noqa: T201 - the purpose of the method

    def print_locals(self) -> None: ...

    def print_value_stack(self) -> None: ...

    def print_value_stack_and_return(self, value: T) -> T:
        """Print the value stack and return ``value``, so that the call can wrap an expression."""
        return value

    def print_disas(self) -> None: ...

    def print_graph(self) -> None: ...

    def print_guards(self) -> None: ...

    def print_bt(self) -> None: ...

    def graph_break(self, message: str = "by comptime code") -> None: ...

    def breakpoint(self) -> None: ...

    def assume(self, condition: object) -> None: ...

    def assert_static(self, value: object) -> None: ...

    def force_static(self, value: object) -> None: ...

    def sleep(self, seconds: float) -> None: ...


def _called(trace: Trace, _fn: object, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> None:
    """Rule of ``comptime(fn)``: call ``fn`` with the context while tracing."""
    # ``args[0]`` is ``comptime`` itself.
    _run(_outside(trace, args[1]), ComptimeContext(trace))


def _run(fn: Callable[..., Any], *args: object, **kwargs: object) -> None:
    """Run comptime code. If it raises, the caller of the compiled code gets a ``ComptimeError``.

    The traced program cannot catch this exception.
    """
    try:
        fn(*args, **kwargs)
    except Exception as error:
        leaving = graph_break("user-break", "by an error in comptime code")
        leaving.error = ComptimeError(f"comptime code raised {type(error).__name__}: {error}")
        leaving.error.__cause__ = error
        raise leaving from None


def _outside(trace: Trace, fn: object) -> Any:
    """Return ``fn`` with the original objects in its cells.

    Comptime code then sees these objects, and not the proxies of the trace.
    """
    if not isinstance(fn, FunctionType):
        return trace.objects.original_of(fn)
    cells = tuple(trace.objects.original_of(cell) for cell in fn.__closure__ or ()) or None
    made = FunctionType(fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, cells)
    made.__kwdefaults__ = fn.__kwdefaults__
    return made


def _shown_and_returned(trace: Trace, _fn: object, args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
    """Rule of ``print_value_stack_and_return``."""
    _run(ComptimeContext(trace).print_value_stack)
    return args[1]


def _short(trace: Trace, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Rule of the other short forms: call the context method with the name of ``fn``."""
    _run(getattr(ComptimeContext(trace), fn.__name__), *args[1:], **kwargs)


# The tracer runs a rule in place of each method, so the bodies above run only in plain Python.
for _name, _method in vars(_Comptime).items():
    if _name == "__call__":
        register(_method, _called)
    elif _name == "print_value_stack_and_return":
        register(_method, _shown_and_returned)
    elif not _name.startswith("_"):
        register(_method, _short)

comptime = _Comptime()
