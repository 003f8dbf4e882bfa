"""Know of optimizers' steps: fused ones change parameters without changing their versions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from torch.optim.optimizer import register_optimizer_step_post_hook


@dataclass(eq=False)
class LastStep:
    """``step`` is another object after each step of any optimizer."""

    step: object


LAST = LastStep(object())


def note_step(_optimizer: object, _args: object, _kwargs: object) -> None:
    """A hook. It only writes, so that a compiled step that it is part of depends on nothing."""
    LAST.step = object()


@lru_cache(maxsize=1)
def watch_optimizers() -> None:
    """Have every step of this process noted from now on."""
    register_optimizer_step_post_hook(note_step)
