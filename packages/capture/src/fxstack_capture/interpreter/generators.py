"""Generators of the trace: real Python iterators that resume an interpreted frame.

C code (``list``, ``sum``, ``zip``) and Python code use them like native generators. ``type`` and
``isinstance`` in the program report them as ``types.GeneratorType`` (``python_type_of``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType, GeneratorType, TracebackType
from typing import Any, NoReturn

from fxstack_capture.breaks import GraphBreak, graph_break
from fxstack_capture.interpreter.exceptions.errors import chain_context
from fxstack_capture.interpreter.frame import Frame, HandledException
from fxstack_capture.torch_side.recording.function_mode import outside_c_code

# Limits: type(), isinstance and inspect report the generator type for a generator made while tracing. C code
# that tests for the exact type (PyGen_CheckExact) sees another type. __qualname__ accepts values that are not
# strings.


class TraceGenerator:
    """A suspended interpreted frame with the generator protocol.

    As in CPython, dropping a generator that waits inside of a ``try`` or ``with`` closes the generator.
    """

    __slots__ = ("__qualname__", "__weakref__", "_code", "_handled", "_name", "_running", "_started", "frame")

    def __init__(self, frame: Frame) -> None:
        self.frame: Frame | None = frame
        # a generator resumes in other steps than the step that called it, so no resume function can continue
        # it
        frame.link = None
        self._code = frame.code
        self._name = frame.code.co_name
        self.__qualname__ = frame.code.co_qualname
        self._handled = HandledException()
        self._running = False
        self._started = False

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return GeneratorType

    def __repr__(self) -> str:
        return f"<generator object {self.__qualname__} at {id(self):#x}>"

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self.resume(None)

    def send(self, value: object) -> Any:
        """Send ``value`` to the ``yield`` and return the next yielded value, as ``generator.send`` does."""
        return self.resume(value)

    def throw(self, typ: object, val: object = None, tb: object = None, /) -> Any:
        """Raise an exception at the ``yield`` where the generator waits. Return the next yielded value."""
        several = val is not None or tb is not None
        if several and self.frame is not None and self.frame.program.behaviour.throw_warns:
            raise graph_break("side-effect-call", "the deprecation warning of throw()")
        return self._throw(_exception_to_raise(typ, val, tb))

    def close(self) -> Any:
        """Raise GeneratorExit in the generator.

        Raises RuntimeError if the generator yields another value.
        """
        frame = self.frame
        if frame is None:
            return None
        if not self._started and not self._running:
            self.frame = None
            return None
        try:
            self._throw(GeneratorExit())
        except GeneratorExit as done:
            frame.interp.dealt_with(done)
            return None
        except StopIteration as stop:
            frame.interp.dealt_with(stop)
            return stop.value if frame.program.behaviour.close_returns_value else None
        raise RuntimeError("generator ignored GeneratorExit")

    def __del__(self) -> None:
        frame = self.frame
        if frame is None or not self._started or self._running or not frame.interp.tracing:
            return
        if frame.program.handlers[frame.pc - 1] is not None:
            frame.interp.close_dropped(self)
        frame.stack.clear()  # the objects that only this generator holds die as well
        frame.fast.clear()

    # --- execution -------------------------------------------------------------------------------

    def resume(self, value: object) -> Any:
        """Send ``value``, run to the next ``yield`` and return the yielded value.

        Raises StopIteration when the body returns.
        """
        if self.frame is not None and not self._started and value is not None and not self._running:
            raise TypeError("can't send non-None value to a just-started generator")
        return self._run(value, None)

    def _run(self, value: object, error: BaseException | None) -> Any:
        """Resume the frame with a sent value. If ``error`` is given, raise it at the ``yield`` instead.

        Return the next yielded value. When the body returns, raise StopIteration with the result.
        """
        if self._running:
            raise ValueError("generator already executing")
        frame = self.frame
        if frame is None:
            raise StopIteration if error is None else error
        interp = frame.interp
        frame.stack.append(value)
        frame.suspended = False
        # Each resumption may have another caller, so the cached stack is invalid.
        frame.outer_stack, frame.stack_at = None, (-1, ())
        handled = self._handled
        handled.previous = interp.handled
        interp.handled = handled
        self._running = self._started = True
        if error is not None:
            frame.pc -= 1  # the yield itself raises the error
            if handled.value is not None:
                chain_context(error, handled.value)
            interp.reraising(error, counted=False)
        try:
            with outside_c_code():
                result = interp.run(frame, error)
        except GraphBreak:
            raise
        except StopIteration as stop:
            # From 3.12 on, the bytecode itself has already converted the exception.
            failure = stop_iteration_error(stop)
        except BaseException:
            self.frame = None
            raise
        else:
            if frame.suspended:
                return result
            self.frame = None
            raise StopIteration if result is None else StopIteration(result)
        finally:
            self._running = False
            interp.handled = handled.previous
            handled.previous = None
        self.frame = None
        raise interp.reraising(failure, counted=False)

    def _throw(self, error: BaseException) -> Any:
        """Throw ``error`` into the iterator of a running ``yield from``. Without one, throw it into the
        frame.
        """
        inner = self.gi_yieldfrom
        if inner is None or self._running:
            return self._run(None, error)
        self._running = True
        try:
            outcome = _throw_into(inner, error, self._frame())
        finally:
            self._running = False
        if isinstance(outcome, _Yielded):
            return outcome.value
        if isinstance(outcome, StopIteration):
            return self._leave_delegation(outcome)
        return self._run(None, outcome)

    def _frame(self) -> Frame:
        """Return the suspended frame, for the methods that resume it.

        Raises RuntimeError if the generator has finished.
        """
        if self.frame is None:
            raise RuntimeError("the generator has finished")
        return self.frame

    def _leave_delegation(self, stop: StopIteration) -> Any:
        """Continue after the inner iterator of a ``yield from`` has returned ``stop.value``.

        The iterator returned in reply to a ``throw``.
        """
        frame = self._frame()
        target = frame.program.delegations[frame.pc - 1]
        if target is None:
            return self._run(None, stop)
        frame.stack.pop()
        frame.pc = target
        return self._run(stop.value, None)

    # --- introspection ---------------------------------------------------------------------------

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("cannot pickle 'generator' object")

    @property
    def __name__(self) -> str:
        return self._name

    @__name__.setter
    def __name__(self, value: str) -> None:
        if not isinstance(value, str):
            raise TypeError("__name__ must be set to a string object")
        self._name = value

    @property
    def gi_running(self) -> bool:
        """Return whether the body is executing now."""
        return self._running

    @property
    def gi_suspended(self) -> bool:
        """Return whether the body has started and waits at a ``yield``."""
        return self.frame is not None and self._started and not self._running

    @property
    def gi_frame(self) -> GeneratorFrame | None:
        """Return a view of the frame, or None after the generator has finished."""
        return None if self.frame is None else GeneratorFrame(self.frame, started=self._started)

    @property
    def gi_code(self) -> CodeType:
        """Return the code object of the generator function."""
        return self._code

    @property
    def gi_yieldfrom(self) -> Any:
        """Return the inner iterator of a running ``yield from``, or None."""
        frame = self.frame
        if frame is None or not self._started or self._running:
            return None
        if frame.pc - 1 not in frame.program.delegations:
            return None
        return frame.stack[-1]


@dataclass(frozen=True, slots=True)
class _Yielded:
    """A result of ``_throw_into``: the value that the inner iterator yielded in reply to a ``throw``."""

    value: Any


def _throw_into(inner: object, error: BaseException, frame: Frame) -> _Yielded | BaseException:
    """Throw ``error`` into the inner iterator of a ``yield from``.

    Return the yielded value, or the exception that continues in the frame. If the iterator returns, this is a
    StopIteration.
    """
    closing = isinstance(error, GeneratorExit)
    try:
        if type(inner) is TraceGenerator:
            value = inner.close() if closing else inner.throw(error)
        else:
            method = _close_method(frame, inner) if closing else _optional_attr(frame, inner, "throw")
            if method is None:
                return error
            value = frame.calls.call(method, () if closing else (error,), {})
    except GraphBreak:
        raise
    except BaseException as raised:
        return raised
    return error if closing else _Yielded(value)


def _optional_attr(frame: Frame, obj: object, name: str) -> Any:
    """Return an attribute of the inner iterator of a ``yield from``, or None if the iterator lacks it."""
    try:
        return frame.objects.load_attr(obj, name)
    except AttributeError as missing:
        frame.interp.dealt_with(missing)
        return None


def _close_method(frame: Frame, inner: object) -> Any:
    """Return the ``close`` method of the inner iterator of a ``yield from``, or None if it has none.

    If the lookup raises, CPython prints the exception and continues. The trace breaks the graph instead.
    """
    try:
        return _optional_attr(frame, inner, "close")
    except Exception as error:
        raise unraisable(error) from None


def unraisable(error: BaseException) -> GraphBreak:
    """Return the graph break for an exception that CPython only prints (``sys.unraisablehook``)."""
    return graph_break("side-effect-call", f"the report of {error!r}, which nobody can catch,")


def _exception_to_raise(typ: object, val: object, tb: object) -> BaseException:
    """Return the exception that ``throw(typ, val, tb)`` raises. Raises CPython's TypeError for wrong arguments."""
    if tb is not None and not isinstance(tb, TracebackType):
        raise TypeError("throw() third argument must be a traceback object")
    if isinstance(typ, type) and issubclass(typ, BaseException):
        if isinstance(val, typ):
            error = val
        elif val is None:
            error = typ()
        else:
            error = typ(*val) if isinstance(val, tuple) else typ(val)
    elif isinstance(typ, BaseException):
        if val is not None:
            raise TypeError("instance exception may not have a separate value")
        error = typ
    else:
        raise TypeError(
            f"exceptions must be classes or instances deriving from BaseException, not {type(typ).__name__}"
        )
    return error if tb is None else error.with_traceback(tb)


