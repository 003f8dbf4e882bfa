"""Functions whose C++ looks at elements only to refuse some: the same results, with the refusal in the graph.

Tracing cannot look at elements, so the graph would run in eager for the sake of a check.
"""

from __future__ import annotations

import torch

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
    aten._assert_async.msg(
        (tensor < num_classes).all(), "Class values must be smaller than num_classes."
    )
    classes = torch.arange(num_classes, dtype=tensor.dtype, device=tensor.device)
    return (tensor.unsqueeze(-1) == classes).to(torch.int64).contiguous()


ONE_HOT = dict.fromkeys((torch.nn.functional.one_hot, aten.one_hot, aten.one_hot.default), one_hot)
"""By every name that a captured graph may call it."""
