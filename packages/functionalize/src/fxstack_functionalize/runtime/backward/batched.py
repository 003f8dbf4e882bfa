"""Several gradients at once (``vmap`` over ``torch.autograd.grad``, ``is_grads_batched``).

If the captured graph can run again, autograd differentiates it with all gradients at once
(``replay``). If not (because it draws random numbers, for example), the compiled backward runs once
for each gradient: its other arguments are saved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fxstack_functionalize import torch_compat
from fxstack_functionalize.torch_compat import temporarily_clear_interpreter_stack

Run = Callable[[Sequence[Any]], Sequence[Any]]
Change = Callable[[torch.Tensor], Any]

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
    given = [gradient for gradient in gradients if gradient is not None]
    if any(map(_is_batched, given)):
        split, join = _over_level(max(map(_functorch.maybe_get_level, filter(_is_batched, given))))
    elif any(map(_is_legacy_batched, given)):
        split, join = _over_legacy_level()
    else:
        with temporarily_clear_interpreter_stack():
            return [*run(gradients)]
    unwrapped = [None if gradient is None else split(gradient) for gradient in gradients]
    count = max(len(parts) for parts in unwrapped if isinstance(parts, tuple))
    found = [one_by_one(run, [_at(parts, place) for parts in unwrapped]) for place in range(count)]
    return [
        None if results[0] is None else join(torch.stack(results)) for results in zip(*found, strict=True)
    ]


def _over_level(level: int) -> tuple[Change, Change]:
    """Return the functions that unwrap and wrap ``level``, the innermost, of ``torch.func.vmap``."""

    def split(g: torch.Tensor) -> Any:
        if not _is_batched(g) or _functorch.maybe_get_level(g) != level:
            return g
        return _functorch.get_unwrapped(g).unbind(_functorch.maybe_get_bdim(g))

    return split, lambda stacked: _functorch._add_batch_dim(stacked, 0, level)


def _over_legacy_level() -> tuple[Change, Change]:
    """Return the functions that unwrap and wrap the innermost level of autograd's own ``vmap``."""
    level = torch_compat.vmapmode_increment_nesting() - 1
    torch_compat.vmapmode_decrement_nesting()

    def split(g: torch.Tensor) -> Any:
        return torch_compat.remove_batch_dim(g, level, 1, 0).unbind(0) if _is_legacy_batched(g) else g

    return split, lambda stacked: torch_compat.add_batch_dim(stacked, 0, level)


def _at(parts: object, place: int) -> Any:
    if not isinstance(parts, tuple):
        return parts
    return parts[place if len(parts) > 1 else 0]
