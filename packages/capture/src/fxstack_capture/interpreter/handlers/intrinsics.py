"""CALL_INTRINSIC_1 and CALL_INTRINSIC_2 (3.12 and later): unnamed functions of CPython's interpreter."""

from __future__ import annotations

import typing

from fxstack_capture.interpreter.frame import Frame


def list_to_tuple(frame: Frame, _operand: object) -> None:
    frame.stack[-1] = tuple(frame.stack[-1])


def subscript_generic(frame: Frame, _operand: object) -> None:
    """Push ``Generic[T]``, the base of a class with type parameters."""
    frame.stack[-1] = typing.Generic[frame.stack[-1]]  # type: ignore[index]


def set_function_type_params(frame: Frame, _operand: object) -> None:
    parameters = frame.stack.pop()
    frame.objects.store_attr(frame.stack[-1], "__type_params__", parameters)
