"""In-place operators that read memory that they write, but not element by element: ``x[1:].add_(x[:-1])``.

Eager raises for most such calls. For others the result depends on the order of memory accesses. A functional
graph would read everything before it writes, so the trace refuses such calls, and eager runs. Whether two
ranges have a byte in common is decided exactly for plain sizes (``_have_common_byte``). Symbolic sizes are compared in
nested layouts, such as those of slices: two ranges are disjoint if the digits of their offsets are disjoint
in the number system of the strides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd
from typing import Any, NamedTuple

import torch
from torch.fx.experimental.proxy_tensor import disable_proxy_modes_tracing

from fxstack_functionalize.errors import UnsupportedGraphError
from fxstack_functionalize.torch_compat import pytree
from fxstack_functionalize.tracer.engine import Engine, current_value
from fxstack_functionalize.views.memory_layout import on_values


class Elements(NamedTuple):
    """The bytes of a tensor's elements in its storage. Dimensions of size 1 are left out."""

    offset: int
    dims: tuple[tuple[int, int], ...]
    """Stride and size of each dimension."""
    width: int
    """Bytes of one element."""

    @property
    def end(self) -> int:
        return self.offset + sum(stride * (size - 1) for stride, size in self.dims) + self.width


OPERATORS = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"),
    *("and", "or", "xor", "lshift", "rshift"),
)
ELEMENTWISE = frozenset(
    {
        *("copy_", "masked_fill_", "floor_divide_", "floor_divide", "setitem", "__setitem__"),
        *(f"i{name}" for name in OPERATORS),
        *(f"__i{name}__" for name in OPERATORS),
    }
)
"""In-place operators that work element by element, but do not have torch's tag ``pointwise``."""


ASSIGNMENTS = frozenset({"setitem", "__setitem__"})


