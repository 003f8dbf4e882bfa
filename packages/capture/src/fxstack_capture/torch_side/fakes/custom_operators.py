"""Check what the fake function of a custom operator returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from fxstack_capture.breaks import graph_break
from fxstack_capture.torch_compat import FakeTensor, tree_leaves
from fxstack_interchange.operators.custom_operators import custom_operator, described, operator_of


def demand_declared(fn: Callable[..., Any], arguments: object, result: object) -> None:
    """Break the graph if the fake function of a custom operator returns what its operator cannot return."""
    name = custom_operator(fn)
    operator = operator_of(fn) if name else None
    if operator is None:
        return
    returns = operator._schema.returns
    values = result if isinstance(result, (tuple, list)) and len(returns) != 1 else (result,)
    if len(values) != max(1, len(returns)):
        _refuse(name, f"{len(values)} results", f"the operator has {len(returns)}")
    used = {leaf.device.type for leaf in tree_leaves(arguments) if isinstance(leaf, torch.Tensor)}
    for value, declared in zip(values, returns, strict=False):
        if isinstance(declared.type, torch.TensorType) and not isinstance(value, torch.Tensor):
            _refuse(name, f"{value!r}", "the operator returns a tensor")
        for tensor in tree_leaves(value):
            if isinstance(tensor, torch.Tensor):
                _demand_device(name, tensor, used)


def _demand_device(name: str, tensor: torch.Tensor, used: set[str]) -> None:
    device = tensor.device.type
    if not isinstance(tensor, FakeTensor):
        _refuse(name, "a tensor with data", "a fake function makes its results by torch's functions")
    if device in used or device == "cpu":
        return
    if device == "meta" or (device == "cuda" and not torch.cuda.is_available()):
        _refuse(name, f"a tensor on the device {tensor.device}", f"the arguments are on {', '.join(used)}")


def _refuse(name: str, found: str, wanted: str) -> None:
    raise graph_break("fake-function", f"{described(name)} returned {found}, but {wanted}")
