"""The records from which the runtime half of a training step is generated.

They are read once from the joint graph and its partition. They need no graph afterwards, so they can come
from disk.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from fxstack_functionalize.runtime.backward.output_edges import Refusals, find_refusals
from fxstack_functionalize.runtime.backward.saved import SavedTensor, saved_tensors
from fxstack_functionalize.sequential_backward import needed_by
from fxstack_functionalize.torch_compat import is_contiguous_or_false
from fxstack_functionalize.trace import Traced
from fxstack_functionalize.tracer.tensor_metadata import Example, TensorMeta
from fxstack_interchange import InputKind, OutputKind, Partition


@dataclass(frozen=True, slots=True)
class TangentPlan:
    """A tangent input of the backward graph: its flat output, and its layout."""

    position: int
    """The number of the flat output whose gradient it is."""
    example: Example


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """The facts about a forward and backward that are equal in all calls."""

    forward_results: int
    """The number of results of the forward graph."""
    backward_results: int
    """The number of results of the backward graph."""
    tensors: range
    """Positions of the forward results that are saved tensors. ``symbols``: positions of the saved symbols."""
    symbols: range
    saved: tuple[SavedTensor, ...]
    examples: tuple[Example, ...]
    """The metadata of the saved tensors, in order.

    If saved-tensor hooks run in eager, the backward checks the unpacked tensors against this metadata.
    """
    constant: tuple[int, ...]
    """Flat outputs that are tensors without gradient."""
    tangents: tuple[TangentPlan, ...]
    targets: tuple[int, ...]
    """For each result of the backward the input whose gradient it is."""
    symbolic: bool
    """Whether a tangent has symbolic sizes."""
    needs: tuple[tuple[int, ...], ...]
    """For each saved tensor the outputs whose gradients need the tensor; empty if only one output can have a
    gradient.
    """
    refusals: Refusals
    """The reasons why the captured graph cannot run again in eager."""


def plan_training(traced: Traced, partition: Partition) -> TrainingPlan:
    """Return the plan of a training step. Made once per partition, before the graphs are compiled."""
    info = traced.info
    forward, backward = partition.forward.signature, partition.backward.signature
    tensors, symbols = _saved_layout(partition, info.output_count)
    names = [spec.name for spec in traced.stage_graph.signature.inputs]
    results: Any = partition.forward.graph_module.graph.output_node().args[0]
    number = {name: index for index, name in enumerate(names)}
    tangents = _tangents(traced)
    position_of = dict(zip(tangents, info.differentiable, strict=True))
    return TrainingPlan(
        forward_results=len(forward.outputs),
        backward_results=len(backward.outputs),
        tensors=tensors,
        symbols=symbols,
        saved=saved_tensors(partition, info, tensors, names, traced.stage_graph.signature.unsaved),
        examples=tuple(metadata_of(results[position].meta["val"]) for position in tensors),
        constant=_constant_tensors(traced),
        tangents=tuple(
            TangentPlan(position_of[spec.name], metadata_of(tangents[spec.name]))
            for spec in backward.inputs_of(InputKind.TANGENT)
        ),
        targets=tuple(number[str(spec.target)] for spec in backward.outputs),
        symbolic=any(example._has_symbolic_sizes_strides for example in tangents.values()),
        needs=needed_by(partition.backward, position_of)[: len(tensors)] if len(position_of) > 1 else (),
        refusals=find_refusals(traced),
    )


def metadata_of(value: torch.Tensor) -> Example:
    """Return the metadata of a strided fake tensor; another tensor itself."""
    if value.layout is not torch.strided:
        return value
    shape, strides = tuple(value.shape), tuple(value.stride())
    return TensorMeta(value.dtype, value.device, shape, strides, is_contiguous_or_false(value))


def _saved_layout(partition: Partition, count: int) -> tuple[range, range]:
    """Return the positions of saved tensors, and of saved symbols. Symbols follow tensors by convention."""
    kinds = partition.forward.signature.outputs
    total = len(kinds)
    nodes: Any = partition.forward.graph_module.graph.output_node().args[0]
    split = total
    for position in range(count, total):
        assert kinds[position].kind is OutputKind.SAVED
        if not isinstance(nodes[position].meta.get("val"), torch.Tensor):
            split = position
            break
    return range(count, split), range(split, total)


def _tangents(traced: Traced) -> dict[str, torch.Tensor]:
    """Return the joint graph's tangents by name, in the order of the differentiable outputs."""
    graph = traced.stage_graph.graph_module.graph
    values = {node.name: node.meta["val"] for node in graph.find_nodes(op="placeholder")}
    tangents = traced.stage_graph.signature.inputs_of(InputKind.TANGENT)
    return {spec.name: values[spec.name] for spec in tangents}


def _constant_tensors(traced: Traced) -> tuple[int, ...]:
    """Return the positions of flat outputs that are tensors without gradient."""
    results: Any = traced.stage_graph.graph_module.graph.output_node().args[0]
    differentiable = set(traced.info.differentiable)
    return tuple(
        position
        for position, node in enumerate(results[: traced.info.output_count])
        if position not in differentiable
        and isinstance(node, torch.fx.Node)
        and isinstance(node.meta.get("val"), torch.Tensor)
    )
