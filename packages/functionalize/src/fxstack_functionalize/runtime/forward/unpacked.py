"""Check the results of eager's unpack hooks before a compiled backward reads them.

A compiled backward reads memory with the traced dtype, size and strides, but eager accepts any tensor. The
check corrects strides, and raises for other differences.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fxstack_functionalize.metadata.examples import Example
from fxstack_functionalize.tracer.tangents import dense_like


def unpacked_checker(examples: Sequence[Example]) -> Callable[[Sequence[Any]], list[torch.Tensor]]:
    """Return a function that checks unpacked tensors against ``examples`` and gives them their strides.

    Raises (the function): RuntimeError if a dtype, device or size differs.
    """
    fixers = [dense_like(example) for example in examples]

    def check(saved: Sequence[Any]) -> list[torch.Tensor]:
        return [
            _checked(value, example, fix) for value, example, fix in zip(saved, examples, fixers, strict=True)
        ]

    return check


def _checked(
    value: torch.Tensor, example: Example, fix: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    same = value.dtype == example.dtype and value.device.type == example.device.type
    if not same or not _agree(value.shape, example.shape):
        raise RuntimeError(
            f"a saved-tensor hook unpacked a {value.dtype} tensor of size {[*value.shape]} on {value.device}; the compiled "
            f"backward needs {example.dtype} of size {[*example.shape]} on {example.device}.\n"
            "  why: the backward was compiled for the tensor that was packed.\n"
            "  fix: let the unpack hook return a tensor of the size, dtype and device of the packed one"
        )
    if example.layout is not torch.strided or _agree(value.stride(), example.stride()):
        return value
    return fix(value)


def _agree(found: Sequence[int], wanted: Sequence[Any]) -> bool:
    """Whether numbers agree with all wanted numbers that are not symbolic."""
    return len(found) == len(wanted) and all(
        isinstance(b, torch.SymInt) or a == b for a, b in zip(found, wanted, strict=True)
    )
