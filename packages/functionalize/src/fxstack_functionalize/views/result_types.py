"""In-place operators on lists whose result does not fit the type of a changed tensor.

Eager raises for them. Torch's fake tensors do not, and functionalisation casts the result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

from fxstack_functionalize.errors import UnsupportedGraphError

_OPERANDS = {
    "_foreach_add_": 2,
    "_foreach_sub_": 2,
    "_foreach_mul_": 2,
    "_foreach_addcmul_": 3,
    "_foreach_addcdiv_": 3,
}
"""How many of the leading arguments decide the type of a result. Torch checks the other operators itself."""


def check_result_types(name: str, args: Sequence[Any]) -> None:
    """Check the call of an operator on lists that changes ``args[0]``.

    Raises:
        UnsupportedGraphError: if a result has a type that cannot be cast to that of its tensor.
    """
    count = len(args[0])
    lists = [
        arg if isinstance(arg, (list, tuple)) else [arg] * count for arg in args[: _OPERANDS.get(name, 0)]
    ]
    known = set()
    for row in zip(*lists, strict=False):
        kind = tuple((x.dtype, x.dim() > 0) if isinstance(x, torch.Tensor) else type(x) for x in row)
        if kind not in known:
            known.add(kind)
            _check_row(name, row)


def _check_row(name: str, row: Sequence[Any]) -> None:
    _, result = elementwise_dtypes(*row, type_promotion_kind=ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT)
    if not torch.can_cast(result, row[0].dtype):
        raise UnsupportedGraphError(
            f"{name!r} gives results of {result} to a tensor of {row[0].dtype}",
            why="eager has an error for it",
            fix="convert the tensors first, or use the out-of-place form of the operator",
        )
