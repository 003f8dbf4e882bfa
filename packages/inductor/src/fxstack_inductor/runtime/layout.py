"""Convert inputs and operator results whose layout differs from the compiled graph's."""

from __future__ import annotations

import torch

from fxstack_inductor.errors import UnexpectedResult


def restride(
    tensor: torch.Tensor, shape: tuple[int, ...], stride: tuple[int, ...], mutated: bool
) -> torch.Tensor:
    """Return ``tensor`` with the expected strides: itself if only irrelevant strides differ, else a copy.

    Raises:
        ValueError: another shape, or other strides of a mutated tensor (a copy would hide the writes).
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
    """Return an operator's ``result`` as planned, copied if only strides differ. ``shape`` may be unknown.

    Raises:
        UnexpectedResult: another dtype or shape, or no tensor: the graph was wrong when it was compiled.
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
    """Return a copy with equal strides at an aligned address, in place of an unaligned slice."""
    return _copy(tensor, tensor.stride())


def _copy(tensor: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    shape = tuple(tensor.shape)
    made = torch.empty_strided(shape, stride, dtype=tensor.dtype, device=tensor.device)
    return made.copy_(tensor)