def stop_iteration_error(stop: StopIteration) -> RuntimeError:
    """Return the RuntimeError that replaces ``stop``, a StopIteration that leaves the body of a generator."""
    error = RuntimeError("generator raised StopIteration")
    error.__cause__ = error.__context__ = stop
    return error


class GeneratorFrame:
    """The value of ``gi_frame``: the view that programs get of the frame of a generator of the trace."""

    __slots__ = ("_frame", "_started")

    def __init__(self, frame: Frame, *, started: bool) -> None:
        self._frame = frame
        self._started = started

    @property
    def f_code(self) -> CodeType:
        return self._frame.code

    @property
    def f_lineno(self) -> int:
        """Return the current line. Before the generator starts, return the line of ``def``."""
        return self._frame.line if self._started else self._frame.code.co_firstlineno

    @property
    def f_lasti(self) -> int:
        """Return the offset of the last instruction that ran."""
        return self._frame.program.offsets[self._frame.pc - 1]

    @property
    def f_locals(self) -> dict[str, Any]:
        return self._frame.local_values()

    @property
    def f_globals(self) -> dict[str, object]:
        return self._frame.globals

    @property
    def f_back(self) -> None:
        """Return None, because a suspended generator has no caller."""
        return None

    @property
    def f_builtins(self) -> dict[str, object]:
        return self._frame.builtins
