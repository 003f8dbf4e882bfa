"""``match`` statements."""

from __future__ import annotations

import collections.abc
from collections.abc import Callable
from typing import Any

from fxstack_capture.interpreter.frame import Frame
from fxstack_capture.native.class_flags import flags_of
from fxstack_capture.objects.protocols.abstract_classes import note_answers

_SEQUENCE_FLAG = 1 << 5
_MAPPING_FLAG = 1 << 6
_MATCH_SELF_FLAG = 1 << 22


def match_sequence(frame: Frame, _operand: object) -> None:
    """Push whether a sequence pattern (``case [a, b]``) accepts the subject. The subject stays on the stack."""
    frame.stack.append(_is_a(frame, collections.abc.Sequence, _SEQUENCE_FLAG))


def match_mapping(frame: Frame, _operand: object) -> None:
    """Push whether a mapping pattern (``case {"a": a}``) accepts the subject. The subject stays on the stack."""
    frame.stack.append(_is_a(frame, collections.abc.Mapping, _MAPPING_FLAG))


def _is_a(frame: Frame, abstract: type, flag: int) -> bool:
    """Return whether patterns treat the value on top of the stack as an instance of ``abstract``.

    CPython sets ``flag`` in classes that inherit from ``abstract`` or are registered with it.
    """
    kind = type(frame.stack[-1])
    note_answers(frame.objects, kind, abstract)
    return bool(flags_of(kind) & flag)


def match_keys(frame: Frame, _operand: object) -> None:
    """Push the values for the keys of ``case {"a": a}`` as a tuple. Push None if the subject lacks a key."""
    subject, keys = frame.stack[-2:]
    frame.stack.append(_values_of(frame, subject, keys))


def _values_of(frame: Frame, subject: object, keys: tuple[Any, ...]) -> tuple[Any, ...] | None:
    """Return the values of ``keys`` in a mapping, or None if a key is missing.

    Raises ValueError if two keys are equal.
    """
    if not keys:
        return ()
    get = frame.objects.load_attr(subject, "get")
    missing = object()
    seen: set[Any] = set()
    values: list[Any] = []
    for key in keys:
        if key in seen:
            raise ValueError(f"mapping pattern checks duplicate key ({key!r})")
        seen.add(key)
        value = frame.calls.call(get, (key, missing), {})
        if value is missing:
            return None
        values.append(value)
    return tuple(values)


def match_class_called(noun: str) -> Callable[[Frame, int], None]:
    """Return the handler of MATCH_CLASS.

    ``noun`` is the word for a class in the TypeError: "type" in Python 3.11, "class" from 3.12 on.
    """

    def match_class(frame: Frame, count: int) -> None:
        """Replace the subject, the class and the attribute names by the tuple of the attributes, or by None
        if nothing matches.
        """
        stack = frame.stack
        subject, cls, keywords = stack[-3:]
        if not isinstance(cls, type):
            raise TypeError(f"called match pattern must be a {noun}")
        stack[-3:] = (_class_attributes(frame, (subject, cls), count, keywords),)

    return match_class


def _class_attributes(
    frame: Frame, matched: tuple[Any, type], count: int, keywords: tuple[str, ...]
) -> tuple[Any, ...] | None:
    """Return the attributes that the sub-patterns of a class pattern match. Return None if the subject does
    not match.

    ``count`` is the number of positional sub-patterns.
    """
    subject, cls = matched
    if not frame.calls.truth(frame.calls.call(isinstance, (subject, cls), {})):
        return None
    seen: set[str] = set()
    attributes: list[Any] = []
    if count:
        names, matches_self = _positional_names(frame, cls)
        _check_count(cls, count, 1 if matches_self else len(names))
        if matches_self:
            attributes.append(subject)
        for name in names[:count]:
            if not isinstance(name, str):
                got = type(name).__name__
                raise TypeError(f"__match_args__ elements must be strings (got {got})")
            if not _add_attribute(frame, matched, name, (seen, attributes)):
                return None
    for name in keywords:
        if not _add_attribute(frame, matched, name, (seen, attributes)):
            return None
    return tuple(attributes)


def _positional_names(frame: Frame, cls: type) -> tuple[tuple[Any, ...], bool]:
    """Return ``__match_args__`` of the class, and whether a positional pattern matches the subject itself, as
    in ``int(x)``.
    """
    try:
        names = frame.objects.load_attr(cls, "__match_args__")
    except AttributeError as missing:
        frame.interp.dealt_with(missing)
        return (), bool(flags_of(cls) & _MATCH_SELF_FLAG)
    if type(names) is not tuple:
        got = type(names).__name__
        raise TypeError(f"{cls.__name__}.__match_args__ must be a tuple (got {got})")
    return names, False


def _check_count(cls: type, count: int, allowed: int) -> None:
    """Raise CPython's TypeError if a class pattern has more positional sub-patterns than the class allows."""
    if allowed < count:
        plural = "" if allowed == 1 else "s"
        name = cls.__name__
        raise TypeError(f"{name}() accepts {allowed} positional sub-pattern{plural} ({count} given)")


def _add_attribute(
    frame: Frame, matched: tuple[Any, Any], name: str, so_far: tuple[set[str], list[Any]]
) -> bool:
    """Add ``name`` to the names in ``so_far``, and its value to the values in ``so_far``.

    Return False if the subject lacks the attribute. Raises TypeError if the pattern contains the name twice.
    """
    subject, cls = matched
    seen, attributes = so_far
    if name in seen:
        raise TypeError(f"{cls.__name__}() got multiple sub-patterns for attribute {name!r}")
    seen.add(name)
    try:
        attributes.append(frame.objects.load_attr(subject, name))
    except AttributeError as missing:
        frame.interp.dealt_with(missing)
        return False
    return True
