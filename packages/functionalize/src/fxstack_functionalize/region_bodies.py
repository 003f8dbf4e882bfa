"""Trace the bodies of shared regions: the part of ``regions`` that needs a trace of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch.fx import GraphModule

from fxstack_functionalize import torch_compat
from fxstack_functionalize.metadata.records import OutputInfo, OutputSource
from fxstack_functionalize.options import AotOptions
from fxstack_functionalize.regions.table import NotSharedError, RegionTable, TracedBody
from fxstack_functionalize.torch_compat import TreeSpec, pytree
from fxstack_functionalize.trace import Traced, trace
from fxstack_functionalize.tracer.inputs import TraceRequest, prepare
from fxstack_interchange import Partition, StageGraph


def with_regions(
    request: TraceRequest,
    decompositions: Mapping[Any, Callable[..., Any]] | None,
    cut: Callable[[StageGraph], Partition],
    options: AotOptions,
) -> TraceRequest:
    """Return ``request`` with an empty table of regions. Bodies are traced like its graph, and cut by ``cut``."""
    table = RegionTable(partial(_trace_body, request, decompositions), cut, options.share_regions)
    return replace(request, regions=table)


def _trace_body(
    request: TraceRequest,
    decompositions: Mapping[Any, Callable[..., Any]] | None,
    table: RegionTable,
    body: GraphModule,
    examples: Sequence[Any],
) -> TracedBody:
    """Trace a body on fake operands. A new value of an operand becomes a result."""
    _check_state(body)
    captured = prepare(body, examples)
    traced = trace(captured, replace(request, keep_mutations=False, regions=table), decompositions)
    symbols = traced.captured.inputs[len(examples) :]
    if any(spec.size_of is None for spec in symbols):
        raise NotSharedError("operands share memory, or it owns tensors")
    info = traced.info
    return TracedBody(
        traced.stage_graph,
        info,
        tuple(spec.size_of for spec in symbols if spec.size_of is not None),
        _saved_operands(traced, len(examples)),
        _saved_results(traced),
        partial(_unflatten, info.outputs, traced.shell.out_spec),
    )


def _check_state(body: GraphModule) -> None:
    """Raise NotSharedError if a body changes torch's global state, except the grad mode while it runs."""
    grad_mode = torch.is_grad_enabled()
    for node in body.graph.nodes:
        if node.target is torch_compat.set_grad_enabled:
            grad_mode = node.args[0]
        elif node.op in {"call_function", "call_method"} and node.meta.get("val") is None:
            raise NotSharedError(f"{node.target} has an effect")
    if grad_mode is not torch.is_grad_enabled():
        raise NotSharedError("it leaves the grad mode changed")


def _saved_operands(traced: Traced, count: int) -> tuple[int, ...]:
    """Return the operands that eager saves for the backward."""
    signature = traced.stage_graph.signature
    return tuple(
        index
        for index, spec in enumerate(signature.inputs[:count])
        if traced.trains and traced.info.inputs[index].is_tensor and spec.name not in signature.unsaved
    )


def _saved_results(traced: Traced) -> tuple[int, ...]:
    """Return the flat outputs that eager saves for the backward."""
    signature, info = traced.stage_graph.signature, traced.info
    nodes: Any = traced.stage_graph.graph_module.graph.output_node().args[0]
    return tuple(
        index
        for index in range(len(info.mutated), info.output_count)
        if traced.trains
        and isinstance(nodes[index], torch.fx.Node)
        and isinstance(nodes[index].meta.get("val"), torch.Tensor)
        and nodes[index].name not in signature.unsaved
    )


def _unflatten(outputs: Sequence[OutputInfo], spec: TreeSpec, operands: list[Any], flat: list[Any]) -> Any:
    """Return the results of a body in their structure."""
    values = {OutputSource.VALUE: flat, OutputSource.INPUT: operands}
    leaves = [
        facts.constant if facts.source is OutputSource.CONSTANT else values[facts.source][facts.index]
        for facts in outputs
    ]
    return pytree.tree_unflatten(leaves, spec)
