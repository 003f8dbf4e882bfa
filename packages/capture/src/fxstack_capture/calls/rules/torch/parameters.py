"""``torch.nn.Parameter(...)``: a new leaf that shares the memory of its data."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import nn

from fxstack_capture.callers import plainly
from fxstack_capture.calls.table import RuleTable
from fxstack_capture.trace.state import Trace

RULES: RuleTable = RuleTable()

_SIGNATURE = inspect.signature(nn.Parameter.__new__)


@RULES.rule(nn.Parameter)
def _make(trace: Trace, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    bound = plainly(_SIGNATURE.bind, (nn.Parameter, *args), kwargs)
    bound.apply_defaults()
    _, data, requires_grad = bound.args
    if data is None:
        data = trace.torch.call(torch.empty, (0,), {})
    return trace.torch.parameter(data, bool(requires_grad))
