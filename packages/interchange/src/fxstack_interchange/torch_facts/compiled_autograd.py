"""Suspend torch's compiled autograd during a compilation.

Compiled autograd is a mode of torch's autograd engine: it records each backward pass as a graph for a compiler.
Gradients of fake tensors, which a compiler computes while it traces, must not be recorded. The module of torch is
read only if the program has loaded it.
"""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final

MODULE: Final = "torch._dynamo.compiled_autograd"


def without_compiled_autograd() -> AbstractContextManager[Any]:
    """Turn compiled autograd off inside the context."""
    module = sys.modules.get(MODULE)
    is_on = getattr(module, "compiled_autograd_enabled", False)
    context: AbstractContextManager[Any] = vars(module)["_disable"]() if is_on else nullcontext()
    return context
