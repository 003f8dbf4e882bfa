"""Detect optimizers' steps: fused optimizers change parameters without changing their versions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from torch.optim.optimizer import register_optimizer_step_post_hook


@dataclass(eq=False)
class LastStep:
    """``step`` becomes another object after each step of any optimizer."""

    step: object


LAST = LastStep(object())


def note_step(_optimizer: object, _args: object, _kwargs: object) -> None:
    """Record a step, as a hook. The hook only writes, so a compiled step around it depends on nothing."""
    LAST.step = object()


@lru_cache(maxsize=1)
def watch_optimizers() -> None:
    """Record every optimizer step of this process from now on."""
    register_optimizer_step_post_hook(note_step)
