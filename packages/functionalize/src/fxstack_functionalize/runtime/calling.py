"""The contract with compilers: two calling conventions, one result per element of the graph's output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from fxstack_functionalize import torch_compat
from fxstack_functionalize.errors import CompilerContractError

Call = Callable[[list[Any]], Sequence[Any]]
"""A function of one list of arguments, which the function may clear."""
Compiled = Callable[..., Any]
"""Takes the graph's inputs, or one list of them if the attribute ``boxed`` or ``_boxed_call`` is true.

``functorch.compile.make_boxed_func`` and torch's own compilers set ``_boxed_call``.
"""

FORWARD = "forward graph"
"""The role of the forward graph of a training step in error texts."""


def is_boxed(compiled: Compiled, role: str) -> bool:
    """Return whether ``compiled`` takes one list of arguments, which it may clear."""
    if not callable(compiled):
        raise CompilerContractError(
            f"the {role} compiler returned {type(compiled).__name__}, not a callable.\n"
            "  fix: return a function of the graph's inputs"
        )
    return bool(getattr(compiled, "boxed", False) or getattr(compiled, "_boxed_call", False))


def as_boxed(compiled: Compiled, role: str) -> Call:
    """Return ``compiled`` as a function of one list of arguments."""
    if is_boxed(compiled, role):
        return compiled
    return lambda args: compiled(*args)


def check_results(results: object, expected: int, role: str) -> Sequence[Any]:
    """Return ``results``. Raise CompilerContractError if their number is not ``expected``."""
    if isinstance(results, (tuple, list)) and len(results) == expected:
        return results
    got = len(results) if isinstance(results, (tuple, list)) else type(results).__name__
    raise CompilerContractError(
        f"the compiled {role} returned {got} results, its graph has {expected}.\n"
        "  fix: return one value for each element of the graph's output tuple"
    )


def without_autocast(call: Call) -> Call:
    """Return ``call`` with autocast off, because the graph contains the casts."""

    def guarded(args: list[Any]) -> Sequence[Any]:
        """Call the compiled graph with autocast off, because the graph contains the casts."""
        if not torch_compat.is_any_autocast_enabled():
            return call(args)
        with torch_compat.DisableAutocast():
            return call(args)

    return guarded
