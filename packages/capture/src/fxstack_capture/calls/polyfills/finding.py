"""How requests find the functions of the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fxstack_capture.calls.operators.protocol import special_method
from fxstack_capture.trace.state import Calls, Request

Maker = Callable[..., Request | None]


def special(calls: Calls, obj: object, name: str) -> Any:
    """The Python function of a program's class, or None."""
    return None if is_symbol(obj) or is_ours(obj) else special_method(calls, obj, name)


def is_symbol(value: object) -> bool:
    return isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool))


def is_ours(obj: object) -> bool:
    """Generators, proxies and so on are classes of the compiler."""
    return type(obj).__module__.startswith("fxstack_capture.")


def method_of(calls: Calls, value: object, name: str, *args: object) -> Request | None:
    method = special(calls, value, name)
    return None if method is None else (method, (value, *args))
