"""Global state of torch that a captured graph sets. A functional graph runs in the state of its caller.

An operator whose result has the default dtype gets the dtype as an argument instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch

from fxstack_functionalize import torch_compat
from fxstack_functionalize.errors import UnsupportedGraphError
from fxstack_functionalize.torch_compat import OpOverload, TorchDispatchMode, pytree

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


# Limits: a graph that sets the default dtype and calls an operator that reads it (a custom operator with
# torch.zeros(n)) runs in eager, and so does a graph that switches deterministic algorithms.


def check_deterministic_setting(target: object, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise UnsupportedGraphError if a captured call changes the setting for deterministic algorithms."""
    if target is not torch_compat.set_deterministic_algorithms:
        return
    requested = bool(args[0]), bool(kwargs.get("warn_only", False))
    present = (
        torch_compat.get_deterministic_algorithms(),
        torch_compat.get_deterministic_algorithms_warn_only(),
    )
    if requested != present:
        raise UnsupportedGraphError(
            "the graph switches deterministic algorithms on or off",
            why="a compiled graph runs with the algorithms of its caller",
            fix="call torch.use_deterministic_algorithms outside of the compiled function",
        )


def with_explicit_dtype(
    mode: TorchDispatchMode,
    func: OpOverload,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    default: torch.dtype,
) -> Arguments | None:
    """Return arguments with which ``func`` returns its present dtype even under the default dtype ``default``.

    Return None if ``args`` and ``kwargs`` already do so.


    Integer tensors are converted to floats as ``func`` itself would convert them; ``mode`` records the
    conversion. Raise UnsupportedGraphError if no arguments give the dtype.
    """
    expected = _dtypes_of(func(*args, **kwargs))
    if expected == _dtypes_under(default, func, args, kwargs):
        return None
    dtype = next(dtype for dtype in expected if dtype.is_floating_point or dtype.is_complex)
    for candidate in _candidates(mode, func, args, kwargs, dtype):
        if expected == _dtypes_under(default, func, *candidate):
            return candidate
    raise UnsupportedGraphError(
        f"{func} gives {dtype} because the graph sets the default dtype",
        why="a compiled graph runs under the default dtype of its caller, and the operator cannot be told another one",
        fix="call torch.set_default_dtype outside of the compiled function, or convert its arguments",
    )


def _candidates(
    mode: TorchDispatchMode,
    func: OpOverload,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    dtype: torch.dtype,
) -> Iterator[Arguments]:
    """Yield arguments that may give the result dtype: with an explicit dtype, then with integers converted to floats."""
    if any(argument.name == "dtype" for argument in func._schema.arguments):
        yield args, {**kwargs, "dtype": dtype}
    real = dtype.to_real()

    def converted(tensor: torch.Tensor) -> torch.Tensor:
        is_integer = not (tensor.dtype.is_floating_point or tensor.dtype.is_complex)
        return tensor.to(real) if is_integer else tensor

    with mode:
        arguments = pytree.tree_map_only(torch.Tensor, converted, (args, kwargs))
    yield arguments


def _dtypes_under(
    default: torch.dtype, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[torch.dtype]:
    """Return the dtypes of the results of ``func`` under the default dtype ``default``."""
    current = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        return _dtypes_of(func(*args, **kwargs))
    finally:
        torch.set_default_dtype(current)


def _dtypes_of(result: object) -> list[torch.dtype]:
    return [x.dtype for x in pytree.tree_leaves(result) if isinstance(x, torch.Tensor)]


def autocast_dtypes() -> dict[str, torch.dtype]:
    """Return device type -> autocast dtype, for the devices on which autocast is on."""
    if not torch_compat.is_any_autocast_enabled():
        return {}
    return {
        device: torch.get_autocast_dtype(device)
        for device in ("cpu", "cuda")
        if torch.is_autocast_enabled(device)
    }


def capture_torch_state() -> Callable[[Callable[[], Any]], Any]:
    """Return a function that later calls a function under the present grad mode and autocast."""
    grad_mode = torch.is_grad_enabled()
    autocast = autocast_dtypes()
    caching = torch.is_autocast_cache_enabled()

    def in_state(function: Callable[[], Any]) -> Any:
        """Call ``function`` in the grad mode and autocast state that were captured."""
        with ExitStack() as stack:
            stack.enter_context(torch.set_grad_enabled(grad_mode))
            for device, dtype in autocast.items():
                stack.enter_context(torch.autocast(device, dtype, cache_enabled=caching))
            return function()

    return in_state
