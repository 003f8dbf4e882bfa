"""Marks on tensors: the dimensions that the user wants dynamic or static.

``torch._dynamo.mark_dynamic`` and related functions write the same attributes, so marks of both APIs apply.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import torch

from fxstack_capture.guards.records import MarksWithin

# Limits: the bounds and shape_id of mark_unbacked in the compiled call are final. A later call whose marks
# differ only in bounds or shape_id runs the same code.

Dims = int | Iterable[int]
"""One dimension or several. Negative dimensions count from the end."""


@dataclass(frozen=True, slots=True)
class DimRange:
    """Inclusive bounds of a dynamic dimension. A bound of None is missing."""

    dim: int
    min: int | None
    max: int | None


@dataclass(frozen=True, slots=True)
class Marks:
    """The marks of one tensor. Dimensions are normalised to be non-negative."""

    dynamic: dict[int, DimRange]
    """Dimensions of ``mark_dynamic``, with their bounds. It is an error if such a size becomes a constant."""
    weak: frozenset[int]
    """Dimensions of ``maybe_mark_dynamic``. Their sizes may become constants."""
    static: frozenset[int]
    """Dimensions of ``mark_static``."""
    unbacked: dict[int, DimRange]
    """Dimensions of ``mark_unbacked``, with their bounds."""
    shape_ids: dict[int, str]
    """Maps unbacked dimensions to ids. Dimensions with the same id have the same size."""


def mark_dynamic(tensor: torch.Tensor, dims: Dims, *, min: int | None = None, max: int | None = None) -> None:
    """Compile for any size of these dimensions. It is an error if the program needs one specific size."""
    for dim in _checked_dims(tensor, dims):
        _add(tensor, "_dynamo_dynamic_indices", dim)
        _add(tensor, "_dynamo_dynamic_range", DimRange(dim, min, max))


def maybe_mark_dynamic(tensor: torch.Tensor, dims: Dims) -> None:
    """Compile for any size of these dimensions. They become constants if the program needs one size."""
    for dim in _checked_dims(tensor, dims):
        _add(tensor, "_dynamo_weak_dynamic_indices", dim)


def mark_static(
    tensor: torch.Tensor | type[torch.nn.Module], dims: Dims | None = None
) -> type[torch.nn.Module] | None:
    """Compile for the current sizes of these dimensions (default: all dimensions), even if they change later.

    If ``tensor`` is a class of modules, mark it and return it. Torch's mark says that the integers of its
    modules do not change.

    Raises:
        TypeError: ``tensor`` is neither a tensor nor a class of modules.
    """
    if isinstance(tensor, type) and issubclass(tensor, torch.nn.Module):
        tensor._dynamo_marked_static = True  # type: ignore[attr-defined]
        return tensor
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"mark_static expects a tensor/nn.Module class but received {type(tensor)}")
    for dim in _checked_dims(tensor, range(tensor.dim()) if dims is None else dims):
        _add(tensor, "_dynamo_static_indices", dim)
    return None


def mark_unbacked(
    tensor: torch.Tensor,
    dims: Dims,
    *,
    min: int | None = None,
    max: int | None = None,
    shape_id: str | None = None,
) -> None:
    """Compile without any decision that depends on the size of these dimensions. Sizes 0 and 1 are no
    exception.

    Dimensions with the same ``shape_id``, of one tensor or of several, are assumed to have the same size. The
    graph asserts this when it runs (RuntimeError).
    """
    for dim in _checked_dims(tensor, dims):
        _add(tensor, "_dynamo_unbacked_indices", dim)
        bounds = tensor.__dict__.setdefault("_dynamo_unbacked_bounds", {})
        bounds[dim] = (min, max)
        if shape_id is not None:
            tensor.__dict__.setdefault("_dynamo_shape_ids", {})[dim] = shape_id


def mark_static_address(tensor: torch.Tensor, guard: bool = False) -> None:
    """Promise that this tensor, for example a cache, is passed repeatedly and keeps its address.

    Without ``guard``, the mark has no effect: CUDA graphs detect which inputs keep their address, and are
    recorded again if an address changes. With ``guard``, code that was compiled for this tensor serves only
    this tensor. For another tensor, the function is compiled again.

    Raises:
        TypeError: ``tensor`` is not a tensor.
    """
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"mark_static_address: expected a tensor, got a {type(tensor).__name__}")
    tensor._dynamo_static_input_type = "guarded" if guard else "unguarded"


def is_address_guarded(tensor: torch.Tensor) -> bool:
    """Whether ``mark_static_address(tensor, guard=True)`` was called. The tensor is then guarded by identity."""
    return bool(tensor.__dict__.get("_dynamo_static_input_type") == "guarded")


def marks_of(tensor: torch.Tensor) -> Marks:
    """Return all marks on ``tensor``. ``policy`` asks for the marks of each input tensor."""
    data = tensor.__dict__
    ranges = {
        _to_positive(tensor, marked.dim): DimRange(_to_positive(tensor, marked.dim), marked.min, marked.max)
        for marked in data.get("_dynamo_dynamic_range", ())
    }
    bounds = data.get("_dynamo_unbacked_bounds", {})
    return Marks(
        dynamic={
            dim: ranges.get(dim, DimRange(dim, None, None))
            for dim in sorted(_indices(tensor, "_dynamo_dynamic_indices"))
        },
        weak=_indices(tensor, "_dynamo_weak_dynamic_indices"),
        static=_indices(tensor, "_dynamo_static_indices"),
        unbacked={
            dim: DimRange(dim, *bounds.get(dim, (None, None)))
            for dim in sorted(
                _indices(tensor, "_dynamo_unbacked_indices")
                | _indices(tensor, "_dynamo_strict_unbacked_indices")
            )
        },
        shape_ids={
            _to_positive(tensor, dim): name for dim, name in data.get("_dynamo_shape_ids", {}).items()
        },
    )


MARKS: Final = (
    "_dynamo_dynamic_indices",
    "_dynamo_weak_dynamic_indices",
    "_dynamo_unbacked_indices",
    "_dynamo_strict_unbacked_indices",
    "_dynamo_static_indices",
)
"""The attributes that hold marked dimensions."""


def marks_within(tensor: torch.Tensor) -> MarksWithin:
    """Return the check that a later tensor has no marks that ``tensor`` lacks. The check guards an input.

    A tensor with further marks needs a new compilation.
    """
    if not tensor.__dict__:
        return _NO_MARKS
    return MarksWithin(MARKS, tuple(frozenset(tensor.__dict__.get(name, ())) for name in MARKS))


_NO_MARKS: Final = MarksWithin(MARKS, (frozenset(),) * len(MARKS))


def _indices(tensor: torch.Tensor, name: str) -> frozenset[int]:
    """Return the dimensions in the attribute ``name`` of the tensor, as numbers from 0."""
    return frozenset(_to_positive(tensor, dim) for dim in tensor.__dict__.get(name, ()))


def _to_positive(tensor: torch.Tensor, dim: int) -> int:
    """Return the number of dimension ``dim``, counted from the first dimension."""
    return dim % tensor.dim() if tensor.dim() else dim


def _checked_dims(tensor: torch.Tensor, dims: Dims) -> list[int]:
    """Return the dimensions as a list of numbers from 0.

    Raises IndexError if the tensor lacks a dimension.
    """
    indices = [dims] if isinstance(dims, int) else list(dims)
    for dim in indices:
        if not -tensor.dim() <= dim < tensor.dim():
            raise IndexError(f"dimension {dim} of a tensor that has {tensor.dim()} dimensions")
    return [dim % tensor.dim() for dim in indices]


def _add(tensor: torch.Tensor, name: str, item: object) -> None:
    """Add a mark to the set in the attribute ``name`` of the tensor."""
    tensor.__dict__.setdefault(name, set()).add(item)
