"""Repeat the graph's changes on the caller's tensors, with eager's effects on autograd and version counters.

New values are copied into the caller's tensors. Their size, strides and history change by the same calls as
in the captured graph. An input becomes a leaf before the compiled graph runs; all other changes follow after
it. The trace knows how often eager raises each version counter. A copy in this module raises the counter
once. A change inside a compiled graph does not raise it, because graphs run without this bookkeeping.
``raise_version`` adds the difference.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.autograd.graph import increment_version

from fxstack_functionalize import torch_compat
from fxstack_functionalize.metadata.records import InputInfo
from fxstack_functionalize.trace import Shell
from fxstack_functionalize.tracer.symbols import make_filler

WriteBack = Callable[[Sequence[Any], Sequence[Any]], None]


def write_back(shell: Shell) -> WriteBack | None:
    """Return a function of (arguments, flat outputs) that completes all mutations; None if it would do nothing.

    A change that autograd sees is copied in grad mode, so it gets a gradient; other changes under no_grad.
    """
    info = shell.info
    copies = [
        (number, position)
        for number, position in enumerate(info.mutated)
        if info.inputs[position].grad_visible
    ]
    unseen = _unseen_copies(shell)
    # Members of a merged base count their own changes, and nobody sees the counter of the base. But the
    # counter of a root is also the counter of its views.
    inputs = shell.captured.inputs
    raised_early = set(early_rises(shell))
    rises = [
        (position, info_of_input.version_bumps - (position in info.mutated))
        for position, info_of_input in enumerate(info.inputs)
        if info_of_input.is_tensor
        and position not in raised_early
        and (inputs[position].members is None or inputs[position].is_root)
    ]
    # The list of raised tensors has a tensor once for each rise. A copy can rise more often than eager.
    raised = [position for position, rise in rises for _ in range(rise)]
    lowered = [(position, rise) for position, rise in rises if rise < 0]
    if not (info.mutated or raised or lowered):
        return None

    def write(args: Sequence[Any], flat: Sequence[Any]) -> None:
        """Copy new values from the flat results into the arguments. Give version counters the values of eager."""
        if copies:
            with torch.enable_grad():
                for number, position in copies:
                    args[position].copy_(flat[number])
        if unseen:
            with torch.no_grad():
                for pairs in unseen:
                    torch_compat.foreach_copy_(
                        [args[position] for _, position in pairs], [flat[number] for number, _ in pairs]
                    )
        if raised:
            increment_version([args[position] for position in raised])
        for position, rise in lowered:
            raise_version(args[position], rise)

    return write


def _unseen_copies(shell: Shell) -> list[list[tuple[int, int]]]:
    """Return the copies that autograd does not see, as pairs of (flat output, input).

    Each list has inputs of one dtype and device, which a GPU copies by one kernel: the counters of a model's batch norms.
    """
    groups: dict[tuple[torch.dtype, torch.device], list[tuple[int, int]]] = {}
    for number, position in enumerate(shell.info.mutated):
        if not shell.info.inputs[position].grad_visible:
            fake = shell.captured.inputs[position].fake
            groups.setdefault((fake.dtype, fake.device), []).append((number, position))
    return list(groups.values())


def early_rises(shell: Shell) -> dict[int, int]:
    """Return input number -> rise of its version counter, for inputs without new values (their size or strides change).

    The counters rise before the compiled graph runs, because eager saves such an input with the version after
    the change.
    """
    info = shell.info
    values = {*info.mutated, *info.in_graph}
    rises = {
        position: info_of_input.version_bumps + sum(step.version_bumps for step in info_of_input.relayouts)
        for position, info_of_input in enumerate(info.inputs)
        if info_of_input.is_tensor and position not in values
    }
    grouped = {at for spec in shell.captured.inputs for at in spec.members or ()}
    return {at: rise for at, rise in rises.items() if rise and at not in grouped}


def raise_version(tensor: torch.Tensor, by: int) -> None:
    """Add ``by`` to a version counter. Inference tensors have none."""
    if not tensor.is_inference():
        torch_compat.unsafe_set_version_counter((tensor,), (tensor._version + by,))


def relaid_inputs(shell: Shell) -> list[int]:
    """Return the positions of the inputs whose size, strides or history the graph changes in place."""
    return [index for index, info_of_input in enumerate(shell.info.inputs) if info_of_input.relayouts]


def new_leaves(shell: Shell) -> list[int]:
    """Return the positions of the inputs that become leaves by ``requires_grad_()`` calls in the graph."""
    return [
        index
        for index in relaid_inputs(shell)
        if shell.info.inputs[index].requires_grad and _is_flag(shell.info.inputs[index])
    ]


def _is_flag(info_of_input: InputInfo) -> bool:
    """Whether every metadata change of the input is a ``requires_grad_()`` call."""
    return all(step.method == "requires_grad_" for step in info_of_input.relayouts)


def relayout_inputs(shell: Shell) -> Callable[[Sequence[Any]], None] | None:
    """Return a function that repeats the graph's metadata changes on the call's arguments; None for a graph
    without such changes.
    """
    indices = [index for index in relaid_inputs(shell) if not _is_flag(shell.info.inputs[index])]
    if not indices:
        return None
    steps = [(index, step) for index in indices for step in shell.info.inputs[index].relayouts]
    fill = make_filler(shell.captured, [(step.arguments, step.keywords) for _, step in steps])
    early = early_rises(shell)
    risen = [
        (index, sum(step.version_bumps for step in shell.info.inputs[index].relayouts))
        for index in indices
        if index in early
    ]

    def relayout(args: Sequence[Any]) -> None:
        """Repeat the changes of sizes and strides on the arguments of a call, as the generated wrapper asks."""
        values = fill(args)  # all sizes, before the first change
        for (index, step), (arguments, keywords) in zip(steps, values, strict=True):
            with torch.set_grad_enabled(step.grad_mode):
                getattr(args[index], step.method)(*arguments, **dict(keywords))
        for index, rise in risen:
            raise_version(args[index], -rise)

    return relayout
