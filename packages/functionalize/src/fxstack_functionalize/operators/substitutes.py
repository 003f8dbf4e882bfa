"""Replacements of functions by other operators with equal results, which suit a trace better.

``one_hot`` in C++ reads elements only to reject invalid ones. Tracing cannot read elements, so this check
would make the graph run in eager. After ``unbind``, a change of one row makes torch compute all rows again
when the next row is used. This takes quadratic time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

aten = torch.ops.aten


def one_hot(tensor: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    """Return ``torch.nn.functional.one_hot`` without reading elements, if ``num_classes`` is given.

    Without ``num_classes``, call torch's function: the size of its result depends on data.

    Raises:
        RuntimeError: if eager raises without reading elements.
    """
    if num_classes == -1:
        return torch.nn.functional.one_hot(tensor, num_classes)
    if tensor.dtype is not torch.int64:
        raise RuntimeError("one_hot is only applicable to index tensor of type LongTensor.")
    if num_classes <= 0 and tensor.numel() == 0:
        raise RuntimeError("Can not infer total number of classes from empty tensor.")
    aten._assert_async.msg((tensor >= 0).all(), "Class values must be non-negative.")
    aten._assert_async.msg((tensor < num_classes).all(), "Class values must be smaller than num_classes.")
    classes = torch.arange(num_classes, dtype=tensor.dtype, device=tensor.device)
    return (tensor.unsqueeze(-1) == classes).to(torch.int64).contiguous()


ONE_HOT = dict.fromkeys((torch.nn.functional.one_hot, aten.one_hot, aten.one_hot.default), one_hot)
"""All names by which a captured graph may call ``one_hot``."""


def select_rows(function: object, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return the result of ``unbind`` or of an iteration, made by ``select``. Return None if this is not possible.

    This is not possible for other functions, in grad mode, and for a symbolic number of rows.
    """
    name = getattr(function, "__name__", None)
    if name not in {"unbind", "__iter__"} or torch.is_grad_enabled():
        return None
    tensor, dim = args[0], args[1] if len(args) > 1 else kwargs.get("dim", 0)
    plain = type(dim) is int and tensor.layout is torch.strided and not tensor.is_nested
    if not plain or not -tensor.dim() <= dim < tensor.dim() or type(tensor.shape[dim]) is not int:
        return None
    selected = tuple(tensor.select(dim, index) for index in range(tensor.shape[dim]))
    return selected if name == "unbind" else iter(selected)
