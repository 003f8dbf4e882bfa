"""Predicates and queries about FX nodes and their fake values, used while a graph is lowered."""

from __future__ import annotations

from collections.abc import Container, Iterator
from functools import lru_cache
from typing import Any

import torch
from torch.fx import Graph
from torch.fx import Node as FxNode

from fxstack_inductor.ir.nodes import FLOAT8_DTYPES, Node
from fxstack_inductor.lower.elementwise.pointwise import REGISTER_DTYPES
from fxstack_interchange.torch_facts.effects import is_ordered, may_act

ASSERTION = torch.ops.aten._assert_scalar.default
FLOAT8_TARGETS = frozenset(
    {
        torch.ops.aten._to_copy.default,
        torch.ops.prims.convert_element_type.default,
        torch.ops.aten.permute.default,
        torch.ops.aten.t.default,
        torch.ops.aten.transpose.int,
        torch.ops.aten.unsqueeze.default,
    }
)
"""Operators that GPU kernels apply to 8-bit floats: conversions, and views that never copy."""


def kernel_dtypes(operator: object, *, float8: bool) -> frozenset[torch.dtype]:
    """Return the tensor dtypes that kernels accept for ``operator``; ``float8``: kernels of the target know 8-bit floats."""
    if float8 and operator in FLOAT8_TARGETS:
        return REGISTER_DTYPES.union(FLOAT8_DTYPES)
    return REGISTER_DTYPES


def is_dense(value: torch.Tensor, dtypes: Container[torch.dtype] = REGISTER_DTYPES) -> bool:
    """Whether a kernel can address ``value`` by its strides: a plain strided tensor of one of ``dtypes``."""
    return (
        value.layout is torch.strided
        and value.dtype in dtypes
        and not value.is_neg()
        and not value.is_quantized
    )


def symbolic(value: object) -> Iterator[torch.SymInt]:
    """Yield the symbolic integers of a fake value: itself, or its sizes, strides and storage offset."""
    if isinstance(value, torch.SymInt):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from symbolic(part)
    elif isinstance(value, torch.Tensor) and value._has_symbolic_sizes_strides:
        yield from symbolic(tuple(value.shape))
        if value.layout is torch.strided:
            yield from symbolic((*value.stride(), value.storage_offset()))


def leaves(value: object) -> Iterator[object]:
    """Yield the arguments in nested tuples, lists and dicts."""
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def has_tensor(value: object) -> bool:
    """Whether a fake value is or contains a tensor."""
    return any(isinstance(v, torch.Tensor) for v in leaves(value))


def tensors(value: object) -> list[Node]:
    """Return the IR tensors in nested arguments, in order; repetitions stay."""
    return [v for v in leaves(value) if isinstance(v, Node)]


def _schema(node: FxNode) -> Any:
    """Return the operator's schema; None for a plain Python function."""
    return getattr(node.target, "_schema", None)


def mutates_tensor(node: FxNode) -> bool:
    """Whether the operator's schema declares a write to an argument."""
    schema = _schema(node)
    return schema is not None and bool(schema.is_mutable)


def has_effect(node: FxNode) -> bool:
    """Whether the node must run although nothing reads its result."""
    if _schema(node) is None:
        return True
    tags = getattr(node.target, "tags", ())
    seeded = torch.Tag.nondeterministic_seeded in tags
    return seeded or is_ordered(node.target) or may_act(node) or node.is_impure()


def may_alias(node: FxNode) -> bool:
    """Whether a result may share memory with an argument; an operator outside ATen always may."""
    schema = _schema(node)
    if schema is None or node.target.namespace not in {"aten", "prims", "mkldnn"}:
        return True
    if any(result.alias_info is not None for result in schema.returns):
        return True
    return str(node.target._schema.name) in MAYBE_VIEWS


MAYBE_VIEWS = frozenset({"aten::reshape", "aten::contiguous", "aten::to", "aten::expand_as", "aten::flatten"})
"""Operators that return a view or a copy; their schemas do not declare the alias."""


def is_number(value: object) -> bool:
    """Whether ``value`` is a 0-d CPU tensor; eager uses such a tensor as a number beside GPU tensors."""
    return (
        isinstance(value, torch.Tensor)
        and (value.dim(), value.device.type) == (0, "cpu")
        and is_dense(value)
        and not value.dtype.is_complex
    )


def user_line(node: FxNode) -> str:
    """Return the last line of the user's stack trace, for comments in generated code; empty without a trace."""
    return _last_line(node.meta.get("stack_trace") or "")


@lru_cache
def _last_line(trace: str) -> str:
    lines = [line.strip() for line in trace.strip().splitlines() if line.strip()]
    return lines[-1] if lines else ""


def is_first_use(target: FxNode, node: FxNode) -> bool:
    """Whether ``target`` has memory of its own and ``node`` is the first node that uses ``target``."""
    schema = getattr(target.target, "_schema", None)
    if schema is None or any(result.alias_info is not None for result in schema.returns):
        return False
    return next(user for user in node.graph.nodes if user in target.users) is node


def asserted_numbers(graph: Graph) -> frozenset[FxNode]:
    """Return the nodes of numbers from which assertions are computed.

    After ``torch._check(n == x.size(0))``, torch replaces ``n`` by the size everywhere. In the assertion itself the
    replacement would compare the size with itself. So the host computes these numbers by the operators of the graph.
    """
    numbers: set[FxNode] = set()
    waiting = [
        arg for node in graph.find_nodes(op="call_function", target=ASSERTION) for arg in node.all_input_nodes
    ]
    while waiting:
        node = waiting.pop()
        if node not in numbers and not isinstance(node.meta.get("val"), torch.Tensor):
            numbers.add(node)
            waiting += node.all_input_nodes
    return frozenset(numbers)


def is_simplified(value: Any) -> bool:
    """Whether an assumption has changed the expression of a symbolic number."""
    return bool(value.node._expr != value.node.expr)
