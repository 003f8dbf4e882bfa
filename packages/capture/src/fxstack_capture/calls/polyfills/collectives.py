"""Collectives that write into tensors, implemented by functional collectives whose results are copied.

The rules of ``calls.rules.torch.process_groups`` let the interpreter run these functions. They read the
default process group in the same way as the program, so it is guarded.
"""

from __future__ import annotations

from typing import Any

import torch

distributed: Any = torch.distributed
"""The module ``torch.distributed``. The rules import ``_functional_collectives`` at the first use, because it
loads slowly.
"""

Group = Any
"""A process group. None stands for the default group. Builds without ``distributed`` lack the class."""


def _resolved(group: Group) -> Group:
    """Return ``group``. For None, return the default group."""
    return distributed.distributed_c10d._get_default_group() if group is None else group


def all_reduce(group: Group, tensor: torch.Tensor, op: str) -> None:
    """Reduce ``tensor`` over the group into itself. ``op`` is the name of the reduction, for example "sum"."""
    tensor.copy_(distributed._functional_collectives.all_reduce(tensor, op, _resolved(group)))


def broadcast(group: Group, tensor: torch.Tensor, root: int) -> None:
    """Copy the tensor of one member into ``tensor`` of every member. ``root`` is the rank of this member in
    the group.
    """
    tensor.copy_(distributed._functional_collectives.broadcast(tensor, root, _resolved(group)))


def all_gather(group: Group, output: torch.Tensor, tensor: torch.Tensor) -> None:
    """Write the tensors of all members into ``output``, one after the other."""
    gathered = distributed._functional_collectives.all_gather_tensor(tensor, 0, _resolved(group))
    output.copy_(gathered)


def all_gather_list(group: Group, outputs: list[torch.Tensor], tensor: torch.Tensor) -> None:
    """Write the tensor of each member into one tensor of ``outputs``."""
    gathered = distributed._functional_collectives.all_gather_tensor(tensor.reshape(-1), 0, _resolved(group))
    for output, row in zip(outputs, gathered.view(len(outputs), -1).unbind(), strict=True):
        output.copy_(row.view(output.shape))


def reduce_scatter(group: Group, output: torch.Tensor, tensor: torch.Tensor, op: str) -> None:
    """Reduce ``tensor`` over the group, and write this member's part into ``output``."""
    reduced = distributed._functional_collectives.reduce_scatter_tensor(tensor, op, 0, _resolved(group))
    output.copy_(reduced)


def all_to_all(
    group: Group, output: torch.Tensor, tensor: torch.Tensor, given: list[int], taken: list[int]
) -> None:
    """Exchange parts with all members.

    ``given`` are the sizes of the parts of ``output``, ``taken`` those of ``tensor``.
    """
    output.copy_(
        distributed._functional_collectives.all_to_all_single(tensor, given, taken, _resolved(group))
    )
