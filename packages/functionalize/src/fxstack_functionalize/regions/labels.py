"""Labels of the nodes of a captured graph: two nodes with equal labels do the same with other operands."""

from __future__ import annotations

import operator
from collections.abc import Hashable
from typing import Any

import torch
from torch.fx import Node

from fxstack_functionalize.torch_compat import FakeTensor, HigherOrderOperator, OpOverload
from fxstack_interchange.operators.kernels import NAMESPACE

# Limits: calls of custom operators, of higher-order operators, of modules and of Python functions of the
# program have no label, and neither do calls under a recomputation tag.

NUMBERS = (torch.SymInt, int, float, bool)
_PLAIN = (
    *(int, float, bool, complex, str, bytes, type(None), type(Ellipsis)),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size),
)
_DENIED = frozenset(
    """as_strided as_strided_ as_strided_scatter as_strided_copy data data_ptr storage_offset storage
    untyped_storage set_ set_data resize_ resize_as_ requires_grad_ detach_ retain_grad register_hook backward
    share_memory_ item tolist numpy is_pinned _version record_stream manual_seed seed grad""".split()  # noqa: SIM905
)
"""Names of functions and methods that read or change more than the values of their operands."""


class UnlabelledError(Exception):
    """A node, or a value, that cannot be part of a region or an operand of a region."""


def label_of(node: Node) -> Hashable:
    """Return what ``node`` calls with which constants, and the metadata of its results.

    Raises:
        UnlabelledError: if the node must not be part of a region.
    """
    if not _is_allowed(node) or "recompute" in node.meta or "unbacked_bindings" in node.meta:
        raise UnlabelledError
    operand_kind = _kind_of_container if node.target is operator.getitem else kind_of
    return (
        node.op,
        node.target,
        arguments(node.args, lambda used: operand_kind(used.meta.get("val"))),
        arguments(node.kwargs, lambda used: operand_kind(used.meta.get("val"))),
        kind_of(node.meta.get("val")),
        repr(node.meta.get("custom")),
    )


def _is_allowed(node: Node) -> bool:
    """Whether the target of a node only computes values from the values of its operands."""
    target = node.target
    if node.op == "call_method":
        return isinstance(target, str) and target not in _DENIED and hasattr(torch.Tensor, target)
    if node.op != "call_function" or isinstance(target, HigherOrderOperator):
        return False
    if isinstance(target, OpOverload):
        return (
            target.namespace in {"aten", "prims", NAMESPACE} and target.overloadpacket.__name__ not in _DENIED
        )
    name = getattr(target, "__name__", "")
    module = str(getattr(target, "__module__", None) or "")
    if name in _DENIED or getattr(operator, name, None) is target:
        return name not in _DENIED
    functional = module in {"torch", "torch.functional", "torch.nn.functional", "torch._C._nn"}
    builtin = type(target).__name__ in {"builtin_function_or_method", "method_descriptor"}
    owner = getattr(torch, name, None) is target or getattr(torch._C._nn, name, None) is target
    return functional or (builtin and owner)


def arguments(value: object, node_form: Any) -> Hashable:
    """Return a hashable form of the arguments of a node, with ``node_form(node)`` in place of each node.

    Raises:
        UnlabelledError: for a value that is no number, text, dtype and so on.
    """
    if isinstance(value, Node):
        return ("node", node_form(value))
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        return (type(value).__name__, *(arguments(item, node_form) for item in value))
    if isinstance(value, dict):
        return ("dict", *((name, arguments(item, node_form)) for name, item in value.items()))
    if isinstance(value, slice):
        return ("slice", *(arguments(x, node_form) for x in (value.start, value.stop, value.step)))
    if isinstance(value, _PLAIN):
        return (type(value).__name__, repr(value))
    raise UnlabelledError


def kind_of(value: object) -> Hashable:
    """Return the kind of a value: everything about it on which the trace of a region may depend.

    Raises:
        UnlabelledError: for a value that cannot be an operand or a result of a node of a region.
    """
    if isinstance(value, torch.Tensor):
        return tensor_kind(value)
    if isinstance(value, torch.SymInt):
        return ("size", str(value.node.expr))
    if isinstance(value, (int, float, bool)):
        return (type(value).__name__, repr(value))
    if isinstance(value, (list, tuple)):
        return ("tuple", *map(kind_of, value))
    raise UnlabelledError


def _kind_of_container(value: object) -> Hashable:
    """Return the kind of an operand of ``getitem``, of a list without its items: each item of a long list has a node."""
    return ("items", len(value)) if isinstance(value, (list, tuple)) else kind_of(value)


def tensor_kind(value: torch.Tensor) -> Hashable:
    """Return dtype, device, layout in memory and gradient flag of a tensor.

    Raises:
        UnlabelledError: for a tensor that is not strided, or is a conjugate or negative view.
    """
    if not isinstance(value, FakeTensor) or value.layout is not torch.strided:
        raise UnlabelledError
    if value.is_conj() or value.is_neg() or value.constant is not None:
        raise UnlabelledError
    sizes = tuple(map(str, (*value.shape, *value.stride())))
    return ("tensor", value.dtype, str(value.device), sizes, value.requires_grad)
