"""Functions that have the same results by other operators, which suit a trace better.

``one_hot`` in C++ looks at elements only to refuse some: tracing cannot, and the graph would run in eager for the sake of a
check. ``unbind`` makes all rows anew when one was changed and another is used next, in a time of the square of the rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

aten = torch.ops.aten


def one_hot(tensor: torch.Tensor, num_classes: int = -1) -> torch.Tensor:
    """``torch.nn.functional.one_hot``; without ``num_classes`` the result's size is an element, which is traced as such.

    Raises:
        RuntimeError: what eager refuses without looking at elements.
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
"""By every name that a captured graph may call it."""


def rows(function: object, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """``Tensor.unbind`` and iteration by ``select``; None for other functions and where autograd would tell views apart."""
    name = getattr(function, "__name__", None)
    if name not in {"unbind", "__iter__"} or torch.is_grad_enabled():
        return None
    tensor, dim = args[0], args[1] if len(args) > 1 else kwargs.get("dim", 0)
    plain = type(dim) is int and tensor.layout is torch.strided and not tensor.is_nested
    if not plain or not -tensor.dim() <= dim < tensor.dim() or type(tensor.shape[dim]) is not int:
        return None
    found = tuple(tensor.select(dim, index) for index in range(tensor.shape[dim]))
    return found if name == "unbind" else iter(found)
