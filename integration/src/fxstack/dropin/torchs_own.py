"""Calls of the compiler that torch makes to implement an eager operator, an export or a tool of its own.

``torch.while_loop`` outside of compiled code compiles its loop, and ``torch._dynamo.export`` captures by
``optimize_assert``. The program has not asked for a compiler there, and torch passes arguments that no program passes.
Such calls go to torch's own functions, so that a program that calls no compiler behaves as without fxstack.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from contextvars import ContextVar
from types import FrameType
from typing import Any, TypeVar

_F = TypeVar("_F", bound=Callable[..., Any])

_PACKAGES = ("torch._higher_order_ops.", "torch._dynamo.", "torch._inductor.", "torch._export.")
_FUNCTIONS = frozenset({("torch.nn.attention.flex_attention", "flex_attention")})
"""Functions of other modules, in which torch also compiles what the program asks it to compile."""
_ORIGINALS: dict[str, Callable[..., Any]] = {}
_INSIDE: ContextVar[bool] = ContextVar("inside of torch's own compiler", default=False)
"""Torch's function calls others that are replaced, too: ``compile`` calls ``optimize``."""


def unless_torchs_own(entrance: _F) -> _F:
    """Decorator: let torch's function, if it is known, serve the calls that torch itself makes."""

    @functools.wraps(entrance)
    def function(*args: object, **kwargs: object) -> Any:
        """Call fxstack's entrance.

        A call from torch's own code, and each call inside of it, goes to torch's original.
        """
        original = _ORIGINALS.get(entrance.__name__)
        if original is None or not (_INSIDE.get() or _belongs_to_torch(sys._getframe(1))):
            return entrance(*args, **kwargs)
        before = _INSIDE.set(True)
        try:
            return original(*args, **kwargs)
        finally:
            _INSIDE.reset(before)

    return function  # type: ignore[return-value]


def replace_by(entrance: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return the function that takes torch's original and returns ``entrance`` in its place."""

    def replacement(original: Callable[..., Any]) -> Callable[..., Any]:
        """Return the entrance in place of ``original``. Keep ``original`` for calls from torch's own code."""
        if original is not entrance:
            _ORIGINALS[entrance.__name__] = original
        return entrance

    return replacement


def torchs_own(name: str) -> Callable[..., Any] | None:
    """Return torch's function that the entrance ``name`` replaces; None if nothing is replaced."""
    return _ORIGINALS.get(name)


def _belongs_to_torch(frame: FrameType) -> bool:
    """Return whether the code of ``frame`` implements something of torch by its compiler."""
    name = frame.f_globals.get("__name__")
    if not isinstance(name, str):
        return False
    return f"{name}.".startswith(_PACKAGES) or (name, frame.f_code.co_name) in _FUNCTIONS
