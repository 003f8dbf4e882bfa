"""f-strings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fxstack_capture.interpreter.frame import Frame

_CONVERSIONS = (None, str, repr, ascii)


def _format(frame: Frame, value: Any, spec: Any) -> Any:
    if type(value) is str and not spec:
        return value
    return frame.calls.call(format, (value, spec), {})


def _convert(frame: Frame, value: Any, which: int) -> Any:
    conversion = _CONVERSIONS[which]
    return value if conversion is None else frame.calls.call(conversion, (value,), {})


def format_value(frame: Frame, flags: int) -> None:
    """3.11, 3.12: conversion (low two bits) and format in one."""
    stack = frame.stack
    spec = stack.pop() if flags & 4 else ""
    stack[-1] = _format(frame, _convert(frame, stack[-1], flags & 3), spec)


def convert_value(frame: Frame, which: int) -> None:
    frame.stack[-1] = _convert(frame, frame.stack[-1], which)


def format_simple(frame: Frame, _operand: Any) -> None:
    frame.stack[-1] = _format(frame, frame.stack[-1], "")


def format_with_spec(frame: Frame, _operand: Any) -> None:
    spec = frame.stack.pop()
    frame.stack[-1] = _format(frame, frame.stack[-1], spec)
