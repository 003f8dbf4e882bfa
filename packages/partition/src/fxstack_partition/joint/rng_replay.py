"""Replay random draws in the backward: save the generator's state instead of the random numbers.

The forward runs torch's ``run_and_save_rng_state``, which returns the generator's state before the draw with
the operator's result. The backward runs torch's ``run_with_rng_state``, which draws from this state and
restores the generator. So the numbers are equal, and other draws of the program do not change.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Graph, Node
from torch.fx.node import map_arg

from fxstack_partition.joint.ops import OpKind, is_symbolic_value
from fxstack_partition.torch_compat import OpOverload, run_and_save_rng_state, run_with_rng_state, tree_leaves

# Limits: only on CPU, from the default generator, and for operators that take a tensor (torch.rand(shape) is
# saved). Numbers from a generator of the program are inputs of captured graphs, and saved in other graphs.

SAVE_STATE = run_and_save_rng_state
RUN_WITH_STATE = run_with_rng_state

STATE_BYTES = int(torch.Generator().get_state().numel())
"""The bytes of the CPU generator's state."""


def can_replay_draw(node: Node, kind: OpKind) -> bool:
    """Whether the backward can replay ``node``: it draws from the default CPU generator, and has no other effect.

    On other devices the state belongs to the current device, which may differ when the backward runs.
    """
    if kind is not OpKind.RANDOM or not isinstance(node.target, OpOverload):
        return False
    if node.target._schema.is_mutable or node.kwargs.get("generator") is not None:
        return False
    values = [node.meta.get("val"), *(arg.meta.get("val") for arg in node.all_input_nodes)]
    leaves = [leaf for leaf in tree_leaves(values) if not is_symbolic_value(leaf)]
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    on_cpu = all(tensor.device.type == "cpu" for tensor in tensors)
    # torch finds the device from the arguments, so one argument must be a tensor.
    has_tensor = any(isinstance(arg.meta.get("val"), torch.Tensor) for arg in node.all_input_nodes)
    return on_cpu and has_tensor and len(tensors) == len(leaves)


def draw_and_save_state(graph: Graph, node: Node, env: dict[Node, Node]) -> tuple[Node, Node]:
    """Add ``node`` to a forward graph together with the generator's state before the draw.

    Return the nodes of the value and of the state.
    """
    args, kwargs = _mapped(node, env)
    both = graph.create_node(
        "call_function", SAVE_STATE, (node.target, *args), kwargs, f"{node.name}_with_state"
    )
    value = node.meta["val"]
    both.meta = {**node.meta, "val": (_state_like(value), value)}
    state = _element(graph, both, 0, f"{node.name}_state")
    return _element(graph, both, 1, node.name), state


def replay_draw(graph: Graph, node: Node, state: Node, env: dict[Node, Node]) -> Node:
    """Add ``node`` to a backward graph so that it draws the forward's numbers again, from ``state``."""
    args, kwargs = _mapped(node, env)
    drawn = graph.create_node("call_function", RUN_WITH_STATE, (state, node.target, *args), kwargs, node.name)
    drawn.meta = dict(node.meta)
    return drawn


def _mapped(node: Node, env: dict[Node, Node]) -> Any:
    return map_arg((node.args, node.kwargs), env.__getitem__)


def _element(graph: Graph, base: Node, index: int, name: str) -> Node:
    """Add a node that takes result ``index`` of the drawing node ``base``."""
    node = graph.create_node("call_function", operator.getitem, (base, index), {}, name)
    node.meta = {**base.meta, "val": base.meta["val"][index]}
    return node


def _state_like(value: object) -> torch.Tensor:
    """Return a fake tensor for the state, in the fake mode of ``value``."""
    fake = next(leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor))
    state: torch.Tensor = fake.new_empty((STATE_BYTES,), dtype=torch.uint8, device="cpu")
    return state
