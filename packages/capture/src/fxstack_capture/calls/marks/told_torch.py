"""Rules for callables of which the program has told torch's compiler, if that is loaded.

``torch._dynamo.disallow_in_graph`` and ``torch.compiler.substitute_in_graph`` leave no mark on a callable, which may
be one of C.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from fxstack_capture.breaks import graph_break
from fxstack_capture.calls.marks.registered import Rule, traced_as
from fxstack_capture.trace.state import Trace


def rules_told_torch() -> dict[int, Rule]:
    """The rules by the id of their callable."""
    rules = dict(_substituted())
    told = getattr(sys.modules.get("torch._dynamo.trace_rules"), "_disallowed_callable_ids", None)
    if told is not None:
        of_torch = {id(value) for value in vars(sys.modules["torch._dynamo.decorators"]).values()}
        rules |= dict.fromkeys((told.function_ids or set()) - of_torch, _disallowed)
    return rules


def _disallowed(_trace: Trace, _args: tuple[Any, ...], _kwargs: dict[str, Any]) -> Any:
    raise graph_break("disallowed", "a function that the program disallowed")


def _substituted() -> Iterator[tuple[int, Rule]]:
    """The substitutes of the program or of a library.

    Torch's own substitutes are made for torch's compiler and are not always exact.
    """
    functions = sys.modules.get("torch._dynamo.variables.functions")
    handlers = {} if functions is None else functions.PolyfilledFunctionVariable._get_polyfill_handlers()
    for fn, wrapper in tuple(handlers.items()):
        substitute = getattr(wrapper, "__torch_dynamo_polyfill__", None)
        module = getattr(substitute, "__module__", None) or ""
        if substitute is not None and not module.startswith("torch."):
            yield id(fn), traced_as(substitute)
