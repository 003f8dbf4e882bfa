"""Dropout in generated kernels beside eager's: values, gradients and the generator's state, bit by bit.

A section of ``gpu.py``, and the test ``integration/tests/test_dropout_on_gpu.py`` where there is a GPU.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

F = torch.nn.functional
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
CALLS = 4
"""Calls of one compiled function: from the third on a recording is replayed under ``reduce-overhead``."""


def drawn(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Dropouts of inputs, of views and of computed tensors, among other random operators, and a gradient.

    Where operators in front round in another way than in eager, the result says which elements were kept.
    """
    first = F.dropout(x, 0.1)
    second = F.dropout(first * 2, 0.37)
    positive = second.abs() + torch.rand_like(x) + 1
    third = F.dropout(positive[..., 1:], 0.5)
    fourth = F.dropout(x.abs().amax(-1) + 1, 0.9)
    (gradient,) = torch.autograd.grad(first.sum(), x)
    return first.detach(), gradient, *(y != 0 for y in (second, third, fourth))


def layouts(small: bool) -> Iterator[tuple[str, Callable[[torch.dtype, str], torch.Tensor]]]:
    """Makers of inputs by name; the largest tensors give eager's threads more than one turn."""

    def dense(*shape: int) -> Callable[[torch.dtype, str], torch.Tensor]:
        return lambda dtype, device: torch.randn(shape, dtype=dtype, device=device)

    yield "one element", dense(1)
    yield "odd", dense(3, 5, 7)
    yield "rows", dense(33, 64)
    yield "permuted", lambda dtype, device: dense(12, 64)(dtype, device).t()
    yield "gaps", lambda dtype, device: dense(12, 64)(dtype, device)[:, :40]
    yield "unaligned", lambda dtype, device: dense(2049)(dtype, device)[1:].view(32, 64)
    yield (
        "channels last",
        lambda d, device: dense(2, 8, 5, 6)(d, device).to(memory_format=torch.channels_last),
    )
    if not small:
        yield "large", dense(4096, 1536)
        yield "large and odd", dense(1531, 1533)


def compared(x: torch.Tensor, compiled: Callable[..., Any], call: int) -> str:
    """How a call of the compiled function differs from eager's; empty if all is equal."""
    state = torch.cuda.get_rng_state if x.is_cuda else torch.get_rng_state
    results = []
    for function in (drawn, compiled):
        torch.manual_seed(call)
        results.append((*function(x.detach().requires_grad_()), state()))
    for position, (theirs, ours) in enumerate(zip(*results, strict=True)):
        if not torch.equal(theirs, ours):
            last = position == len(results[0]) - 1
            return f"call {call}: {'the state of the generator' if last else f'result {position}'} differs"
    return ""


def rows(
    compilers: dict[str, Callable[..., Any]], device: str, *, small: bool = False
) -> Iterator[tuple[str, Callable[[], dict[str, Any]]]]:
    """Names of cases, each with a function that returns what differs from eager, by compiler."""
    dtypes = DTYPES[:2] if small else DTYPES
    for (title, make), dtype in product(layouts(small), dtypes):

        def row(make: Any = make, dtype: torch.dtype = dtype) -> dict[str, Any]:
            x, found = make(dtype, device), {}
            for name, compiler in compilers.items():
                torch.compiler.reset()
                run = compiler(drawn)
                wrong = [text for call in range(CALLS) if (text := compared(x, run, call))]
                found |= {f"{name} wrong": wrong[0]} if wrong else {}
            return found

        yield f"{title} {str(dtype).removeprefix('torch.')}", row
