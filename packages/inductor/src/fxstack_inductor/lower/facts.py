"""What FX nodes and their fake values say about themselves, asked while a graph is lowered."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from fxstack_inductor.ir.nodes import FLOAT8_DTYPES, Node
from fxstack_inductor.lower.elementwise.pointwise import REGISTER_DTYPES
from fxstack_interchange.eager_facts.effects import is_ordered, may_act

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

    from torch.fx import Node as FxNode


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
"""What kernels on a GPU do with 8-bit floats: convert them; and views that never copy."""


def handled(operator: object, target: str) -> frozenset[torch.dtype]:
    """The dtypes of tensors for which kernels of ``target`` can do what ``operator`` does."""
    if target == "cuda" and operator in FLOAT8_TARGETS:
        return REGISTER_DTYPES.union(FLOAT8_DTYPES)
    return REGISTER_DTYPES


def is_dense(value: torch.Tensor, dtypes: Container[torch.dtype] = REGISTER_DTYPES) -> bool:
    return (
        value.layout is torch.strided
        and value.dtype in dtypes
        and not value.is_neg()
        and not value.is_quantized
    )


def symbolic(value: object) -> Iterator[torch.SymInt]:
    """The symbolic integers that a fake value is, or has in its layout."""
    if isinstance(value, torch.SymInt):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from symbolic(part)
    elif isinstance(value, torch.Tensor):
        yield from symbolic(tuple(value.shape))
        if value.layout is torch.strided:
            yield from symbolic((*value.stride(), value.storage_offset()))


def has_tensor(value: object) -> bool:
    if isinstance(value, (tuple, list)):
        return any(has_tensor(v) for v in value)
    return isinstance(value, torch.Tensor)


def tensors(value: object) -> list[Node]:
    if isinstance(value, Node):
        return [value]
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, (tuple, list)):
        return [node for v in value for node in tensors(v)]
    return []


def _schema(node: FxNode) -> Any:
    return getattr(node.target, "_schema", None)


def mutates_tensor(node: FxNode) -> bool:
    schema = _schema(node)
    return schema is not None and bool(schema.is_mutable)


def has_effect(node: FxNode) -> bool:
    if _schema(node) is None:
        return True
    tags = getattr(node.target, "tags", ())
    seeded = torch.Tag.nondeterministic_seeded in tags
    return seeded or is_ordered(node.target) or may_act(node) or node.is_impure()


def may_alias(node: FxNode) -> bool:
    """Whether a result may share memory with an argument; anything that is not a plain ATen overload might."""
    schema = _schema(node)
    if schema is None or node.target.namespace not in {"aten", "prims", "mkldnn"}:
        return True
    if any(result.alias_info is not None for result in schema.returns):
        return True
    return str(node.target._schema.name) in MAYBE_VIEWS


MAYBE_VIEWS = frozenset({"aten::reshape", "aten::contiguous", "aten::to", "aten::expand_as", "aten::flatten"})
"""Operators that return a view or a copy, without saying so in their schemas."""


def is_number(value: object) -> bool:
    """Whether it is a tensor on CPU that eager takes for the number that it holds, beside tensors on a GPU."""
    return (
        isinstance(value, torch.Tensor)
        and (value.dim(), value.device.type) == (0, "cpu")
        and is_dense(value)
        and not value.dtype.is_complex
    )


def user_line(node: FxNode) -> str:
    """The last line of the user's stack trace, for comments in generated code."""
    trace = node.meta.get("stack_trace") or ""
    lines = [line.strip() for line in trace.strip().splitlines() if line.strip()]
    return lines[-1] if lines else ""


def is_first_use(target: FxNode, node: FxNode) -> bool:
    """Whether ``target`` is a tensor with memory of its own that nothing but ``node`` has looked at so far."""
    schema = getattr(target.target, "_schema", None)
    if schema is None or any(result.alias_info is not None for result in schema.returns):
        return False
    return next(user for user in node.graph.nodes if user in target.users) is node
