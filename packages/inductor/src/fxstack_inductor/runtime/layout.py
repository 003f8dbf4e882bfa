"""Convert inputs and operator results whose layout differs from the compiled graph's."""

from __future__ import annotations

from typing import Any

import torch

from fxstack_inductor.errors import NotFiniteError, UnexpectedResult, WrongFakeError
from fxstack_interchange.operators.custom_operators import describe_fake_function
from fxstack_interchange.user_warnings import warn_user


def restride(
    tensor: torch.Tensor, shape: tuple[int, ...], stride: tuple[int, ...], mutated: bool
) -> torch.Tensor:
    """Return an input or a result with the expected strides: itself if only irrelevant strides differ, else a copy.

    Raises:
        ValueError: another shape, or other strides of a mutated tensor (a copy would hide the writes).
    """
    if tuple(tensor.shape) != tuple(shape):
        raise ValueError(
            f"an input has shape {tuple(tensor.shape)}, the graph was compiled for {tuple(shape)}; "
            "compile it for this shape or with symbolic sizes"
        )
    pairs = zip(shape, tensor.stride(), stride, strict=True)
    if 0 in shape or all(stride_of_tensor == wanted for size, stride_of_tensor, wanted in pairs if size != 1):
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
        actual_shape = tuple(result.shape)
        raise UnexpectedResult(f"an operator returned shape {actual_shape}, the graph says {tuple(shape)}")
    return restride(result, shape, stride, mutated=False)


def aligned(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy with equal strides at an aligned address, in place of an unaligned slice."""
    return _copy(tensor, tensor.stride())


def _copy(tensor: torch.Tensor, stride: tuple[int, ...]) -> torch.Tensor:
    """Return a copy with the given strides."""
    shape = tuple(tensor.shape)
    copy = torch.empty_strided(shape, stride, dtype=tensor.dtype, device=tensor.device)
    return copy.copy_(tensor)


Plan = tuple[tuple[int, ...], torch.dtype, torch.device, bool, tuple[int, ...], tuple[int, ...]]
"""The path of a result, its dtype and device, whether its shape is known, shape and strides (or no strides)."""


def as_declared(result: object, operator: str, plans: tuple[Plan, ...]) -> Any:
    """Return the results of ``operator`` as its fake function says: a result with other strides is copied.

    Raises:
        WrongFakeError: other numbers of results, or a result of another shape, dtype or device.
    """
    if plans and not plans[0][0]:
        return _checked(result, operator, plans[0])
    values = list(result) if isinstance(result, (tuple, list)) else [result]
    flat = [plan for plan in plans if len(plan[0]) == 1]
    wanted = 1 + max((plan[0][0] for plan in plans), default=-1)
    if len(values) < wanted or (isinstance(result, list) and len(values) != wanted):
        raise _error(operator, f"returned {len(values)} results", f"{wanted}")
    for plan in flat:
        values[plan[0][0]] = _checked(values[plan[0][0]], operator, plan)
    return values


def _checked(value: object, operator: str, plan: Plan) -> torch.Tensor:
    """Return one result of ``operator`` as its fake function says; see ``as_declared``."""
    path, dtype, device, sized, shape, stride = plan
    name = f"result {path[0]}" if path else "a tensor"
    if not isinstance(value, torch.Tensor):
        raise _error(operator, f"returned {value!r} as {name}", "a tensor")
    facts = [("dtype", value.dtype, dtype), ("device", value.device, device)]
    if sized:
        facts.append(("shape", tuple(value.shape), shape))
    for fact, actual, declared in facts:
        if actual != declared:
            raise _error(operator, f"returned {name} of {fact} {actual}", f"{fact} {declared}")
    if not stride:
        return value
    laid_out = restride(value, shape, stride, mutated=False)
    if laid_out is not value:
        text = _text(operator, f"returned {name} of strides {value.stride()}", f"strides {stride}")
        warn_user(f"fxstack: {text} The result was copied.", UserWarning)
    return laid_out


def _text(operator: str, returned: str, declared: str) -> str:
    """Return the sentence about a wrong fake function, for errors and warnings."""
    return (
        f"{describe_fake_function(operator)} is wrong: the operator {returned}, the fake function says {declared}. Compiled code "
        "relies on the fake function. Correct it; torch.library.opcheck tests it."
    )


def _error(operator: str, returned: str, declared: str) -> WrongFakeError:
    """Return the exception for results that differ from the fake function's."""
    return WrongFakeError(_text(operator, returned, declared))


def assert_numbers(value: object, name: str) -> None:
    """Raise NotFiniteError if a floating-point tensor has NaN or infinite elements (option ``nan_asserts``).

    ``name`` describes the tensor in the message.
    """
    if isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex()):
        if bool(value.isnan().any()):
            raise NotFiniteError(f"NaN in {name}")
        if bool(value.isinf().any()):
            raise NotFiniteError(f"an infinite element in {name}")
