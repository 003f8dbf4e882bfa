"""Checks of the first call: the number of results, and their strides.

A compiler that gives an output other strides than eager's does so in every call, so later calls copy such
outputs into eager's strides. If all strides agree, later calls check nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from fxstack_functionalize.runtime.calling import check_results
from fxstack_functionalize.trace import Shell
from fxstack_functionalize.tracer.symbols import evaluable, filler


class FirstCall:
    """Checks results. The wrapper calls it with arguments and results while ``pending`` is not empty."""

    def __init__(self, shell: Shell, role: str, *, check_strides: bool) -> None:
        self.pending: list[bool] = [True]
        self._role = role
        self._count = shell.info.output_count
        self._checked = False
        expected = {
            position: strides
            for position, strides in enumerate(shell.info.strides)
            if check_strides and strides is not None and evaluable(shell.captured, strides)
        }
        self._captured, self._expected = shell.captured, expected
        self._wanted = filler(shell.captured, tuple(expected.items()))

    def __call__(self, args: Sequence[Any], flat: Sequence[Any]) -> Sequence[Any]:
        result = list(check_results(flat, self._count, self._role))
        differing = {}
        for position, strides in self._wanted(args):
            if not same_layout(result[position], strides):
                differing[position] = self._expected[position]
                result[position] = with_strides(result[position], strides)
        if not self._checked:
            self._checked = True
            self._wanted = filler(self._captured, tuple(differing.items()))
            if not differing:
                self.pending.clear()
        return result


def same_layout(tensor: torch.Tensor | None, strides: tuple[int, ...]) -> bool:
    """Whether the strides agree in all dimensions of size other than 1."""
    if tensor is None:  # undefined result of an operator whose fake kernel promises a tensor
        return True
    own = tensor.stride()
    # Some of torch's shape functions give a wrong number of dimensions; the operator itself is right.
    if own == strides or tensor.numel() == 0 or len(own) != len(strides):
        return True
    return all(size == 1 or a == b for size, a, b in zip(tensor.shape, own, strides, strict=True))


def with_strides(tensor: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    """Copy ``tensor`` into new memory with these strides."""
    fresh = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=tensor.device)
    return fresh.copy_(tensor)
