"""Move 0-d CPU tensors that hold numbers to the GPU of the operators that use them.

``vmap`` turns numbers into 0-d CPU tensors, and a CPU operand would keep GPU operators from fusing. Beside
other tensors, eager uses such a tensor as a number. So the operator may have the tensor on its own device,
where the number is a kernel constant.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch.fx import GraphModule
from torch.fx import Node as FxNode

from fxstack_interchange.modules import copied_graph, make_graph_module

aten = torch.ops.aten
NUMBERS = frozenset({aten._to_copy.default, aten.scalar_tensor.default})
"""Operators that make a tensor from one number, their only argument."""


def numbers_on_device(graph_module: GraphModule) -> GraphModule:
    """Return ``graph_module``, or a copy in which no operator on a GPU has a number on CPU as argument."""
    numbers = [node for node in graph_module.graph.nodes if _is_number(node)]
    if not any(_on_gpu(user) for node in numbers for user in node.users):
        return graph_module
    graph, copies = copied_graph(graph_module)
    for node in numbers:
        _move(graph, copies[node], {user.name for user in node.users if _on_gpu(user)})
    return make_graph_module(graph_module, graph, deferred=True)


def _is_number(node: FxNode) -> bool:
    """Whether the node makes a 0-d CPU tensor from one number."""
    value = node.meta.get("val")
    return (
        node.target in NUMBERS
        and isinstance(node.args[0], (bool, int, float))
        and isinstance(value, torch.Tensor)
        and (value.dim(), value.device.type) == (0, "cpu")
    )


def _on_gpu(node: FxNode) -> bool:
    """Whether the operator has a GPU result and a GPU operand (a copy to the GPU has no GPU operand)."""
    tensors = [arg.meta.get("val") for arg in node.all_input_nodes]
    return (
        node.op == "call_function"
        and _gpu(node.meta.get("val")) is not None
        and any(_gpu(value) is not None for value in tensors)
    )


def _gpu(value: object) -> torch.device | None:
    """Return the first GPU among the devices of a fake value's tensors; None if all are on CPU."""
    devices = (v.device for v in _flat(value) if isinstance(v, torch.Tensor))
    return next((device for device in devices if device.type == "cuda"), None)


def _flat(value: object) -> Iterable[object]:
    """Return the parts of a fake value."""
    return value if isinstance(value, (tuple, list)) else (value,)


def _move(graph: torch.fx.Graph, node: FxNode, users: set[str]) -> None:
    """Replace the number ``node`` by a tensor on the GPU of its users, in the nodes ``users``."""
    moved: dict[torch.device, FxNode] = {}
    value = node.meta["val"]
    for user in [u for u in node.users if u.name in users]:
        device = _gpu(user.meta["val"])
        assert device is not None
        if device not in moved:
            with graph.inserting_after(node):
                options = {"dtype": value.dtype, "device": device}
                new = graph.call_function(aten.full.default, ([], node.args[0]), options)
            with value.fake_mode:
                new.meta = {**node.meta, "val": value.new_empty((), device=device)}
            moved[device] = new
        user.replace_input_with(node, moved[device])
    if not node.users:
        graph.erase_node(node)
