"""What differs between torch's releases."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import _symbolic_trace

_APPLY: Any = vars(torch.autograd.Function)["apply"]
FUNCTION_APPLY: Any = getattr(_APPLY, "__func__", _APPLY)
"""What ``Function.apply`` calls: a Python function, from torch 2.14 on a class method written in C."""


def may_trace_by_fx() -> bool:
    """Whether FX traces: in this thread from torch 2.14 on, in any thread before."""
    asked = getattr(_symbolic_trace, "_get_is_fx_tracing", None)
    return bool(_symbolic_trace._is_fx_tracing_flag if asked is None else asked())  # type: ignore[attr-defined]
