"""Writes that eager rejects, and writes that the version counters of the arguments do not show.

Version counters miss two kinds of writes. Operators on lists of tensors increment the counters in their
kernels, which do not run on fakes. Inference tensors have no version counter. For both, the schemas of the
operators name the arguments that are written.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, TypeGuard

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.torch_compat import OpOverload, TorchDispatchMode, tree_leaves
from fxstack_capture.trace.state import Args, Kwargs
from fxstack_interchange.torch_facts.dtypes import size_in_call
from fxstack_interchange.torch_facts.iteration import is_dense, operand

_PREFIXES = ("_foreach_", "_fused_", "_amp_foreach_")

_ACCEPTS_OVERLAP = frozenset(
    {"index_put_", "_index_put_impl_", "index_fill_", "masked_fill_", "fill_diagonal_", "tril_", "triu_"}
)
"""Operators that may write to a tensor whose elements share memory. Eager rejects all other writes to such a
tensor.
"""
_OVERLAPS = 1
"""torch's code for a tensor whose elements share memory, for example an expanded tensor."""


def demand_accepted(func: OpOverload, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
    """Break the graph at a write that eager rejects because its arguments overlap. Fake kernels accept most
    of these.
    """
    if (
        not _written_arguments(func)
        or func._opname in _ACCEPTS_OVERLAP
        or torch.Tag.inplace_view in func.tags
    ):
        return
    for written in _written_values(func, args, kwargs):
        strided = filter(_is_strided, tree_leaves(written))
        if any(map(_overlaps_itself, strided)):
            raise graph_break("unsupported-call", f"{func}, which writes to memory that elements share,")
        if _is_strided(written) and any(_overlap_in_part(written, x) for x in args if _is_strided(x)):
            raise graph_break("unsupported-call", f"{func} of tensors that overlap")


def _overlaps_itself(tensor: torch.Tensor) -> bool:
    """Return whether elements share memory. torch's check is slow for fakes, and most written tensors are contiguous."""
    if not tensor._has_symbolic_sizes_strides and tensor.is_contiguous():
        return False
    return bool(torch._debug_has_internal_overlap(tensor) == _OVERLAPS)


def _is_strided(value: object) -> TypeGuard[torch.Tensor]:
    """Return whether the value is a tensor that has a storage to write to."""
    return isinstance(value, torch.Tensor) and value.layout is torch.strided


def _overlap_in_part(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether two tensors overlap partly, as ATen's ``get_overlap_status`` decides.

    Like ATen, this compares only dense tensors.
    """
    if tensor is other or tensor.untyped_storage()._cdata != other.untyped_storage()._cdata:
        return False
    first, second = _extent(tensor), _extent(other)
    if first is None or second is None or first[1] <= second[0] or second[1] <= first[0]:
        return False
    return first != second or tensor.stride() != other.stride()


def _extent(tensor: torch.Tensor) -> tuple[int, int] | None:
    """Return the addresses, in bytes, where a dense tensor begins and ends. None if unknown, or if it is not
    dense.
    """
    start, description = size_in_call(tensor.storage_offset()), operand(tensor)
    if start is None or description is None or not is_dense(description):
        return None
    return start * tensor.itemsize, (start + math.prod(description.sizes)) * tensor.itemsize


def is_leaf(tensor: torch.Tensor) -> bool | None:
    """Return ``tensor.is_leaf``. Return None if the answer is unknown.

    This happens for one of several views of one operator, if their memory has changed.
    """
    # One operator returned several views, and a write has changed their memory. Reading ``is_leaf`` then
    # raises.
    try:
        return bool(tensor.is_leaf)
    except RuntimeError:
        return None


def version_of(tensor: torch.Tensor) -> int | None:
    """Return the version counter. None for an inference tensor, which has no counter."""
    return None if tensor.is_inference() else tensor._version


def has_changed(tensor: torch.Tensor, version: int | None, listener: Listener | None) -> bool:
    """Return whether a call wrote to a tensor.

    ``version`` is the result of ``version_of`` before the call. ``listener`` is the listener of the call, or
    None.
    """
    # Without a version counter and without a listener, assume that the call has written to the tensor.
    if version is None:
        return listener is None or listener.wrote_to(tensor)
    return bool(tensor._version != version)


def written_lists(fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> set[int]:
    """Return the ids of the tensors that an operator on lists, such as ``_foreach_add_``, writes to. Break
    the graph if it writes to one tensor twice.
    """
    # If the list contains a tensor twice, the operator writes to it twice. Its functional form cannot express
    # this.
    name = getattr(fn, "__name__", "")
    operator = _overload_on_lists(name) if name.startswith(_PREFIXES) else None
    written = [id(tensor) for tensor in written_tensors(operator, args, kwargs)] if operator else []
    if len(set(written)) < len(written):
        raise graph_break("unsupported-call", f"{fn.__name__} of one tensor twice")
    return set(written)


class OperatorMode(TorchDispatchMode):
    """The base class of the tracer's dispatch modes. Torch does not wrap their ``__torch_dispatch__``."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return False. With True, torch's wrapper would disable torch's own compiler in
        ``__torch_dispatch__``.
        """
        return False


class Listener(OperatorMode):
    """Collects the storages that the operators of a call write to. Used for tensors without version counter."""

    def __init__(self) -> None:
        super().__init__()
        self._written: set[int] = set()

    def wrote_to(self, tensor: torch.Tensor) -> bool:
        """Return whether an operator has written to the storage of ``tensor`` while the listener was active."""
        return tensor.untyped_storage()._cdata in self._written

    def __torch_dispatch__(self, func: OpOverload, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        for tensor in written_tensors(func, args, kwargs):
            self._written.add(tensor.untyped_storage()._cdata)
        return func(*args, **kwargs)


def written_tensors(operator: object, args: Sequence[Any], kwargs: Kwargs) -> Iterator[torch.Tensor]:
    """Yield the tensors, including those in lists, that a call of an operator overload writes to."""
    for value in _written_values(operator, args, kwargs):
        yield from (leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor))


def _written_values(operator: object, args: Sequence[Any], kwargs: Kwargs) -> Iterator[Any]:
    """Yield the arguments that an operator overload writes to: tensors, lists of tensors, or None."""
    for position, name in _written_arguments(operator):
        yield args[position] if position < len(args) else kwargs.get(name)


@cache
def _overload_on_lists(name: str) -> object:
    """Return an overload of the ATen operator on lists with the given name, or ``None``."""
    # All overloads of such an operator write to the same arguments.
    packet = getattr(torch.ops.aten, name.partition(".")[0], None)
    return packet and getattr(packet, packet.overloads()[0])


@cache
def _written_arguments(operator: Any) -> tuple[tuple[int, str], ...]:
    """Return the position and name of each argument that an overload writes to."""
    return tuple(
        (position, argument.name)
        for position, argument in enumerate(operator._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )
