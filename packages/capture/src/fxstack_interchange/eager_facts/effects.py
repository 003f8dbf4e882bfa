"""Operators with effects: what a call does beside returning results, so that no stage may drop, repeat or move it.

The graph is the order: calls for which ``is_ordered`` is true run in the order of their nodes, once each. No tokens are
threaded through a graph for this; every stage asks here.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from fxstack_interchange.eager_facts.raising import can_raise
from fxstack_interchange.torch_compat import (
    HigherOrderOperator,
    OpOverload,
    auto_functionalized,
    auto_functionalized_v2,
    has_effects,
)

BUILTIN = frozenset({"aten", "prim", "prims"})
"""Namespaces whose operators return nothing only to check something, unless they are registered."""

_KNOWN = BUILTIN | {
    *(
        "fxstack_triton",
        "fxstack_attention",
        "inductor",
        "rngprims",
        "debugprims",
        "mkldnn",
        "mkl",
        "onednn",
        "quantized",
    ),
    *("quantized_decomposed", "_quantized", "torchvision", "torchaudio", "sparse"),
}
"""Namespaces whose operators do nothing but give results, as far as they are not ordered."""
_FUNCTIONAL_FORMS = (auto_functionalized, auto_functionalized_v2)
"""What stands for an operator that writes to its arguments, the first argument."""


_BATCH_NORMS = frozenset(
    {
        torch.ops.aten.native_batch_norm.default,
        torch.ops.aten.cudnn_batch_norm.default,
        torch.ops.aten.miopen_batch_norm.default,
    }
)
"""Operators that write to running statistics without saying so."""


def is_ordered(target: object) -> bool:
    """Whether calls of ``target`` have effects: torch has it registered so, or it is a custom operator that returns nothing."""
    if not isinstance(target, (OpOverload, HigherOrderOperator)):
        return False
    return has_effects(target) or (isinstance(target, OpOverload) and _only_acts(target))


def may_act(node: Node) -> bool:
    """Whether ``node`` calls an operator of somebody's own, which does what nobody has declared: eager runs it, used or not."""
    target = node.target
    if target in _FUNCTIONAL_FORMS:
        target = node.args[0]
    return isinstance(target, OpOverload) and target.namespace not in _KNOWN


def must_run(node: Node) -> bool:
    """Whether ``node`` is to run though nothing uses its result: it does something undeclared, or may raise."""
    return may_act(node) or can_raise(node) or _updates_statistics(node)


def _updates_statistics(node: Node) -> bool:
    """Whether this is a batch norm in training that writes to its running statistics, of which its schema says nothing."""
    if node.target not in _BATCH_NORMS:
        return False
    mean, training = (
        node.args[at] if at < len(node.args) else node.kwargs.get(name)
        for at, name in ((3, "running_mean"), (5, "training"))
    )
    return mean is not None and training is not False


def _only_acts(operator: OpOverload[..., Any]) -> bool:
    schema = operator._schema
    return not schema.returns and not schema.is_mutable and operator.namespace not in BUILTIN
