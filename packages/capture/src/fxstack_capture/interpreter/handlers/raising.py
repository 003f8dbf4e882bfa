"""Raise, catch and handle exceptions.

``except*`` splits and combines exception groups as ``exceptions.c`` of CPython does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fxstack_capture.interpreter.exceptions.errors import set_cause
from fxstack_capture.interpreter.frame import Frame
from fxstack_capture.trace.state import Calls


def raise_varargs(frame: Frame, count: int) -> None:
    """Run ``raise``, ``raise exc`` or ``raise exc from cause``: ``count`` is the number of operands."""
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
    """Return ``raised`` if it is an exception. If it is an exception class, call it and return the result.

    Raises TypeError with the text ``message`` for any other value.
    """
    if isinstance(raised, type) and issubclass(raised, BaseException):
        # The constructor may be code of the program.
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
    """Raise the exception on top of the stack again, without a new traceback entry."""
    raise frame.interp.reraising(frame.stack.pop())


def push_exc_info(frame: Frame, _operand: object) -> None:
    """Begin an ``except`` or ``finally`` block.

    The exception on the stack becomes the handled exception. The exception that was handled before is saved
    below it.
    """
    stack = frame.stack
    exception = stack[-1]
    handled = frame.interp.handled
    stack[-1:] = (handled.value, exception)
    handled.value = exception
    frame.handling += 1


def pop_except(frame: Frame, _operand: object) -> None:
    """End an ``except`` or ``finally`` block: pop the saved exception, which is handled again."""
    frame.interp.handled.value = frame.stack.pop()
    frame.handling -= 1


def check_exc_match(frame: Frame, _operand: object) -> None:
    """Push whether the exception matches the class, or tuple of classes, of an ``except`` clause."""
    stack = frame.stack
    wanted = stack.pop()
    for cls in wanted if isinstance(wanted, tuple) else (wanted,):
        if not _is_exception_class(cls):
            raise TypeError("catching classes that do not inherit from BaseException is not allowed")
    stack.append(_matches(type(stack[-1]), wanted))


def _is_exception_class(cls: object) -> bool:
    return isinstance(cls, type) and BaseException in cls.__mro__


def _matches(cls: type, wanted: object) -> bool:
    """Return whether ``cls`` inherits from ``wanted``, or from a class in the tuple ``wanted``."""
    # CPython does not call ``__subclasscheck__`` here.
    mro = cls.__mro__
    return any(w in mro for w in wanted) if isinstance(wanted, tuple) else wanted in mro


def check_eg_match(frame: Frame, _operand: object) -> None:
    """Split an exception group for an ``except*`` clause. Push the rest, then the matching part or None."""
    stack = frame.stack
    wanted = stack.pop()
    _check_star_types(wanted)
    match, rest = _match_group(frame.calls, stack[-1], wanted)
    if match is not None:
        stack[-1] = rest
        frame.interp.handled.value = match
    stack.append(match)


def prep_reraise_star(frame: Frame, _operand: object) -> None:
    """Replace a group and the exceptions from its ``except*`` clauses by the exception to raise, or None."""
    stack = frame.stack
    raised = stack.pop()
    stack[-1] = _reraised_group(frame.calls, stack[-1], raised)


# --- exception groups ----------------------------------------------------------------------------


def _check_star_types(wanted: object) -> None:
    """Raise CPython's TypeError if a class after ``except*`` is no exception class, or is a group class."""
    classes = wanted if isinstance(wanted, tuple) else (wanted,)
    # Two loops, because CPython checks all classes for the first error before the second.
    for cls in classes:
        if not _is_exception_class(cls):
            raise TypeError("catching classes that do not inherit from BaseException is not allowed")
    for cls in classes:
        if BaseExceptionGroup in cls.__mro__:
            raise TypeError("catching ExceptionGroup with except* is not allowed. Use except instead.")


def _match_group(calls: Calls, exception: BaseException | None, wanted: object) -> tuple[Any, Any]:
    """Return the matching part and the rest of an exception. Either may be None.

    A matching exception that is not a group is put into a new group.
    """
    if exception is None:
        return None, None
    classes = wanted if isinstance(wanted, tuple) else (wanted,)
    if any(cls in type(exception).__mro__ for cls in classes):
        if isinstance(exception, BaseExceptionGroup):
            return exception, None
        return _new_group(calls, "", (exception,)), None
    if not isinstance(exception, BaseExceptionGroup):
        return None, exception
    # A subclass may override ``split`` and return any object.
    pair = calls.call(type(exception).split, (exception, wanted), {})
    if not isinstance(pair, tuple):
        name, got = type(exception).__name__, type(pair).__name__
        raise TypeError(f"{name}.split must return a tuple, not {got}")
    if len(pair) < 2:
        name = type(exception).__name__
        raise TypeError(f"{name}.split must return a 2-tuple, got tuple of size {len(pair)}")
    return pair[0], pair[1]


def _reraised_group(calls: Calls, original: BaseException, raised: list[Any]) -> Any:
    """Return the exception that an ``except*`` statement raises at its end, or None.

    The result combines new exceptions with the parts that no clause has handled.
    """
    if not raised:
        return None
    if not isinstance(original, BaseExceptionGroup):
        return raised[0]
    present = [exception for exception in raised if exception is not None]
    unhandled = [exception for exception in present if _same_metadata(exception, original)]
    fresh = [exception for exception in present if not _same_metadata(exception, original)]
    projection = _projection(calls, original, unhandled) if unhandled else None
    if not fresh:
        return projection
    if projection is not None:
        fresh.append(projection)
    return fresh[0] if len(fresh) == 1 else _new_group(calls, "", fresh)


def _new_group(calls: Calls, message: str, exceptions: Sequence[Any]) -> Any:
    """Call the constructor of BaseExceptionGroup as the program would."""
    return calls.call(BaseExceptionGroup, (message, exceptions), {})


def _same_metadata(exception: BaseException, original: BaseException) -> bool:
    """Return whether ``exception`` is a part of ``original`` that a clause raised again.

    Such a part has the notes, traceback, cause and context of ``original``.
    """
    if not isinstance(exception, BaseExceptionGroup):
        return False
    return (
        getattr(exception, "__notes__", None) is getattr(original, "__notes__", None)
        and exception.__traceback__ is original.__traceback__
        and exception.__cause__ is original.__cause__
        and exception.__context__ is original.__context__
    )


def _projection(calls: Calls, original: BaseExceptionGroup[Any], keep: list[BaseExceptionGroup[Any]]) -> Any:
    """Return the part of ``original`` with the leaves that are in the groups ``keep``. The nesting stays that
    of ``original``.
    """
    leaves = {id(leaf) for group in keep for leaf in _leaves(group)}

    def is_reraised(exception: BaseException) -> bool:
        """Return whether an exception of the group was raised again unchanged."""
        return not isinstance(exception, BaseExceptionGroup) and id(exception) in leaves

    return calls.native(BaseExceptionGroup.split, (original, is_reraised), {})[0]


def _leaves(group: BaseExceptionGroup[Any]) -> list[BaseException]:
    """Return the leaves of a group: the exceptions at any depth that are not groups."""
    leaves: list[BaseException] = []
    for exception in group.exceptions:
        leaves += _leaves(exception) if isinstance(exception, BaseExceptionGroup) else (exception,)
    return leaves
