"""``torch._check`` of a data-dependent number in a function of a higher-order operator.

In the outer graph the trace assumes the condition, and the graph asserts the condition. In a nested graph the
condition holds only if the function runs. Therefore the condition becomes an assertion of the nested graph,
and the outer graph does not rely on the condition.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols, statically_known_true

from fxstack_capture import torch_compat
from fxstack_capture.breaks import graph_break
from fxstack_capture.torch_side.recording.protocol import TracerProtocol
from fxstack_capture.trace.state import Args, Kwargs

_ASSERT = torch.ops.aten._assert_scalar.default
_UNSAID = (
    "Expected cond to be True, but got False. (Could this error message be improved? If so, "
    "please report an enhancement request to PyTorch.)"
)
_FACTS = {torch_compat.check: lambda condition: condition, torch_compat.check_is_size: lambda size: size >= 0}


def check_number(tracer: TracerProtocol, fn: Callable[..., Any], args: Args, kwargs: Kwargs) -> Any:
    """Apply the rule for ``torch._check`` and relatives. A condition on symbols becomes an assertion of the graph."""
    if not args or not isinstance(args[0], (torch.SymBool, torch.SymInt)):
        return tracer.trace.interp.call_function(fn, args, kwargs)
    region = tracer.assumptions.region
    symbols = free_unbacked_symbols(args[0]) if region is not None else set()
    if not symbols:
        return fn(args[0])
    if fn not in _FACTS or not tracer.assumptions.may_assert:
        raise graph_break("unsupported-call", f"torch.{fn.__name__} in a function of an operator")
    fact = _FACTS[fn](args[0])
    if not statically_known_true(fact):
        _write(tracer, fact, _message(tracer, *args[1:], **kwargs))
        if are_computed_after(tracer, region, symbols):
            fn(args[0])
    return None


def _write(tracer: TracerProtocol, fact: torch.SymBool, message: str) -> None:
    """Add the assertion of a fact to the nested graph."""
    builder = tracer.builder
    node = builder.add("call_function", _ASSERT, (builder.argument(fact, []), message), {})
    node.meta.update(val=None, example_value=None)
    tracer.annotate(node)


def _message(tracer: TracerProtocol, message: object = None, **_more: object) -> str:
    """Return the text of a failed check, which the program may compute by a function."""
    return _UNSAID if message is None else str(tracer.trace.calls.call(message, (), {}))


def are_computed_after(tracer: TracerProtocol, region: fx.Node, symbols: Iterable[Any]) -> bool:
    """Return whether the nodes after ``region``, where a nested graph begins, compute all of the symbols."""
    return all(tracer.symbols.is_after(symbol, region) for symbol in symbols)


def has_outside_assumption(tracer: TracerProtocol, region: fx.Node, before: set[Any]) -> bool:
    """Return whether tracing the nested graph added an assumption about a number that an outer node computes.

    ``region`` is the node before the nested graph, ``before`` the ``facts`` at that point.
    """
    symbols = {symbol for fact in facts(tracer) - before for symbol in free_unbacked_symbols(fact)}
    # a symbol that nothing computes is the offset or size of a view, and the view itself is the assertion
    return not are_computed_after(tracer, region, filter(tracer.symbols.can_compute, symbols))


def facts(tracer: TracerProtocol) -> set[Any]:
    """Return the assumptions of the trace so far about data-dependent numbers, as sympy expressions."""
    if not tracer.geometry.is_used:
        return set()
    assertion_lists = tracer.geometry.env.deferred_runtime_asserts.values()
    return {assertion.expr for assertions in assertion_lists for assertion in assertions}
