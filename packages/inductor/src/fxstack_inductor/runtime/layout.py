"""Inputs, and results of ATen's operators, that come otherwise than the graph was compiled for."""

from __future__ import annotations

import torch

from fxstack_inductor.errors import UnexpectedResult


def restride(
    tensor: torch.Tensor, shape: tuple[int, ...], stride: tuple[int, ...], mutated: bool
) -> torch.Tensor:
    """``tensor`` with the strides that kernels expect: itself if they differ only where they do not matter, else a copy.

    Raises:
        ValueError: for another shape, or if the graph writes to the tensor, which a copy would hide.
    """
    if tuple(tensor.shape) != tuple(shape):
        raise ValueError(
            f"an input has shape {tuple(tensor.shape)}, the graph was compiled for {tuple(shape)}; "
            "compile it for this shape or with symbolic sizes"
        )
    pairs = zip(shape, tensor.stride(), stride, strict=True)
    if 0 in shape or all(own == wanted for size, own, wanted in pairs if size != 1):
        return tensor
    if mutated:
        raise ValueError(
            f"an input that the graph writes to has strides {tensor.stride()}, the graph was "
            f"compiled for {stride}; compile it for these strides"
        )
    return _copy(tensor, stride)


def as_planned(
    result: object, dtype: torch.dtype, shape: tuple[int, ...] | None, stride: tuple[int, ...]
) -> torch.Tensor:
    """``result`` of an operator as the program was planned for: copied where only its strides differ. ``shape`` may be unknown.

    Raises:
        UnexpectedResult: another dtype or shape, or no tensor. What the graph says was wrong when it was compiled.
    """
    if not isinstance(result, torch.Tensor):
        raise UnexpectedResult(f"an operator returned {result!r}, the graph says a tensor")
    if result.dtype is not dtype:
        raise UnexpectedResult(f"an operator returned {result.dtype}, the graph says {dtype}")
    if shape is None:
        return result
    if tuple(result.shape) != tuple(shape):
        found = tuple(result.shape)
        raise UnexpectedResult(f"an operator returned shape {found}, the graph says {tuple(shape)}")
    return restride(result, shape, stride, mutated=False)


def aligned(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with the same strides at an address that the allocator aligned, for kernels to read instead of a slice."""
    return _copy(tensor, tensor.stride())


def _copy(tensor: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    shape = tuple(tensor.shape)
    made = torch.empty_strided(shape, stride, dtype=tensor.dtype, device=tensor.device)
    return made.copy_(tensor)
