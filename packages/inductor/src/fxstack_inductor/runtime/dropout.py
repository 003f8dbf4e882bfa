"""Draw eager's random numbers, bit for bit, faster than eager does.

On CPU, ``bernoulli`` (dropout) draws from a Mersenne twister one word at a time, which takes a third of a
dropout layer's time. The generated C computes whole blocks as vectors and leaves torch's generator in eager's
state. Builds of torch that draw in another way (MKL's generators on Intel CPUs) are detected by one
comparison and use eager's operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from threading import Lock
from typing import Any

import torch

# Limits: torch builds that draw with MKL's generators (Intel CPUs) keep eager's kernel.

DRAW, DRAW_ARGUMENTS = "mersenne_bernoulli", 4
"""The C function, and its number of arguments."""
MIN_ELEMENTS = 2048
"""With fewer elements, fetching and restoring the generator's state costs more than the fast draw saves."""

_DRAWING = Lock()
"""Guards torch's generator between reading and writing its state."""


def bernoulli(draw: Callable[..., None]) -> Callable[[torch.Tensor, float], torch.Tensor]:
    """Return the faster ``aten.bernoulli.p`` for contiguous float32 CPU tensors; eager's if ``draw`` is not exact.

    Host programs with dropout call the result. ``draw`` is the C function ``DRAW``.
    """
    eager = torch.ops.aten.bernoulli.p
    if not _draws_alike(draw):
        result: Callable[[torch.Tensor, float], torch.Tensor] = eager
        return result

    def fast(x: torch.Tensor, p: float) -> torch.Tensor:
        return eager(x, p) if x.numel() < MIN_ELEMENTS else _draw(draw, x, p)

    return fast


def _draw(draw: Callable[..., None], x: torch.Tensor, p: float) -> torch.Tensor:
    """Return random bits like ``x`` from torch's generator, whose state moves on as in eager."""
    out = torch.empty_like(x)
    generator: Any = torch.default_generator
    with _DRAWING:
        state = generator.get_state()
        draw(state.data_ptr(), out.data_ptr(), out.numel(), threshold(p))
        generator.set_state(state)
    return out


def threshold(p: float) -> int:
    """Return the number of 53-bit fractions below ``p``: a draw below this number gives 1."""
    return math.ceil(p * 2**53)


@lru_cache(maxsize=1)
def _expected() -> tuple[tuple[torch.Tensor, torch.Tensor], ...]:
    """Return eager's draws from seed 0 with the generator's state after each; restore the generator."""
    generator: Any = torch.default_generator
    before = generator.get_state()
    draws = []
    try:
        generator.manual_seed(0)
        for count in (1, 700, 2001):
            drawn = torch.ops.aten.bernoulli.p(torch.empty(count), 0.3)
            draws.append((drawn, generator.get_state()))
    finally:
        generator.set_state(before)
    return tuple(draws)


def _draws_alike(draw: Callable[..., None]) -> bool:
    """Whether ``draw`` gives eager's numbers and leaves eager's state of the generator in this process."""
    generator: Any = torch.default_generator
    expected = _expected()
    before = generator.get_state()
    try:
        generator.manual_seed(0)
        for drawn, state in expected:
            same = torch.equal(_draw(draw, drawn, 0.3), drawn)
            if not same or not torch.equal(generator.get_state(), state):
                return False
    finally:
        generator.set_state(before)
    return True
