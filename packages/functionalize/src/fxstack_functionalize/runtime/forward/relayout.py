"""Change the size, strides and history of the caller's tensors as the captured graph did.

An input becomes a leaf before the compiled graph runs; all other changes follow after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from fxstack_functionalize.metadata.records import InputInfo
from fxstack_functionalize.runtime.forward.mutation import early_rises, raise_version
from fxstack_functionalize.trace import Shell
from fxstack_functionalize.tracer.symbols import filler


def relaid_inputs(shell: Shell) -> list[int]:
    """Return the inputs whose metadata the graph changes in place."""
    return [index for index, seen in enumerate(shell.info.inputs) if seen.relayouts]


def new_leaves(shell: Shell) -> list[int]:
    """Return the inputs that become leaves by ``requires_grad_()`` calls in the graph."""
    return [
        index
        for index in relaid_inputs(shell)
        if shell.info.inputs[index].requires_grad and _is_flag(shell.info.inputs[index])
    ]


def _is_flag(seen: InputInfo) -> bool:
    return all(step.method == "requires_grad_" for step in seen.relayouts)


def relayout_inputs(shell: Shell) -> Callable[[Sequence[Any]], None] | None:
    """Return a function that repeats the changes on the call's arguments; None if there are none."""
    places = [index for index in relaid_inputs(shell) if not _is_flag(shell.info.inputs[index])]
    if not places:
        return None
    steps = [(index, step) for index in places for step in shell.info.inputs[index].relayouts]
    given = filler(shell.captured, [(step.arguments, step.keywords) for _, step in steps])
    early = early_rises(shell)
    risen = [
        (index, sum(step.bumps for step in shell.info.inputs[index].relayouts))
        for index in places
        if index in early
    ]

    def relayout(args: Sequence[Any]) -> None:
        values = given(args)  # all sizes, before the first change
        for (index, step), (arguments, keywords) in zip(steps, values, strict=True):
            with torch.set_grad_enabled(step.grad_mode):
                getattr(args[index], step.method)(*arguments, **dict(keywords))
        for index, rise in risen:
            raise_version(args[index], -rise)

    return relayout
