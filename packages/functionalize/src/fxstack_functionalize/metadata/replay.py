"""How to make an output that is a view again, from the tensor that it views.

The functional wrappers of torch know the chain of view operators that leads from a storage's base to a tensor
(``ViewMeta`` records). Applied to the caller's own tensor they give a real view: same base, same ``grad_fn``, same
rules for a later in-place change. Sizes that are symbolic are kept as expressions and filled in at each call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch._C import _functionalization as views

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class ViewReplay:
    """A chain of views. ``steps`` holds (ViewMeta class, its argument tuple), with SymInts where sizes are symbolic.

    ``detached`` means that eager's output has no gradient although its base has one.
    """

    steps: tuple[tuple[type, tuple[Any, ...]], ...]
    detached: bool = False
    no_grad: bool = False

    @property
    def symbolic(self) -> bool:
        return any(_has_symbols(arguments) for _, arguments in self.steps)

    def bind(self, evaluate: Callable[[Any], Any]) -> Callable[[torch.Tensor], torch.Tensor]:
        """Return the function that replays the chain; ``evaluate`` gives the value of a SymInt."""
        sequence = [make(_fill(arguments, evaluate)) for make, arguments in self.steps]

        def replay(base: torch.Tensor) -> torch.Tensor:
            view: torch.Tensor = views.apply_view_meta_sequence(base, sequence)
            return view

        if not self.detached:
            return replay
        # apply_view_meta_sequence ends with the detach view itself where eager had one; a view made under
        # no_grad has none, so it is made under no_grad here as well.
        def replay_without_grad(base: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                return replay(base)

        return replay_without_grad


def record_replay(inner: torch.Tensor, *, detached: bool) -> ViewReplay:
    """Read the view chain of a functional tensor (C++ level)."""
    steps = tuple((type(meta), meta.as_tuple()) for meta in views.get_view_meta_sequence(inner))
    return ViewReplay(steps, detached=detached)


def _has_symbols(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return any(_has_symbols(item) for item in value)
    return isinstance(value, torch.SymInt)


def _fill(value: Any, evaluate: Callable[[Any], Any]) -> Any:
    if isinstance(value, (list, tuple)):
        return type(value)(_fill(item, evaluate) for item in value)
    return evaluate(value) if isinstance(value, torch.SymInt) else value
