"""Build and unpack containers, strings and slices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxstack_capture.interpreter.exceptions.errors import callable_description
from fxstack_capture.interpreter.frame import Frame
from fxstack_capture.objects.printed_texts import joined


def _pop_many(stack: list[Any], count: int) -> list[Any]:
    """Remove the top ``count`` values from the stack and return them, deepest first."""
    if not count:
        return []
    items = stack[-count:]
    del stack[-count:]
    return items


def build_tuple(frame: Frame, count: int) -> None:
    frame.stack.append(tuple(_pop_many(frame.stack, count)))


def list_to_tuple(frame: Frame, _operand: object) -> None:
    frame.stack[-1] = tuple(frame.stack[-1])


def build_list(frame: Frame, count: int) -> None:
    frame.stack.append(_pop_many(frame.stack, count))


def build_set(frame: Frame, count: int) -> None:
    """Push a set of ``count`` items.

    The call of ``set`` is traced, because the ``__hash__`` of an item may be the program's.
    """
    frame.stack.append(frame.calls.call(set, (_pop_many(frame.stack, count),), {}))


def build_map(frame: Frame, count: int) -> None:
    """Push a dict of ``count`` key-value pairs from the stack."""
    items = _pop_many(frame.stack, 2 * count)
    frame.stack.append(_make_dict(frame, items[::2], items[1::2]))


def build_const_key_map(frame: Frame, count: int) -> None:
    """Push a dict whose keys are the constant tuple on top of the stack."""
    keys = frame.stack.pop()
    frame.stack.append(_make_dict(frame, keys, _pop_many(frame.stack, count)))


def _make_dict(frame: Frame, keys: Any, values: list[Any]) -> dict[Any, Any]:
    """Return a dictionary of the keys and values.

    Calls of ``dict.__setitem__`` are traced, because the ``__hash__`` of a key may be the program's.
    """
    if all(type(key) in _PLAIN_KEYS for key in keys):
        return dict(zip(keys, values, strict=True))
    result: dict[Any, Any] = {}
    for key, value in zip(keys, values, strict=True):
        frame.calls.call(dict.__setitem__, (result, key, value), {})
    return result


# The hash and comparison of keys of these types run no code of the program.
_PLAIN_KEYS = frozenset({str, int, bool, type(None), bytes})


def build_slice(frame: Frame, count: int) -> None:
    frame.stack.append(slice(*_pop_many(frame.stack, count)))


def build_string(frame: Frame, count: int) -> None:
    """Push the concatenation of ``count`` parts of an f-string. If a part is a ``Text``, the result is a ``Text``."""
    frame.stack.append(joined(_pop_many(frame.stack, count)))


def _target(frame: Frame, depth: int) -> Any:
    """Return the container that a comprehension or display fills. It is ``depth`` values below the top.

    If the graph broke while this code filled the container, the container is lazy. Reading it then adds
    guards.
    """
    target = frame.stack[-depth]
    frame.objects.expand(target)
    return target


def list_append(frame: Frame, depth: int) -> None:
    """Pop a value, and append it to the list of a comprehension ``depth`` values below."""
    value = frame.stack.pop()
    _target(frame, depth).append(value)


def set_add(frame: Frame, depth: int) -> None:
    """Pop a value, and add it to the set of a comprehension ``depth`` values below.

    If the ``__hash__`` of the value may be the program's, the call of ``set.add`` is traced.
    """
    value = frame.stack.pop()
    if type(value) in _PLAIN_KEYS:
        _target(frame, depth).add(value)
        return
    frame.calls.call(set.add, (_target(frame, depth), value), {})


def map_add(frame: Frame, depth: int) -> None:
    """Pop a key and a value, and add them to the dict of a comprehension ``depth`` values below.

    If the ``__hash__`` of the key may be the program's, the call of ``dict.__setitem__`` is traced.
    """
    stack = frame.stack
    key, value = stack[-2:]
    del stack[-2:]
    if type(key) in _PLAIN_KEYS:
        _target(frame, depth)[key] = value
    else:
        frame.calls.call(dict.__setitem__, (_target(frame, depth), key, value), {})


def list_extend(frame: Frame, depth: int) -> None:
    """Extend a list with the iterable ``x`` of ``[*x]`` or ``f(*x)``.

    Raises CPython's TypeError if ``x`` is not iterable.
    """
    iterable = frame.stack.pop()
    target = _target(frame, depth)
    if type(iterable) is tuple:
        target.extend(iterable)
        return
    if not is_iterable(iterable):
        raise TypeError(f"Value after * must be an iterable, not {type(iterable).__name__}")
    frame.calls.call(list.extend, (target, iterable), {})


def is_iterable(value: object) -> bool:
    """Return whether CPython accepts ``value`` in ``*value``.

    Its class has ``__iter__``, or implements the sequence protocol.
    """
    namespaces = [base.__dict__ for base in type(value).__mro__]
    iterate = next((ns["__iter__"] for ns in namespaces if "__iter__" in ns), None)
    return iterate is not None or any("__getitem__" in ns for ns in namespaces)


def set_update(frame: Frame, depth: int) -> None:
    """Add the items of the iterable in ``{*x}`` to a set."""
    iterable = frame.stack.pop()
    frame.calls.call(set.update, (_target(frame, depth), iterable), {})


def _is_mapping(frame: Frame, value: object) -> bool:
    """Return whether ``dict.update`` treats ``value`` as a mapping. It does if ``value`` has an attribute
    ``keys``.
    """
    if isinstance(value, dict):
        return True
    try:
        frame.objects.load_attr(value, "keys")
    except AttributeError as missing:
        frame.interp.dealt_with(missing)
        return False
    return True


def dict_update(frame: Frame, depth: int) -> None:
    """Add the items of the mapping in ``{**x}`` to a dict. Later keys replace earlier keys."""
    mapping = frame.stack.pop()
    if not _is_mapping(frame, mapping):
        raise TypeError(f"'{type(mapping).__name__}' object is not a mapping")
    frame.calls.call(dict.update, (_target(frame, depth), mapping), {})


def dict_merge_below(position: int) -> Callable[[Frame, int], None]:
    """Return the handler of DICT_MERGE (``f(**x)``).

    Its TypeErrors name the callable. The callable lies ``position`` slots below the dictionary.
    """

    def dict_merge(frame: Frame, depth: int) -> None:
        """Add the items of the mapping in ``f(**x)`` to the keyword arguments.

        Raises TypeError for a repeated keyword.
        """
        mapping = frame.stack.pop()
        target = _target(frame, depth)
        fn = frame.stack[-depth - position]
        if not _is_mapping(frame, mapping):
            name = type(mapping).__name__
            raise TypeError(f"{callable_description(fn)} argument after ** must be a mapping, not {name}")
        # ``keys`` and ``__getitem__`` of the mapping may be code of the program. This code must run only
        # once, so a new dictionary collects the items before the search for duplicates.
        update: dict[Any, Any] = {}
        frame.calls.call(dict.update, (update, mapping), {})
        for key in update:
            if target and key in target:
                raise TypeError(
                    f"{callable_description(fn)} got multiple values for keyword argument '{key}'"
                )
        target.update(update)

    return dict_merge


# --- unpacking -----------------------------------------------------------------------------------


def _iterator(frame: Frame, value: object) -> Any:
    """Return the iterator of a value to unpack. Raises CPython's TypeError if the value is not iterable."""
    if not is_iterable(value):
        raise TypeError(f"cannot unpack non-iterable {type(value).__name__} object")
    return frame.calls.iterate(value)


