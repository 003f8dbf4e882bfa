"""A cache of the effect of ATen operators on metadata. A cache hit takes 15 microseconds instead of 150.

The operator, the metadata of the tensors and the other arguments determine the result on fakes. A ``Recipe``
describes how to make the result from three kinds of parts: new tensors of known geometry, views of an
argument's storage, and the arguments themselves (in-place operators). If no recipe can describe a result, or
if the result depends on tensor data, it is not cached. Recipes with symbols are cached only for one trace.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from fxstack_capture import torch_compat
from fxstack_capture.shapes.symbolic.nodes import remembering
from fxstack_capture.torch_compat import FakeTensor, OpOverload
from fxstack_capture.trace.state import Kwargs

_UNPREDICTABLE = frozenset(
    {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape, torch.Tag.inplace_view}
)
_PLAIN = frozenset(
    {int, float, bool, complex, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format}
)
MASKS = frozenset({torch.bool, torch.uint8, torch.int8})
"""Dtypes of index tensors whose values determine the size of the result."""
_CAPACITY = 1 << 16

SYMBOLIC = object()
"""Marks a key that contains sympy expressions. These have a meaning only within one trace."""


@dataclass(frozen=True, slots=True)
class Fresh:
    """A new tensor with its own storage, and with this size, stride, dtype and device."""

    size: tuple[int | torch.SymInt, ...]
    stride: tuple[int | torch.SymInt, ...]
    dtype: torch.dtype
    device: torch.device


@dataclass(frozen=True, slots=True)
class View:
    """A new tensor on the storage of an argument tensor. ``of`` is the index of the argument."""

    of: int
    size: tuple[int | torch.SymInt, ...]
    stride: tuple[int | torch.SymInt, ...]
    offset: int | torch.SymInt
    dtype: torch.dtype


@dataclass(frozen=True, slots=True)
class Same:
    """An argument tensor itself (in-place operator). ``of`` is the index of the argument."""

    of: int


Part = Fresh | View | Same


@dataclass(frozen=True, slots=True)
class Recipe:
    """How to make the result of an operator: one tensor, or a tuple or list of tensors. Each of ``parts``
    makes one.
    """

    parts: tuple[Part, ...]
    container: type | None
    """The class of the result if the operator returns several tensors. Otherwise None."""


@cache
def is_predictable(func: object) -> bool:
    """Return whether the metadata of the result depends only on metadata. The schema and the tags decide."""
    return (
        isinstance(func, OpOverload)
        and func.namespace in ("aten", "prims")
        and (not _UNPREDICTABLE.intersection(func.tags) or func is torch.ops.aten.index.Tensor)
        and "lift" not in func.name()
        and all(isinstance(r.type, _TENSOR_TYPES) for r in func._schema.returns)
        and len(func._schema.returns) > 0
    )


_TENSOR_TYPES = (torch.TensorType, torch.ListType)


def key_of(
    func: object, args: Sequence[Any], kwargs: Kwargs, tensors: list[FakeTensor]
) -> tuple[Any, ...] | None:
    """Return a key of everything that determines the metadata of the result. None if no key can describe it.

    The tensors among the arguments are appended to ``tensors``.
    """
    key: list[Any] = [func, torch.get_default_dtype(), torch.is_inference_mode_enabled()]
    if not _describe(args, key, tensors):
        return None
    if kwargs:
        key.append(tuple(kwargs))  # the names of the keyword arguments
        if not _describe(kwargs.values(), key, tensors):
            return None
    return tuple(key)


def _describe(values: Any, key: list[Any], tensors: list[FakeTensor]) -> bool:
    """Append a description of each value to ``key``. Return False if no key can describe a value."""
    for value in values:
        kind = type(value)
        if kind is FakeTensor:
            if value.constant is not None:
                return False
            tensors.append(value)
            if value._has_symbolic_sizes_strides:
                numbers = (*value.size(), *value.stride(), value.storage_offset())
                key.append(SYMBOLIC)
                key.append(tuple([n if type(n) is int else n.node.expr for n in numbers]))
            else:
                key.append(value.shape)
                key.append(value.stride())
                key.append(value.storage_offset())
            key.append(value.dtype)
            key.append(value.fake_device)
            key.append(torch_compat.dispatch_keys(value).raw_repr())
        elif kind in _PLAIN:
            key.append(kind)  # 1, 1.0 and True are equal, but operators treat them differently
            key.append(value)
        elif kind is torch.SymInt or kind is torch.SymFloat:
            key.append(SYMBOLIC)
            key.append(kind)
            key.append(value.node.expr)
        elif isinstance(value, (list, tuple)):
            key.append(len(value))
            if not _describe(value, key, tensors):
                return False
        else:
            return False
    return True


def recipe_of(result: object, tensors: Sequence[FakeTensor]) -> Recipe | None:
    """Return the recipe for the result of calls with arguments of the same metadata, or None."""
    places = _places(tensors)
    if type(result) is FakeTensor:
        part = _part_of(result, places)
        return None if part is None else Recipe((part,), None)
    if not isinstance(result, (tuple, list)) or not result:
        return None
    parts = []
    for item in result:
        part = _part_of(item, places) if type(item) is FakeTensor else None
        if part is None:
            return None
        parts.append(part)
    fresh = [r.untyped_storage()._cdata for r, p in zip(result, parts, strict=True) if type(p) is Fresh]
    if len(set(fresh)) < len(fresh):  # two results share a storage
        return None
    # A Python kernel may return a named tuple, which the dispatcher converts into a plain tuple.
    return Recipe(tuple(parts), list if isinstance(result, list) else tuple)


@dataclass(frozen=True, slots=True)
class _Places:
    """The first position among the tensor arguments of each tensor, by its ``id``, and of each storage."""

    by_tensor: dict[int, int]
    by_storage: dict[int, int]


def _places(tensors: Sequence[FakeTensor]) -> _Places:
    """Return the positions of the tensor arguments; an operator of lists may have thousands."""
    places = _Places({}, {})
    for index, tensor in enumerate(tensors):
        places.by_tensor.setdefault(id(tensor), index)
        places.by_storage.setdefault(tensor.untyped_storage()._cdata, index)
    return places


def _part_of(result: FakeTensor, places: _Places) -> Part | None:
    """Return how to make one result: an argument, a view of an argument, or a new tensor. None if no part
    fits.
    """
    same = places.by_tensor.get(id(result))
    if same is not None:
        return Same(same)
    if not _is_ordinary(result):
        return None
    size, stride, offset = tuple(result.size()), result.stride(), result.storage_offset()
    for number in (*size, *stride, offset):
        if type(number) is torch.SymInt:
            remembering(number.node)
    storage = result.untyped_storage()
    base = places.by_storage.get(storage._cdata)
    if base is not None:
        return View(base, size, stride, offset, result.dtype)
    if type(offset) is not int or offset:
        return None
    if not result._has_symbolic_sizes_strides:  # a result with symbolic sizes has no excess storage
        extent = 1 + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
        bytes_held = (
            storage.nbytes()
        )  # a symbolic number if the result is a view of a tensor with a symbolic size
        if type(bytes_held) is not int or bytes_held != (0 if 0 in size else extent * result.element_size()):
            return None
    return Fresh(size, stride, result.dtype, result.fake_device)


def _is_ordinary(result: FakeTensor) -> bool:
    """Return whether sizes, strides, offset and dtype describe the result completely."""
    return (
        result.layout is torch.strided
        and result.constant is None
        and not result.is_conj()
        and not result.is_neg()
        and not result.is_quantized
        and not result._is_zerotensor()
    )


class OperatorCache:
    """Recipes by key (``key_of``). When the cache is full, it is emptied."""

    def __init__(self) -> None:
        self._recipes: dict[tuple[Any, ...], Recipe] = {}

    def get(self, key: tuple[Any, ...]) -> Recipe | None:
        """Return the recipe for a key, or None if there is none."""
        return self._recipes.get(key)

    def put(self, key: tuple[Any, ...], recipe: Recipe) -> None:
        """Store the recipe for a key. If the cache is full, empty it before, so that its size is limited."""
        if len(self._recipes) >= _CAPACITY:
            self._recipes = {}
        self._recipes[key] = recipe


@cache
def process_cache() -> OperatorCache:
    """Return the cache of recipes without symbols. All traces of this process share it."""
    return OperatorCache()
