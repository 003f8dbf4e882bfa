"""Decompositions of operators on lists of tensors, which apply a function to the tensors at each position.

A recorder that knows this form need run the function only once for tensors of equal metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SingleCall = tuple[tuple[Any, ...], dict[str, Any]]
"""The arguments of the function for one position."""


@dataclass(frozen=True, slots=True)
class ForEach:
    """Applies ``function`` at each position. ``scaled``: the number behind three tensors becomes its ``value=``."""

    function: Callable[..., Any]
    scaled: bool = False

    def __call__(self, *args: object, **kwargs: object) -> list[Any]:
        return [self.function(*one, **named) for one, named in self.calls(args, kwargs)]

    def calls(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[SingleCall]:
        """Return the arguments for each position of the lists."""
        rest = dict(kwargs)
        if self.scaled:
            *args, rest["value"] = (*args, 1)[:4]
        listed = next(arg for arg in args if isinstance(arg, (list, tuple)))
        return [
            (tuple(_one(arg, k) for arg in args), {name: _one(v, k) for name, v in rest.items()})
            for k in range(len(listed))
        ]


def _one(value: object, position: int) -> Any:
    """Return the item of a list at ``position``; a value that is no list serves all positions."""
    return value[position] if isinstance(value, (list, tuple)) else value
