"""Calls of operators on lists for lists without repetitions.

An operator on lists, for example ``_foreach_add_``, does the same at each position of its lists. At positions whose tensors have
equal metadata its results have equal metadata, so a kernel for fake tensors sees one of these positions.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from fxstack_capture.torch_compat import FakeTensor, OpOverload


@dataclass(frozen=True, slots=True)
class Rows:
    """The positions of the lists of a call: ``first`` has one position of each kind, ``kinds`` the kind of each position."""

    first: tuple[int, ...]
    kinds: tuple[int, ...]

    def reduced(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """Return arguments with one position of each kind in place of all positions of a list."""
        return tuple([_items(value, self.first) if _is_list(value) else value for value in values])

    def expanded(self, results: object, make: Callable[[FakeTensor], FakeTensor]) -> Any:
        """Return the results of a reduced call for all positions; ``make`` returns a new tensor with equal metadata."""
        if not isinstance(results, (list, tuple)):
            return results
        used: set[int] = set()
        all_results = []
        for kind in self.kinds:
            all_results.append(make(results[kind]) if kind in used else results[kind])
            used.add(kind)
        return all_results


def rows_of(func: object, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Rows | None:
    """Return the positions of the lists of a call; None if a reduced call may differ, or no two positions are equal."""
    if not isinstance(func, OpOverload) or not func._schema.name.startswith("aten::_foreach_"):
        return None
    lists = [value for value in (*args, *kwargs.values()) if _is_list(value)]
    if not lists or len({len(values) for values in lists}) > 1 or any(map(_is_list, kwargs.values())):
        return None
    numbers: dict[Hashable, int] = {}
    first, kinds = [], []
    for position, row in enumerate(zip(*lists, strict=True)):
        row_kinds = tuple(_kinds(row))
        if None in row_kinds:
            return None
        if row_kinds not in numbers:
            numbers[row_kinds] = len(numbers)
            first.append(position)
        kinds.append(numbers[row_kinds])
    return Rows(tuple(first), tuple(kinds)) if len(first) < len(kinds) else None


def _kinds(row: Sequence[Any]) -> Iterator[Hashable]:
    """Yield the metadata of each tensor of a row and the name of each number's type; None for another value."""
    for value in row:
        if type(value) is FakeTensor:
            static = value.layout is torch.strided and not value._has_symbolic_sizes_strides
            plain = static and value.constant is None and not (value.is_conj() or value.is_neg())
            yield (value.shape, value.stride(), value.dtype, value.fake_device) if plain else None
        else:
            is_number = isinstance(value, (bool, int, float, torch.SymFloat))
            yield type(value).__name__ if is_number else None


def _is_list(value: object) -> bool:
    return isinstance(value, (list, tuple))


def _items(values: Sequence[Any], positions: Sequence[int]) -> list[Any]:
    return [values[position] for position in positions]
