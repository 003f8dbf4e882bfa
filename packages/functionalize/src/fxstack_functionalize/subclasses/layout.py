"""What a value is made of: the layout of a wrapper subclass, down to plain tensors, and how it is rebuilt from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from fxstack_functionalize.errors import UnsupportedGraphError
from fxstack_functionalize.runtime.forward.first_call import same_layout, with_strides
from fxstack_functionalize.subclasses.wrapper_classes import is_wrapper
from fxstack_functionalize.torch_compat import pytree

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


@dataclass(frozen=True, slots=True)
class Plain:
    """A tensor that is not taken apart, or anything that is no tensor."""

    is_tensor: bool
    size: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    dtype: torch.dtype | None = None
    device: torch.device | None = None

    def flatten(self, value: object) -> Iterator[Any]:
        yield value

    def tensors(self, value: object) -> Iterator[Any]:
        yield value

    def assemble(self, tensors: Iterator[Any], _numbers: Iterator[Any]) -> Any:
        return next(tensors)

    def restride(self, value: object, stride: tuple[int, ...]) -> Any:
        """A result of a compiled graph with eager's strides."""
        if not self.is_tensor or same_layout(value, stride):
            return value
        return with_strides(value, stride)

    def zeros(self, size: object, stride: object) -> torch.Tensor:
        """A tensor like it, full of zeros."""
        made = torch.empty_strided(size, stride, dtype=self.dtype, device=self.device)
        return made.zero_()

    def fits(self, value: object) -> bool:
        """Whether a tensor can be used where this was traced."""
        return isinstance(value, torch.Tensor) and not is_wrapper(value)

    @property
    def leaves(self) -> tuple[Plain, ...]:
        return (self,)

    @property
    def numbers(self) -> tuple[torch.SymInt, ...]:
        return ()

    @property
    def holds(self) -> tuple[bool, ...]:
        return (True,)


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
        """All parts of a value: those of its inner tensors, then its symbolic numbers."""
        for name, layout in self.parts:
            yield from layout.flatten(getattr(value, name))
        given = (*value.size(), *value.stride())
        known = (*self.size, *self.stride)
        yield from (new for new, old in zip(given, known, strict=True) if _is_symbolic(old))

    def tensors(self, value: object) -> Iterator[Any]:
        """The plain tensors of a value."""
        for name, layout in self.parts:
            yield from layout.tensors(getattr(value, name))

    def assemble(self, tensors: Iterator[Any], numbers: Iterator[Any]) -> Any:
        """A value of plain tensors, and of numbers in the place of its symbolic ones."""
        inner = {name: layout.assemble(tensors, numbers) for name, layout in self.parts}
        size, stride = (
            tuple(next(numbers) if _is_symbolic(number) else number for number in part)
            for part in (self.size, self.stride)
        )
        return self.cls.__tensor_unflatten__(inner, self.context, size, stride)

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

    def _same_context(self, context: object) -> bool:
        compare = getattr(self.cls, "__metadata_guard__", None)
        same = self.context == context if compare is None else compare(self.context, context)
        return bool(same)

    @property
    def leaves(self) -> tuple[Plain, ...]:
        return tuple(leaf for _, layout in self.parts for leaf in layout.leaves)

    @property
    def numbers(self) -> tuple[torch.SymInt, ...]:
        """The symbolic ones among sizes and strides, in the order in which ``assemble`` takes them."""
        inner = (number for _, layout in self.parts for number in layout.numbers)
        own = (number for number in (*self.size, *self.stride) if _is_symbolic(number))
        return (*inner, *own)

    @property
    def holds(self) -> tuple[bool, ...]:
        """For each part that ``flatten`` gives, whether it is a tensor, and no number."""
        inner = (is_tensor for _, layout in self.parts for is_tensor in layout.holds)
        return (*inner, *(False for n in (*self.size, *self.stride) if _is_symbolic(n)))


Layout = Plain | Wrapper


def _is_symbolic(number: object) -> bool:
    return isinstance(number, torch.SymInt)


def layout_of(value: object) -> Layout:
    """The layout of a tensor, or of a value that is none; sizes are those of now."""
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
    parts = tuple((name, layout_of(getattr(value, name))) for name in names)
    return Wrapper(type(value), parts, context, tuple(value.size()), tuple(value.stride()))


def flatten_all(layouts: tuple[Layout, ...], values: Any) -> list[Any]:
    """The plain tensors (and what is no tensor) of several values, in order."""
    return [part for layout, value in zip(layouts, values, strict=True) for part in layout.flatten(value)]


def rebuild_all(layouts: tuple[Layout, ...], parts: Any) -> list[Any]:
    """The values whose parts these are, as ``flatten_all`` gives them."""
    remaining = iter(parts)
    return [layout.assemble(remaining, remaining) for layout in layouts]


def assemble_all(layouts: Iterable[Layout], tensors: Any, numbers: Any = None) -> list[Any]:
    """The values of these plain tensors; without ``numbers`` of the very symbols that the layouts name."""
    remaining = iter(tensors)
    if numbers is not None:
        given = iter(numbers)
        return [layout.assemble(remaining, given) for layout in layouts]
    return [layout.assemble(remaining, iter(layout.numbers)) for layout in layouts]


def tensors_all(layouts: Iterable[Layout], values: Any) -> list[Any]:
    """The plain tensors (and what is no tensor) of several values, without their symbolic numbers."""
    return [part for layout, value in zip(layouts, values, strict=True) for part in layout.tensors(value)]
