"""The backward graph for calls in which some results have no gradient.

Zeros cannot replace a missing gradient: an infinite derivative times zero is NaN, and nodes that depend on
missing gradients alone would cost time. Autograd skips a node that no gradient reaches; ``without_tangents`` removes
such nodes from a backward graph.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from fxstack_functionalize.torch_compat import FakeTensor
from fxstack_functionalize.tracer.tensor_metadata import dimension_order
from fxstack_functionalize.tracing.finalize import remove_dead_code, with_graph
from fxstack_interchange import InputKind, StageGraph

# Limits: with symbolic sizes, the backward runs in eager if its compiler asks for guards on sizes, which the
# forward can no longer have.

aten = torch.ops.aten


class _NoZerosError(Exception):
    """A node takes a missing and a present gradient, and zeros for the missing one cannot be written."""


def without_tangents(backward: StageGraph, missing: Collection[str]) -> StageGraph | None:
    """Return ``backward`` (``Stage.BACKWARD``) without the tangents ``missing``.

    The new graph has no inputs for these tangents and for saved tensors that only they need (it keeps
    symbols), and returns None for gradients that depend on missing tangents alone. Return None if a node
    needs zeros for a missing gradient and their layout cannot be written, for example because its size is
    symbolic.
    """
    try:
        return _TangentRemoval(backward, missing).graph()
    except _NoZerosError:
        return None


class _TangentRemoval:
    """Copies a backward graph without the nodes that depend on missing tangents alone."""

    def __init__(self, stage: StageGraph, missing: Collection[str]) -> None:
        self._stage = stage
        self._missing = missing
        self._graph = Graph()
        self._copies: dict[Node, Node] = {}
        self._dependent: set[Node] = set()
        """Nodes that depend on a gradient."""
        self._dropped: set[Node] = set()
        """Nodes of ``_dependent`` that depend on missing gradients alone."""
        self._zeros: dict[Node, Node] = {}

    def graph(self) -> StageGraph:
        tangents = {spec.name for spec in self._stage.signature.inputs_of(InputKind.TANGENT)}
        for node in self._stage.graph_module.graph.nodes:
            if node.op == "placeholder":
                self._copy_placeholder(node, is_tangent=node.name in tangents)
            elif node.op != "output":
                self._copy_call(node)
        values: Any = self._stage.graph_module.graph.output_node().args[0]
        self._graph.output(tuple(self._copies.get(value) for value in values))
        rerun = {copy for node, copy in self._copies.items() if node not in self._dependent}
        remove_dead_code(self._graph, rerun)
        return self._stage_without_unused_inputs()

    def _copy_placeholder(self, node: Node, *, is_tangent: bool) -> None:
        if is_tangent:
            self._dependent.add(node)
        if node.name in self._missing:
            self._dropped.add(node)
        else:
            self._copies[node] = self._graph.node_copy(node)

    def _copy_call(self, node: Node) -> None:
        """Copy a node, leave it out if all its gradients are missing, or replace a sum by its present summand."""
        gradients = [used for used in node.all_input_nodes if used in self._dependent]
        missing = [used for used in gradients if used in self._dropped]
        if gradients:
            self._dependent.add(node)
        summand = _present_summand(node, missing)
        # ``missing + other``: a sum with a term that depends on no gradient (zeros, for example) becomes that
        # term.
        if missing and len(missing) == len(gradients) and (summand is None or summand in self._dependent):
            self._dropped.add(node)
            return
        if summand is not None:
            self._copies[node] = self._copies[summand]
            return
        self._copies[node] = self._graph.node_copy(node, self._argument)

    def _argument(self, used: Node) -> Node:
        """Return the copy of an argument, or zeros for a missing gradient that a node takes beside others."""
        if used not in self._dropped:
            return self._copies[used]
        if used not in self._zeros:
            self._zeros[used] = self._make_zeros(used.meta.get("val"))
        return self._zeros[used]

    def _make_zeros(self, value: object) -> Node:
        """Return zeros with the layout of ``value``, which may be permuted and expanded."""
        if not isinstance(value, FakeTensor) or value.layout is not torch.strided:
            raise _NoZerosError
        if value._has_symbolic_sizes_strides:
            raise _NoZerosError
        shape, strides = list(value.shape), value.stride()
        dense = [size if stride else 1 for size, stride in zip(shape, strides, strict=True)]
        order, inverse = dimension_order(value)
        keywords = {"dtype": value.dtype, "device": value.device}
        zeros = self._add(value, aten.full.default, [dense[dim] for dim in order], 0, **keywords)
        if order != sorted(order):
            zeros = self._add(value, aten.permute.default, zeros, inverse)
        if dense != shape:
            zeros = self._add(value, aten.expand.default, zeros, shape)
        if _strides_that_matter(zeros.meta["val"]) != _strides_that_matter(value):
            raise _NoZerosError
        return zeros

    def _add(self, like: FakeTensor, target: Any, *args: Any, **keywords: Any) -> Node:
        node = self._graph.call_function(target, args, keywords)
        with like.fake_mode:
            node.meta["val"] = target(*map_arg(args, lambda used: used.meta["val"]), **keywords)
        return node

    def _stage_without_unused_inputs(self) -> StageGraph:
        """Return the new graph as a stage, without saved tensors that nothing reads any more."""
        stage = self._stage
        saved = {spec.name for spec in stage.signature.inputs_of(InputKind.SAVED)}
        for node in self._graph.find_nodes(op="placeholder"):
            is_tensor = isinstance(node.meta.get("val"), torch.Tensor)
            if is_tensor and node.name in saved and not node.users:
                self._graph.erase_node(node)
        names = {node.name for node in self._graph.find_nodes(op="placeholder")}
        inputs = [spec for spec in stage.signature.inputs if spec.name in names]
        return with_graph(stage, self._graph, inputs, self._copies)


def _present_summand(node: Node, missing: Collection[Node]) -> Node | None:
    """Return the summand of ``node`` that is not missing, if ``node`` adds two tensors of the same layout."""
    if node.target is not aten.add.Tensor or node.kwargs:
        return None
    present = [used for used in node.args if used not in missing]
    if len(present) != 1 or not isinstance(present[0], Node):
        return None
    summand = present[0]
    value, sum_value = summand.meta.get("val"), node.meta.get("val")
    if not isinstance(value, torch.Tensor) or not isinstance(sum_value, torch.Tensor):
        return None
    return summand if _dtype_and_layout(value) == _dtype_and_layout(sum_value) else None


def _dtype_and_layout(value: torch.Tensor) -> tuple[object, ...]:
    """Return dtype and layout. Sizes are text, because comparing symbols would add a guard."""
    return value.dtype, *map(str, (*value.shape, *value.stride()))


def _strides_that_matter(value: torch.Tensor) -> list[int]:
    return [stride for size, stride in zip(value.shape, value.stride(), strict=True) if size > 1]
