"""Keep torch's own compiler (``torch._dynamo``) unloaded while tracing.

torch marks some of its shape functions with ``disable_dynamo``. The first call of a marked function imports
``torch._dynamo``, only to disable it for the function. The import takes a second. As long as nothing else has
imported ``torch._dynamo``, calling the unmarked function gives the same result. After an import, the marked
function runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from types import CellType, FunctionType
from typing import Any

from torch.fx.experimental import proxy_tensor

from fxstack_capture import torch_compat
from fxstack_capture.torch_compat import FunctionalTensorMode, decomposition_table, meta_table

COMPILER = "torch._dynamo"
_SHORT_CUT = "__dynamo_disable"
"""The attribute in which torch caches the function to call in place of a marked function."""
_MARKED = torch_compat.disable_dynamo(lambda: None).__code__
"""The code object that all marked functions share."""


@cache
def leave_compiler_unloaded() -> None:
    """Let marked functions run without importing torch's compiler, until other code imports it.

    Called before each trace. Only the first call in a process has an effect.
    """
    if COMPILER in sys.modules:
        return
    for marked in _marked_functions():
        function = _closure_values(marked).get("fn")
        if function is not None and not hasattr(function, _SHORT_CUT):
            setattr(function, _SHORT_CUT, _direct(marked, function))


def _direct(marked: Callable[..., Any], function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function to call in place of ``marked`` as long as torch's compiler is not loaded."""

    def call(*args: object, **kwargs: object) -> Any:
        """Call the unmarked function. After the program has loaded torch's compiler, call the marked
        function.
        """
        if COMPILER not in sys.modules:
            return function(*args, **kwargs)
        with suppress(AttributeError):  # another thread has deleted the attribute
            delattr(function, _SHORT_CUT)
        return marked(*args, **kwargs)

    return call


def _marked_functions() -> Iterator[FunctionType]:
    """Yield the marked functions among torch's decompositions, shape functions, references and modes."""
    references = [
        torch_compat.refs,
        torch_compat.functional_refs,
        torch_compat.special_refs,
        torch_compat.linalg_refs,
    ]
    places = [*references, proxy_tensor, proxy_tensor.ProxyTorchDispatchMode, FunctionalTensorMode]
    waiting = [*decomposition_table.values(), *meta_table.values()]
    waiting += [value for holder in places for value in vars(holder).values()]
    seen = set()
    while waiting:
        value = waiting.pop()
        if isinstance(value, FunctionType) and value not in seen:
            seen.add(value)
            if value.__code__ is _MARKED:
                yield value
            waiting += _closure_values(value).values()


def _closure_values(function: FunctionType) -> dict[str, Any]:
    """Return the closure variables of a function by name. The function that a decorator wraps is one of them."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return {name: cell.cell_contents for name, cell in cells if cell != CellType()}
