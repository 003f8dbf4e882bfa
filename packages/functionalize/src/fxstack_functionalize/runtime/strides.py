"""Give outputs the strides that eager's have, if a compiler chose others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fxstack_functionalize.symbols import evaluable, evaluator

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fxstack_functionalize.trace import Traced

    Restride = Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]]


def restrider(traced: Traced) -> Restride:
    """Return a function of (args, flat outputs) that restrides what the first call shows to differ."""
    expected = {
        position: strides
        for position, strides in enumerate(traced.info.strides)
        if strides is not None and evaluable(traced.captured, strides)
    }
    return _Restrider(expected, evaluator(traced.captured))


class _Restrider:
    """Compares at the first call; afterwards touches only the outputs that differed then."""

    __slots__ = ("_bind", "_expected", "_first")

    def __init__(self, expected: dict[int, tuple[Any, ...]], bind: Any) -> None:
        self._expected = expected
        self._bind = bind
        self._first = True

    def __call__(self, args: Sequence[Any], flat: Sequence[Any]) -> Sequence[Any]:
        if not self._expected:
            return flat
        sizes = self._bind(args)
        result = list(flat)
        differing = {}
        for position, strides in self._expected.items():
            wanted = tuple(sizes(s) if isinstance(s, torch.SymInt) else s for s in strides)
            if not same_layout(flat[position], wanted):
                differing[position] = strides
                result[position] = with_strides(flat[position], wanted)
        if self._first:
            self._first = False
            self._expected = differing
        return result


def same_layout(tensor: torch.Tensor, strides: tuple[int, ...]) -> bool:
    """Whether the strides agree wherever they matter (dimensions of more than one element)."""
    return tensor.stride() == strides


def with_strides(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """Copy ``tensor`` into new memory with these strides."""
    fresh = torch.empty_strided(
        tensor.shape, strides, dtype=tensor.dtype, device=tensor.device
    )
    return fresh.copy_(tensor)
