"""Write new values into the caller's tensors, with eager's effects on autograd and version counters.

The trace knows how often eager raises each version counter. A copy in this module raises the counter once. A
change inside a compiled graph does not raise it, because graphs run without this bookkeeping.
``raise_version`` adds the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd.graph import increment_version

from fxstack_functionalize import torch_compat
from fxstack_functionalize.trace import Shell

WriteBack = Callable[[Sequence[Any], Sequence[Any]], None]


def write_back(shell: Shell) -> WriteBack | None:
    """Return a function of (arguments, flat outputs) that completes all mutations; None if there are none.

    A change that autograd sees is copied in grad mode, so it gets a gradient; other changes under no_grad.
    """
    info = shell.info
    copies = [
        (number, position, info.inputs[position].grad_visible) for number, position in enumerate(info.mutated)
    ]
    # Members of a merged base count their own changes, and nobody sees the counter of the base. But the
    # counter of a root is also that of its views.
    inputs = shell.captured.inputs
    quiet = set(early_rises(shell))
    rises = [
        (position, seen.version_bumps - (position in info.mutated))
        for position, seen in enumerate(info.inputs)
        if seen.is_tensor
        and position not in quiet
        and (inputs[position].members is None or inputs[position].is_root)
    ]
    # The list of raised tensors has a tensor once for each rise. A copy can rise more often than eager.
    raised = [position for position, rise in rises for _ in range(rise)]
    lowered = [(position, rise) for position, rise in rises if rise < 0]
    if not (copies or raised or lowered):
        return None

    def write(args: Sequence[Any], flat: Sequence[Any]) -> None:
        for number, position, visible in copies:
            with torch.set_grad_enabled(visible):
                args[position].copy_(flat[number])
        if raised:
            increment_version([args[position] for position in raised])
        for position, rise in lowered:
            raise_version(args[position], rise)

    return write


def early_rises(shell: Shell) -> dict[int, int]:
    """Return the rises of version counters of inputs without new values (their size or strides change).

    They rise before the compiled graph runs, because the saved version of such an input is that after the
    change.
    """
    info = shell.info
    values = {*info.mutated, *info.in_graph}
    found = {
        position: seen.version_bumps + sum(step.bumps for step in seen.relayouts)
        for position, seen in enumerate(info.inputs)
        if seen.is_tensor and position not in values
    }
    grouped = {at for spec in shell.captured.inputs for at in spec.members or ()}
    return {at: rise for at, rise in found.items() if rise and at not in grouped}


def raise_version(tensor: torch.Tensor, by: int) -> None:
    """Add ``by`` to a version counter. Inference tensors have none."""
    if not tensor.is_inference():
        torch_compat.unsafe_set_version_counter((tensor,), (tensor._version + by,))
