"""Wrapper subclasses for tests, and what can be compared of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils import _pytree as pytree

if TYPE_CHECKING:
    from collections.abc import Callable


class Programs:
    """``@program(make)`` registers a function with what makes its arguments: a parameter of a test."""

    def __init__(self) -> None:
        self.found: list[Any] = []

    def __call__(self, make: Callable[[], tuple[Any, ...]]) -> Callable[[Any], Any]:
        def register(fn: Any) -> Any:
            self.found.append(pytest.param(fn, make, id=fn.__name__))
            return fn

        return register


class Scaled(torch.Tensor):
    """``inner * scale``, of which operators see ``inner``; an operator of several takes the first one's scale."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor, scale: float) -> Any:
        facts = {"strides": inner.stride(), "dtype": inner.dtype, "device": inner.device}
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, **facts)

    def __init__(self, inner: torch.Tensor, scale: float) -> None:
        self.inner = inner
        self.scale = scale

    def __tensor_flatten__(self) -> Any:
        return ["inner"], {"scale": self.scale}

    @staticmethod
    def __tensor_unflatten__(inner: Any, context: Any, _size: Any, _stride: Any) -> Any:
        return Scaled(inner["inner"], context["scale"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        scale = next(t.scale for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, Scaled))

        def unwrapped(value: Any) -> Any:
            if not isinstance(value, Scaled):
                return value
            return value.inner if value.scale == scale else value.inner * (value.scale / scale)

        def wrapped(value: Any) -> Any:
            return Scaled(value, scale) if isinstance(value, torch.Tensor) else value

        args, kwargs = pytree.tree_map(unwrapped, (args, kwargs or {}))
        return pytree.tree_map(wrapped, func(*args, **kwargs))


class Rounded(torch.Tensor):
    """Operators see rounded values, gradients are those of the operators: rounding is passed by. Results are plain."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Any:
        facts = {"strides": inner.stride(), "dtype": inner.dtype, "device": inner.device}
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, **facts)

    def __init__(self, inner: torch.Tensor) -> None:
        self.inner = inner

    def __tensor_flatten__(self) -> Any:
        return ["inner"], None

    @staticmethod
    def __tensor_unflatten__(inner: Any, _context: Any, _size: Any, _stride: Any) -> Any:
        return Rounded(inner["inner"])

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.ops.aten.detach.default, torch.ops.aten.t.default):
            return Rounded(func(args[0].inner))

        def unwrapped(value: Any) -> Any:
            return value.inner.round() if isinstance(value, Rounded) else value

        args, kwargs = pytree.tree_map(unwrapped, (args, kwargs or {}))
        return func(*args, **kwargs)


def two(*size: int, grad: bool = False, seed: int = 0) -> TwoTensor:
    """A wrapper of two tensors of random numbers."""
    source = torch.Generator().manual_seed(seed)
    inner = [torch.randn(*size, generator=source) for _ in range(2)]
    return TwoTensor(*inner).requires_grad_(grad)


def described(value: Any) -> Any:
    """What can be compared of a value: classes, metadata, and numbers rounded to four digits."""
    if not isinstance(value, torch.Tensor):
        return value
    facts = (type(value), tuple(value.shape), value.stride(), value.dtype, value.requires_grad)
    if not hasattr(value, "__tensor_flatten__"):
        return (*facts, [round(n, 4) for n in value.detach().double().flatten().tolist()])
    names, context = value.__tensor_flatten__()
    return (*facts, str(context), [described(getattr(value, name)) for name in names])


class Quantized(torch.Tensor):
    """Eight-bit numbers and a scale by row; ``linear`` is written over these, as libraries of quantization do it."""

    @staticmethod
    def __new__(cls, numbers: torch.Tensor, scale: torch.Tensor, note: str = "") -> Any:
        return torch.Tensor._make_wrapper_subclass(cls, numbers.shape, dtype=scale.dtype)

    def __init__(self, numbers: torch.Tensor, scale: torch.Tensor, note: str = "") -> None:
        self.numbers = numbers
        self.scale = scale
        self.note = note

    @classmethod
    def of(cls, value: torch.Tensor, note: str = "") -> Any:
        scale = value.detach().abs().amax(-1, keepdim=True) / 127
        return cls((value.detach() / scale).round().to(torch.int8), scale, note)

    def dequantize(self) -> torch.Tensor:  # type: ignore[override]
        return self.numbers.to(self.scale.dtype) * self.scale

    def __tensor_flatten__(self) -> Any:
        return ["numbers", "scale"], {"note": self.note}

    @classmethod
    def __tensor_unflatten__(cls, inner: Any, context: Any, _size: Any, _stride: Any) -> Any:
        return cls(inner["numbers"], inner["scale"], **context)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.nn.functional.linear:
            x, weight, *bias = args
            if weight.note == "dynamic":
                x = cls.of(x).dequantize()
            result = x @ weight.numbers.to(x.dtype).t() * weight.scale.flatten()
            return result + bias[0] if bias and bias[0] is not None else result
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:
            return cls(args[0].numbers, args[0].scale, args[0].note)

        def plain(value: Any) -> Any:
            return value.dequantize() if isinstance(value, cls) else value

        args, kwargs = pytree.tree_map(plain, (args, kwargs or {}))
        return func(*args, **kwargs)


class Slotted(torch.Tensor):
    """A tensor and a scale in slots; its ``__torch_function__`` adds one to every product."""

    __slots__ = ("numbers", "scale", "note")

    @staticmethod
    def __new__(cls, numbers: torch.Tensor, scale: torch.Tensor, note: Any = None) -> Any:
        made: Any = torch.Tensor._make_wrapper_subclass(cls, numbers.size(), dtype=numbers.dtype)
        made.numbers, made.scale, made.note = numbers, scale, note
        return made

    def __tensor_flatten__(self) -> Any:
        return ["numbers", "scale"], self.note

    @staticmethod
    def __tensor_unflatten__(inner: Any, note: Any, _size: Any, _stride: Any) -> Any:
        return Slotted(inner["numbers"], inner["scale"], note)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **(kwargs or {}))
            return result + 1 if func in (torch.mul, torch.Tensor.mul) else result

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        first = next(t for t in pytree.tree_leaves(args) if isinstance(t, cls))

        def plain(value: Any) -> Any:
            return value.numbers * value.scale if isinstance(value, cls) else value

        args, kwargs = pytree.tree_map(plain, (args, kwargs or {}))
        return cls(func(*args, **kwargs), first.scale, first.note)
