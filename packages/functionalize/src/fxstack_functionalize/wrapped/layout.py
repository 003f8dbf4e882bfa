"""What a value is made of: the layout of a wrapper subclass, down to plain tensors, and how it is rebuilt from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from fxstack_functionalize.errors import UnsupportedGraphError
from fxstack_functionalize.runtime.first_call import same_layout, with_strides
from fxstack_functionalize.wrapper_classes import is_wrapper

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class Plain:
    """A tensor that is not taken apart, or anything that is no tensor."""

    is_tensor: bool
    size: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    dtype: torch.dtype | None = None
    device: torch.device | None = None

    def flatten(self, value: Any) -> Iterator[Any]:
        yield value

    def rebuild(self, parts: Iterator[Any]) -> Any:
        return next(parts)

    def restride(self, value: Any) -> Any:
        """A result of a compiled graph with eager's strides."""
        if not self.is_tensor or same_layout(value, self.stride):
            return value
        return with_strides(value, self.stride)

    def zeros(self) -> torch.Tensor:
        """A tensor like it, full of zeros."""
        made = torch.empty_strided(self.size, self.stride, dtype=self.dtype, device=self.device)
        return made.zero_()

    def fits(self, value: object) -> bool:
        """Whether a tensor can be used where this was traced."""
        return isinstance(value, torch.Tensor) and not is_wrapper(value)

    @property
    def leaves(self) -> tuple[Plain, ...]:
        return (self,)


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A tensor of class ``cls``: its inner tensors by attribute, and its context.

    Of its own size and strides, the symbolic numbers are parts, too, behind those of its inner tensors.
    """

    cls: Any
    parts: tuple[tuple[str, Layout], ...]
    context: Any
    size: tuple[int, ...]
    stride: tuple[int, ...]

    def flatten(self, value: Any) -> Iterator[Any]:
        for name, layout in self.parts:
            yield from layout.flatten(getattr(value, name))
        given = (*value.size(), *value.stride())
        known = (*self.size, *self.stride)
        yield from (new for new, old in zip(given, known, strict=True) if _is_symbolic(old))

    def rebuild(self, parts: Iterator[Any]) -> Any:
        inner = {name: layout.rebuild(parts) for name, layout in self.parts}
        size, stride = (
            tuple(next(parts) if _is_symbolic(number) else number for number in numbers)
            for numbers in (self.size, self.stride)
        )
        return self.cls.__tensor_unflatten__(inner, self.context, size, stride)

    def zeros(self) -> Any:
        return self.rebuild(iter([leaf.zeros() for leaf in self.leaves]))

    def fits(self, value: object) -> bool:
        if type(value) is not self.cls:
            return False
        names, context = value.__tensor_flatten__()  # type: ignore[attr-defined]
        known = tuple(name for name, _ in self.parts)
        return (
            tuple(names) == known
            and self._same_context(context)
            and all(layout.fits(getattr(value, name)) for name, layout in self.parts)
        )

    def _same_context(self, context: Any) -> bool:
        compare = getattr(self.cls, "__metadata_guard__", None)
        same = self.context == context if compare is None else compare(self.context, context)
        return bool(same)

    @property
    def leaves(self) -> tuple[Plain, ...]:
        return tuple(leaf for _, layout in self.parts for leaf in layout.leaves)


Layout = Plain | Wrapper


def _is_symbolic(number: object) -> bool:
    return isinstance(number, torch.SymInt)


def layout_of(value: Any) -> Layout:
    """The layout of a tensor, or of a value that is none; sizes are those of now."""
    if not isinstance(value, torch.Tensor):
        return Plain(is_tensor=False)
    if not is_wrapper(value):
        strides = value.stride() if value.layout is torch.strided else ()
        return Plain(True, tuple(value.size()), tuple(strides), value.dtype, value.device)
    names, context = value.__tensor_flatten__()  # type: ignore[attr-defined]
    if any(isinstance(leaf, torch.SymInt) for leaf in pytree.tree_leaves(context)):
        raise UnsupportedGraphError(
            f"a {type(value).__name__} whose context holds symbolic sizes",
            why="the context is a constant of the compiled graph",
            fix="mark the sizes that it depends on static",
        )
    parts = tuple((name, layout_of(getattr(value, name))) for name in names)
    return Wrapper(type(value), parts, context, tuple(value.size()), tuple(value.stride()))


def flatten_all(layouts: tuple[Layout, ...], values: Any) -> list[Any]:
    """The plain tensors (and what is no tensor) of several values, in order."""
    return [
        part
        for layout, value in zip(layouts, values, strict=True)
        for part in layout.flatten(value)
    ]


def rebuild_all(layouts: tuple[Layout, ...], parts: Any) -> list[Any]:
    """The values whose parts these are."""
    remaining = iter(parts)
    return [layout.rebuild(remaining) for layout in layouts]
