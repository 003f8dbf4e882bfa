"""The runtime half of a backward: its arguments from what autograd hands over, and who gets which gradient.

Autograd gives None for an output that took no part. The compiled backward needs a tensor there, so zeros are made;
a gradient that depends on such outputs alone is then None again, as eager's would be.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fxstack_functionalize.runtime.tangents import tangent_fixer
from fxstack_functionalize.symbols import hint_of
from fxstack_interchange import InputKind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fxstack_functionalize.trace import Traced
    from fxstack_interchange import Partition


class BackwardPlan:
    """Everything about the backward's inputs and outputs that does not change from call to call."""

    def __init__(self, traced: Traced, partition: Partition) -> None:
        signature = traced.stage_graph.signature
        graph = traced.stage_graph.graph_module.graph
        nodes = {node.name: node for node in graph.find_nodes(op="placeholder")}
        joint_tangents = signature.inputs_of(InputKind.TANGENT)
        position_of = {
            spec.name: position
            for spec, position in zip(joint_tangents, traced.info.differentiable, strict=True)
        }
        wanted = [s.name for s in partition.backward.signature.inputs_of(InputKind.TANGENT)]
        self.positions = [position_of[name] for name in wanted]
        self.examples = [nodes[name].meta["val"] for name in wanted]
        self.fixers = [tangent_fixer(nodes[name]) for name in wanted]
        inputs = {spec.name: number for number, spec in enumerate(signature.inputs)}
        self.targets = [inputs[str(s.target)] for s in partition.backward.signature.outputs]
        self.input_count = len(traced.info.inputs)
        self.differentiable = traced.info.differentiable
        self.sizes = {
            position: example.shape
            for position, example in zip(self.differentiable, _tangents(traced), strict=True)
        }
        self.sources = _sources(traced, [spec.name for spec in joint_tangents])

    def tangents(self, grads: Sequence[Any], sizes: Any) -> list[torch.Tensor]:
        """List the tangents that the backward graph takes; zeros of ``sizes`` for those that autograd has none for."""
        tangents = []
        for fix, position, example in zip(self.fixers, self.positions, self.examples, strict=True):
            grad = grads[position]
            tangents.append(_zeros(example, sizes[position]) if grad is None else fix(grad))
        return tangents

    def gradients(self, results: Sequence[Any], grads: Sequence[Any]) -> list[Any]:
        """Put the results in the order of the inputs."""
        gradients: list[Any] = [None] * self.input_count
        for position, value in zip(self.targets, results, strict=True):
            gradients[position] = value
        missing = {p for p in self.differentiable if grads[p] is None}
        if missing:
            for position, sources in self.sources.items():
                if sources and sources <= missing:
                    gradients[position] = None
        return gradients


def sizes_keeper(traced: Traced) -> Callable[[Sequence[Any]], Any] | None:
    """Return a function that keeps the sizes of zeros for missing gradients; None if they are static."""
    positions = traced.info.differentiable
    if not any(example._has_symbolic_sizes_strides for example in _tangents(traced)):
        return None
    return lambda results: {position: results[position].shape for position in positions}


def _tangents(traced: Traced) -> list[torch.Tensor]:
    graph = traced.stage_graph.graph_module.graph
    values = {node.name: node.meta["val"] for node in graph.find_nodes(op="placeholder")}
    tangents = traced.stage_graph.signature.inputs_of(InputKind.TANGENT)
    return [values[spec.name] for spec in tangents]


def _zeros(example: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    order = sorted(range(example.dim()), key=lambda dim: -hint_of(example.stride(dim)))
    dense = torch.zeros([size[dim] for dim in order], dtype=example.dtype, device=example.device)
    return dense.permute([order.index(dim) for dim in range(len(order))])


def _sources(traced: Traced, tangents: Sequence[str]) -> dict[int, frozenset[int]]:
    """Which differentiable outputs each input's gradient depends on, by reachability in the joint graph."""
    own = {
        name: frozenset({position})
        for name, position in zip(tangents, traced.info.differentiable, strict=True)
    }
    reach: dict[torch.fx.Node, frozenset[int]] = {}
    graph = traced.stage_graph.graph_module.graph
    for node in graph.nodes:
        before = [reach[used] for used in node.all_input_nodes if reach[used]]
        reach[node] = own.get(node.name) or frozenset().union(*before)
    values = graph.output_node().args[0][traced.info.output_count :]
    return {
        index: reach[value]
        for index, value in zip(traced.info.grad_inputs, values, strict=True)
        if isinstance(value, torch.fx.Node)
    }
