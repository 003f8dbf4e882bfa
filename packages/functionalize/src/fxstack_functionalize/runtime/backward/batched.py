"""Several gradients at once (``vmap`` over ``torch.autograd.grad``, ``is_grads_batched``).

If the captured graph can run again, autograd differentiates it with all gradients at once
(``double_backward``). If not (because it draws random numbers, for example), the compiled backward runs once
for each gradient: its other arguments are saved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fxstack_functionalize import torch_compat
from fxstack_functionalize.torch_compat import temporarily_clear_interpreter_stack

Run = Callable[[Sequence[Any]], Sequence[Any]]

_functorch: Any = torch_compat.functorch
_is_batched: Callable[[torch.Tensor], bool] = _functorch.is_batchedtensor
_is_legacy_batched: Callable[[torch.Tensor], bool] = _functorch.is_legacy_batchedtensor


def is_batched(gradient: torch.Tensor) -> bool:
    """Whether ``gradient`` is a batch, in either kind of ``vmap``."""
    return _is_batched(gradient) or _is_legacy_batched(gradient)


def are_batched(gradients: Sequence[Any]) -> bool:
    """Whether one of ``gradients`` is a batch."""
    return any(gradient is not None and is_batched(gradient) for gradient in gradients)


def one_by_one(run: Run, gradients: Sequence[Any]) -> list[Any]:
    """Return the results of ``run`` for each gradient in the batches, batched again."""
    if any(gradient is not None and _is_batched(gradient) for gradient in gradients):
        return _over_level(run, gradients)
    if are_batched(gradients):
        return _over_legacy_level(run, gradients)
    with temporarily_clear_interpreter_stack():
        return [*run(gradients)]


def _over_level(run: Run, gradients: Sequence[Any]) -> list[Any]:
    """Unwrap the innermost level of ``torch.func.vmap``."""
    levels = [_functorch.maybe_get_level(g) for g in gradients if g is not None and _is_batched(g)]
    level = max(levels)
    unwrapped = [
        _functorch.get_unwrapped(g).unbind(_functorch.maybe_get_bdim(g))
        if g is not None and _is_batched(g) and _functorch.maybe_get_level(g) == level
        else g
        for g in gradients
    ]
    stacked = _for_each(run, unwrapped)
    return [s if s is None else _functorch._add_batch_dim(s, 0, level) for s in stacked]


def _over_legacy_level(run: Run, gradients: Sequence[Any]) -> list[Any]:
    """Unwrap the innermost level of autograd's own ``vmap`` among ``gradients``."""
    level = torch_compat.vmapmode_increment_nesting() - 1
    torch_compat.vmapmode_decrement_nesting()
    unwrapped = [
        torch_compat.remove_batch_dim(g, level, 1, 0).unbind(0)
        if g is not None and _is_legacy_batched(g)
        else g
        for g in gradients
    ]
    stacked = _for_each(run, unwrapped)
    return [s if s is None else torch_compat.add_batch_dim(s, 0, level) for s in stacked]


def _for_each(run: Run, unwrapped: Sequence[Any]) -> list[Any]:
    """Call ``run`` for each position of the tuples among ``unwrapped``, and stack the results."""
    count = max(len(parts) for parts in unwrapped if isinstance(parts, tuple))
    found = [one_by_one(run, [_at(parts, place) for parts in unwrapped]) for place in range(count)]
    return [None if results[0] is None else torch.stack(results) for results in zip(*found, strict=True)]


def _at(parts: object, place: int) -> Any:
    if not isinstance(parts, tuple):
        return parts
    return parts[place if len(parts) > 1 else 0]
