"""``except*``: split exception groups and combine the exceptions to raise, as CPython's ``exceptions.c``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fxstack_capture.trace.state import Calls


def check_star_types(wanted: object) -> None:
    """Check the classes after ``except*``."""
    classes = wanted if isinstance(wanted, tuple) else (wanted,)
    for cls in classes:
        if not (isinstance(cls, type) and BaseException in cls.__mro__):
            raise TypeError("catching classes that do not inherit from BaseException is not allowed")
    for cls in classes:
        if BaseExceptionGroup in cls.__mro__:
            raise TypeError("catching ExceptionGroup with except* is not allowed. Use except instead.")


def match_group(calls: Calls, exception: BaseException | None, wanted: object) -> tuple[Any, Any]:
    """The matching part and the rest of an exception. Each may be None.

    A matching exception that is not a group is wrapped in a group.
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
    pair = calls.call(type(exception).split, (exception, wanted), {})
    if not isinstance(pair, tuple):
        name, got = type(exception).__name__, type(pair).__name__
        raise TypeError(f"{name}.split must return a tuple, not {got}")
    if len(pair) < 2:
        name = type(exception).__name__
        raise TypeError(f"{name}.split must return a 2-tuple, got tuple of size {len(pair)}")
    return pair[0], pair[1]


def reraised_group(calls: Calls, original: BaseException, raised: list[Any]) -> Any:
    """The exception that an ``except*`` statement raises at its end, or None.

    The result combines new exceptions with the parts that no clause handled.
    """
    if not raised:
        return None
    if not isinstance(original, BaseExceptionGroup):
        return raised[0]
    present = [exception for exception in raised if exception is not None]
    again = [exception for exception in present if _same_metadata(exception, original)]
    fresh = [exception for exception in present if not _same_metadata(exception, original)]
    projection = _projection(calls, original, again) if again else None
    if not fresh:
        return projection
    if projection is not None:
        fresh.append(projection)
    return fresh[0] if len(fresh) == 1 else _new_group(calls, "", fresh)


def _new_group(calls: Calls, message: str, exceptions: Sequence[Any]) -> Any:
    return calls.call(BaseExceptionGroup, (message, exceptions), {})


def _same_metadata(exception: BaseException, original: BaseException) -> bool:
    """Whether ``exception`` is a part of the original group that was reraised unchanged."""
    if not isinstance(exception, BaseExceptionGroup):
        return False
    return (
        getattr(exception, "__notes__", None) is getattr(original, "__notes__", None)
        and exception.__traceback__ is original.__traceback__
        and exception.__cause__ is original.__cause__
        and exception.__context__ is original.__context__
    )


def _projection(calls: Calls, original: BaseExceptionGroup[Any], keep: list[BaseExceptionGroup[Any]]) -> Any:
    """The part of ``original`` whose leaves are in ``keep``, with the nesting of ``original``."""
    leaves = {id(leaf) for group in keep for leaf in _leaves(group)}

    def kept(exception: BaseException) -> bool:
        return not isinstance(exception, BaseExceptionGroup) and id(exception) in leaves

    return calls.native(BaseExceptionGroup.split, (original, kept), {})[0]


def _leaves(group: BaseExceptionGroup[Any]) -> list[BaseException]:
    found: list[BaseException] = []
    for exception in group.exceptions:
        if isinstance(exception, BaseExceptionGroup):
            found += _leaves(exception)
        else:
            found.append(exception)
    return found
