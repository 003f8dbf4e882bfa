"""Operators with effects: no stage may drop, repeat or move their calls.

The graph itself defines the order: calls for which ``is_ordered`` is true run once each, in the order of
their nodes. No effect tokens pass through the graph. Every stage asks this module.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from fxstack_interchange.torch_compat import (
    HigherOrderOperator,
    OpOverload,
    auto_functionalized,
    auto_functionalized_v2,
    has_effects,
)
from fxstack_interchange.torch_facts.raising import can_raise

BEGIN_RANGE = torch.ops.profiler._record_function_enter_new.default
END_RANGE = torch.ops.profiler._record_function_exit._RecordFunction
RANGES = frozenset({BEGIN_RANGE, END_RANGE})
"""Operators that begin and end a range of torch's profiler; no kernel may join operators from both sides of a boundary.

The end operator takes the result of the begin operator.
"""

BUILTIN = frozenset({"aten", "prim", "prims"})
"""Namespaces of torch, in which an operator without results only checks its arguments.

Exceptions are operators for which torch has registered an effect.
"""

_NAMESPACES_WITHOUT_EFFECTS = BUILTIN | {
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
"""Namespaces whose operators have no effects, except operators for which ``is_ordered`` is true."""
_FUNCTIONAL_FORMS = (auto_functionalized, auto_functionalized_v2)
"""Operators that wrap an operator which writes to its arguments.

The wrapped operator is their first argument.
"""


_BATCH_NORMS = frozenset(
    {
        torch.ops.aten.native_batch_norm.default,
        torch.ops.aten.cudnn_batch_norm.default,
        torch.ops.aten.miopen_batch_norm.default,
    }
)
"""Operators that write to running statistics although their schema does not declare it."""


def is_ordered(target: object) -> bool:
    """Whether calls of ``target`` must each run once, in the order of the program.

    Either torch has registered an effect for ``target``, or ``target`` is a custom operator that returns
    nothing.
    """
    if not isinstance(target, (OpOverload, HigherOrderOperator)):
        return False
    if target in RANGES:
        return True
    return has_effects(target) or (isinstance(target, OpOverload) and _returns_nothing(target))


def nested_graphs(node: Node) -> Iterator[GraphModule]:
    """Yield the graph modules that a higher-order operator gets as arguments."""
    root = node.graph.owning_module
    if root is None or not isinstance(node.target, HigherOrderOperator):
        return
    for used in node.all_input_nodes:
        value = getattr(root, str(used.target), None) if used.op == "get_attr" else None
        if isinstance(value, GraphModule):
            yield value


def draws(node: Node) -> bool:
    """Whether ``node``, or a node of a graph that it calls, draws from a generator that the program can observe."""
    target = node.target
    if isinstance(target, HigherOrderOperator):
        return any(draws(inner) for module in nested_graphs(node) for inner in module.graph.nodes)
    if not isinstance(target, OpOverload) or torch.Tag.nondeterministic_seeded not in target.tags:
        return False
    return not _has_no_dropout(node, target)


def _has_no_dropout(node: Node, operator: OpOverload[..., Any]) -> bool:
    """Whether ``node`` is an attention operator without dropout, which draws nothing."""
    for position, argument in enumerate(operator._schema.arguments):
        if argument.name == "dropout_p":
            given = node.args[position] if position < len(node.args) else node.kwargs.get("dropout_p", 0.0)
            return isinstance(given, (int, float)) and given == 0
    return False


def open_range(graph: Graph) -> Node | None:
    """Return the node that begins the innermost profiler range without an end, or None."""
    started = graph.find_nodes(op="call_function", target=BEGIN_RANGE)
    return next((node for node in reversed(started) if not node.users), None)


def is_check(target: object) -> bool:
    """Whether ``target`` is an operator of torch that only checks its arguments: it raises or does nothing."""
    # torch registers some checks as operators with effects, because their order is fixed.
    if not isinstance(target, OpOverload) or target.namespace not in BUILTIN:
        return False
    has_effect = (
        target._schema.returns or target._schema.is_mutable or target is torch.ops.aten._print.default
    )
    return not has_effect


def may_act(node: Node) -> bool:
    """Whether ``node`` calls a user-defined operator, which may have undeclared effects.

    Eager runs such a call even if nothing uses its result.
    """
    target = node.target
    if target in _FUNCTIONAL_FORMS:
        target = node.args[0]
    return isinstance(target, OpOverload) and target.namespace not in _NAMESPACES_WITHOUT_EFFECTS


def must_run(node: Node, root: torch.nn.Module | None = None) -> bool:
    """Whether ``node`` must run even if nothing uses its result.

    The node may have undeclared effects, or it may raise. A higher-order operator must run if a node of its nested
    graphs must run or draws random numbers. ``root`` has the nested graphs; by default, the module of the graph.
    """
    return may_act(node) or can_raise(node) or _updates_statistics(node) or _must_run_inside(node, root)


def _must_run_inside(node: Node, root: torch.nn.Module | None) -> bool:
    """Whether a nested graph of the higher-order operator ``node`` has a node that must run."""
    root = root if root is not None else node.graph.owning_module
    if root is None or not isinstance(node.target, HigherOrderOperator):
        return False
    paths = [str(arg.target) for arg in node.all_input_nodes if arg.op == "get_attr"]
    modules = (getattr(root, path, None) for path in paths)
    return any(
        _draws(inner) or is_ordered(inner.target) or must_run(inner, module)
        for module in modules
        if isinstance(module, GraphModule)
        for inner in module.graph.nodes
    )


def _draws(node: Node) -> bool:
    """Whether ``node`` draws random numbers."""
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _updates_statistics(node: Node) -> bool:
    """Whether ``node`` is a batch norm in training mode that writes to its running statistics.

    The schema of the operator does not declare this mutation.
    """
    if node.target not in _BATCH_NORMS:
        return False
    mean, training = (
        node.args[position] if position < len(node.args) else node.kwargs.get(name)
        for position, name in ((3, "running_mean"), (5, "training"))
    )
    return mean is not None and training is not False


def _returns_nothing(operator: OpOverload[..., Any]) -> bool:
    schema = operator._schema
    return not schema.returns and not schema.is_mutable and operator.namespace not in BUILTIN