def check_reads(
    engine: Engine, name: str, target: torch.Tensor, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Check a call that writes to ``target`` and reads the tensors among ``args`` and ``kwargs``.

    Raises:
        UnsupportedGraphError: if a read tensor shares memory with ``target``, but does not consist of the
            same elements.
    """
    readers = [
        other
        for other in pytree.tree_leaves((args, dict(kwargs)))
        if isinstance(other, torch.Tensor) and _share_storage(engine, target, other)
    ]
    if not readers:
        return
    written, changed = _written_place(name, target, _current_value(engine, target), args)
    for other in readers:
        place_read = elements_of(_current_value(engine, other))
        # Two places of one element each are equal or disjoint, at any offset.
        single = not written.dims and not place_read.dims and written.width == place_read.width
        if _is_elementwise(name) and (single or place_read == written):
            # An assignment gives a value of fewer dimensions strides of its own.
            has_equal_rank = changed is not None and (name not in ASSIGNMENTS or changed.dim() == other.dim())
            if has_equal_rank and place_read == written and _differs_in_strides(changed, other):
                raise _overlap_error(name)
            continue
        if may_overlap(written, place_read):
            raise _overlap_error(name)


def check_lists(
    engine: Engine, name: str, targets: Sequence[Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Check a call on lists of tensors: step i writes to ``targets[i]`` and reads item i of each other list.

    Raises:
        UnsupportedGraphError: if a tensor shares memory with a tensor that another step writes or reads.
    """
    lists = [value for value in (*args, *kwargs.values()) if isinstance(value, (list, tuple))]
    single = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
    columns = [*lists, *([tensor] * len(targets) for tensor in single)]
    for accesses in _shared_storages((targets, *columns)):
        for number in {access.number for access in accesses if access.written}:
            row = [items[number : number + 1] for items in columns]
            check_reads(engine, name, targets[number], row, {})
        if _in_two_steps(engine, accesses):
            raise _overlap_error(name)


class _Access(NamedTuple):
    """The use of a tensor by step ``number`` of a call on lists, which reads it or writes to it."""

    tensor: torch.Tensor
    number: int
    written: bool


def _shared_storages(columns: Sequence[Sequence[Any]]) -> list[list[_Access]]:
    """Return the uses of each storage that is used twice and written. The tensors of the first column are written."""
    on_storage: dict[int, list[_Access]] = {}
    for position, column in enumerate(columns):
        for number, item in enumerate(column):
            if isinstance(item, torch.Tensor) and item.layout is torch.strided:
                used = _Access(item, number, position == 0)
                on_storage.setdefault(item.untyped_storage()._cdata, []).append(used)
    return [all_used for all_used in on_storage.values() if len(all_used) > 1 and all_used[0].written]


def _in_two_steps(engine: Engine, all_used: list[_Access]) -> bool:
    """Whether one step writes a range of this storage that another step uses."""
    places = [(elements_of(_current_value(engine, used.tensor)), used) for used in all_used]
    waiting: list[tuple[Elements, _Access]] = []
    for place, used in sorted(places, key=lambda pair: pair[0].offset):
        waiting = [earlier for earlier in waiting if earlier[0].end > place.offset]
        for earlier_place, earlier in waiting:
            apart = earlier.number == used.number or not (earlier.written or used.written)
            if not apart and may_overlap(earlier_place, place):
                return True
        waiting.append((place, used))
    return False


def _overlap_error(name: str) -> UnsupportedGraphError:
    """Return the error about operator ``name``, which writes to memory that it also reads."""
    return UnsupportedGraphError(
        f"{name!r} writes to memory that it also reads, through tensors that overlap in part",
        why="eager has an error for most such calls, or goes through the memory in an order of its own",
        fix="clone the tensor that is read",
    )


def _current_value(engine: Engine, tensor: torch.Tensor) -> torch.Tensor:
    """Return the present value of a tensor. Offsets of functional wrappers may be out of date."""
    return current_value(engine, tensor) if engine.is_functional(tensor) else tensor


def _differs_in_strides(target: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether eager sees a partial overlap because strides without meaning differ (``x.add_(x[0])``)."""
    dense = torch.ops.aten.is_non_overlapping_and_dense.default
    return tuple(target.stride()) != tuple(other.stride()) and dense(target) and dense(other)


def _share_storage(engine: Engine, target: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two traced tensors have the same storage.

    False for a tensor that is sparse or from outside of the trace.
    """
    are_functional = all(
        tensor.layout is torch.strided and engine.is_functional(tensor) for tensor in (target, other)
    )
    return are_functional and target.untyped_storage()._cdata == other.untyped_storage()._cdata


def _is_elementwise(name: str) -> bool:
    """Whether an operator computes each element only from elements at the same place in its arguments."""
    plain = name.removeprefix("_foreach_")
    if plain in ELEMENTWISE:
        return True
    packets = (getattr(torch.ops.aten, packet_name, None) for packet_name in (name, plain))
    return any(
        torch.Tag.pointwise in getattr(packet, packet.overloads()[0]).tags
        for packet in packets
        if packet is not None
    )


def _written_place(
    name: str, target: torch.Tensor, present: torch.Tensor, args: Sequence[Any]
) -> tuple[Elements, torch.Tensor | None]:
    """Return (place that a call writes in ``present``, tensor with eager's layout of this place).

    An assignment without tensor indices writes a part of ``target``. For an assignment with tensor indices,
    the place is all of ``present``, and the tensor is None.
    """
    whole_place = elements_of(present)
    if name not in ASSIGNMENTS:
        return whole_place, target
    index = args[0]
    indices = index if isinstance(index, tuple) else (index,)
    if any(isinstance(written_part, (torch.Tensor, list)) for written_part in indices):
        return whole_place, None
    with disable_proxy_modes_tracing(), on_values():
        place, written_part = elements_of(_empty_like(present)[index]), _empty_like(target)[index]
    return place._replace(offset=place.offset + whole_place.offset), written_part


def _empty_like(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)


def elements_of(tensor: torch.Tensor) -> Elements:
    """Return the bytes that the elements of ``tensor`` occupy. Comparisons of symbolic numbers add guards."""
    width = tensor.element_size()
    dims = zip(tensor.stride(), tensor.shape, strict=True)
    dims_above_one = tuple((stride * width, size) for stride, size in dims if size != 1)
    return Elements(tensor.storage_offset() * width, dims_above_one, width)


def may_overlap(one: Elements, other: Elements) -> bool:
    """Whether two places in one storage may have an element in common."""
    if any(size == 0 for _, size in (*one.dims, *other.dims)):
        return False
    if one.end <= other.offset or other.end <= one.offset:
        return False
    numbers = (one.offset, other.offset, *(n for dim in (*one.dims, *other.dims) for n in dim))
    if all(type(number) is int for number in numbers):
        return _have_common_byte(one, other)
    strides: list[int] = []
    for stride, _ in (*one.dims, *other.dims):
        if stride != 0 and not any(stride == known for known in strides):
            strides.append(stride)
    strides.sort(reverse=True)
    # The digits may be counted from the start of the storage or from the first element: both must overlap.
    first = min(one.offset, other.offset)
    moved = [place._replace(offset=place.offset - first) for place in (one, other)]
    return _digits_overlap((one, other), strides) and _digits_overlap(moved, strides)


def _have_common_byte(one: Elements, other: Elements) -> bool:
    """Whether two places have a byte in common: a bounded linear equation. True if the search takes too long."""
    # With the other place counted from its end, all steps increase the distance of two elements.
    terms = sorted(((step, size - 1) for step, size in (*one.dims, *other.dims) if step), reverse=True)
    distance = other.end - other.width - one.offset
    steps = iter(range(_MAX_STEPS))

    def reaches(place: int, low: int, high: int) -> bool:
        """Whether the terms from ``place`` on can sum up to a number between ``low`` and ``high``."""
        if place == len(terms):
            return low <= 0 <= high
        later_terms = terms[place + 1 :]
        (step, count), max_sum = terms[place], sum(step * count for step, count in later_terms)
        divisor = gcd(step, *(step for step, _ in later_terms))
        if high // divisor * divisor < low:
            return False
        numbers = range(max(0, -((max_sum - low) // step)), min(count, high // step) + 1)
        return any(
            next(steps, None) is None or reaches(place + 1, low - step * number, high - step * number)
            for number in numbers
        )

    return reaches(0, distance - one.width + 1, distance + other.width - 1)


_MAX_STEPS = 10_000


def _digits_overlap(both: Sequence[Elements], strides: Sequence[int]) -> bool:
    """Whether the digits of two places' offsets overlap; True if digits do not decide."""
    digits = [_digits(place, strides) for place in both]
    if not all(_are_nested(spans, strides) for spans in digits):
        return True
    return all(
        low < high_other and low_other < high
        for (low, high), (low_other, high_other) in zip(*digits, strict=True)
    )


def _digits(place: Elements, strides: Sequence[int]) -> list[tuple[int, int]]:
    """Return the half-open range of each digit of the offsets, one digit per stride, then the range of the
    remaining bytes.
    """
    spans, remaining = [], place.offset
    for stride in strides:
        first, remaining = remaining // stride, remaining % stride
        reach = sum(size - 1 for step, size in place.dims if step == stride)
        spans.append((first, first + reach + 1))
    return [*spans, (remaining, remaining + place.width)]


def _are_nested(spans: Sequence[tuple[int, int]], strides: Sequence[int]) -> bool:
    """Whether each digit but the first stays below one step of the digit before it."""
    below = spans[-1][1]
    for (_, high), stride in zip(reversed(spans[:-1]), reversed(strides), strict=True):
        if below > stride:
            return False
        below += (high - 1) * stride
    return True
