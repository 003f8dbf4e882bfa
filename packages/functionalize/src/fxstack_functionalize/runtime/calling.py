"""Call what a compiler returned, whichever of the two conventions it follows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fxstack_functionalize.errors import CompilerContractError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Compiled = Callable[..., Any]
    """Takes the graph's inputs, or one list of them if it has an attribute ``boxed`` that is true."""


def listed(compiled: Compiled, expected: int, role: str) -> Callable[[list[Any]], Sequence[Any]]:
    """Return a function of one list of arguments (that may be cleared) that checks its first result."""
    if not callable(compiled):
        raise CompilerContractError(
            f"the {role} compiler returned {type(compiled).__name__}, not a callable.\n"
            "  fix: return a function of the graph's inputs"
        )
    call = compiled if getattr(compiled, "boxed", False) else _spread(compiled)
    return _CheckedOnce(call, expected, role)


def _spread(compiled: Compiled) -> Callable[[list[Any]], Any]:
    def call(args: list[Any]) -> Any:
        return compiled(*args)

    return call


class _CheckedOnce:
    """Checks the number of results of the first call and then steps aside (``plain``)."""

    __slots__ = ("_call", "_expected", "_role", "checked")

    def __init__(self, call: Callable[[list[Any]], Any], expected: int, role: str) -> None:
        self._call = call
        self._expected = expected
        self._role = role
        self.checked = False

    def __call__(self, args: list[Any]) -> Any:
        results = self._call(args)
        if not self.checked:
            if not isinstance(results, (tuple, list)) or len(results) != self._expected:
                got = len(results) if isinstance(results, (tuple, list)) else type(results).__name__
                raise CompilerContractError(
                    f"the compiled {self._role} returned {got} results, its graph has {self._expected}.\n"
                    "  fix: return one value for each element of the graph's output tuple"
                )
            self.checked = True
        return results
