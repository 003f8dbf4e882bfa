"""torch's compiled autograd, which may be on while something is compiled.

It is a mode of torch's autograd engine: a backward pass becomes a graph that a compiler gets. Gradients that a
compiler computes itself, of fake tensors, must not become such graphs. The module of torch is read only if the
program has loaded it.
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
    found: AbstractContextManager[Any] = vars(module)["_disable"]() if is_on else nullcontext()
    return found
