"""Offer this package's partitioners to torch's own ahead-of-time layer: ``as_partition_fn``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.fx import GraphModule

from fxstack_interchange import InputKind, OutputKind, StageGraph
from fxstack_partition.api import partition
from fxstack_partition.options import PartitionOptions
from fxstack_partition.registry import Partitioner
from fxstack_partition.torch_interop.from_torch import flat_outputs, reorder_inputs, sign_joint

_DEFAULTS = PartitionOptions()


def as_partition_fn(
    name: str | Partitioner, options: PartitionOptions = _DEFAULTS
) -> Callable[..., tuple[GraphModule, GraphModule]]:
    """Return a partitioner with the signature of the ``partition_fn`` of ``aot_module`` and ``aot_autograd``.

    The result takes ``(joint_module, joint_inputs, *, num_fwd_outputs, static_lifetime_input_indices=None)``
    and returns the forward module (primals to outputs, saved tensors, saved symbols) and the backward module
    (saved symbols, saved tensors, tangents to gradients).

    Raises (when called):
        JointGraphError: if the joint graph has inputs that are not supported (states of generators).
    """

    def partition_fn(
        joint_module: GraphModule,
        _joint_inputs: object,
        *,
        num_fwd_outputs: int,
        static_lifetime_input_indices: Sequence[int] | None = None,
        **_others: object,
    ) -> tuple[GraphModule, GraphModule]:
        """Partition torch's joint graph. torch calls this function with the arguments of its own partitioners."""
        joint = sign_joint(joint_module, num_fwd_outputs, static_lifetime_input_indices or ())
        parts = partition(joint, name, options)
        descriptions = _descriptions(joint_module, num_fwd_outputs)
        forward = _forward(parts.forward, descriptions[:num_fwd_outputs])
        return forward, _backward(parts.backward, descriptions[num_fwd_outputs:])

    return partition_fn


def _descriptions(joint_module: GraphModule, count: int) -> list[Any]:
    """Return torch's descriptions of the outputs of a joint graph, in order; None for each if torch stored none."""
    output = joint_module.graph.output_node()
    values = output.args[0]
    size = len(values) if isinstance(values, tuple | list) else count
    return list(output.meta.get("desc") or [None] * size)


def _forward(stage: StageGraph, descriptions: list[Any]) -> GraphModule:
    """Sort saved values in torch's order: tensors with a version check, tensors without, symbols."""
    graph = stage.graph_module.graph
    output = graph.output_node()
    values = flat_outputs(output)
    count = len(values) - len(stage.signature.outputs_of(OutputKind.SAVED))
    saved = sorted(values[count:], key=_saved_rank)
    output.args = ((*values[:count], *saved),)
    output.meta["desc"] = [*descriptions, *([None] * len(saved))]
    return reorder_inputs(stage.graph_module, list(graph.find_nodes(op="placeholder")))


def _backward(stage: StageGraph, descriptions: list[Any]) -> GraphModule:
    """Sort the backward's inputs in torch's order: saved symbols, saved tensors, tangents."""
    graph = stage.graph_module.graph
    placeholders = list(graph.find_nodes(op="placeholder"))
    pairs = list(zip(placeholders, stage.signature.inputs, strict=True))
    saved = sorted((n for n, s in pairs if s.kind is InputKind.SAVED), key=_saved_rank)
    tensors = [n for n in saved if _saved_rank(n) < _SYMBOL]
    symbols = [n for n in saved if _saved_rank(n) == _SYMBOL]
    tangents = [n for n, s in pairs if s.kind is not InputKind.SAVED]
    graph.output_node().meta["desc"] = descriptions
    for node in graph.nodes:
        if node.op in ("call_function", "get_attr"):
            node.meta["autograd_backward"] = True
    return reorder_inputs(stage.graph_module, [*symbols, *tensors, *tangents])


_SYMBOL = 2


def _saved_rank(node: Any) -> int:
    """Return the place of a saved value in torch's order: 0 and 1 for tensors, ``_SYMBOL`` for symbols.

    1: a tensor whose version torch does not check.
    """
    value = node.meta.get("val")
    if not hasattr(value, "shape"):
        return _SYMBOL
    return int(bool(node.meta.get("saved_tensor_with_no_vc_check", False)))
