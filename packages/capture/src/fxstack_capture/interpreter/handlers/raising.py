"""Raise, catch and handle exceptions, including exception groups."""

from __future__ import annotations

from fxstack_capture.interpreter.exceptions.chaining import set_cause
from fxstack_capture.interpreter.exceptions.groups import check_star_types, match_group, reraised_group
from fxstack_capture.interpreter.frame import Frame


def raise_varargs(frame: Frame, count: int) -> None:
    """``raise``, ``raise exc`` or ``raise exc from cause``."""
    stack = frame.stack
    if count == 0:
        exception = frame.interp.handled.topmost()
        if exception is None:
            raise RuntimeError("No active exception to reraise")
        raise frame.interp.reraising(exception)
    cause = stack.pop() if count == 2 else None
    exception = _instance(frame, stack.pop(), "exceptions must derive from BaseException")
    if count == 2:
        if cause is not None:
            cause = _instance(frame, cause, "exception causes must derive from BaseException")
        set_cause(exception, cause)
    raise frame.interp.raising(exception)


def _instance(frame: Frame, raised: object, message: str) -> BaseException:
    if isinstance(raised, type) and issubclass(raised, BaseException):
        instance = frame.calls.call(raised, (), {})
        if not isinstance(instance, BaseException):
            raise TypeError(
                f"calling {raised!r} should have returned an instance of BaseException,"
                f" not {type(instance)!r}"
            )
        return instance
    if isinstance(raised, BaseException):
        return raised
    raise TypeError(message)


def reraise(frame: Frame, _operand: object) -> None:
    raise frame.interp.reraising(frame.stack.pop())


def push_exc_info(frame: Frame, _operand: object) -> None:
    stack = frame.stack
    exception = stack[-1]
    handled = frame.interp.handled
    stack[-1:] = (handled.value, exception)
    handled.value = exception
    frame.handling += 1


def pop_except(frame: Frame, _operand: object) -> None:
    frame.interp.handled.value = frame.stack.pop()
    frame.handling -= 1


def check_exc_match(frame: Frame, _operand: object) -> None:
    stack = frame.stack
    wanted = stack.pop()
    for cls in wanted if isinstance(wanted, tuple) else (wanted,):
        if not _is_exception_class(cls):
            raise TypeError("catching classes that do not inherit from BaseException is not allowed")
    stack.append(_matches(type(stack[-1]), wanted))


def _is_exception_class(cls: object) -> bool:
    return isinstance(cls, type) and BaseException in cls.__mro__


def _matches(cls: type, wanted: object) -> bool:
    """Whether ``cls`` inherits from ``wanted``, or from a class in the tuple ``wanted``."""
    # CPython does not call ``__subclasscheck__`` here.
    mro = cls.__mro__
    return any(w in mro for w in wanted) if isinstance(wanted, tuple) else wanted in mro


def check_eg_match(frame: Frame, _operand: object) -> None:
    """``except*``: replace the exception by the rest, and push the matching part (or None)."""
    stack = frame.stack
    wanted = stack.pop()
    check_star_types(wanted)
    match, rest = match_group(frame.calls, stack[-1], wanted)
    if match is not None:
        stack[-1] = rest
        frame.interp.handled.value = match
    stack.append(match)


def prep_reraise_star(frame: Frame, _operand: object) -> None:
    stack = frame.stack
    raised = stack.pop()
    stack[-1] = reraised_group(frame.calls, stack[-1], raised)
