"""Attributes of arrays while tracing.

Metadata comes from the example. A part of an array becomes a view in the graph.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from types import MethodType
from typing import Any

import numpy as np

from fxstack_capture.breaks import graph_break
from fxstack_capture.callers import calls_program
from fxstack_capture.numpy_side.array import Array
from fxstack_capture.numpy_side.functions import Pair, pairs
from fxstack_capture.sources import BuiltinAttr


def _class(array: Array) -> type:
    """Load ``__class__``: the class that the program sees in plain Python."""
    return type(array.example)


def _shape(array: Array) -> tuple[Any, ...]:
    """Load the shape. Its numbers may be symbolic. Reading a size is no operation of the program."""
    with array.owner.tracer.unrecorded():
        return tuple(array.tensor.size())


def _size(array: Array) -> Any:
    """Load the number of elements."""
    with array.owner.tracer.unrecorded():
        return array.tensor.numel()


def _strides(array: Array) -> tuple[Any, ...]:
    """Load the strides in bytes. If the array is a copy in place of a view, load the strides of NumPy's view."""
    if array.copied_at is not None or not array.tensor._has_symbolic_sizes_strides:
        return array.example.strides
    with array.owner.tracer.unrecorded():
        return tuple(n * array.tensor.element_size() for n in array.tensor.stride())


def _example_attribute(name: str) -> Callable[[Array], Any]:
    """Return a loader that reads the attribute from the example."""
    return operator.attrgetter(f"example.{name}")


def _array_attribute(name: str) -> Callable[[Array], Any]:
    """Return a loader for an attribute whose value is an array."""
    getter = operator.attrgetter(name)
    pair = Pair(getter, getter)
    return lambda array: array.owner.run(pair, (array,), {})


def _nbytes(array: Array) -> Any:
    """Load the size of the array in bytes."""
    return _size(array) * array.example.itemsize


def _flags(array: Array) -> Any:
    """Load the flags of an array from outside. They are guarded. Raises GraphBreak for a new array."""
    objects = array.owner.objects
    source = objects.source_of(array)
    if source is None:
        raise graph_break("unsupported-object", "the flags of a new array")
    return objects.enter(objects.original_of(array).flags, BuiltinAttr(source, "flags"))


_LOADERS: dict[str, Callable[[Array], Any]] = {
    "__class__": _class,
    "shape": _shape,
    "size": _size,
    "strides": _strides,
    "nbytes": _nbytes,
    "flags": _flags,
    **{name: _example_attribute(name) for name in ("ndim", "dtype", "itemsize")},
    **{name: _array_attribute(name) for name in ("T", "real", "imag")},
}
"""Maps names of attributes to their loaders. Any other name is a method, or breaks the graph."""


@calls_program
def load(array: Array, name: str) -> Any:
    """Load ``array.name`` for the program.

    Raises NumPy's AttributeError for an absent attribute, and GraphBreak for an unsupported attribute.
    """
    loader = _LOADERS.get(name)
    if loader is not None:
        return loader(array)
    cls = type(array.example)
    for base in cls.__mro__:
        attribute = vars(base).get(name)
        if attribute is not None and id(attribute) in pairs():
            return MethodType(attribute, array)
    if not hasattr(array.example, name):
        return getattr(array.example, name)  # raises NumPy's error
    kind = "numpy.ndarray" if isinstance(array.example, np.ndarray) else f"numpy.{cls.__name__}"
    raise graph_break("unsupported-object", f"attribute {name} of a {kind}")
