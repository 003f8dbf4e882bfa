"""Captured nodes with a region instead of one operator: activation checkpoints, flex attention.

A region runs inline. The nodes of a checkpoint are tagged, so that the partitioner recomputes them in the
backward instead of saving their values. Under a selective policy
(``context_fn=create_selective_checkpoint_contexts``) the policy decides for each node. Random numbers are
drawn once and saved, so a recomputed region sees the numbers of its forward, like eager's
``preserve_rng_state``.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any, cast

import torch
from torch.fx import Node
from torch.fx.node import map_arg
from torch.utils.checkpoint import CheckpointPolicy, SelectiveCheckpointContext, checkpoint, noop_context_fn

from fxstack_functionalize.errors import UnsupportedGraphError
from fxstack_functionalize.operators.attention import RECOMPUTE_TAG, flex_attention
from fxstack_functionalize.random.nested_draws import with_equal_draws
from fxstack_functionalize.torch_compat import OpOverload
from fxstack_functionalize.tracer.aten_tracer import AtenTracer
from fxstack_interchange.format.metadata import RECOMPUTE_TAGS
from fxstack_interchange.torch_facts.effects import BEGIN_RANGE, END_RANGE

CHECKPOINT_OPTIONS = frozenset(
    {"use_reentrant", "context_fn", "determinism_check", "debug", "preserve_rng_state", "early_stop"}
)


def _checkpoint(tracer: AtenTracer, function: Callable[..., Any], *args: object, **kwargs: Any) -> Any:
    tracer.tag(RECOMPUTE_TAG)
    graph = tracer.graph
    policy = _policy_of(kwargs.get("context_fn"))
    before = next(iter(reversed(graph.nodes)), None)
    own = {key: value for key, value in kwargs.items() if key not in CHECKPOINT_OPTIONS}
    result = (with_equal_draws(function) if tracer.equal_draws else function)(*args, **own)
    if policy is not None:
        for node in reversed(graph.nodes):
            if node is before:
                break
            _tag(node, policy)
    return result


def _policy_of(context_fn: Callable[[], Any] | None) -> Callable[..., Any] | None:
    """Return the policy of selective checkpointing; None for a checkpoint without ``context_fn``.

    Raises:
        UnsupportedGraphError: for contexts that are not torch's.
    """
    if context_fn is None or context_fn is noop_context_fn:
        return None
    policy = getattr(context_fn()[0], "policy_fn", None)
    if policy is None:
        raise UnsupportedGraphError(
            "a checkpoint has a context_fn of its own",
            why="its contexts act while the region runs, which a graph does once only",
            fix="use torch.utils.checkpoint.create_selective_checkpoint_contexts, or run this part in eager",
        )
    return cast("Callable[..., Any]", policy)


def _tag(node: Node, policy: Callable[..., Any]) -> None:
    """Ask the policy about one operator, as eager does, and keep the answer if partitioners know it."""
    if not isinstance(node.target, OpOverload):
        return
    args, kwargs = (map_arg(values, lambda used: used.meta.get("val")) for values in (node.args, node.kwargs))
    answer = policy(_context(node.meta.get("val")), node.target, *args, **kwargs)
    if isinstance(answer, bool):
        answer = CheckpointPolicy.MUST_SAVE if answer else CheckpointPolicy.PREFER_RECOMPUTE
    tag = answer.name.lower()
    if tag in RECOMPUTE_TAGS:
        node.meta["recompute"] = tag
    else:
        node.meta.pop("recompute", None)


def _context(output: object) -> SelectiveCheckpointContext:
    if "op_output" in _CONTEXT_PARAMETERS:
        return SelectiveCheckpointContext(is_recompute=False, op_output=output)
    return SelectiveCheckpointContext(is_recompute=False)


_CONTEXT_PARAMETERS = signature(SelectiveCheckpointContext).parameters
"""Newer versions of torch pass the operator's result to the policy."""


def _begin_range(tracer: AtenTracer, *args: object) -> Node:
    return tracer.add_call(BEGIN_RANGE, args, {})


def _end_range(tracer: AtenTracer, started: Node) -> None:
    tracer.add_call(END_RANGE, (started,), {})


REGIONS: dict[Any, Callable[..., Any]] = {
    checkpoint: _checkpoint,
    torch.ops.higher_order.tag_activation_checkpoint: _checkpoint,
    torch.ops.higher_order.flex_attention: flex_attention,
    BEGIN_RANGE: _begin_range,
    END_RANGE: _end_range,
}
"""The function that runs each region, of the tracer and the node's arguments."""
