"""Find the special methods of a program's classes for requests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fxstack_capture.calls.operators.plain_objects import is_ours
from fxstack_capture.calls.operators.protocol import special_method
from fxstack_capture.torch_side.numbers.symbols import symbolic_number
from fxstack_capture.trace.state import Calls, Request

Maker = Callable[..., Request | None]


def special(calls: Calls, obj: object, name: str) -> Any:
    """The Python function of a program's class, or None."""
    return None if symbolic_number(obj) or is_ours(obj) else special_method(calls, obj, name)


def method_of(calls: Calls, value: object, name: str, *args: object) -> Request | None:
    method = special(calls, value, name)
    return None if method is None else (method, (value, *args))
