"""Write new values back into the caller's tensors, as eager's autograd and version counters see it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fxstack_functionalize.metadata import GraphInfo

    WriteBack = Callable[[Sequence[Any], Sequence[Any], Sequence[int]], None]


def version_reader(info: GraphInfo) -> Callable[[Sequence[Any]], Sequence[int]] | None:
    """Return a function that reads the version counters of all mutated inputs, None if none is mutated."""
    positions = (*info.mutated, *info.in_graph)
    if not positions:
        return None

    def read(args: Sequence[Any]) -> Sequence[int]:
        return [_version(args[position]) for position in positions]

    return read


def write_back(info: GraphInfo) -> WriteBack:
    """Return a function that copies the flat outputs' new values into the arguments and sets version counters.

    A change that autograd sees is copied in grad mode, and so gets a gradient; all others under no_grad.
    """
    copies = [
        (number, position, info.inputs[position].grad_visible)
        for number, position in enumerate(info.mutated)
    ]
    positions = (*info.mutated, *info.in_graph)
    bumps = [info.inputs[position].version_bumps for position in positions]

    def write(args: Sequence[Any], flat: Sequence[Any], versions: Sequence[int]) -> None:
        for number, position, visible in copies:
            with torch.set_grad_enabled(visible):
                args[position].copy_(flat[number])
        for position, before, bump in zip(positions, versions, bumps, strict=True):
            target = args[position]
            if before >= 0 and target._version != before + bump:
                torch._C._autograd._unsafe_set_version_counter((target,), (before + bump,))

    return write


def _version(tensor: torch.Tensor) -> int:
    """Inference tensors have no version counter."""
    return -1 if tensor.is_inference() else tensor._version
