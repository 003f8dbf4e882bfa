"""Operators that have functions as arguments, as rows of one table.

A row says which arguments of the operator are functions, operands of the function and constants, and what the
call may do (``Kind``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

import torch

from fxstack_capture import torch_compat


class Kind(Enum):
    """What a call of an operator does, and where its gradient comes from."""

    INLINE = auto()
    """The call is a plain call of the function: side effects, writes and aliases are those of the function."""
    PURE = auto()
    """The function computes new tensors. The gradient is that of the function."""
    UNDIFFERENTIABLE = auto()
    """As ``PURE``, but a backward through the results raises. The function runs below autograd, so a tensor that it
    closes over gives the results no history."""
    LOOP = auto()
    """The operator repeats a function while another holds, and stacks the values (``stacked_loop``)."""
    RECORDED = auto()
    """The operator has no function: the call is one node."""


PLAIN_CALLS = frozenset({Kind.INLINE, Kind.PURE})
"""Kinds of operators whose results are those of a plain call of the function."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One row: an operator and the roles of its arguments."""

    name: str
    """The name in ``torch.ops.higher_order``."""
    signature: str
    """The roles of the parameters, written as a signature with the default ``role``: ``"f=function, *x=operands"``.
    The roles: ``function``; ``operands`` (``*x``: the arguments, otherwise a tuple or list of them); ``inputs`` (keyword
    arguments of the function, ``**x`` or a dictionary); ``constant``. Parameters after ``;`` stay keywords of the node."""
    attribute: str = ""
    """The beginning of the attribute name of the function's graph."""
    kind: Kind = Kind.PURE
    state: Callable[..., Any] | None = None
    """Return the context in which the function runs, from the constants in their order."""
    keeps_meta: bool = False
    """Whether the metadata of a function that is a ``GraphModule`` belongs to the operator."""
    is_shared: bool = False
    """Whether calls of functions with equal graphs have one ``GraphModule``."""


def _grad_mode(enabled: bool) -> Any:
    return torch.set_grad_enabled(enabled)


def _autocast(device_type: str, dtype: Any, enabled: bool, cache_enabled: bool | None) -> Any:
    return torch.autocast(device_type, dtype, enabled, cache_enabled)


_PASSES_OPERANDS = "f=function, *x=operands; **options=constant"

OPERATORS = (
    Operator("wrap", "f=function, *x=operands, **y=inputs", "wrap_body", Kind.INLINE),
    Operator(
        "wrap_with_set_grad_enabled",
        "enabled=constant, f=function, *x=operands, **y=inputs",
        "wrap_body",
        Kind.INLINE,
        state=_grad_mode,
    ),
    Operator(
        "wrap_with_autocast",
        "device=constant, dtype=constant, enabled=constant, cache=constant, f=function, *x=operands, **y=inputs",
        "wrap_body",
        Kind.INLINE,
        state=_autocast,
    ),
    Operator("local_map_hop", "f=function, *x=operands", "subgraph", Kind.INLINE, keeps_meta=True),
    Operator(
        "invoke_subgraph",
        "f=function, identifier=constant, *x=operands, **y=inputs",
        "subgraph",
        Kind.INLINE,
        is_shared=True,
    ),
    Operator("foreach_map", _PASSES_OPERANDS, "subgraph"),
    Operator("invoke_quant", _PASSES_OPERANDS, "subgraph"),
    Operator("invoke_quant_packed", _PASSES_OPERANDS, "subgraph"),
    Operator(
        "hints_wrapper",
        "body_fn=function, args=operands, kwargs=inputs; hints=constant",
        "hints_wrapper_body",
        Kind.UNDIFFERENTIABLE,
    ),
    Operator(
        "strict_mode", "callable=function, operands=operands", "strict_mode_body", Kind.UNDIFFERENTIABLE
    ),
    Operator("run_const_graph", "graph=function, args=operands", "const_graph", Kind.UNDIFFERENTIABLE),
    Operator(
        "flex_gemm",
        "gemm_op=constant, body_fn=function, args=operands, kwargs=constant, kernel_options=constant",
        "flex_gemm_body",
        Kind.UNDIFFERENTIABLE,
    ),
    Operator("while_loop_stack_output", "", "while_loop_stack_output", Kind.LOOP),
    Operator("out_dtype", "", kind=Kind.RECORDED),
    Operator("print", "", kind=Kind.RECORDED),
    Operator("call_torchbind", "", kind=Kind.RECORDED),
    Operator("inline_asm_elementwise", "", kind=Kind.RECORDED),
)
"""The operators with a row. The order has no meaning."""


_BY_NAME = {row.name: row for row in OPERATORS}
_SUBGRAPH_OPERATOR = Operator("", _PASSES_OPERANDS, "subgraph")
"""The row of all operators that torch derives from ``BaseHOP``, which calls one function with the operands."""


def row_of(operator: Any) -> Operator | None:
    """Return the row of a higher-order operator, or None."""
    row = _BY_NAME.get(operator.name())
    if row is None and isinstance(operator, torch_compat.BaseHOP):
        return _SUBGRAPH_OPERATOR
    return row