def _take(frame: Frame, iterator: object, count: int, expected: str) -> list[Any]:
    """Return the first ``count`` items. Raises ValueError if there are fewer.

    ``expected`` is the argument of ``_too_few``.
    """
    items: list[Any] = []
    while len(items) < count:
        try:
            items.append(frame.calls.next(iterator))
        except StopIteration as end:
            frame.interp.dealt_with(end)
            break
    if len(items) < count:
        raise _too_few(expected, len(items))
    return items


def _too_few(expected: str, got: int) -> ValueError:
    """Return CPython's ValueError for an unpacking that found only ``got`` items.

    ``expected`` is the number in the message, for example "3" or "at least 3".
    """
    return ValueError(f"not enough values to unpack (expected {expected}, got {got})")


def unpack_sequence(frame: Frame, count: int) -> None:
    """Replace the value on the stack with its ``count`` items.

    Raises CPython's ValueError if the value has another number of items.
    """
    stack = frame.stack
    value = stack.pop()
    if type(value) is tuple and len(value) == count:
        stack.extend(value[::-1])
        return
    iterator = _iterator(frame, value)
    items = _take(frame, iterator, count, str(count))
    # CPython advances the iterator once more. The program can observe this.
    try:
        frame.calls.next(iterator)
    except StopIteration as end:
        frame.interp.dealt_with(end)
        stack.extend(reversed(items))
        return
    is_counted = frame.program.behaviour.counts_unpacked and type(value) in {list, tuple, dict}
    got = f", got {len(value)}" if is_counted else ""
    raise ValueError(f"too many values to unpack (expected {count}{got})")


def unpack_ex(frame: Frame, operand: int) -> None:
    """Unpack a value for ``*a, b = value``.

    The low byte of ``operand`` counts the targets before the star. The high byte counts the targets after it.
    """
    before, after = operand & 0xFF, operand >> 8
    stack = frame.stack
    value = stack.pop()
    iterator = _iterator(frame, value)
    expected = f"at least {before + after}"
    first = _take(frame, iterator, before, expected)
    rest: list[Any] = []
    frame.calls.call(list.extend, (rest, iterator), {})
    if len(rest) < after:
        raise _too_few(expected, before + len(rest))
    last = rest[len(rest) - after :]
    del rest[len(rest) - after :]
    stack.extend(reversed([*first, rest, *last]))
