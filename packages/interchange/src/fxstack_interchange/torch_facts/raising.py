"""Operators that raise depending on the data of their tensors.

Examples are a bad index, a division by zero, and a singular matrix.

Eager raises even if nothing uses the result, so no stage may drop such a call.
``packages/capture/tests/sweeps/raising.py`` determined the lists below from eager. It calls every operator on
many kinds of data and reports operators that are missing here.
"""

from __future__ import annotations

from functools import cache
from types import MappingProxyType

import torch
from torch.fx import Node

from fxstack_interchange.torch_compat import OpOverload, tree_leaves

_INT = """
    _ctc_loss _embedding_bag _embedding_bag_forward_only _linalg_check_errors
    _pack_padded_sequence bincount div embedding floor_divide fmod gather index index_add
    index_copy index_fill index_put index_reduce index_select linalg_ldl_solve linalg_lu_solve lu_unpack
    max_unpool2d max_unpool3d multi_margin_loss multilabel_margin_loss_forward
    nll_loss2d_forward nll_loss_forward put remainder repeat_interleave scatter scatter_add
    scatter_reduce segment_reduce take
""".split()  # noqa: SIM905 - names
_FLOAT = """
    _histogramdd_bin_edges _histogramdd_from_bin_cts _linalg_eigh _linalg_svd bernoulli
    binary_cross_entropy cholesky cholesky_inverse histc histogram linalg_eig linalg_lstsq
    linalg_pinv multinomial normal poisson
""".split()  # noqa: SIM905 - names
_BOOL = ("masked_scatter",)

SELECT = torch.ops.aten.select.int
_DIVISIONS = frozenset({"div", "floor_divide", "fmod", "remainder"})

DATA_CHECKS: MappingProxyType[str, frozenset[str]] = MappingProxyType(
    {
        name: frozenset(
            kind for kind, names in (("int", _INT), ("float", _FLOAT), ("bool", _BOOL)) if name in names
        )
        for name in sorted({*_INT, *_FLOAT, *_BOOL})
    }
)
"""Maps names of ATen operators to the kinds of tensors for which the operator refuses some elements."""


def kind_of_dtype(dtype: torch.dtype) -> str:
    """Return ``bool``, ``int`` or ``float``. Complex dtypes count as ``float``."""
    if dtype is torch.bool:
        return "bool"
    return "float" if dtype.is_floating_point or dtype.is_complex else "int"


@cache
def refused_kinds(target: object) -> frozenset[str] | None:
    """Return the kinds of tensors for which ``target`` refuses some elements.

    Return None if it accepts all elements.
    """
    if not isinstance(target, OpOverload) or target.namespace != "aten":
        return None
    return DATA_CHECKS.get(target._opname.removesuffix("_"))


def _divides_by_a_number(target: object, args: object) -> bool:
    """Whether the call divides by a Python number other than zero, so it never raises."""
    name = target._opname.removesuffix("_") if isinstance(target, OpOverload) else ""
    if name not in _DIVISIONS or not isinstance(args, tuple) or len(args) < 2:
        return False
    return isinstance(args[1], (int, float)) and args[1] != 0


def refuses_data(target: object, args: object) -> bool:
    """Whether a call with these arguments raises for some data of its tensor arguments."""
    kinds = refused_kinds(target)
    if kinds is None:
        return target is SELECT and any(
            isinstance(x, torch.SymInt) and x.node.hint is None for x in tree_leaves(args)
        )
    if _divides_by_a_number(target, args):
        return False
    tensors = (x for x in tree_leaves(args) if isinstance(x, torch.Tensor))
    return any(kind_of_dtype(x.dtype) in kinds for x in tensors)


def can_raise(node: Node) -> bool:
    """Whether the call of ``node`` raises for some data of its tensor arguments."""
    kinds = refused_kinds(node.target)
    if kinds is None or _divides_by_a_number(node.target, node.args):
        return False
    values = (arg.meta.get("val") for arg in node.all_input_nodes)
    return any(not isinstance(value, torch.Tensor) or kind_of_dtype(value.dtype) in kinds for value in values)
