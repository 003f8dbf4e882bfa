"""Rows of stacked values and values of all examples, under layers of ``torch.func``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, cast

import torch
from torch import fx


class VmapInfo(Protocol):
    """What torch tells the ``vmap`` method of a function about its layer."""

    batch_size: int
    randomness: str


class RowContext(torch.autograd.function.FunctionCtx):
    """The context of ``_Row``: what ``setup_context`` saves."""

    gradients: bool
    saved_tensors: tuple[torch.Tensor, torch.Tensor]


class _Row(torch.autograd.Function):
    """The row of a stack at an index, an integer tensor without dimensions. Index -1 means row 0.

    torch's own rules of ``vmap`` and gradients for indexing read sizes, and the number of rows depends on data.
    """

    @staticmethod
    def forward(rows: torch.Tensor, index: torch.Tensor, gradients: bool) -> torch.Tensor:
        """Return the row. ``gradients``: the grad mode of the program."""
        with torch.set_grad_enabled(gradients):
            return rows.index_select(0, index.clamp(min=0).reshape(1).to(rows.device)).squeeze(0)

    @staticmethod
    def setup_context(ctx: RowContext, inputs: tuple[Any, ...], _output: object) -> None:
        """Save the arguments."""
        *tensors, ctx.gradients = inputs
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: RowContext, gradient: torch.Tensor) -> tuple[Any, ...]:
        """Return zeros, with the gradient in the row."""
        rows, index = ctx.saved_tensors
        zeros = torch.zeros_like(rows)
        return zeros.index_put((index.clamp(min=0).to(rows.device),), gradient), None, None

    @staticmethod
    def jvp(ctx: RowContext, tangent: torch.Tensor, *_others: object) -> torch.Tensor:
        """Return the row of the tangent."""
        return row_of(tangent, ctx.saved_tensors[1], ctx.gradients)

    @staticmethod
    def vmap(
        info: VmapInfo,
        in_dims: tuple[int | None, ...],
        rows: torch.Tensor,
        index: torch.Tensor,
        gradients: bool,
    ) -> tuple[torch.Tensor, int]:
        """Select along dimension 0. The batch lies behind it."""
        if in_dims[0] is not None:
            rows = rows.movedim(in_dims[0], 1)
        if in_dims[1] is None:
            return row_of(rows, index, gradients), 0
        index = index.movedim(in_dims[1], 0).clamp(min=0).to(rows.device)
        if in_dims[0] is None:
            return rows.index_select(0, index), 0
        return rows[index, torch.arange(info.batch_size, device=rows.device)], 0


def row_of(rows: torch.Tensor, index: torch.Tensor, gradients: bool) -> torch.Tensor:
    """Return a row of a stack (see ``_Row``)."""
    row: torch.Tensor = cast("Any", _Row).apply(rows, index, gradients)
    return row


def dependent_results(graph: fx.Graph, chosen: Sequence[bool]) -> list[bool]:
    """Return which results of a nested graph depend on one of the ``chosen`` inputs."""
    inputs = graph.find_nodes(op="placeholder")
    dependent = {node for node, flag in zip(inputs, chosen, strict=True) if flag}
    for node in graph.nodes:
        if not dependent.isdisjoint(node.all_input_nodes):
            dependent.add(node)
    results = next(iter(graph.find_nodes(op="output"))).args[0]
    return [node in dependent for node in (results if isinstance(results, (tuple, list)) else (results,))]


def batched(info: VmapInfo, value: torch.Tensor, dim: int | None, to: int = 0) -> torch.Tensor:
    """Return ``value`` with its batch at dimension ``to``. A value without batch is repeated."""
    if dim is None:
        shape = list(value.shape)
        return value.unsqueeze(to).expand(*shape[:to], info.batch_size, *shape[to:]).contiguous()
    return value.movedim(dim, to).contiguous()


def where_of_examples(truth: torch.Tensor, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Return ``torch.where``, with one truth for each element of dimension 0."""
    return torch.where(truth.reshape(-1, *[1] * (first.dim() - 1)), first, second)
