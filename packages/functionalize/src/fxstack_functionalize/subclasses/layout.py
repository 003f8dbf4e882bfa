"""The layout of a value: how a wrapper subclass consists of plain tensors, and how to rebuild it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import eq
from typing import Any

import torch

from fxstack_functionalize.errors import UnsupportedGraphError
from fxstack_functionalize.metadata.wrapper_classes import is_wrapper
from fxstack_functionalize.runtime.forward.outputs import same_layout, with_strides
from fxstack_functionalize.torch_compat import pytree


@dataclass(frozen=True, slots=True)
class Plain:
    """A tensor that is not a wrapper, or a value that is not a tensor."""

    is_tensor: bool
    size: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    dtype: torch.dtype | None = None
    device: torch.device | None = None

    def tensors(self, value: object) -> Iterator[Any]:
        yield value

    def assemble(self, tensors: Iterator[Any], _numbers: Iterator[Any]) -> Any:
        return next(tensors)

    def restride(self, value: object, stride: tuple[int, ...]) -> Any:
        """Return a result of a compiled graph with eager's strides."""
        if not self.is_tensor or same_layout(value, stride):
            return value
        return with_strides(value, stride)

    def zeros(self, size: object, stride: object) -> torch.Tensor:
        """Return zeros of this dtype and device."""
        tensor = torch.empty_strided(size, stride, dtype=self.dtype, device=self.device)
        return tensor.zero_()

    def fits(self, value: object) -> bool:
        """Whether a tensor can replace the value that was traced."""
        return isinstance(value, torch.Tensor) and not is_wrapper(value)

    @property
    def leaves(self) -> tuple[Plain, ...]:
        return (self,)

    @property
    def numbers(self) -> tuple[torch.SymInt, ...]:
        return ()

    def sizes(self, _value: object) -> Iterator[Any]:
        return iter(())


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A tensor of class ``cls``: inner tensors by attribute, and context."""

    cls: Any
    parts: tuple[tuple[str, Layout], ...]
    context: Any
    size: tuple[int, ...]
    stride: tuple[int, ...]

    def sizes(self, value: Any) -> Iterator[Any]:
        """Yield the numbers of ``value`` that are symbolic in this layout: of its inner tensors, then of its
        size and strides.
        """
        for name, layout in self.parts:
            yield from layout.sizes(getattr(value, name))
        present = (*value.size(), *value.stride())
        traced = (*self.size, *self.stride)
        yield from (new for new, old in zip(present, traced, strict=True) if _is_symbolic(old))

    def tensors(self, value: object) -> Iterator[Any]:
        """Yield the plain tensors of a value."""
        for name, layout in self.parts:
            yield from layout.tensors(getattr(value, name))

    def assemble(self, tensors: Iterator[Any], numbers: Iterator[Any]) -> Any:
        """Return a value made of plain tensors, and of numbers in place of its symbolic numbers."""
        inner = {name: layout.assemble(tensors, numbers) for name, layout in self.parts}
        size, stride = (
            tuple(next(numbers) if _is_symbolic(number) else number for number in part)
            for part in (self.size, self.stride)
        )
        return self.cls.__tensor_unflatten__(inner, self.context, size, stride)

    def fits(self, value: object) -> bool:
        """Whether a wrapper can replace the traced one: the same class, inner tensors and context."""
        if type(value) is not self.cls:
            return False
        names, context = value.__tensor_flatten__()  # type: ignore[attr-defined]
        traced_names = tuple(name for name, _ in self.parts)
        compare = getattr(self.cls, "__metadata_guard__", None) or eq
        return (
            tuple(names) == traced_names
            and bool(compare(self.context, context))
            and all(layout.fits(getattr(value, name)) for name, layout in self.parts)
        )

    @property
    def leaves(self) -> tuple[Plain, ...]:
        return tuple(leaf for _, layout in self.parts for leaf in layout.leaves)

    @property
    def numbers(self) -> tuple[torch.SymInt, ...]:
        """Return the symbolic sizes and strides in the order in which ``assemble`` takes them."""
        return (
            *numbers_all(layout for _, layout in self.parts),
            *filter(_is_symbolic, (*self.size, *self.stride)),
        )


Layout = Plain | Wrapper


def _is_symbolic(number: object) -> bool:
    return isinstance(number, torch.SymInt)


def layout_of(value: object) -> Layout:
    """Return the layout of a value with its present sizes."""
    if not isinstance(value, torch.Tensor):
        return Plain(is_tensor=False)
    if not is_wrapper(value):
        strides = value.stride() if value.layout is torch.strided else ()
        return Plain(True, tuple(value.size()), tuple(strides), value.dtype, value.device)
    names, context = value.__tensor_flatten__()
    if any(isinstance(leaf, torch.SymInt) for leaf in pytree.tree_leaves(context)):
        raise UnsupportedGraphError(
            f"a {type(value).__name__} whose context holds symbolic sizes",
            why="the context is a constant of the compiled graph",
            fix="mark the sizes that it depends on static",
        )
    inner_layouts = tuple((name, layout_of(getattr(value, name))) for name in names)
    return Wrapper(type(value), inner_layouts, context, tuple(value.size()), tuple(value.stride()))


def flatten_all(layouts: Iterable[Layout], values: Any) -> list[Any]:
    """Return the parts of several values: the plain tensors of all, then the symbolic numbers of all."""
    sizes = [size for layout, value in zip(layouts, values, strict=True) for size in layout.sizes(value)]
    return tensors_all(layouts, values) + sizes


def rebuild_all(layouts: Sequence[Layout], parts: Sequence[Any]) -> list[Any]:
    """Return the values from the parts that ``flatten_all`` returned."""
    count = len(leaves_all(layouts))
    return assemble_all(layouts, parts[:count], parts[count:])


def assemble_all(layouts: Iterable[Layout], tensors: Any, numbers: Any) -> list[Any]:
    """Return the values of these plain tensors and symbolic numbers."""
    remaining_tensors, remaining_numbers = iter(tensors), iter(numbers)
    return [layout.assemble(remaining_tensors, remaining_numbers) for layout in layouts]


def tensors_all(layouts: Iterable[Layout], values: Any) -> list[Any]:
    """Return the plain tensors (and values that are no tensors) without symbolic numbers."""
    return [part for layout, value in zip(layouts, values, strict=True) for part in layout.tensors(value)]


def leaves_all(layouts: Iterable[Layout]) -> list[Plain]:
    """Return the layouts of the plain tensors of several values."""
    return [leaf for layout in layouts for leaf in layout.leaves]


def numbers_all(layouts: Iterable[Layout]) -> tuple[Any, ...]:
    """Return the symbolic numbers of several layouts in the order of ``flatten_all``."""
    return tuple(number for layout in layouts for number in layout.numbers)
